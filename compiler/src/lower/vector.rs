//! Layers without a matrix product: sums, element-wise operations, pooling. int8 tiles come into
//! the accumulators (`stage`), the ALU works, STORE writes. The accumulators are
//! two halves, so that storing one tile overlaps working on the next.

use std::ops::Range;

use vta_driver::{BufferId, Layer};
use vta_isa::{Alu, AluOp, AluOperand, Deps, Extension, Load, MemType, Module, Store, Uop};

use super::emit::{Emitter, Loops, Rect};
use super::stage::{self, Rows, Stage, Sums};
use super::{LowerError, Lowering, seam};
use crate::qgraph::{LaneOp, QOp, TensorId, Window};
use crate::reference::valid;

/// How many parts the accumulators are split into.
const HALVES: usize = 2;

/// Tiles that are under way: where the next goes and which wait for a store.
struct Tiles {
    half: usize,
    done: usize,
    stage: Stage,
}

impl Tiles {
    fn base(&self) -> usize {
        self.done % HALVES * self.half
    }

    fn open(half: usize, e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        let stage = Stage::open(e)?;
        Ok(Self {
            half,
            done: 0,
            stage,
        })
    }

    /// Sets the tokens of a tile whose commands start at `begin`: its first waits for the store
    /// that used this half (the first tile's for the layer before), its last lets the store go.
    fn seal(&self, e: &mut Emitter<'_, '_>, begin: usize) {
        let first = self.done == 0 && self.stage.waits();
        if (first || self.done >= HALVES)
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
        self.stage.close(e)?;
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

/// A tile of a pool's outputs.
struct Out {
    block: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    /// Its first accumulator tile.
    base: usize,
}

impl Out {
    fn size(&self) -> [usize; 2] {
        [self.rows.len(), self.cols.len()]
    }

    fn count(&self) -> usize {
        self.rows.len() * self.cols.len()
    }
}

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
        let mut operands = operands;
        // The one without operations comes last.
        operands.sort_by_key(|(_, ops)| !self.has(Extension::Acc8) && ops.is_empty());
        let epilogue: &[LaneOp] = match &node.op {
            QOp::Add { epilogue, .. } => epilogue,
            QOp::Eltwise { ops, .. } => ops,
            _ => &[],
        };
        let layer = self.layer(index);
        let count: usize = self.tile_chw(node.output).iter().product();
        let half = self.config.depth(MemType::Acc) / HALVES;
        let lists = || operands.iter().map(|o| o.1).chain([epilogue]);
        let copies = usize::from(lists().any(|ops| self.multiplies(ops)));
        let places = operands.len() + copies;
        let most = (half / places).min(Stage::most(self.config));
        if most == 0 {
            let reason =
                format!("{places} accumulator tiles are needed, half the scratchpad holds {half}",);
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
            let copy = base + operands.len() * n;
            for (i, (buffer, ops)) in operands.iter().enumerate() {
                // An operand as it is joins the sum on its way.
                let joins = i > 0 && ops.is_empty() && tiles.stage.adds();
                let sram = if joins { base } else { base + i * n };
                let rows = Rows {
                    buffer: *buffer,
                    sram,
                    dram: first,
                    size: [1, n],
                    stride: n,
                };
                let sums = if joins { Sums::Add } else { Sums::Set };
                tiles.stage.load(&mut e, rows, sums)?;
                e.immediates(ops, Rect::run(sram, n), copy)?;
                if i > 0 && !joins {
                    add(&mut e, [base, sram], n)?;
                }
            }
            e.immediates(epilogue, Rect::run(base, n), copy)?;
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
        let (field, columns) = (Load::FIELDS.x_stride, w.max(ow));
        if !field.fits(columns) {
            let reason = format!("{columns} columns; x_stride holds at most {}", field.max());
            return Err(LowerError::NoTile {
                node: node.name.clone(),
                reason,
            });
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
                    let out = Out {
                        block,
                        rows: row..(row + tile[0]).min(oh),
                        cols: col..(col + tile[1]).min(ow),
                        base: tiles.base(),
                    };
                    pool.emit(&mut e, &mut tiles, &out)?;
                }
            }
        }
        tiles.close(&mut e)?;
        e.finish(layer)
    }
}

/// `acc[dst..] += acc[src..]`.
fn add(e: &mut Emitter<'_, '_>, [dst, src]: [usize; 2], count: usize) -> Result<(), LowerError> {
    let uop = Uop {
        dst: dst as u16,
        src: src as u16,
        wgt: 0,
    };
    let loops = Loops {
        iter: [1, count],
        dst: [0, 1],
        src: [0, 1],
    };
    e.alu(AluOp::Add, AluOperand::Acc, vec![uop], loops)
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
        tiles: &mut Tiles,
        out: &Out,
    ) -> Result<(), LowerError> {
        let (begin, base) = (e.len(), out.base);
        let [r, c] = out.size();
        let whole = Rect {
            first: base,
            size: [r, c],
            pitch: c,
        };
        let first = Uop {
            dst: base as u16,
            src: 0,
            wgt: 0,
        };
        // LOAD writes upwards from the tile's input, which lies behind its output.
        match &self.op {
            PoolOp::Max(_) => {
                // Whatever was there becomes -32768 at most, then exactly -128.
                e.immediate(AluOp::Min, i16::MIN, whole)?;
                e.immediate(AluOp::Max, -128, whole)?;
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
        let kernel_rows = self.window.kernel[0];
        for k in (0..kernel_rows).step_by(self.kernel_rows) {
            let taps = k..(k + self.kernel_rows).min(kernel_rows);
            self.fold(e, &mut tiles.stage, out, taps)?;
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
        tiles.seal(e, begin);
        let [oh, ow] = self.out;
        let store = Store {
            sram_base: base as u16,
            dram_base: ((out.block * oh + out.rows.start) * ow + out.cols.start) as u32,
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

    /// Brings the input of some kernel rows and folds each tap's valid rectangle in.
    fn fold(
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
        let rows = Rows {
            buffer: self.input,
            sram: out.base + out.count(),
            dram: (out.block * h + y.start) * w + x.start,
            size: [y.len(), x.len()],
            stride: w,
        };
        let source = |first: usize, fold: Fold| Source {
            first,
            rows: y,
            cols: x,
            fold,
        };
        match (&self.op, stage) {
            (PoolOp::Average { .. }, Stage::Products(products)) => {
                let source = source(products.fetch(e, rows)?, Fold::Products);
                let begin = e.len();
                self.fold_taps(e, out, taps, &source)?;
                products.release(e, begin)
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
                        - self.window.pads[axis]
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
            let (s, d, pad) = (
                self.window.stride[axis],
                self.window.dilation[axis],
                self.window.pads[axis],
            );
            let at = taps.map(|k| first[axis] * s + k * d);
            at.filter(|p| *p >= pad && p - pad < self.size[axis])
                .map(|p| p - pad)
                .collect()
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
        out: &Out,
    ) -> Result<(), LowerError> {
        let (rows, cols) = (&out.rows, &out.cols);
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

/// Folds input tiles into outputs, a tap for each micro-op execution.
fn fold_tiles(
    e: &mut Emitter<'_, '_>,
    fold: Fold,
    tiles: [usize; 2],
    loops: Loops,
) -> Result<(), LowerError> {
    match fold {
        Fold::Products => stage::add(e, tiles, loops),
        Fold::Alu(op) => {
            let [dst, src] = tiles.map(|tile| tile as u16);
            e.alu(op, AluOperand::Acc, vec![Uop { dst, src, wgt: 0 }], loops)
        }
    }
}
