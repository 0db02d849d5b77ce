//! Pools: the tile of outputs, and its commands.

mod fold;
mod window;

use vta_isa::{Alu, AluOp, Load, MemType};

use super::super::emit::{Emitter, Rect};
use super::super::lowering::Lowering;
use super::super::stage::Stage;
use super::super::transfer::Transfer;
use super::super::{Fault, LowerError};
use super::tiles::{HALVES, Halves};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::Window;
use crate::qgraph::{NodeId, QOp};
use window::{Out, Pool, PoolOp};

impl<'a> Lowering<'a> {
    /// Emits the layer of a pool.
    pub(in crate::lower) fn pool(&mut self, id: NodeId) -> Result<(), LowerError> {
        if self.average(id)? {
            return Ok(());
        }
        let (pool, tile) = self.plan_pool(id)?;
        let ([blocks, ..], [oh, ow]) = (self.tile_chw(pool.from), pool.out);
        let half = self.config.depth(MemType::Acc) / HALVES;
        let layer = self.layer(id);
        let name = &self.graph.nodes[id.0].name;
        let mut e = Emitter::new(self, name);
        let mut halves = Halves::open(half, &mut e)?;
        for block in 0..blocks {
            for row in (0..oh).step_by(tile[0]) {
                for col in (0..ow).step_by(tile[1]) {
                    let out = Out {
                        block,
                        rows: row..(row + tile[0]).min(oh),
                        cols: col..(col + tile[1]).min(ow),
                        base: halves.next(&mut e)?,
                    };
                    pool.emit(&mut e, &mut halves, &out)?;
                }
            }
        }
        halves.close(&mut e)?;
        e.finish(layer)
    }

    /// A pool in blocks, and the rows and columns of its tiles.
    fn plan_pool(&self, id: NodeId) -> Result<(Pool<'a>, [usize; 2]), LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let (input, window, op) = match &node.op {
            QOp::MaxPool { input, window, ops } => (*input, window, PoolOp::Max(ops)),
            QOp::AvgPool {
                input,
                window,
                count_include_pad,
                ops_by_count,
            } => {
                let include_pad = *count_include_pad;
                (
                    *input,
                    window,
                    PoolOp::Average {
                        by_count: ops_by_count,
                        include_pad,
                    },
                )
            }
            _ => return Err(self.internal(id, "it is no pool")),
        };
        let ([blocks, h, w], [out_blocks, oh, ow]) =
            (self.tile_chw(input), self.tile_chw(node.output));
        if window.output(h, w) != Some([oh, ow]) || blocks != out_blocks {
            return Err(self.inconsistent(id, "the window doesn't fit"));
        }
        let (field, columns) = (Load::FIELDS.x_stride, w.max(ow));
        if !field.fits(columns) {
            let reason = format!("{columns} columns; x_stride holds at most {}", field.max());
            return Err(Fault::NoTile(reason).of(&node.name));
        }
        let half = self.config.depth(MemType::Acc) / HALVES;
        let multiplies = match &op {
            PoolOp::Max(ops) => self.multiplies(ops),
            PoolOp::Average { by_count, .. } => by_count.iter().any(|(_, o)| self.multiplies(o)),
        };
        let limits = Limits {
            half,
            load: Stage::most(self.config),
            copies: usize::from(multiplies),
        };
        let chosen = pool_tile(window, [h, w], [oh, ow], limits);
        let (tile, kernel_rows) = chosen.ok_or_else(|| {
            let reason = format!(
                "one row of its window and one output need more than the {half} accumulator \
                 tiles of half the scratchpad"
            );
            Fault::NoTile(reason).of(&node.name)
        })?;
        let pool = Pool {
            from: input,
            input: self.base(input),
            output: self.base(node.output),
            window,
            size: [h, w],
            out: [oh, ow],
            kernel_rows,
            op,
        };
        Ok((pool, tile))
    }
}

/// What bounds a pool's tiles, in tiles.
#[derive(Clone, Copy)]
struct Limits {
    /// Of half the accumulators.
    half: usize,
    /// Of one load.
    load: usize,
    /// Copies of the outputs that are needed at the end, when the input is used up.
    copies: usize,
}

