use proptest::prelude::*;

use super::*;

fn pack(spec: &TensorSpec, config: &Config, images: &[&[i16]]) -> Option<Vec<u8>> {
    let images = TensorImages::new(spec, config, images).ok()?;
    let mut tiles = vec![0; images.packed_bytes() as usize];
    images.pack_into(&mut tiles);
    Some(tiles)
}
use crate::BufferId;

fn spec(chw: [u32; 3], packing: Packing) -> TensorSpec {
    TensorSpec {
        name: "x".into(),
        buffer: BufferId(0),
        offset_bytes: 0,
        chw,
        scale: 1.0,
        zero: 0,
        packing,
    }
}

/// Inputs of 16 bits, or of 8.
fn of_width(config: Config, wide: bool) -> Config {
    config.with_tensors_of(if wide { 16 } else { 8 })
}

/// A value of that width from any bits.
fn value(bits: u64, wide: bool) -> i16 {
    if wide {
        bits as i16
    } else {
        (bits as i8).into()
    }
}

fn batch2() -> Config {
    Config::from_json(r#"{"LOG_BATCH": 1, "LOG_BLOCK": 4}"#).unwrap()
}

/// As [`pack`] on so many threads.
fn in_bands(spec: &TensorSpec, config: &Config, images: &[&[i16]], threads: usize) -> Vec<u8> {
    let images = TensorImages::new(spec, config, images).unwrap();
    let mut tiles = vec![99; images.packed_bytes() as usize];
    images.pack_by(&Packers::for_any_size(threads), &mut tiles);
    tiles
}

proptest! {
    #[test]
    fn unpack_inverts_pack(c in 1u32..40, h in 1u32..7, w in 1u32..7, two in any::<bool>(), seed in any::<u64>(), bands in 1usize..6, wide in any::<bool>()) {
        let config = of_width(if two { batch2() } else { Config::default() }, wide);
        let spec = spec([c, h, w], Packing::Tiles);
        let image = |k: u64| -> Vec<i16> {
            (0..spec.image_len() as u64).map(|i| value(seed.wrapping_mul(i * 2 + 1 + k) >> 33, wide)).collect()
        };
        let images: Vec<_> = (0..config.batch() as u64).map(image).collect();
        let refs: Vec<_> = images.iter().map(Vec::as_slice).collect();
        let packed = pack(&spec, &config, &refs).unwrap();
        let other = vec![77; spec.image_len()];
        let mut again = TensorImages::new(&spec, &config, &vec![&other[..]; config.batch()]).unwrap();
        again.replace(&refs[..1]).unwrap();
        let mut bytes = vec![99; packed.len()];
        again.pack_into(&mut bytes);
        prop_assert_eq!(&bytes, &pack(&spec, &config, &refs[..1]).unwrap());
        prop_assert_eq!(in_bands(&spec, &config, &refs[..1], bands), bytes);
        prop_assert_eq!(&in_bands(&spec, &config, &refs, bands), &packed);
        prop_assert_eq!(unpack(&spec, &config, &packed).unwrap(), images);
    }

    #[test]
    fn im2col_gathers_the_patches(
        c in 1usize..4, h in 1usize..9, w in 1usize..14, k in (1usize..4, 1usize..12),
        s in (1usize..4, 1usize..4), d in (1usize..3, 1usize..3), pads in prop::array::uniform4(0u32..3), seed in any::<u64>(),
        zero in prop_oneof![Just(0u64), any::<u64>()], bands in 1usize..6, column in any::<bool>(), wide in any::<bool>(),
    ) {
        let config = of_width(Config::default(), wide);
        let zero = value(zero, wide);
        // Half of the images are one column, as those of a sound are.
        let (h, w, k, pads) = match column {
            true => (w, 1, (k.1, 1), [pads[0], 0, pads[2], 0]),
            false => (h, w, k, pads),
        };
        let packing = Packing::Im2col {
            kernel: [k.0 as u32, k.1 as u32], stride: [s.0 as u32, s.1 as u32], dilation: [d.0 as u32, d.1 as u32], pads,
        };
        let spec = TensorSpec { zero, ..spec([c as u32, h as u32, w as u32], packing) };
        let image: Vec<i16> = (0..c * h * w).map(|i| value(seed.wrapping_mul(i as u64 * 2 + 1) >> 40, wide)).collect();
        let Some(packed) = pack(&spec, &config, &[&image]) else {
            prop_assert!(h + (pads[0] + pads[2]) as usize <= d.0 * (k.0 - 1) || w + (pads[1] + pads[3]) as usize <= d.1 * (k.1 - 1));
            return Ok(());
        };
        let mut again = vec![99; packed.len()];
        TensorImages::new(&spec, &config, &[&image]).unwrap().pack_into(&mut again);
        prop_assert_eq!(&again, &packed);
        prop_assert_eq!(&in_bands(&spec, &config, &[&image], bands), &packed);
        let oh = (h + (pads[0] + pads[2]) as usize - d.0 * (k.0 - 1) - 1) / s.0 + 1;
        let ow = (w + (pads[1] + pads[3]) as usize - d.1 * (k.1 - 1) - 1) / s.1 + 1;
        for col in 0..(c * k.0 * k.1).next_multiple_of(16) {
            for i in 0..oh { for j in 0..ow {
                let at = (col / 16 * oh * ow + i * ow + j) * 16 + col % 16;
                let got = number(&packed, if wide { 16 } else { 8 }, at) as i16;
                let (ch, y, x) = (col / (k.0 * k.1), col / k.1 % k.0, col % k.1);
                let r = (i * s.0 + y * d.0) as i64 - i64::from(pads[0]);
                let q = (j * s.1 + x * d.1) as i64 - i64::from(pads[1]);
                let inside = ch < c && (0..h as i64).contains(&r) && (0..w as i64).contains(&q);
                let padding = if ch < c { zero } else { 0 };
                let want = if inside { image[ch * h * w + r as usize * w + q as usize] } else { padding };
                prop_assert_eq!(got, want);
            } }
        }
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let spec = spec([3, 2, 2], Packing::Tiles);
    let config = Config::default();
    assert!(pack(&spec, &config, &[&[0; 11]]).is_none());
    assert!(pack(&spec, &config, &[&[0; 12], &[0; 12]]).is_none());
    assert!(unpack(&spec, &config, &[0; 63]).is_none());
}

#[test]
fn values_beyond_the_machine_s_are_refused() {
    let spec = spec([3, 2, 2], Packing::Tiles);
    for (value, fits) in [
        (127, true),
        (-128, true),
        (128, false),
        (-129, false),
        (i16::MAX, false),
    ] {
        let image = [0, 0, 0, value, 0, 0, 0, 0, 0, 0, 0, 0];
        for (wide, fits) in [(false, fits), (true, true)] {
            let config = of_width(Config::default(), wide);
            assert_eq!(pack(&spec, &config, &[&image]).is_some(), fits, "{value}");
        }
    }
}

#[test]
fn sizes_that_overflow_are_no_sizes() {
    let config = Config::default();
    let huge = spec([u32::MAX; 3], Packing::Tiles);
    assert_eq!(huge.image_len(), usize::MAX);
    assert_eq!(huge.packed_bytes(&config), None);
    assert!(pack(&huge, &config, &[]).is_none() && unpack(&huge, &config, &[]).is_none());
    // Empty, although a product of the other two overflows with the lanes.
    let empty = spec([u32::MAX, u32::MAX, 0], Packing::Tiles);
    assert_eq!(empty.image_len(), 0);
    assert_eq!(unpack(&empty, &config, &[]).unwrap(), [vec![0i16; 0]]);
    let window = |kernel, stride, dilation, pads| Packing::Im2col {
        kernel,
        stride,
        dilation,
        pads,
    };
    let max = [u32::MAX; 2];
    for packing in [
        window(max, [1; 2], max, [u32::MAX; 4]),
        window([0, 1], [1; 2], [1; 2], [0; 4]),
        window([1; 2], [0, 1], [1; 2], [0; 4]),
        window([1; 2], [1; 2], [1; 2], [u32::MAX; 4]),
        // 144 bytes of a gigabyte of padding.
        window([1; 2], [1 << 14; 2], [1; 2], [1 << 14; 4]),
        // 2^36 bytes from one value.
        window([1; 2], [1; 2], [1; 2], [1 << 15; 4]),
    ] {
        let spec = spec([1, 1, 1], packing);
        assert!(
            pack(&spec, &config, &[&[1]]).is_none(),
            "{:?}",
            spec.packing
        );
    }
}
