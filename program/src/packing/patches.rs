//! Im2col patch by patch.
//!
//! The image is copied once with its padding, so that no tap needs a check. A patch is then a
//! few short runs of bytes, and goes to the tiles in pieces of a block. A whole row of patches is
//! gathered before any is read again: a CPU waits when bytes that it has just written in parts are
//! read together.

use vta_isa::Config;

use super::bands::Band;
#[cfg(target_arch = "x86_64")]
use super::fours::Fours;
use super::value_bytes;
use crate::{Packing, TensorSpec};

/// Bytes of a short run: copied whole, whatever the kernel's width, since that is one move.
const RUN: usize = 8;
/// Bytes behind a padded image, since runs are read a little too far.
const MORE: usize = 16;
/// Bytes of padding that no tensor is too small for.
const FEW: usize = 1 << 20;
/// Bytes of the commonest piece.
const PIECE: usize = 16;

/// Images with their padding, from which bands of patches are packed. Sizes are bytes.
pub(super) struct Patches {
    /// Columns of outputs, how many there are.
    columns_out: usize,
    /// How many rows, and bytes of columns.
    stride: [usize; 2],
    kernel_width: usize,
    /// First byte of each run in the padded image, for output (0, 0).
    runs: Vec<usize>,
    /// A row of a tile, and all its rows.
    block: usize,
    lanes: usize,
    /// A row of a padded image.
    row: usize,
    padded: Vec<Vec<u8>>,
    /// How a CPU writes four patches at a time, if it can.
    #[cfg(target_arch = "x86_64")]
    fours: Option<Fours>,
}

impl Patches {
    /// Bytes of an image with its padding, of a tensor of so many packed bytes; `None` for more than a MiB beyond those
    /// and four images, and for tiles.
    pub fn padded_bytes(spec: &TensorSpec, config: &Config, packed_bytes: usize) -> Option<usize> {
        let Packing::Im2col { pads, .. } = &spec.packing else {
            return None;
        };
        let [c, h, w] = spec.chw.map(|d| d as usize);
        let [top, left, bottom, right] = pads.map(|p| p as usize);
        let (rows, columns, size) = (h + top + bottom, w + left + right, value_bytes(config));
        let bytes = c.checked_mul(rows)?.checked_mul(columns)?.checked_mul(size);
        let most = packed_bytes.saturating_add(4 * size * spec.image_len() + FEW);
        bytes.filter(|&bytes| bytes <= most)
    }

    /// Those of some images, which become the first batch rows, of a tensor of so many packed bytes; `None` as for
    /// [`Self::padded_bytes`].
    pub fn of(
        spec: &TensorSpec,
        config: &Config,
        images: &[&[u8]],
        packed_bytes: usize,
    ) -> Option<Self> {
        let Packing::Im2col {
            kernel,
            stride,
            dilation,
            pads,
        } = &spec.packing
        else {
            return None;
        };
        let [_, columns_out] = spec.positions()?;
        let bytes = Self::padded_bytes(spec, config, packed_bytes)?;
        let [c, h, w] = spec.chw.map(|d| d as usize);
        let [top, left, bottom, right] = pads.map(|p| p as usize);
        let [[kh, kw], [down, across]] = [kernel, dilation].map(|two| two.map(|x| x as usize));
        // As many columns as the windows of one row of outputs see.
        let (rows, pitch, size) = (h + top + bottom, w + left + right, value_bytes(config));
        // A run is all taps of a row if they lie side by side, else one. In an image of one column the rows of a kernel
        // lie side by side, too.
        let [kh, taps, kw] = match (pitch, down, across) {
            (1, 1, _) => [1, 1, kh],
            (_, _, 1) => [kh, 1, kw],
            _ => [kh, kw, 1],
        };
        let (pitch, row_runs) = (pitch * size, kh * taps);
        let run = |index: usize| {
            let row = index / row_runs * rows + index % row_runs / taps * down;
            row * pitch + index % taps * across * size
        };
        let runs: Vec<usize> = (0..c * row_runs).map(run).collect();
        let (width, step) = (kw * size, stride[1] as usize * size);
        #[cfg(target_arch = "x86_64")]
        let fours = match [size, config.block(), config.batch()] {
            [1, 16, 1] => Fours::of(&runs, width, step),
            _ => None,
        };
        let padded = |image: &&[u8]| {
            let mut padded = spec.zero.to_le_bytes()[..size].repeat(bytes / size);
            padded.resize(bytes + MORE, 0);
            for (index, values) in image.chunks_exact((w * size).max(1)).enumerate() {
                let (channel, y) = (index / h, index % h);
                let first = (channel * rows + y + top) * pitch + left * size;
                padded[first..first + values.len()].copy_from_slice(values);
            }
            padded
        };
        Some(Self {
            columns_out,
            stride: [stride[0] as usize, step],
            kernel_width: width,
            runs,
            block: config.block() * size,
            lanes: config.lanes() * size,
            row: pitch,
            padded: images.iter().map(padded).collect(),
            #[cfg(target_arch = "x86_64")]
            fours,
        })
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

    /// Packs a band. A row of patches of all images is written before the next, so that tiles are
    /// in the cache while their rows come.
    #[inline]
    pub fn pack(&self, band: &mut Band<'_>) {
        let (block, lanes) = (self.block, self.lanes);
        let width = self.columns_out;
        let columns = self.runs.len() * self.kernel_width;
        // The last run may be copied a little too far.
        let pitch = columns.next_multiple_of(block) + RUN;
        let mut patches = vec![0u8; width * pitch];
        for (i, own) in band.rows.clone().zip(0..) {
            let first = i * self.stride[0] * self.row;
            #[cfg(target_arch = "x86_64")]
            if let (Some(fours), Some(image)) = (&self.fours, self.padded.first()) {
                for (block, out) in band.blocks.iter_mut().enumerate() {
                    let tiles = own * width * lanes..(own + 1) * width * lanes;
                    fours.write(block, &image[first..], &mut out[tiles]);
                }
                continue;
            }
            for (row, image) in self.padded.iter().enumerate() {
                self.one_row(&image[first..], &mut patches, pitch);
                for (piece, out) in band.blocks.iter_mut().enumerate() {
                    let tiles = own * width * lanes..(own + 1) * width * lanes;
                    let tiles = out[tiles].chunks_exact_mut(lanes);
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
    }
}
