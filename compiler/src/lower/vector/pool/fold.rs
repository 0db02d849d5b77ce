//! A pool's inputs joined to its outputs.

use std::ops::Range;

use vta_isa::AluOp;

use super::super::super::LowerError;
use super::super::super::emit::{Emitter, Loops, Sums};
use super::super::super::stage::{self, Stage};
use super::super::super::transfer::{Area, Transfer};
use super::window::{Out, Pool, PoolOp};

/// An instruction that joins inputs to outputs: the first tiles, `[dst, src]`, and its loops.
type Step = ([usize; 2], Loops);

impl Pool<'_> {
    /// Brings the input of some kernel rows and folds each tap's valid rectangle in: by the ALU, from the
    /// accumulators, or sums by the matrix unit, from the input scratchpad.
    pub(super) fn fold(
        &self,
        e: &mut Emitter<'_, '_>,
        stage: &mut Stage,
        out: &Out,
        taps: Range<usize>,
    ) -> Result<(), LowerError> {
        let reached = Area {
            block: out.area.block,
            rows: self.reach(0, &out.area.rows, &taps),
            cols: self.reach(1, &out.area.cols, &(0..self.window.kernel[1])),
        };
        if reached.count() == 0 {
            return Ok(());
        }
        let sram = out.base + out.area.count();
        let rows = Transfer::area(self.input, self.size, &reached, sram);
        match (&self.op, stage) {
            (PoolOp::Average { .. }, Stage::Products(products)) => {
                let first = products.fetch(e, rows, None)?;
                for (tiles, loops) in self.steps(out, taps, first, &reached) {
                    stage::add(e, tiles, loops)?;
                }
                products.ring.free(e)
            }
            (op, stage) => {
                stage.load(e, rows, Sums::Set)?;
                let op = match op {
                    PoolOp::Max(_) => AluOp::Max,
                    PoolOp::Average { .. } => AluOp::Add,
                };
                for (tiles, loops) in self.steps(out, taps, rows.sram, &reached) {
                    e.join(op, [tiles], loops)?;
                }
                Ok(())
            }
        }
    }

    /// What folds some kernel rows of the input in that was `reached` and lies in a scratchpad from the tile `first` on.
    fn steps(&self, out: &Out, taps: Range<usize>, first: usize, reached: &Area) -> Vec<Step> {
        let (rows, cols) = (&out.area.rows, &out.area.cols);
        let ([y, x], width) = ([reached.rows.start, reached.cols.start], reached.cols.len());
        let place = |row: usize, col: usize| first + (row - y) * width + col - x;
        if out.area.count() == 1 {
            return self.one_step(out, taps, width, place).into_iter().collect();
        }
        let at = |axis: usize, out: usize, tap: usize| {
            out * self.window.stride[axis] + tap * self.window.dilation[axis]
                - self.window.pads.before()[axis]
        };
        let [down, right] = self.window.stride;
        let all = taps.flat_map(|kr| (0..self.window.kernel[1]).map(move |kc| (kr, kc)));
        let step = |(kr, kc): (usize, usize)| {
            let (i, j) = (self.valid(0, rows, kr), self.valid(1, cols, kc));
            if i.is_empty() || j.is_empty() {
                return None;
            }
            let dst = out.base + (i.start - rows.start) * cols.len() + j.start - cols.start;
            let src = place(at(0, i.start, kr), at(1, j.start, kc));
            let loops = Loops {
                iter: [i.len(), j.len()],
                dst: [cols.len(), 1],
                src: [if i.len() > 1 { down * width } else { 0 }, right],
            };
            Some(([dst, src], loops))
        };
        all.filter_map(step).collect()
    }

    /// Of one output the taps are the loops.
    fn one_step(
        &self,
        out: &Out,
        taps: Range<usize>,
        width: usize,
        place: impl Fn(usize, usize) -> usize,
    ) -> Option<Step> {
        let first = [out.area.rows.start, out.area.cols.start];
        let inside = |axis: usize, taps: Range<usize>| -> Vec<usize> {
            let positions = self
                .window
                .positions(axis, first[axis], taps, self.size[axis]);
            positions.collect()
        };
        let (rows, cols) = (inside(0, taps), inside(1, 0..self.window.kernel[1]));
        let src = place(*rows.first()?, *cols.first()?);
        let [dh, dw] = self.window.dilation;
        let loops = Loops {
            iter: [rows.len(), cols.len()],
            dst: [0, 0],
            src: [if rows.len() > 1 { dh * width } else { 0 }, dw],
        };
        Some(([out.base, src], loops))
    }
}
