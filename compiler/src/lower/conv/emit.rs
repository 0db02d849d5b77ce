//! The commands of a convolution: for each output tile, sums started, chunks multiplied, the
//! epilogue, a store; loads of the next chunk and the store of the last tile run beside it.
//! A residual that the matrix unit adds counts as a chunk. The last tile's epilogue goes by parts,
//! so that most of its store overlaps it too.

use std::ops::Range;

use vta_isa::{AluOp, AluOperand, Deps, Load, MemType, Module, Store, Uop};

use super::super::LowerError;
use super::super::emit::{Emitter, Loops, immediate, vector};
use super::residual::Product;
use super::work::{Chunk, Transfer, run, transfers, works};
use super::{Acc, Conv, Residual, Work};
use crate::qgraph::LaneOp;

/// What the halves hold and how many chunks were started, over a whole layer.
#[derive(Default)]
struct Progress {
    chunks: usize,
    tiles: usize,
    inputs: usize,
    weights: usize,
    /// With its input blocks and the output rows and columns.
    loaded_input: Option<(Chunk, [Range<usize>; 3])>,
    loaded_weights: Option<(Range<usize>, Range<usize>, Range<usize>)>,
    loaded_vectors: Option<Range<usize>>,
    /// Output blocks whose bias is resident.
    loaded_bias: usize,
    /// Output blocks whose diagonals are resident.
    loaded_diagonals: usize,
}

/// Parts of the last tile's epilogue.
const LAST_PARTS: usize = 4;

