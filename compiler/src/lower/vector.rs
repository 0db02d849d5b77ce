//! Layers without a matrix product: sums, element-wise operations, pooling. The compute module
//! loads int8 tiles into the accumulators, the ALU works, STORE writes. The accumulators are
//! two halves, so that storing one tile overlaps working on the next.

use std::ops::Range;

use vta_driver::{BufferId, Layer};
use vta_isa::{AluOp, AluOperand, Deps, Load, MemType, Module, Store, Uop};

use super::emit::{Emitter, Loops};
use super::{LowerError, Lowering, seam};
use crate::qgraph::{LaneOp, QOp, TensorId, Window};
use crate::reference::valid;

/// How many parts the accumulators are split into.
const HALVES: usize = 2;

/// Tiles that are under way: where the next goes and which wait for a store.
struct Tiles {
    half: usize,
    done: usize,
}

impl Tiles {
    fn base(&self) -> usize {
        self.done % HALVES * self.half
    }

    /// Waits until the layer before has stored all its outputs, but for the last token.
    fn open(half: usize, e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        let deps = Deps {
            pop_next: true,
            ..Deps::NONE
        };
        for _ in 1..seam::TOKENS {
            e.sync(Module::Compute, deps)?;
        }
        Ok(Self { half, done: 0 })
    }

    /// Sets the tokens of a tile whose commands start at `begin`: its first waits for the store
    /// that used this half (the first tile's for the layer before), its last lets the store go.
    fn seal(&self, e: &mut Emitter<'_, '_>, begin: usize) {
        if (self.done == 0 || self.done >= HALVES)
            && let Some(deps) = e.first_since(begin, Module::Compute)
        {
            deps.pop_next = true;
        }
        if let Some(deps) = e.last_of(Module::Compute) {
            deps.push_next = true;
        }
    }

    fn store(
        &mut self,
        e: &mut Emitter<'_, '_>,
        buffer: BufferId,
        mut store: Store,
    ) -> Result<(), LowerError> {
        store.deps.pop_prev = true;
        store.deps.push_prev = true;
        self.done += 1;
        e.store(buffer, store)
    }

    /// Leaves the tokens of the seam.
    fn close(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        let deps = Deps {
            push_prev: true,
            ..Deps::NONE
        };
        for _ in self.done.min(HALVES)..seam::TOKENS as usize {
            e.sync(Module::Store, deps)?;
        }
        // The half of the last tile.
        let base = (self.done + 1) % HALVES * self.half;
        e.lowering.seam.acc = base..base + self.half;
        Ok(())
    }
}

fn rows(
    buffer: BufferId,
    sram: usize,
    dram: usize,
    size: [usize; 2],
    stride: usize,
) -> (BufferId, Load) {
    let load = Load {
        mem: MemType::Acc8,
        sram_base: sram as u16,
        dram_base: dram as u32,
        y_size: size[0] as u16,
        x_size: size[1] as u16,
        x_stride: stride as u16,
        ..Load::default()
    };
    (buffer, load)
}

/// Geometry of a pool in blocks.
struct Pool<'g> {
    input: BufferId,
    output: BufferId,
    window: &'g Window,
    size: [usize; 2],
    out: [usize; 2],
    /// Kernel rows worked on together.
    kernel_rows: usize,
    op: PoolOp<'g>,
}

enum PoolOp<'g> {
    Max(&'g [LaneOp]),
    Average {
        by_count: &'g [(usize, Vec<LaneOp>)],
        include_pad: bool,
    },
}

