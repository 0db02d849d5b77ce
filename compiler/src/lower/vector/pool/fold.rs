//! A pool's inputs joined to its outputs.

use std::ops::Range;

use vta_isa::AluOp;

use super::super::super::LowerError;
use super::super::super::emit::{Emitter, Loops};
use super::super::super::stage::{self, Stage, Sums};
use super::super::super::transfer::Transfer;
use super::window::{Out, Pool, PoolOp};

/// What a tile's input is, once it is in a scratchpad: where its first tile lies and the rows and
/// columns that it has.
struct Source {
    first: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    fold: Fold,
}

/// How input tiles join outputs.
#[derive(Clone, Copy)]
enum Fold {
    /// By the ALU, from the accumulators.
    Alu(AluOp),
    /// By the matrix unit, from the input scratchpad, as they are.
    Products,
}

impl Pool<'_> {
    /// Brings the input of some kernel rows and folds each tap's valid rectangle in.
    pub(super) fn fold(
        &self,
        e: &mut Emitter<'_, '_>,
        stage: &mut Stage,
        out: &Out,
        taps: Range<usize>,
    ) -> Result<(), LowerError> {
        let [h, w] = self.size;
        let (y, x) = (
            self.reach(0, &out.rows, &taps),
            self.reach(1, &out.cols, &(0..self.window.kernel[1])),
        );
        if y.is_empty() || x.is_empty() {
            return Ok(());
        }
        let rows = Transfer {
            base: self.input,
            sram: out.base + out.count(),
            dram: (out.block * h + y.start) * w + x.start,
            size: [y.len(), x.len()],
            stride: w,
            step: 1,
        };
        let source = |first: usize, fold: Fold| Source {
            first,
            rows: y,
            cols: x,
            fold,
        };
        match (&self.op, stage) {
            (PoolOp::Average { .. }, Stage::Products(products)) => {
                let source = source(products.fetch(e, rows, None)?, Fold::Products);
                self.fold_taps(e, out, taps, &source)?;
                products.ring.free(e)
            }
            (op, stage) => {
                stage.load(e, rows, Sums::Set)?;
                let op = match op {
                    PoolOp::Max(_) => AluOp::Max,
                    PoolOp::Average { .. } => AluOp::Add,
                };
                self.fold_taps(e, out, taps, &source(rows.sram, Fold::Alu(op)))
            }
        }
    }

    fn fold_taps(
        &self,
        e: &mut Emitter<'_, '_>,
        out: &Out,
        taps: Range<usize>,
        source: &Source,
    ) -> Result<(), LowerError> {
        let (rows, cols) = (&out.rows, &out.cols);
        if out.count() == 1 {
            return self.fold_one(e, out, taps, source);
        }
        for kr in taps {
            for kc in 0..self.window.kernel[1] {
                let (i, j) = (self.valid(0, rows, kr), self.valid(1, cols, kc));
                if i.is_empty() || j.is_empty() {
                    continue;
                }
                let at = |axis: usize, out: usize, tap: usize| {
                    out * self.window.stride[axis] + tap * self.window.dilation[axis]
                        - self.window.pads.before()[axis]
                };
                let dst = out.base + (i.start - rows.start) * cols.len() + j.start - cols.start;
                let row = at(0, i.start, kr) - source.rows.start;
                let width = source.cols.len();
                let src = source.first + row * width + at(1, j.start, kc) - source.cols.start;
                let step = if i.len() > 1 {
                    self.window.stride[0] * width
                } else {
                    0
                };
                let loops = Loops {
                    iter: [i.len(), j.len()],
                    dst: [cols.len(), 1],
                    src: [step, self.window.stride[1]],
                };
                fold_tiles(e, source.fold, [dst, src], loops)?;
            }
        }
        Ok(())
    }

    /// One output: its taps are the loops.
    fn fold_one(
        &self,
        e: &mut Emitter<'_, '_>,
        out: &Out,
        taps: Range<usize>,
        source: &Source,
    ) -> Result<(), LowerError> {
        let first = [out.rows.start, out.cols.start];
        let inside = |axis: usize, taps: Range<usize>| -> Vec<usize> {
            let positions = self
                .window
                .positions(axis, first[axis], taps, self.size[axis]);
            positions.collect()
        };
        let (rows, cols) = (inside(0, taps), inside(1, 0..self.window.kernel[1]));
        let (Some(&row), Some(&col)) = (rows.first(), cols.first()) else {
            return Ok(());
        };
        let width = source.cols.len();
        let src = source.first + (row - source.rows.start) * width + col - source.cols.start;
        let [dh, dw] = self.window.dilation;
        let step = if rows.len() > 1 { dh * width } else { 0 };
        let loops = Loops {
            iter: [rows.len(), cols.len()],
            dst: [0, 0],
            src: [step, dw],
        };
        fold_tiles(e, source.fold, [out.base, src], loops)
    }
}

/// Folds input tiles into outputs, a tap for each micro-op execution.
fn fold_tiles(
    e: &mut Emitter<'_, '_>,
    fold: Fold,
    tiles: [usize; 2],
    loops: Loops,
) -> Result<(), LowerError> {
    match fold {
        Fold::Products => stage::add(e, tiles, loops),
        Fold::Alu(op) => e.join(op, [tiles], loops),
    }
}
