//! The commands of a convolution: for each output tile, sums started, the bias added, chunks
//! multiplied, the epilogue, a store; loads of the next chunk and the store of the last tile run
//! beside it. A residual that the matrix unit adds counts as a chunk. The last tile's epilogue
//! goes by parts, so that most of its store overlaps it too. What the layer before may still use
//! is waited for as late as possible (`seam`, `entry`).

use std::ops::Range;

use vta_isa::MemType;

use super::super::emit::{Emitter, Loops, Rect, count_vectors, uop};
use super::super::tokens::Done;
use super::super::transfer::transfers;
use super::super::{Fault, LowerError};
use super::layer::{Acc, Conv, Product, Residual};
use super::loads::Progress;
use super::work::{Work, works};
use crate::qgraph::lane::{LaneOp, LaneOperand};

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
        let remaining = works.len() - progress.tiles.used() - 1;
        let number = progress.first_acc + progress.tiles.used();
        let [acc, above] = [number, number + 1].map(|tile| self.acc(work, tile));
        if progress.tiles.used() == 0 {
            self.start_first(e, work, &acc, progress)?;
        } else {
            progress.tiles.fill(e, None)?;
            self.load_vectors(e, &work.co, progress)?;
            self.start_sums(e, work, &acc)?;
        }
        for (i, chunk) in work.chunks.iter().enumerate() {
            let first = progress.chunks.used() == 0;
            if first {
                self.load_constants(e, works, progress)?;
            }
            self.load_chunk(e, work, chunk, progress, i == 0)?;
            let starts = i == 0 && self.bias_first();
            // The first tile's bias has a token of its own: it needs no input.
            if starts && first && self.bias.is_some() {
                e.wait(Done::BiasLoaded)?;
                self.add_bias(e, work, &acc)?;
            }
            e.wait(Done::Loaded)?;
            if starts && !first {
                self.add_bias(e, work, &acc)?;
            }
            self.multiply(e, work, chunk, &acc, self.halves(progress))?;
            // What is pooled gets its bias from the scratchpads after the last chunk.
            let last = remaining == 0 && i + 1 == work.chunks.len();
            if !(last && self.pool.is_some()) {
                progress.chunks.free(e)?;
            }
        }
        if let Some(window) = self.pool {
            self.pool_sums(e, window, work, &acc, above.base)?;
            if !self.bias_first() {
                self.add_bias(e, work, &acc)?;
            }
            if remaining == 0 && !work.chunks.is_empty() {
                progress.chunks.free(e)?;
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
        progress.tiles.free(e)
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
        progress.chunks.fill(e, Some(Done::InMemory))?;
        self.load_residual(e, product, work, progress.loaded_diagonals)?;
        progress.loaded_diagonals = progress.loaded_diagonals.max(work.co.end);
        e.tell(Done::Loaded)?;
        let division = &product.division;
        if !division.low().is_empty() {
            e.wait(Done::Loaded)?;
            self.add_digits(e, product, work, acc, division.low())?;
        }
        self.lanes(e, &division.before, self.region_vectors(), work, acc)?;
        if division.low().is_empty() {
            e.wait(Done::Loaded)?;
        }
        self.add_digits(e, product, work, acc, division.high())?;
        progress.chunks.free(e)
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
            e.tell(Done::Computed)?;
            self.store(e, work, &part, acc)?;
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
        let Some(Residual::Start(input, prologue)) = &self.residual else {
            e.clear(Rect::run(acc.base, work.co.len() * acc.pitch))?;
            return self.add_region_vectors(e, work, acc);
        };
        let to = [acc.base, acc.pitch];
        for rows in transfers(*input, work.places(), self.out_size, to) {
            e.load(MemType::Acc8, rows)?;
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
        let digit = |(i, tile): (usize, usize)| {
            let dst = acc.base + i / steps * acc.pitch;
            uop([dst, bias.inp, bias.wgt + tile])
        };
        let tiles = work.co.start * steps..work.co.end * steps;
        let uops = tiles.enumerate().map(digit).collect();
        e.gemm(uops, Loops::run(acc.kept, [1, 0]))
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
                    e.immediate(op.kind, imm, tiles)?;
                }
                LaneOperand::Plane(_) => {
                    let reason = format!("{op} differs from position to position");
                    return Err(e.fault(Fault::Inconsistent(reason)));
                }
                LaneOperand::Vec(_) => {
                    let row = self.vector_base + next * all.len();
                    let blocks = part.clone();
                    let pairs = blocks.map(|co| [acc.base + co * acc.pitch, row + co]);
                    e.join(op.kind, pairs, Loops::run(acc.kept, [1, 0]))?;
                    next += 1;
                }
            }
        }
        Ok(())
    }

    /// Stores some blocks of a tile.
    fn store(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        part: &Range<usize>,
        acc: &Acc,
    ) -> Result<(), LowerError> {
        e.wait(Done::Computed)?;
        let [ph, pw] = self.phases();
        let rows = work.rows.start / ph..work.rows.end / ph;
        let cols = work.cols.start / pw..work.cols.end / pw;
        let blocks = work.co.start + part.start..work.co.start + part.end;
        let base = acc.base + part.start * acc.pitch;
        let boxes = [&blocks, &rows, &cols];
        for rows in transfers(self.output, boxes, self.out_size, [base, acc.pitch]) {
            e.store(rows)?;
        }
        Ok(())
    }
}