impl Lowering<'_> {
    pub(super) fn layer(&self, index: usize) -> Layer {
        let node = &self.graph.nodes[index];
        Layer {
            name: node.name.clone(),
            kind: node.op.kind().to_owned(),
            output: node.output.0 as u32,
            ..Layer::default()
        }
    }

    pub(super) fn inconsistent(&self, index: usize, reason: &str) -> LowerError {
        let node = self.graph.nodes[index].name.clone();
        LowerError::Inconsistent {
            node,
            reason: reason.to_owned(),
        }
    }

    /// Sums and element-wise operations: channels and positions are one run of tiles.
    pub(super) fn elementwise(&mut self, index: usize) -> Result<(), LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[index];
        let buffer = |id: &TensorId| BufferId(id.0 as u32);
        let same = |id: &TensorId| graph.tensors[id.0].chw == graph.tensors[node.output.0].chw;
        let operands: Vec<(BufferId, &[LaneOp])> = match &node.op {
            QOp::Add {
                a, a_ops, b, b_ops, ..
            } if same(a) && same(b) => {
                vec![(buffer(a), a_ops), (buffer(b), b_ops)]
            }
            QOp::Eltwise { input, .. } if same(input) => vec![(buffer(input), &[])],
            _ => return Err(self.inconsistent(index, "the operands have other shapes")),
        };
        let epilogue: &[LaneOp] = match &node.op {
            QOp::Add { epilogue, .. } => epilogue,
            QOp::Eltwise { ops, .. } => ops,
            _ => &[],
        };
        let layer = self.layer(index);
        let count: usize = self.tile_chw(node.output).iter().product();
        let half = self.config.depth(MemType::Acc) / HALVES;
        let most = half / operands.len();
        if most == 0 {
            let reason = format!(
                "{} accumulator tiles are needed, half the scratchpad holds {half}",
                operands.len()
            );
            return Err(LowerError::NoTile {
                node: node.name.clone(),
                reason,
            });
        }
        let mut e = Emitter::new(self, &node.name);
        let mut tiles = Tiles::open(half, &mut e)?;
        for first in (0..count).step_by(most) {
            let n = most.min(count - first);
            let (begin, base) = (e.len(), tiles.base());
            for (i, (buffer, ops)) in operands.iter().enumerate() {
                let (buffer, load) = rows(*buffer, base + i * n, first, [1, n], n);
                e.load(buffer, load)?;
                e.immediates(ops, base + i * n, [1, n], n)?;
            }
            if operands.len() == 2 {
                let uop = Uop {
                    dst: base as u16,
                    src: (base + n) as u16,
                    wgt: 0,
                };
                let loops = Loops {
                    iter: [1, n],
                    dst: [0, 1],
                    src: [0, 1],
                };
                e.alu(AluOp::Add, AluOperand::Acc, vec![uop], loops)?;
            }
            e.immediates(epilogue, base, [1, n], n)?;
            tiles.seal(&mut e, begin);
            let store = Store {
                sram_base: base as u16,
                dram_base: first as u32,
                y_size: 1,
                x_size: n as u16,
                x_stride: n as u16,
                ..Store::default()
            };
            tiles.store(&mut e, BufferId(node.output.0 as u32), store)?;
        }
        tiles.close(&mut e)?;
        e.finish(layer)
    }

    pub(super) fn pool(&mut self, index: usize) -> Result<(), LowerError> {
        if self.average(index)? {
            return Ok(());
        }
        let graph = self.graph;
        let node = &graph.nodes[index];
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
            _ => return Err(self.inconsistent(index, "it is no pool")),
        };
        let ([blocks, h, w], [out_blocks, oh, ow]) =
            (self.tile_chw(input), self.tile_chw(node.output));
        if window.output(h, w) != Some([oh, ow]) || blocks != out_blocks {
            return Err(self.inconsistent(index, "the window doesn't fit"));
        }
        if w > 65535 || ow > 65535 {
            let reason = format!("{} columns; x_stride holds at most 65535", w.max(ow));
            return Err(LowerError::NoTile {
                node: node.name.clone(),
                reason,
            });
        }
        let half = self.config.depth(MemType::Acc) / HALVES;
        let chosen = pool_tile(window, [h, w], [oh, ow], half);
        let (tile, kernel_rows) = chosen.ok_or_else(|| LowerError::NoTile {
            node: node.name.clone(),
            reason: format!(
                "one row of its window and one output need more than the {half} accumulator \
                 tiles of half the scratchpad"
            ),
        })?;
        let pool = Pool {
            input: BufferId(input.0 as u32),
            output: BufferId(node.output.0 as u32),
            window,
            size: [h, w],
            out: [oh, ow],
            kernel_rows,
            op,
        };
        let layer = self.layer(index);
        let mut e = Emitter::new(self, &node.name);
        let mut tiles = Tiles::open(half, &mut e)?;
        for block in 0..blocks {
            for row in (0..oh).step_by(tile[0]) {
                for col in (0..ow).step_by(tile[1]) {
                    let rows = row..(row + tile[0]).min(oh);
                    let cols = col..(col + tile[1]).min(ow);
                    pool.emit(&mut e, &mut tiles, block, &rows, &cols)?;
                }
            }
        }
        tiles.close(&mut e)?;
        e.finish(layer)
    }
}

