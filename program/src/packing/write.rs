//! Writes the tiles of images.

use std::ops::Range;

use vta_isa::{Config, MemType};

use super::bands::{Band, Packers};
use super::patches::Patches;
use super::value_bytes;
use crate::{Packing, TensorSpec};

/// The most bytes of a packed tensor: what a device's 32-bit addresses reach.
pub const MAX_PACKED_BYTES: u64 = 1 << 32;

/// Bytes of the packed images, if they can be packed.
pub(super) fn packed_len(spec: &TensorSpec, config: &Config, images: &[&[i16]]) -> Option<usize> {
    if images.len() > config.batch() || images.iter().any(|x| x.len() != spec.image_len()) {
        return None;
    }
    let bytes = spec.packed_bytes(config);
    let bytes = bytes.filter(|&n| n <= MAX_PACKED_BYTES && value_bytes(config) <= 2);
    usize::try_from(bytes?).ok()
}

/// Packs images, whose number and lengths [`packed_len`] has found right, into as many bytes as it
/// has said. Every byte is written.
pub(super) fn pack_all(
    spec: &TensorSpec,
    config: &Config,
    images: &[&[u8]],
    out: &mut [u8],
    packers: &Packers,
) {
    let Some([rows, width]) = spec.positions() else {
        return;
    };
    let patches = Patches::of(spec, config, images, out.len());
    // Patches write whole blocks, the other ways only channels and columns that there are.
    let whole = match spec.packing {
        Packing::Tiles => (spec.chw[0] as usize).is_multiple_of(config.block()),
        Packing::Im2col { .. } => patches.is_some(),
    };
    let row_bytes = width * config.elem_bytes(MemType::Inp);
    packers.each_band(out, [rows, row_bytes], |mut band| {
        if !whole || images.len() < config.batch() {
            band.blocks.iter_mut().for_each(|block| block.fill(0));
        }
        if let Some(patches) = &patches {
            return patches.pack(&mut band);
        }
        for image in images.iter().enumerate() {
            match value_bytes(config) {
                1 => pack_image::<1>(spec, config, image, &mut band),
                _ => pack_image::<2>(spec, config, image, &mut band),
            }
        }
    });
}

/// Writes an image of values of so many bytes.
fn pack_image<const BYTES: usize>(
    spec: &TensorSpec,
    config: &Config,
    (row, image): (usize, &&[u8]),
    band: &mut Band<'_>,
) {
    let image = image.as_chunks::<BYTES>().0;
    let blocks = band.blocks.iter_mut();
    let blocks = blocks.map(|block| block.as_chunks_mut::<BYTES>().0);
    let mut band = Values {
        rows: band.rows.clone(),
        blocks: blocks.collect(),
    };
    match &spec.packing {
        Packing::Tiles => pack_tiles(spec, config, (row, image), &mut band),
        Packing::Im2col { .. } => pack_im2col(spec, config, (row, image), &mut band),
    }
}

/// A [`Band`], by values.
struct Values<'a, const BYTES: usize> {
    rows: Range<usize>,
    blocks: Vec<&'a mut [[u8; BYTES]]>,
}

/// Writes the tiles of an image and its batch row.
fn pack_tiles<const BYTES: usize>(
    spec: &TensorSpec,
    config: &Config,
    (row, image): (usize, &[[u8; BYTES]]),
    band: &mut Values<'_, BYTES>,
) {
    let (block, lanes) = (config.block(), config.lanes());
    let [height, width] = [spec.chw[1] as usize, spec.chw[2] as usize];
    let plane = height * width;
    if plane == 0 {
        return;
    }
    let inside = band.rows.start * width..band.rows.end * width;
    for (channel, values) in image.chunks_exact(plane).enumerate() {
        let first = row * block + channel % block;
        let out = &mut band.blocks[channel / block];
        let values = &values[inside.clone()];
        for (to, &value) in out[first..].iter_mut().step_by(lanes).zip(values) {
            *to = value;
        }
    }
}

/// Writes the patches of an image and its batch row.
fn pack_im2col<const BYTES: usize>(
    spec: &TensorSpec,
    config: &Config,
    (row, image): (usize, &[[u8; BYTES]]),
    band: &mut Values<'_, BYTES>,
) {
    let (
        Packing::Im2col {
            kernel,
            stride,
            dilation,
            pads,
        },
        Some([_, ow]),
    ) = (&spec.packing, spec.positions())
    else {
        return;
    };
    let (block, lanes) = (config.block(), config.lanes());
    let zero: [u8; BYTES] = std::array::from_fn(|at| spec.zero.to_le_bytes()[at]);
    let [c, h, w] = spec.chw.map(|d| d as usize);
    let [kh, kw] = kernel.map(|k| k as usize);
    let [sy, sx] = stride.map(|s| s as usize);
    // The outputs whose tap lies inside the image: those before see the left padding, those
    // after the right one.
    let inside = |x: usize| {
        let tap = x * dilation[1] as usize;
        let pad = pads[1] as usize;
        let first = pad.saturating_sub(tap).div_ceil(sx);
        let end = (w + pad).saturating_sub(tap).div_ceil(sx).min(ow);
        first..end.max(first)
    };
    let columns: Vec<_> = (0..kw).map(inside).collect();
    // Row by row of the output, so that what is written stays in the cache.
    for (i, own) in band.rows.clone().zip(0..) {
        for col in 0..c * kh * kw {
            let (channel, y, x) = (col / (kh * kw), col / kw % kh, col % kw);
            let out = &mut band.blocks[col / block];
            let first = own * ow * lanes + row * block + col % block;
            if spec.zero != 0 {
                let to = out[first..].iter_mut().step_by(lanes);
                to.take(ow).for_each(|to| *to = zero);
            }
            let source = (i * sy + y * dilation[0] as usize).checked_sub(pads[0] as usize);
            let Some(source_row) = source.filter(|&r| r < h) else {
                continue;
            };
            let range = columns[x].clone();
            if range.is_empty() {
                continue;
            }
            let skip = range.start * sx + x * dilation[1] as usize - pads[1] as usize;
            let values = &image[(channel * h + source_row) * w..][skip..w];
            let to = out[first + range.start * lanes..].iter_mut().step_by(lanes);
            for (to, &value) in to.zip(values.iter().step_by(sx)).take(range.len()) {
                *to = value;
            }
        }
    }
}
