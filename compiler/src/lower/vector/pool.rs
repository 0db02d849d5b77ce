//! Pools: the tile of outputs, and its commands.

mod fold;
mod window;

use vta_isa::{Alu, MemType};

use super::super::emit::{Emitter, Rect};
use super::super::lowering::Lowering;
use super::super::stage::Stage;
use super::super::transfer::{Area, Transfer, parts, strides};
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
        let [blocks, ..] = self.tile_chw(self.graph.nodes[id.0].output);
        let half = self.config.depth(MemType::Acc) / HALVES;
        let layer = self.layer(id);
        let name = &self.graph.nodes[id.0].name;
        let mut halves = Halves::open(half, Emitter::new(self, name))?;
        for area in Area::all(blocks, pool.out, tile) {
            let base = halves.next()?;
            pool.emit(&mut halves, &Out { area, base })?;
        }
        halves.finish(layer)
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
                let op = PoolOp::Average {
                    by_count: ops_by_count,
                    include_pad: *count_include_pad,
                };
                (*input, window, op)
            }
            _ => return Err(self.internal(id, "it is no pool")),
        };
        let ([blocks, h, w], [out_blocks, oh, ow]) =
            (self.tile_chw(input), self.tile_chw(node.output));
        if window.output(h, w) != Some([oh, ow]) || blocks != out_blocks {
            return Err(self.inconsistent(id, "the window doesn't fit"));
        }
        for sides in [[h, w], [oh, ow]] {
            let fits = strides(sides, "columns");
            fits.map_err(|reason| Fault::NoTile(reason).of(&node.name))?;
        }
        let half = self.config.depth(MemType::Acc) / HALVES;
        let multiplies = match &op {
            PoolOp::Max(ops) => self.multiplies(*ops),
            PoolOp::Average { by_count, .. } => by_count.iter().any(|(_, o)| self.multiplies(o)),
        };
        // Copies of the outputs are needed at the end, when the input is used up.
        let (copies, load) = (usize::from(multiplies), Stage::most(self.config));
        let holds = |input: usize, outputs: usize| {
            input.max(copies * outputs) + outputs <= half && input <= load
        };
        let chosen = pool_tile(window, [h, w], [oh, ow], holds);
        let (tile, kernel_rows) = chosen.ok_or_else(|| {
            let reason = format!(
                "one row of its window and one output need more than the {half} accumulator \
                 tiles of half the scratchpad"
            );
            Fault::NoTile(reason).of(&node.name)
        })?;
        let pool = Pool {
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

/// The largest tile whose input and output tiles the scratchpads hold: whole rows if possible, then narrower, then
/// fewer kernel rows at a time.
fn pool_tile(
    window: &Window,
    size: [usize; 2],
    out: [usize; 2],
    holds: impl Fn(usize, usize) -> bool,
) -> Option<([usize; 2], usize)> {
    let extent = |axis: usize, n: usize, k: usize| {
        ((n - 1) * window.stride[axis] + (k - 1) * window.dilation[axis] + 1).min(size[axis])
    };
    let fits = |r: usize, c: usize, k: usize| {
        let width = extent(1, c, window.kernel[1]);
        // Source steps must fit their fields.
        let rows = r == 1 || Alu::FIELDS.src_factor_out.fits(window.stride[0] * width);
        let columns = Alu::FIELDS.src_factor_in.fits(window.stride[1]);
        holds(extent(0, r, k) * width, r * c) && rows && columns
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
    fn emit(&self, halves: &mut Halves<'_, '_>, out: &Out) -> Result<(), LowerError> {
        let Halves { e, stage, .. } = halves;
        let (base, count) = (out.base, out.area.count());
        let whole = Rect::run(base, count);
        // LOAD writes upwards from the tile's input, which lies behind its output.
        match &self.op {
            PoolOp::Max(_) => e.fill(e.lowering.graph.numbers.bounds().0, whole)?,
            PoolOp::Average { .. } => e.clear(whole)?,
        }
        let kernel_rows = self.window.kernel[0];
        for taps in parts(0..kernel_rows, self.kernel_rows) {
            self.fold(e, stage, out, taps)?;
        }
        match &self.op {
            PoolOp::Max(ops) => e.immediates(ops, whole, base + count)?,
            PoolOp::Average {
                by_count,
                include_pad,
            } => {
                self.average(e, by_count, *include_pad, out)?;
            }
        }
        halves.store(Transfer::area(self.output, self.out, &out.area, base))
    }

    /// Applies each divisor's operations to the rectangles of outputs that have it.
    fn average(
        &self,
        e: &mut Emitter<'_, '_>,
        by_count: &[(usize, Vec<LaneOp>)],
        include_pad: bool,
        out: &Out,
    ) -> Result<(), LowerError> {
        let (rows, cols) = (&out.area.rows, &out.area.cols);
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
                e.immediates(&ops.1, tiles, first + out.area.count())?;
            }
        }
        Ok(())
    }
}
