//! Writes the tiles of images.

use vta_isa::{Config, MemType};

use super::bands::{Band, Packers};
use super::patches::Patches;
use super::value_bytes;
use crate::TensorSpec;

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
    // Patches write whole blocks, tiles only channels that there are.
    let whole = patches.is_some() || (spec.chw[0] as usize).is_multiple_of(config.block());
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
                1 => pack_tiles::<1>(spec, config, image, &mut band),
                _ => pack_tiles::<2>(spec, config, image, &mut band),
            }
        }
    });
}

/// Writes the tiles of an image of values of so many bytes, and its batch row.
fn pack_tiles<const BYTES: usize>(
    spec: &TensorSpec,
    config: &Config,
    (row, image): (usize, &&[u8]),
    band: &mut Band<'_>,
) {
    let (block, lanes) = (config.block(), config.lanes());
    let [height, width] = [spec.chw[1] as usize, spec.chw[2] as usize];
    let plane = height * width;
    if plane == 0 {
        return;
    }
    let inside = band.rows.start * width..band.rows.end * width;
    for (channel, values) in image.as_chunks::<BYTES>().0.chunks_exact(plane).enumerate() {
        let first = row * block + channel % block;
        let out = band.blocks[channel / block].as_chunks_mut::<BYTES>().0;
        let values = &values[inside.clone()];
        for (to, &value) in out[first..].iter_mut().step_by(lanes).zip(values) {
            *to = value;
        }
    }
}
