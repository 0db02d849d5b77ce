//! The commands of a convolution: for each output tile, sums started, the bias added, chunks
//! multiplied, the epilogue, a store; loads of the next chunk and the store of the last tile run
//! beside it. A residual that the matrix unit adds counts as a chunk. The last tile's epilogue
//! goes by parts, so that most of its store overlaps it too. What the layer before may still use
//! is waited for as late as possible (`seam`, `entry`).

use std::ops::Range;

use vta_isa::{AluOp, AluOperand, MemType, Module, Uop};

use super::super::LowerError;
use super::super::emit::{Emitter, Loops, Rect, count_vectors};
use super::layer::{Acc, Conv, Product, Residual};
use super::loads::Progress;
use super::work::{Work, transfers, works};
use crate::lane::{LaneOp, LaneOperand};

/// Parts of the last tile's epilogue.
const LAST_PARTS: usize = 4;

impl Conv<'_> {
    /// All tiles.
    pub(super) fn emit(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        let works = works(&self.shape, &self.tile);
        let mut progress = self.enter(e, &works)?;
        for work in &works {
            self.emit_tile(e, work, &mut progress, &works)?;
        }
        self.leave(e, &works, &progress)
    }

    /// Where the sums of a tile lie, by its number.
    pub(super) fn acc(&self, work: &Work, tile: usize) -> Acc {
        Acc {
            base: tile % self.tile.acc_halves * self.acc_half,
            pitch: work.area(),
            kept: work.area() / self.phases().iter().product::<usize>(),
        }
    }

    fn emit_tile(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        progress: &mut Progress,
        works: &[Work],
    ) -> Result<(), LowerError> {
        let remaining = works.len() - progress.tiles - 1;
        let number = progress.first_acc + progress.tiles;
        let [acc, above] = [number, number + 1].map(|tile| self.acc(work, tile));
        let begin = e.len();
        if progress.tiles == 0 {
            self.start_first(e, work, &acc, progress)?;
        } else {
            self.load_vectors(e, &work.co, progress)?;
            self.start_sums(e, work, &acc)?;
        }
        if progress.tiles >= self.tile.acc_halves
            && let Some(deps) = e.first_since(begin, Module::Compute)
        {
            deps.pop_next = true;
        }
        for (i, chunk) in work.chunks.iter().enumerate() {
            if progress.chunks == 0 {
                self.load_constants(e, works, progress)?;
            }
            self.load_chunk(e, work, chunk, progress, i == 0)?;
            let mut begin = e.len();
            if i == 0 && self.bias_first() {
                self.add_bias(e, work, &acc)?;
                if progress.chunks == 0
                    && let Some(deps) = e.first_since(begin, Module::Compute)
                {
                    // The first tile's bias has a token of its own: it needs no input.
                    deps.pop_prev = true;
                    begin = e.len();
                }
            }
            self.multiply(e, work, chunk, &acc, self.halves(progress))?;
            let last = remaining == 0 && i + 1 == work.chunks.len();
            self.hand_over(e, begin, progress, !(last && self.pool.is_some()));
        }
        if let Some(window) = self.pool {
            self.pool_sums(e, window, work, &acc, above.base)?;
            if !self.bias_first() {
                self.add_bias(e, work, &acc)?;
            }
            if remaining == 0
                && !work.chunks.is_empty()
                && let Some(deps) = e.last_of(Module::Compute)
            {
                deps.push_prev = true;
            }
        }
        let residual = match &self.residual {
            None => 0,
            Some(Residual::Start(_, ops)) => count_vectors(*ops),
            Some(Residual::Product(product)) => {
                self.residual_chunk(e, product, work, &acc, progress)?;
                count_vectors(&product.division.before)
            }
        };
        let vectors = self.region_vectors() + residual;
        self.end_tile(e, work, &acc, vectors, remaining)?;
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
    ) -> Result<(), LowerError> {
        let begin = e.len();
        self.load_residual(e, product, work, progress.loaded_diagonals)?;
        progress.loaded_diagonals = progress.loaded_diagonals.max(work.co.end);
        self.await_half(e, begin, progress);
        let mut begin = e.len();
        let division = &product.division;
        self.add_digits(e, product, work, acc, division.low())?;
        let waits = e.len() > begin;
        self.lanes(e, &division.before, self.region_vectors(), work, acc)?;
        if !waits {
            begin = e.len();
        }
        self.add_digits(e, product, work, acc, division.high())?;
        self.hand_over(e, begin, progress, true);
        Ok(())
    }

    /// Tokens of a chunk whose product was emitted from `begin` on: it waits for its loads, and
    /// then its halves are free, if nothing `frees` them later.
    fn hand_over(
        &self,
        e: &mut Emitter<'_, '_>,
        begin: usize,
        progress: &mut Progress,
        frees: bool,
    ) {
        if let Some(deps) = e.first_since(begin, Module::Compute) {
            deps.pop_prev = true;
        }
        if let Some(deps) = e.last_of(Module::Compute) {
            deps.push_prev = frees;
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
            self.store(e, work, &part, acc, part.end == blocks)?;
        }
        Ok(())
    }

    /// Where the inputs and weights that were loaded last lie.
    fn halves(&self, progress: &Progress) -> [usize; 2] {
        let half = |loads: usize| (loads + 1) % self.tile.halves;
        [
            half(progress.inputs) * self.inp_half,
            half(progress.weights) * self.wgt_half,
        ]
    }

    /// Rows and columns of phases that a tile's positions are sorted by.
    pub(super) fn phases(&self) -> [usize; 2] {
        self.pool.map_or([1, 1], |w| w.stride)
    }

    /// Zeroes the sums or starts them with the residual, and adds the regions that are vectors.
    pub(super) fn start_sums(
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
            e.gemm(true, uops, loops)?;
            return self.add_region_vectors(e, work, acc);
        };
        for t in transfers(&work.co, &work.rows, &work.cols, self.out_size, acc.pitch) {
            e.load(*buffer, t.load(MemType::Acc8, acc.base))?;
        }
        self.lanes(e, prologue, self.region_vectors(), work, acc)?;
        self.add_region_vectors(e, work, acc)
    }

    /// Whether the bias comes with the first products: pooled sums get theirs in the end, unless it
    /// differs between those that are pooled.
    pub(super) fn bias_first(&self) -> bool {
        self.pool.is_none() || !self.regions.is_empty()
    }

    /// The bias as more steps of the matrix unit for each tile that is kept.
    fn add_bias(&self, e: &mut Emitter<'_, '_>, work: &Work, acc: &Acc) -> Result<(), LowerError> {
        let Some(bias) = &self.bias else {
            return Ok(());
        };
        if !self.regions.is_empty() {
            return self.add_regions(e, work, acc, [bias.inp, bias.wgt]);
        }
        let steps = self.shape.bias;
        let uop = |(i, tile): (usize, usize)| Uop {
            dst: (acc.base + i / steps * acc.pitch) as u16,
            src: bias.inp as u16,
            wgt: (bias.wgt + tile) as u16,
        };
        let tiles = work.co.start * steps..work.co.end * steps;
        let uops = tiles.enumerate().map(uop).collect();
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
            match op.operand {
                LaneOperand::Imm(imm) => {
                    let tiles = Rect {
                        first,
                        size: [part.len(), acc.kept],
                        pitch: acc.pitch,
                    };
                    e.immediate(op.kind.alu(), imm, tiles)?;
                }
                LaneOperand::Plane(_) => {
                    return Err(e.inconsistent(format!("{op} differs from position to position")));
                }
                LaneOperand::Vec(_) => {
                    let row = self.vector_base + next * all.len();
                    vector_op(e, op.kind.alu(), row, part, acc)?;
                    next += 1;
                }
            }
        }
        Ok(())
    }

    /// Stores some blocks of a tile; the tile's `last` ones leave a token.
    fn store(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        part: &Range<usize>,
        acc: &Acc,
        last: bool,
    ) -> Result<(), LowerError> {
        let begin = e.len();
        let [ph, pw] = self.phases();
        let rows = work.rows.start / ph..work.rows.end / ph;
        let cols = work.cols.start / pw..work.cols.end / pw;
        let blocks = work.co.start + part.start..work.co.start + part.end;
        let base = acc.base + part.start * acc.pitch;
        for t in transfers(&blocks, &rows, &cols, self.out_size, acc.pitch) {
            e.store(self.output, t.store(base))?;
        }
        if let Some(deps) = e.first_since(begin, Module::Store) {
            deps.pop_prev = true;
        }
        if let Some(deps) = e.last_of(Module::Store) {
            deps.push_prev = last;
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
