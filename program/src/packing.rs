//! Between NCHW int8 images and the tiles of device memory.

mod bands;
mod images;
mod patches;
mod tile;
mod write;

use vta_isa::Config;

pub use self::bands::Packers;
pub use self::images::{ImagesError, TensorImages};
use self::tile::Tile;
pub use self::write::MAX_PACKED_BYTES;
use self::write::{pack_all, packed_len};

use crate::{Packing, PhysAddr, TensorSpec};

/// The most int8 values of one image in a program: 1 Gi, far beyond what devices hold.
pub const MAX_IMAGE_LEN: u64 = 1 << 30;

impl TensorSpec {
    /// int8 elements of one image: C * H * W. `usize::MAX` when that overflows, which
    /// [`Program::validate`](crate::Program::validate) refuses.
    pub fn image_len(&self) -> usize {
        let [c, h, w] = self.chw.map(|d| d as usize);
        let len = c.checked_mul(h).and_then(|n| n.checked_mul(w));
        // Any dimension of zero makes an empty image, also where the others overflow.
        let empty = self.chw.contains(&0);
        len.unwrap_or(if empty { 0 } else { usize::MAX })
    }

    /// Where it starts, by the addresses of the program's buffers. The program is validated, so that
    /// the tensor lies within its buffer.
    pub fn address(&self, buffers: &[PhysAddr]) -> PhysAddr {
        let PhysAddr(start) = buffers[self.buffer.0 as usize];
        PhysAddr(start.wrapping_add(self.offset_bytes as u32))
    }

    /// Rows of tiles as packed: `(blocks, positions)` with `positions` tiles in each block, see
    /// [`Self::positions`]. `None` when the window doesn't fit the image or a size overflows.
    pub fn packed_dims(&self, config: &Config) -> Option<(usize, usize)> {
        let channels = self.chw[0] as usize;
        let columns = match &self.packing {
            Packing::Tiles => channels,
            Packing::Im2col { kernel, .. } => channels
                .checked_mul(kernel[0] as usize)?
                .checked_mul(kernel[1] as usize)?,
        };
        let [rows, width] = self.positions()?;
        Some((columns.div_ceil(config.block()), rows.checked_mul(width)?))
    }

    /// Bytes of the tensor in device memory; `None` as for [`Self::packed_dims`].
    pub fn packed_bytes(&self, config: &Config) -> Option<u64> {
        let (blocks, positions) = self.packed_dims(config)?;
        (blocks as u64)
            .checked_mul(positions as u64)?
            .checked_mul(config.lanes() as u64)
    }

    /// Rows and columns of positions, each of which has a tile in every block: the image's, or for
    /// [`Packing::Im2col`] those of the convolution's output. `None` when the window doesn't fit the
    /// padded image, doesn't step, or a size overflows.
    pub fn positions(&self) -> Option<[usize; 2]> {
        let Packing::Im2col {
            kernel,
            stride,
            dilation,
            pads,
        } = &self.packing
        else {
            return Some([self.chw[1] as usize, self.chw[2] as usize]);
        };
        let axis = |a: usize| {
            let size = (self.chw[a + 1] as usize)
                .checked_add(pads[a] as usize)?
                .checked_add(pads[a + 2] as usize)?;
            let span = (dilation[a] as usize).checked_mul((kernel[a] as usize).checked_sub(1)?)?;
            let room = size.checked_sub(span.checked_add(1)?)?;
            room.checked_div(stride[a] as usize)?.checked_add(1)
        };
        Some([axis(0)?, axis(1)?])
    }
}

/// Packs up to BATCH images (each NCHW int8, `spec.image_len()` long) into device layout;
/// batch rows without an image and channels beyond C are zero, padding is the tensor's zero point.
///
/// Returns `None` when there are more images than batch rows, an image has another length, the
/// spec is inconsistent, or the packed tensor exceeds [`MAX_PACKED_BYTES`] or the host's memory.
///
/// ```
/// use vta_program::packing::{pack, unpack};
/// use vta_program::{BufferId, Packing, TensorSpec};
/// use vta_isa::Config;
///
/// let config = Config::default();
/// let mut spec = TensorSpec {
///     name: "x".into(), buffer: BufferId(0), offset_bytes: 0, chw: [2, 1, 3], scale: 1.0, zero: 0, packing: Packing::Tiles,
/// };
/// let image = [1, 2, 3, -1, -2, -3];
///
/// // Tiles: one tile of sixteen channels for each of three pixels.
/// let tiles = pack(&spec, &config, &[&image]).expect("one image of six values");
/// assert_eq!(tiles.len(), 3 * 16);
/// assert_eq!(tiles[16..18], [2, -2i8 as u8]);
/// assert_eq!(unpack(&spec, &config, &tiles).expect("tiles can be unpacked"), [image]);
///
/// // Im2col of a 1x2 kernel: two columns for each of two channels, at each of two positions.
/// spec.packing = Packing::Im2col { kernel: [1, 2], stride: [1, 1], dilation: [1, 1], pads: [0; 4] };
/// let patches = pack(&spec, &config, &[&image]).expect("the kernel fits");
/// assert_eq!(patches[..4], [1, 2, -1i8 as u8, -2i8 as u8]);
/// assert_eq!(patches[16..20], [2, 3, -2i8 as u8, -3i8 as u8]);
/// ```
pub fn pack(spec: &TensorSpec, config: &Config, images: &[&[i8]]) -> Option<Vec<u8>> {
    let bytes = packed_len(spec, config, images)?;
    let mut out = Vec::new();
    out.try_reserve_exact(bytes).ok()?;
    out.resize(bytes, 0u8);
    let tile = Tile::of(config);
    pack_all(spec, tile, images, &mut out, &Packers::default());
    Some(out)
}

/// The inverse of [`pack`] for [`Packing::Tiles`]: BATCH images of NCHW int8. `None` for
/// im2col tensors, which aren't invertible, and for bytes of another length.
pub fn unpack(spec: &TensorSpec, config: &Config, bytes: &[u8]) -> Option<Vec<Vec<i8>>> {
    if spec.packing != Packing::Tiles || bytes.len() as u64 != spec.packed_bytes(config)? {
        return None;
    }
    let (block, lanes) = (config.block(), config.lanes());
    let [c, h, w] = spec.chw.map(|d| d as usize);
    if spec.image_len() == 0 {
        return Some(vec![Vec::new(); config.batch()]);
    }
    // The packed bytes are there and at least as many as the values, so no product overflows.
    let image = |row: usize| {
        let mut out = Vec::with_capacity(c * h * w);
        for channel in 0..c {
            let first = channel / block * h * w * lanes + row * block + channel % block;
            out.extend(
                bytes
                    .iter()
                    .skip(first)
                    .step_by(lanes)
                    .take(h * w)
                    .map(|&b| b as i8),
            );
        }
        out
    };
    Some((0..config.batch()).map(image).collect())
}

#[cfg(test)]
mod tests;
