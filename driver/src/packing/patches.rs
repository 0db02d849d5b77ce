//! Im2col patch by patch: the fast way for kernels whose taps lie side by side.
//!
//! The image is copied once with its padding, so that no tap needs a check. A patch is then a
//! few short runs of bytes, and goes to the tiles in pieces of a block. A whole row of patches is
//! gathered before any is read again: a CPU waits when bytes that it has just written in parts are
//! read together.

use vta_isa::Config;

use crate::{Packing, TensorSpec};

/// Bytes of a short run: copied whole, whatever the kernel's width, since that is one move.
const RUN: usize = 8;
/// Bytes of the commonest piece.
const PIECE: usize = 16;

/// Sizes of one packing, as indices.
struct Patches {
    /// Outputs, `[rows, columns]`.
    out: [usize; 2],
    stride: [usize; 2],
    kernel_width: usize,
    /// First byte of each run in the padded image, for output (0, 0).
    runs: Vec<usize>,
    /// Bytes of a row of the padded image.
    pitch: usize,
    /// Where batch rows and blocks lie: `[block, lanes]`.
    tile: [usize; 2],
}

/// An image that is packed.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    /// Its batch row.
    pub row: usize,
    /// NCHW.
    pub values: &'a [i8],
}

/// Packs one image into its batch row. Whether it did: `false` when the taps aren't side by side,
/// or padding would make the copy large.
pub(super) fn pack(spec: &TensorSpec, config: &Config, image: Image<'_>, out: &mut [u8]) -> bool {
    let (
        Packing::Im2col {
            kernel,
            stride,
            dilation,
            pads,
        },
        Some(out_dims),
    ) = (&spec.packing, spec.im2col_output())
    else {
        return false;
    };
    let Image { row, values: image } = image;
    let [c, h, w] = spec.chw.map(|d| d as usize);
    let [kh, kw] = kernel.map(|k| k as usize);
    let [top, left, bottom, right] = pads.map(|p| p as usize);
    // As many columns as the windows of one row of outputs see.
    let (rows, pitch) = (h + top + bottom, w + left + right);
    let padded_bytes = c
        .checked_mul(rows)
        .and_then(|n| n.checked_mul(pitch))
        .filter(|&n| n <= out.len().saturating_add(4 * image.len()));
    let Some(padded_bytes) = padded_bytes.filter(|_| dilation[1] == 1 && kw > 0 && w > 0) else {
        return false;
    };
    let mut padded = vec![spec.zero as u8; padded_bytes + RUN];
    for (index, values) in image.chunks_exact(w).enumerate() {
        let (channel, y) = (index / h, index % h);
        let first = (channel * rows + y + top) * pitch + left;
        for (to, &value) in padded[first..first + w].iter_mut().zip(values) {
            *to = value as u8;
        }
    }
    let run = |index: usize| (index / kh * rows + index % kh * dilation[0] as usize) * pitch;
    let patches = Patches {
        out: out_dims,
        stride: stride.map(|s| s as usize),
        kernel_width: kw,
        runs: (0..c * kh).map(run).collect(),
        pitch,
        tile: [config.block(), config.lanes()],
    };
    patches.gather(&padded, row, out);
    true
}

impl Patches {
    fn gather(&self, padded: &[u8], row: usize, out: &mut [u8]) {
        let [block, lanes] = self.tile;
        let [oh, ow] = self.out;
        let columns = self.runs.len() * self.kernel_width;
        // The last run may be copied a little too far.
        let pitch = columns.next_multiple_of(block) + RUN;
        let mut patches = vec![0u8; ow * pitch];
        for i in 0..oh {
            let first = i * self.stride[0] * self.pitch;
            self.one_row(&padded[first..], &mut patches, pitch);
            for piece in 0..columns.div_ceil(block) {
                let tiles = (piece * oh + i) * ow * lanes;
                let tiles = out[tiles..tiles + ow * lanes].chunks_exact_mut(lanes);
                let pieces = patches.chunks_exact(pitch).map(|p| &p[piece * block..]);
                for (tile, patch) in tiles.zip(pieces) {
                    let tile = &mut tile[row * block..];
                    match (tile.first_chunk_mut::<PIECE>(), patch.first_chunk()) {
                        (Some(tile), Some(piece)) if block == PIECE => *tile = *piece,
                        _ => tile[..block].copy_from_slice(&patch[..block]),
                    }
                }
            }
        }
    }

    /// The patches of one row of outputs, `pitch` bytes apart. The first tap of the first is the
    /// first byte.
    fn one_row(&self, image: &[u8], patches: &mut [u8], pitch: usize) {
        let width = self.kernel_width;
        let length = width.max(RUN);
        for (&from, to) in self.runs.iter().zip((0..).step_by(width)) {
            let runs = image[from..].windows(length).step_by(self.stride[1]);
            for (patch, run) in patches.chunks_exact_mut(pitch).zip(runs) {
                match (patch[to..].first_chunk_mut::<RUN>(), run.first_chunk()) {
                    (Some(patch), Some(run)) if width <= RUN => *patch = *run,
                    _ => patch[to..to + width].copy_from_slice(&run[..width]),
                }
            }
        }
        let columns = self.runs.len() * width;
        for patch in patches.chunks_exact_mut(pitch) {
            patch[columns..columns + RUN].fill(0);
        }
    }
}
