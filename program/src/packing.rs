//! Between NCHW images and the tiles of device memory. Their values are int8, or int16 where inputs and outputs of the
//! machine have 16 bits; int16 holds both.

mod bands;
#[cfg(target_arch = "x86_64")]
mod fours;
mod images;
mod patches;
mod threads;
mod write;

use vta_isa::{Config, MemType, number};

pub use self::bands::Packers;
pub use self::images::{ImagesError, TensorImages};
pub use self::threads::Threads;
pub use self::write::MAX_PACKED_BYTES;

use crate::{Packing, PhysAddr, TensorSpec};

/// The most values of one image in a program: 1 Gi, far beyond what devices hold.
pub const MAX_IMAGE_LEN: u64 = 1 << 30;

/// Bytes of a value in the machine's inputs.
const fn value_bytes(config: &Config) -> usize {
    config.width(MemType::Inp) / 8
}

/// Weights in 4 bits each, as LOADs of WGT4 read them: the first of two in a byte's lower half.
pub fn halves(weights: &[u8]) -> Vec<u8> {
    let byte = |two: &[u8]| two.iter().rev().fold(0, |byte, half| byte << 4 | half & 15);
    weights.chunks(2).map(byte).collect()
}

impl TensorSpec {
    /// Values of one image: C * H * W. `usize::MAX` when that overflows, which
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
            .checked_mul(config.elem_bytes(MemType::Inp) as u64)
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

/// The inverse of [`TensorImages::pack_into`] for [`Packing::Tiles`]: BATCH images, NCHW. `None` for
/// im2col tensors, which aren't invertible, and for bytes of another length.
pub fn unpack(spec: &TensorSpec, config: &Config, bytes: &[u8]) -> Option<Vec<Vec<i16>>> {
    if spec.packing != Packing::Tiles || bytes.len() as u64 != spec.packed_bytes(config)? {
        return None;
    }
    let (block, lanes) = (config.block(), config.lanes());
    let width = 8 * value_bytes(config);
    let [c, h, w] = spec.chw.map(|d| d as usize);
    if spec.image_len() == 0 {
        return Some(vec![Vec::new(); config.batch()]);
    }
    // The packed bytes are there and at least as many as the values, so no product overflows.
    let image = |row: usize| {
        let mut out = Vec::with_capacity(c * h * w);
        for channel in 0..c {
            let first = channel / block * h * w * lanes + row * block + channel % block;
            let places = (first..).step_by(lanes).take(h * w);
            match width {
                8 => out.extend(places.map(|at| i16::from(bytes[at] as i8))),
                _ => out.extend(places.map(|at| number(bytes, width, at) as i16)),
            }
        }
        out
    };
    Some((0..config.batch()).map(image).collect())
}

#[cfg(test)]
mod tests;