/// The largest tile whose input and output fit: whole rows if possible, then narrower, then
/// fewer kernel rows at a time.
fn pool_tile(
    window: &Window,
    size: [usize; 2],
    out: [usize; 2],
    half: usize,
) -> Option<([usize; 2], usize)> {
    let extent = |axis: usize, n: usize, k: usize| {
        ((n - 1) * window.stride[axis] + (k - 1) * window.dilation[axis] + 1).min(size[axis])
    };
    let fits = |r: usize, c: usize, k: usize| {
        let width = extent(1, c, window.kernel[1]);
        // A source step of one output row must fit its 11-bit field.
        let step = r == 1 || window.stride[0] * width <= 2047;
        extent(0, r, k) * width + r * c <= half && step && window.stride[1] <= 2047
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
        tiles: &mut Tiles,
        block: usize,
        rows: &Range<usize>,
        cols: &Range<usize>,
    ) -> Result<(), LowerError> {
        let (begin, base) = (e.len(), tiles.base());
        let (r, c) = (rows.len(), cols.len());
        let first = Uop {
            dst: base as u16,
            src: 0,
            wgt: 0,
        };
        // LOAD writes upwards from the tile's input, which lies behind its output.
        match &self.op {
            PoolOp::Max(_) => {
                // Whatever was there becomes -32768 at most, then exactly -128.
                e.immediate(AluOp::Min, i16::MIN, base, [r, c], c)?;
                e.immediate(AluOp::Max, -128, base, [r, c], c)?;
            }
            PoolOp::Average { .. } => {
                let loops = Loops {
                    iter: [1, r * c],
                    dst: [0, 1],
                    src: [0, 0],
                };
                e.gemm(true, vec![first], loops)?;
            }
        }
        let whole = self.window.kernel[0];
        for k in (0..whole).step_by(self.kernel_rows) {
            let taps = k..(k + self.kernel_rows).min(whole);
            self.fold(e, block, rows, cols, taps, base)?;
        }
        match &self.op {
            PoolOp::Max(ops) => e.immediates(ops, base, [r, c], c)?,
            PoolOp::Average {
                by_count,
                include_pad,
            } => {
                self.average(e, by_count, *include_pad, rows, cols, base)?;
            }
        }
        tiles.seal(e, begin);
        let [oh, ow] = self.out;
        let store = Store {
            sram_base: base as u16,
            dram_base: ((block * oh + rows.start) * ow + cols.start) as u32,
            y_size: r as u16,
            x_size: c as u16,
            x_stride: ow as u16,
            ..Store::default()
        };
        tiles.store(e, self.output, store)
    }

    /// Input positions that a tile's outputs reach with some taps, without padding.
    fn reach(&self, axis: usize, out: &Range<usize>, taps: &Range<usize>) -> Range<usize> {
        let pad = self.window.pads[axis];
        let (s, d) = (self.window.stride[axis], self.window.dilation[axis]);
        let first = (out.start * s + taps.start * d).saturating_sub(pad);
        let last = ((out.end - 1) * s + (taps.end - 1) * d + 1).saturating_sub(pad);
        first..last.min(self.size[axis])
    }

    /// Loads the input of some kernel rows and folds each tap's valid rectangle in.
    fn fold(
        &self,
        e: &mut Emitter<'_, '_>,
        block: usize,
        rows: &Range<usize>,
        cols: &Range<usize>,
        taps: Range<usize>,
        base: usize,
    ) -> Result<(), LowerError> {
        let [h, w] = self.size;
        let source = base + rows.len() * cols.len();
        let (y, x) = (
            self.reach(0, rows, &taps),
            self.reach(1, cols, &(0..self.window.kernel[1])),
        );
        if y.is_empty() || x.is_empty() {
            return Ok(());
        }
        let dram = (block * h + y.start) * w + x.start;
        let (buffer, load) = self::rows(self.input, source, dram, [y.len(), x.len()], w);
        e.load(buffer, load)?;
        let op = match self.op {
            PoolOp::Max(_) => AluOp::Max,
            PoolOp::Average { .. } => AluOp::Add,
        };
        if rows.len() * cols.len() == 1 {
            return self.fold_one(e, op, [rows.start, cols.start], taps, base, source, [y, x]);
        }
        for kr in taps {
            for kc in 0..self.window.kernel[1] {
                let (i, j) = (self.valid(0, rows, kr), self.valid(1, cols, kc));
                if i.is_empty() || j.is_empty() {
                    continue;
                }
                let at = |axis: usize, out: usize, tap: usize| {
                    out * self.window.stride[axis] + tap * self.window.dilation[axis]
                        - self.window.pads[axis]
                };
                let dst = base + (i.start - rows.start) * cols.len() + j.start - cols.start;
                let row = at(0, i.start, kr) - y.start;
                let src = source + row * x.len() + at(1, j.start, kc) - x.start;
                let uop = Uop {
                    dst: dst as u16,
                    src: src as u16,
                    wgt: 0,
                };
                let step = if i.len() > 1 {
                    self.window.stride[0] * x.len()
                } else {
                    0
                };
                let loops = Loops {
                    iter: [i.len(), j.len()],
                    dst: [cols.len(), 1],
                    src: [step, self.window.stride[1]],
                };
                e.alu(op, AluOperand::Acc, vec![uop], loops)?;
            }
        }
        Ok(())
    }

    /// One output: its taps are the loops.
    #[expect(
        clippy::too_many_arguments,
        reason = "one output's coordinates, taken apart"
    )]
    fn fold_one(
        &self,
        e: &mut Emitter<'_, '_>,
        op: AluOp,
        out: [usize; 2],
        taps: Range<usize>,
        base: usize,
        source: usize,
        [y, x]: [Range<usize>; 2],
    ) -> Result<(), LowerError> {
        let inside = |axis: usize, taps: Range<usize>| -> Vec<usize> {
            let (s, d, pad) = (
                self.window.stride[axis],
                self.window.dilation[axis],
                self.window.pads[axis],
            );
            let at = taps.map(|k| out[axis] * s + k * d);
            at.filter(|p| *p >= pad && p - pad < self.size[axis])
                .map(|p| p - pad)
                .collect()
        };
        let (rows, cols) = (inside(0, taps), inside(1, 0..self.window.kernel[1]));
        let (Some(&row), Some(&col)) = (rows.first(), cols.first()) else {
            return Ok(());
        };
        let src = source + (row - y.start) * x.len() + col - x.start;
        let uop = Uop {
            dst: base as u16,
            src: src as u16,
            wgt: 0,
        };
        let [dh, dw] = self.window.dilation;
        let step = if rows.len() > 1 { dh * x.len() } else { 0 };
        let loops = Loops {
            iter: [rows.len(), cols.len()],
            dst: [0, 0],
            src: [step, dw],
        };
        e.alu(op, AluOperand::Acc, vec![uop], loops)
    }

    /// Outputs of a range whose tap lies inside the input.
    fn valid(&self, axis: usize, out: &Range<usize>, tap: usize) -> Range<usize> {
        let (s, d, pad) = (
            self.window.stride[axis],
            self.window.dilation[axis],
            self.window.pads[axis],
        );
        let (first, end) = valid(self.size[axis], self.out[axis], tap, s, d, pad);
        first.max(out.start)..end.min(out.end)
    }

    /// Applies each divisor's operations to the rectangles of outputs that have it.
    fn average(
        &self,
        e: &mut Emitter<'_, '_>,
        by_count: &[(usize, Vec<LaneOp>)],
        include_pad: bool,
        rows: &Range<usize>,
        cols: &Range<usize>,
        base: usize,
    ) -> Result<(), LowerError> {
        let all = self.window.kernel[0] * self.window.kernel[1];
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
                    LowerError::Inconsistent {
                        node: e.node.clone(),
                        reason,
                    }
                })?;
                let first = base + (i.start - rows.start) * cols.len() + j.start - cols.start;
                e.immediates(&ops.1, first, [i.len(), j.len()], cols.len())?;
            }
        }
        Ok(())
    }

    /// Runs of neighbouring outputs with equally many taps inside the input.
    fn runs(&self, axis: usize, out: &Range<usize>) -> Vec<(usize, Range<usize>)> {
        let count = |o: usize| {
            let at = |k: usize| o * self.window.stride[axis] + k * self.window.dilation[axis];
            let pad = self.window.pads[axis];
            let taps = (0..self.window.kernel[axis]).map(at);
            taps.filter(|p| *p >= pad && p - pad < self.size[axis])
                .count()
        };
        let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
        for o in out.clone() {
            let n = count(o);
            match runs.last_mut() {
                Some((last, range)) if *last == n => range.end = o + 1,
                _ => runs.push((n, o..o + 1)),
            }
        }
        runs
    }
}