/// The largest tile whose input and output fit: whole rows if possible, then narrower, then
/// fewer kernel rows at a time.
fn pool_tile(
    window: &Window,
    size: [usize; 2],
    out: [usize; 2],
    limits: Limits,
) -> Option<([usize; 2], usize)> {
    let extent = |axis: usize, n: usize, k: usize| {
        ((n - 1) * window.stride[axis] + (k - 1) * window.dilation[axis] + 1).min(size[axis])
    };
    let fits = |r: usize, c: usize, k: usize| {
        let width = extent(1, c, window.kernel[1]);
        // Source steps must fit their fields.
        let rows = r == 1 || Alu::FIELDS.src_factor_out.fits(window.stride[0] * width);
        let columns = Alu::FIELDS.src_factor_in.fits(window.stride[1]);
        let (input, outputs) = (extent(0, r, k) * width, r * c);
        let fits = input.max(limits.copies * outputs) + outputs <= limits.half;
        fits && input <= limits.load && rows && columns
    };
    let whole = window.kernel[0];
    if let Some(r) = (1..=out[0]).rev().find(|&r| fits(r, out[1], whole)) {
        return Some(([r, out[1]], whole));
    }
    if let Some(c) = (1..=out[1]).rev().find(|&c| fits(1, c, whole)) {
        return Some(([1, c], whole));
    }
    (1..=whole)
        .rev()
        .find(|&k| fits(1, 1, k))
        .map(|k| ([1, 1], k))
}

impl Pool<'_> {
    fn emit(
        &self,
        e: &mut Emitter<'_, '_>,
        halves: &mut Halves,
        out: &Out,
    ) -> Result<(), LowerError> {
        let base = out.base;
        let [r, c] = out.size();
        let whole = Rect {
            first: base,
            size: [r, c],
            pitch: c,
        };
        // LOAD writes upwards from the tile's input, which lies behind its output.
        match &self.op {
            PoolOp::Max(_) => {
                // Whatever was there becomes -32768 at most, then exactly -128.
                e.immediate(AluOp::Min, i16::MIN, whole)?;
                e.immediate(AluOp::Max, -128, whole)?;
            }
            PoolOp::Average { .. } => e.clear(Rect::run(base, r * c))?,
        }
        let kernel_rows = self.window.kernel[0];
        for k in (0..kernel_rows).step_by(self.kernel_rows) {
            let taps = k..(k + self.kernel_rows).min(kernel_rows);
            self.fold(e, &mut halves.stage, out, taps)?;
        }
        match &self.op {
            PoolOp::Max(ops) => e.immediates(ops, whole, base + out.count())?,
            PoolOp::Average {
                by_count,
                include_pad,
            } => {
                self.average(e, by_count, *include_pad, out)?;
            }
        }
        let [oh, ow] = self.out;
        let rows = Transfer {
            base: self.output,
            sram: base,
            dram: (out.block * oh + out.rows.start) * ow + out.cols.start,
            size: [r, c],
            stride: ow,
            step: 1,
        };
        halves.store(e, rows)
    }

    /// Applies each divisor's operations to the rectangles of outputs that have it.
    fn average(
        &self,
        e: &mut Emitter<'_, '_>,
        by_count: &[(usize, Vec<LaneOp>)],
        include_pad: bool,
        out: &Out,
    ) -> Result<(), LowerError> {
        let (rows, cols) = (&out.rows, &out.cols);
        let all = self.window.area();
        let column_runs = self.runs(1, cols);
        for (row_count, i) in self.runs(0, rows) {
            for (col_count, j) in &column_runs {
                let count = if include_pad {
                    all
                } else {
                    row_count * col_count
                };
                let ops = by_count.iter().find(|(n, _)| *n == count).ok_or_else(|| {
                    let reason = format!("no operations for windows of {count} positions");
                    e.fault(Fault::Inconsistent(reason))
                })?;
                let first = out.base + (i.start - rows.start) * cols.len() + j.start - cols.start;
                let tiles = Rect {
                    first,
                    size: [i.len(), j.len()],
                    pitch: cols.len(),
                };
                e.immediates(&ops.1, tiles, first + out.count())?;
            }
        }
        Ok(())
    }
}