impl Conv<'_> {
    /// All tiles.
    pub(super) fn emit(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        let works = works(&self.shape, &self.tile);
        let products = usize::from(matches!(self.residual, Some(Residual::Product(_))));
        let chunks = works.iter().map(|w| w.chunks.len() + products).sum();
        let mut progress = Progress::default();
        for work in &works {
            self.emit_tile(e, work, &mut progress, [works.len(), chunks])?;
        }
        Ok(())
    }

    fn emit_tile(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        progress: &mut Progress,
        [tiles, chunks]: [usize; 2],
    ) -> Result<(), LowerError> {
        let [acc, above] = [progress.tiles, progress.tiles + 1].map(|tile| Acc {
            base: tile % self.tile.acc_halves * self.acc_half,
            pitch: work.area(),
            kept: work.area() / self.phases().iter().product::<usize>(),
        });
        let begin = e.len();
        self.load_vectors(e, &work.co, progress)?;
        self.start_sums(e, work, &acc)?;
        if progress.tiles >= self.tile.acc_halves
            && let Some(deps) = e.first_since(begin, Module::Compute)
        {
            deps.pop_next = true;
        }
        for (i, chunk) in work.chunks.iter().enumerate() {
            let last = i + 1 == work.chunks.len();
            self.load_chunk(e, work, chunk, progress, last)?;
            let begin = e.len();
            self.multiply(e, work, chunk, &acc, progress)?;
            self.hand_over(e, begin, progress, chunks);
        }
        if let Some(window) = self.pool {
            self.pool_sums(e, window, work, &acc, above.base)?;
        }
        self.add_bias(e, work, &acc)?;
        let vectors = match &self.residual {
            None => 0,
            Some(Residual::Start(_, ops)) => count_vectors(ops),
            Some(Residual::Product(product)) => {
                self.residual_chunk(e, product, work, &acc, progress, chunks)?;
                count_vectors(&product.plan.before)
            }
        };
        self.end_tile(e, work, &acc, vectors, tiles - progress.tiles - 1)?;
        progress.tiles += 1;
        Ok(())
    }

    /// Adds a residual: its load and its products are a chunk, with lane operations between them.
    fn residual_chunk(
        &self,
        e: &mut Emitter<'_, '_>,
        product: &Product,
        work: &Work,
        acc: &Acc,
        progress: &mut Progress,
        chunks: usize,
    ) -> Result<(), LowerError> {
        let begin = e.len();
        self.load_residual(e, product, work, progress.loaded_diagonals)?;
        progress.loaded_diagonals = progress.loaded_diagonals.max(work.co.end);
        self.await_half(e, begin, progress);
        let mut begin = e.len();
        self.add_low(e, product, work, acc)?;
        let waits = e.len() > begin;
        self.lanes(e, &product.plan.before, 0, work, acc)?;
        if !waits {
            begin = e.len();
        }
        self.add_high(e, product, work, acc)?;
        self.hand_over(e, begin, progress, chunks);
        Ok(())
    }

    /// Tokens of a chunk whose product was emitted from `begin` on: it waits for its loads, and
    /// then its halves are free.
    fn hand_over(
        &self,
        e: &mut Emitter<'_, '_>,
        begin: usize,
        progress: &mut Progress,
        chunks: usize,
    ) {
        if let Some(deps) = e.first_since(begin, Module::Compute) {
            deps.pop_prev = true;
        }
        if let Some(deps) = e.last_of(Module::Compute) {
            deps.push_prev = progress.chunks + self.tile.halves < chunks;
        }
        progress.chunks += 1;
    }

    /// The epilogue and the store, with `remaining` tiles to come.
    fn end_tile(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        acc: &Acc,
        vectors: usize,
        remaining: usize,
    ) -> Result<(), LowerError> {
        let blocks = work.co.len();
        // Without operations there is nothing that a store could overlap.
        let parts = if remaining == 0 && !self.epilogue.is_empty() {
            LAST_PARTS
        } else {
            1
        };
        let size = blocks.div_ceil(parts);
        for first in (0..blocks).step_by(size) {
            let part = first..(first + size).min(blocks);
            self.lanes_of(e, &self.epilogue, vectors, [&(0..blocks), &part], acc)?;
            if let Some(deps) = e.last_of(Module::Compute) {
                deps.push_next = true;
            }
            let awaited = remaining >= self.tile.acc_halves;
            self.store(e, work, &part, acc, awaited)?;
        }
        Ok(())
    }

    /// Rows and columns of phases that a tile's positions are sorted by.
    fn phases(&self) -> [usize; 2] {
        self.pool.map_or([1, 1], |w| w.stride)
    }

    fn load_vectors(
        &self,
        e: &mut Emitter<'_, '_>,
        co: &Range<usize>,
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let Some(buffer) = self.vectors else {
            return Ok(());
        };
        if progress.loaded_vectors.as_ref() == Some(co) {
            return Ok(());
        }
        progress.loaded_vectors = Some(co.clone());
        // Rows lie `co.len()` apart in the scratchpad, however short the last group is.
        let load = Load {
            mem: MemType::Acc,
            sram_base: self.vector_base as u16,
            dram_base: co.start as u32,
            y_size: self.shape.vectors as u16,
            x_size: co.len() as u16,
            x_stride: self.shape.co as u16,
            ..Load::default()
        };
        e.load(buffer, load)
    }

    /// Zeroes the sums or starts them with the residual.
    fn start_sums(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        acc: &Acc,
    ) -> Result<(), LowerError> {
        let Some(Residual::Start(buffer, prologue)) = &self.residual else {
            let uops = vec![Uop {
                dst: acc.base as u16,
                src: 0,
                wgt: 0,
            }];
            let loops = Loops {
                iter: [1, work.co.len() * acc.pitch],
                dst: [0, 1],
                src: [0, 0],
            };
            return e.gemm(true, uops, loops);
        };
        for t in transfers(&work.co, &work.rows, &work.cols, self.out_size, acc.pitch) {
            e.load(*buffer, t.load(MemType::Acc8, acc.base))?;
        }
        self.lanes(e, prologue, 0, work, acc)
    }

    /// Loads what the chunk needs and the halves don't hold yet; with a tile's last chunk, the
    /// bias of its blocks.
    fn load_chunk(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        progress: &mut Progress,
        last: bool,
    ) -> Result<(), LowerError> {
        let begin = e.len();
        let blocks = self.shape.input_blocks(&work.co, &chunk.ci);
        let places = [blocks.clone(), work.rows.clone(), work.cols.clone()];
        let input = (chunk.clone(), places);
        if progress.loaded_input.as_ref() != Some(&input) {
            let half = progress.inputs % self.tile.halves * self.inp_half;
            self.load_input(e, &blocks, chunk, half)?;
            progress.loaded_input = Some(input);
            progress.inputs += 1;
        }
        let weights = (work.co.clone(), chunk.ci.clone(), chunk.kernel_rows.clone());
        if progress.loaded_weights.as_ref() != Some(&weights) {
            let half = progress.weights % self.tile.halves * self.wgt_half;
            self.load_weights(e, work, chunk, half)?;
            progress.loaded_weights = Some(weights);
            progress.weights += 1;
        }
        if last {
            self.load_bias(e, &work.co, progress)?;
        }
        if e.len() == begin {
            e.sync(Module::Load, Deps::NONE)?;
        }
        self.await_half(e, begin, progress);
        Ok(())
    }

    /// Tokens of a chunk's loads from `begin` on: they wait until their halves are free.
    fn await_half(&self, e: &mut Emitter<'_, '_>, begin: usize, progress: &Progress) {
        if progress.chunks >= self.tile.halves
            && let Some(deps) = e.first_since(begin, Module::Load)
        {
            deps.pop_next = true;
        }
        if let Some(deps) = e.last_of(Module::Load) {
            deps.push_next = true;
        }
    }

    /// Groups come in ascending order, so what is resident is a prefix.
    fn load_bias(
        &self,
        e: &mut Emitter<'_, '_>,
        co: &Range<usize>,
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let Some(bias) = &self.bias else {
            return Ok(());
        };
        if progress.loaded_bias == 0 {
            e.load(bias.input, run(0, 1).load(MemType::Inp, bias.inp))?;
        }
        if progress.loaded_bias < co.end {
            let count = co.end - progress.loaded_bias;
            let digits = run(progress.loaded_bias, count);
            e.load(bias.digits, digits.load(MemType::Wgt, bias.wgt))?;
            progress.loaded_bias = co.end;
        }
        Ok(())
    }

    fn load_input(
        &self,
        e: &mut Emitter<'_, '_>,
        blocks: &Range<usize>,
        chunk: &Chunk,
        half: usize,
    ) -> Result<(), LowerError> {
        let (rows, cols) = (&chunk.rows, &chunk.cols);
        let area = rows.total() * cols.total();
        if rows.len * cols.len == area {
            let size = self.shape.input;
            for t in transfers(blocks, &rows.range(), &cols.range(), size, area) {
                e.load(self.input, t.load(MemType::Inp, half))?;
            }
            return Ok(());
        }
        let [h, w] = self.shape.input;
        for (i, ci) in blocks.clone().enumerate() {
            let load = Load {
                mem: MemType::Inp,
                sram_base: (half + i * area) as u16,
                dram_base: ((ci * h + rows.first) * w + cols.first) as u32,
                y_size: rows.len as u16,
                x_size: cols.len as u16,
                x_stride: w as u16,
                y_pad_0: rows.before as u8,
                y_pad_1: rows.after as u8,
                x_pad_0: cols.before as u8,
                x_pad_1: cols.after as u8,
                ..Load::default()
            };
            e.load(self.input, load)?;
        }
        Ok(())
    }

    fn load_weights(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        half: usize,
    ) -> Result<(), LowerError> {
        let [kh, kw] = self.shape.kernel;
        let row = self.shape.ci * kh * kw;
        let first = work.co.start * row + chunk.ci.start * kh * kw + chunk.kernel_rows.start * kw;
        let rows = Transfer {
            offset: 0,
            dram: first,
            y: work.co.len(),
            x: chunk.ci.len() * chunk.kernel_rows.len() * kw,
            stride: row,
        };
        e.load(self.weights, rows.load(MemType::Wgt, half))
    }

    fn multiply(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        acc: &Acc,
        progress: &Progress,
    ) -> Result<(), LowerError> {
        let kw = self.shape.kernel[1];
        let [dh, dw] = self.shape.dilation;
        let [sh, sw] = self.shape.stride;
        let [ph, pw] = self.phases();
        let (rows, cols) = (work.rows.len() / ph, work.cols.len() / pw);
        let (height, width) = (chunk.rows.total(), chunk.cols.total());
        // The halves loaded last.
        let inp = (progress.inputs + 1) % self.tile.halves * self.inp_half;
        let wgt = (progress.weights + 1) % self.tile.halves * self.wgt_half;
        let taps = chunk.kernel_rows.len();
        // Blocks count from the first that was loaded.
        let first = self.shape.first_input(work.co.start);
        let block = |co: usize| self.shape.first_input(co) - first;
        let mut uops = Vec::with_capacity(work.co.len() * ph * pw * chunk.ci.len() * taps * kw);
        for (co, phase) in (0..work.co.len()).flat_map(|co| (0..ph * pw).map(move |p| (co, p))) {
            let dst = acc.base + co * acc.pitch + phase * acc.kept;
            let origin = inp + phase / pw * sh * width + phase % pw * sw;
            for ci in 0..chunk.ci.len() {
                // Tiles of weights that are all zeros.
                if !self.shape.reads(work.co.start + co, chunk.ci.start + ci) {
                    continue;
                }
                let at = block(work.co.start + co) + ci;
                for (y, x) in (0..taps).flat_map(|y| (0..kw).map(move |x| (y, x))) {
                    let src = origin + (at * height + y * dh) * width + x * dw;
                    let tile = wgt + ((co * chunk.ci.len() + ci) * taps + y) * kw + x;
                    uops.push(Uop {
                        dst: dst as u16,
                        src: src as u16,
                        wgt: tile as u16,
                    });
                }
            }
        }
        // A factor of a loop with one trip is never used.
        let row = if rows > 1 { sh * ph * width } else { 0 };
        let loops = Loops {
            iter: [rows, cols],
            dst: [cols, 1],
            src: [row, sw * pw],
        };
        e.gemm(false, uops, loops)
    }

    /// The bias as one more step of the matrix unit for each tile that is kept.
    fn add_bias(&self, e: &mut Emitter<'_, '_>, work: &Work, acc: &Acc) -> Result<(), LowerError> {
        let Some(bias) = &self.bias else {
            return Ok(());
        };
        let uop = |(i, co): (usize, usize)| Uop {
            dst: (acc.base + i * acc.pitch) as u16,
            src: bias.inp as u16,
            wgt: (bias.wgt + co) as u16,
        };
        let uops = work.co.clone().enumerate().map(uop).collect();
        let loops = Loops {
            iter: [1, acc.kept],
            dst: [0, 1],
            src: [0, 0],
        };
        e.gemm(false, uops, loops)
    }

    /// Lane operations on a whole tile; the first vector is the `vectors`-th of the layer.
    fn lanes(
        &self,
        e: &mut Emitter<'_, '_>,
        ops: &[LaneOp],
        vectors: usize,
        work: &Work,
        acc: &Acc,
    ) -> Result<(), LowerError> {
        let all = 0..work.co.len();
        self.lanes_of(e, ops, vectors, [&all, &all], acc)
    }

    /// Lane operations on some of all blocks of a tile.
    fn lanes_of(
        &self,
        e: &mut Emitter<'_, '_>,
        ops: &[LaneOp],
        vectors: usize,
        [all, part]: [&Range<usize>; 2],
        acc: &Acc,
    ) -> Result<(), LowerError> {
        let mut next = vectors;
        let first = acc.base + part.start * acc.pitch;
        for op in ops {
            if let Some((op, imm)) = immediate(op) {
                e.immediate(op, imm, first, [part.len(), acc.kept], acc.pitch)?;
            } else if let Some((op, _)) = vector(op) {
                let row = self.vector_base + next * all.len();
                vector_op(e, op, row, part, acc)?;
                next += 1;
            }
        }
        Ok(())
    }

    fn store(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        part: &Range<usize>,
        acc: &Acc,
        awaited: bool,
    ) -> Result<(), LowerError> {
        let begin = e.len();
        let [ph, pw] = self.phases();
        let rows = work.rows.start / ph..work.rows.end / ph;
        let cols = work.cols.start / pw..work.cols.end / pw;
        let blocks = work.co.start + part.start..work.co.start + part.end;
        let base = acc.base + part.start * acc.pitch;
        for t in transfers(&blocks, &rows, &cols, self.out_size, acc.pitch) {
            let store = Store {
                sram_base: (base + t.offset) as u16,
                dram_base: t.dram as u32,
                y_size: t.y as u16,
                x_size: t.x as u16,
                x_stride: t.stride as u16,
                ..Store::default()
            };
            e.store(self.output, store)?;
        }
        if let Some(deps) = e.first_since(begin, Module::Store) {
            deps.pop_prev = true;
        }
        if let Some(deps) = e.last_of(Module::Store) {
            deps.push_prev = awaited;
        }
        Ok(())
    }
}

/// A two-operand operation of blocks with vectors that lie from `row` on.
fn vector_op(
    e: &mut Emitter<'_, '_>,
    op: AluOp,
    row: usize,
    blocks: &Range<usize>,
    acc: &Acc,
) -> Result<(), LowerError> {
    let uop = |co: usize| Uop {
        dst: (acc.base + co * acc.pitch) as u16,
        src: (row + co) as u16,
        wgt: 0,
    };
    let loops = Loops {
        iter: [1, acc.kept],
        dst: [0, 1],
        src: [0, 0],
    };
    e.alu(
        op,
        AluOperand::Acc,
        blocks.clone().map(uop).collect(),
        loops,
    )
}

fn count_vectors(ops: &[LaneOp]) -> usize {
    ops.iter().filter(|op| vector(op).is_some()).count()
}
