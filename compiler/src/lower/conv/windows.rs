//! The products of a depthwise convolution by DEPTHWISE: a step for each output and weight tile.
//!
//! Windows lie in the scratchpad with their padding, which LOADs fill with zeros or the zero point, so that all outputs of a tile have all
//! taps: an instruction for each output block and weight tile. Its rows are an odd number of tiles long, so that the
//! input scratchpad's banks give a column of a window at once.

use std::ops::Range;

use super::super::LowerError;
use super::super::emit::{Loops, Sums, uop};
use super::super::tile::ConvShape;
use super::super::transfer::{Area, Transfer};
use super::layer::{Acc, Conv, Walk};
use super::work::Work;

/// Rows or columns of a tile's inputs: those in memory, and how many of padding are in front and behind.
struct Side {
    inside: Range<usize>,
    pads: [usize; 2],
}

impl ConvShape {
    fn side(&self, axis: usize, out: &Range<usize>, size: usize) -> Side {
        let window = &self.window;
        // Counted from the first row or column of padding.
        let (first, pad) = (out.start * window.stride[axis], window.pads.before()[axis]);
        let memory = pad..pad + self.input[axis];
        let inside = first.max(memory.start)..(first + size).min(memory.end);
        Side {
            pads: [inside.start - first, first + size - inside.end],
            inside: inside.start - pad..inside.end - pad,
        }
    }

    /// Blocks, rows and columns of the inputs that the windows of outputs have.
    pub(super) fn windows_of(&self, [blocks, rows, cols]: [&Range<usize>; 3]) -> [Range<usize>; 3] {
        let size = self.frame([rows.len(), cols.len()]);
        let [rows, cols] =
            [(0, rows), (1, cols)].map(|(axis, out)| self.side(axis, out, size[axis]).inside);
        [blocks.clone(), rows, cols]
    }
}

impl Conv<'_> {
    /// The transfers of a tile's inputs to a place, block after block, and the padding of each.
    pub(super) fn windows(&self, work: &Work, sram: usize) -> (Vec<Transfer>, [[usize; 2]; 2]) {
        let size @ [height, width] = self.shape.frame([work.rows.len(), work.cols.len()]);
        let [rows, cols] = [(0, &work.rows), (1, &work.cols)]
            .map(|(axis, out)| self.shape.side(axis, out, size[axis]));
        let one = |(i, block): (usize, usize)| {
            let area = Area {
                block,
                rows: rows.inside.clone(),
                cols: cols.inside.clone(),
            };
            let sram = sram + i * height * width;
            Transfer::area(self.input, self.shape.input, &area, sram)
        };
        let all = work.co.clone().enumerate().map(one).collect();
        (all, [rows.pads, cols.pads])
    }
}

impl Walk<'_, '_, '_> {
    /// Loads a tile's inputs with their padding.
    pub(super) fn load_windows(&mut self, work: &Work, sram: usize) -> Result<(), LowerError> {
        let (all, pads) = self.conv.windows(work, sram);
        let mut all = all.into_iter();
        all.try_for_each(|from| self.e.load_padded(from, pads, self.conv.pad_value))
    }

    /// Emits the products of a tile.
    pub(super) fn multiply_windows(
        &mut self,
        work: &Work,
        acc: &Acc,
        sums: Sums,
        part: &Range<usize>,
    ) -> Result<(), LowerError> {
        let conv = self.conv;
        let ([inp, wgt], window) = (conv.halves(&self.progress), &conv.shape.window);
        let [height, width] = conv.shape.frame([work.rows.len(), work.cols.len()]);
        let [kernel_rows, columns] = window.kernel;
        let (across, pitch) = (conv.shape.weight_row(), window.dilation[0] * width);
        let steps = (0..work.co.len()).flat_map(|i| (0..across).map(move |t| (i, t)));
        // Of weights that stay, those of the blocks before come first.
        let first = if conv.stays { work.co.start } else { 0 };
        let tiles = |(i, t): (usize, usize)| {
            let row = t * conv.shape.window_rows;
            let src = inp + i * height * width + row * pitch;
            uop([
                acc.base + i * acc.pitch,
                src,
                wgt + (first + i) * across + t,
            ])
        };
        let kernel = self.e.kernel(steps.clone().map(tiles).collect())?;
        let loops = Loops {
            iter: [work.rows.len(), work.cols.len()],
            dst: [work.cols.len(), 1],
            src: [window.stride[0] * width, window.stride[1]],
        };
        for (at, (_, t)) in steps.enumerate().filter(|(_, (i, _))| part.contains(i)) {
            let rows = conv
                .shape
                .window_rows
                .min(kernel_rows - t * conv.shape.window_rows);
            let sums = if t == 0 { sums } else { Sums::Add };
            self.spend(work.area())?;
            self.e
                .windows((kernel, at), loops, [rows, columns, pitch], sums)?;
        }
        Ok(())
    }
}
