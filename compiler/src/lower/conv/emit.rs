//! The commands of a convolution: for each output tile, sums started, the bias added, chunks
//! multiplied, the epilogue, a store; loads of the next chunk and the store of the last tile run
//! beside it. A residual that the matrix unit adds counts as a chunk. The last tile's epilogue
//! goes by parts, so that most of its store overlaps it too. What the layer before may still use
//! is waited for as late as possible (`seam`, `entry`).

use std::ops::Range;

use vta_isa::{MemType, Requantize, Uop};

use super::super::emit::{Emitter, Loops, Rect, Sums, count_vectors, uop};
use super::super::tokens::Done;
use super::super::transfer::{self, Transfer, transfers};
use super::super::{Fault, LowerError};
use super::layer::{Acc, Conv, Early, Product, Progress, Residual, Start, Walk};
use super::work::{Chunk, Work};
use crate::qgraph::lane::{LaneOp, LaneOperand};

/// Parts of the last tile's epilogue, or of its last products where it has none.
const LAST_PARTS: usize = 4;

/// How the load module fills accumulators of a tile.
#[derive(Clone, Copy)]
struct Ahead {
    /// The chunk behind which it does.
    behind: usize,
    /// The number of the token that the tile's part is free; `None` for the first tile.
    freed: Option<usize>,
    /// Whether it says that it is done; else the next chunk's token does.
    tells: bool,
}

impl Conv<'_> {
    /// Where the sums of a tile lie, by its number.
    pub(super) fn acc(&self, work: &Work, tile: usize) -> Acc {
        let base = self.acc.at(tile);
        let (co, area) = (work.co.len(), work.area());
        let entries = co * self.shape.entry;
        let entries = match self.stays {
            true => [self.vector_base + work.co.start * self.shape.entry, entries],
            false => [base + self.shape.accumulators(co, area) - entries, entries],
        };
        Acc {
            base,
            pitch: area,
            kept: area / self.phases().iter().product::<usize>(),
            distance: self.shape.distance(co * area),
            entries,
        }
    }

    /// Where the inputs and weights that were loaded last lie.
    pub(super) fn halves(&self, progress: &Progress) -> [usize; 2] {
        // The turn before the next.
        [
            self.inp.at(progress.inputs + self.inp.count - 1),
            self.wgt.at(progress.weights + self.wgt.count - 1),
        ]
    }

    /// The transfers of the outputs of some blocks of a tile, from a place.
    pub(super) fn outputs(
        &self,
        work: &Work,
        part: &Range<usize>,
        from: [usize; 2],
    ) -> Vec<Transfer> {
        let [ph, pw] = self.phases();
        let rows = work.rows.start / ph..work.rows.end / ph;
        let cols = work.cols.start / pw..work.cols.end / pw;
        let blocks = work.co.start + part.start..work.co.start + part.end;
        transfers(self.output, [&blocks, &rows, &cols], self.out_size, from)
    }

    /// Rows and columns of phases that a tile's positions are sorted by.
    pub(super) fn phases(&self) -> [usize; 2] {
        self.pool.map_or([1, 1], |w| w.stride)
    }

    /// Whether nothing comes between the last products and their STOREs, and a part of the blocks is an instruction of its own.
    fn ends_by_parts(&self) -> bool {
        let few = self.shape.window.area() == 1 || self.shape.window_rows > 0;
        let adds = self.pool.is_some() || self.bias.is_some() || !self.is_rounded();
        few && !adds
    }

    /// Whether STOREs do all that comes behind the products, but for a bias.
    pub(super) fn is_rounded(&self) -> bool {
        let by_others = matches!(
            self.residual,
            Some(Residual::Start(..) | Residual::Product(_))
        );
        self.roundings.is_some() && self.epilogue.is_empty() && !by_others
    }

    /// Whether the bias comes with the first products: pooled sums get theirs in the end, unless it
    /// differs between those that are pooled.
    pub(super) fn bias_first(&self) -> bool {
        self.pool.is_none() || !self.regions.is_empty()
    }
}

/// Emits tiles of a layer, or of two that take turns.
pub(super) fn emit<'l, 'a>(
    convs: &[Conv<'_>],
    works: &[Work],
    mut e: Emitter<'l, 'a>,
) -> Result<Emitter<'l, 'a>, LowerError> {
    let mut rest = works;
    while let Some(work) = rest.first() {
        let conv = &convs[work.layer];
        let other = convs.get(1 - work.layer);
        let mut walk = Walk {
            conv,
            progress: conv.enter(&e.lowering.seam, rest),
            other: other.map(|other| (other, Progress::new(&other.tile))),
            waits: 1 - work.layer,
            e,
            works: rest,
            first: works.len() - rest.len(),
            early: Early::default(),
            tiles: 0,
            chunks: 0,
            stored: Vec::new(),
            told: Vec::new(),
        };
        walk.part()?;
        rest = &rest[walk.works.len()..];
        e = walk.e;
        if !rest.is_empty() {
            e.cut()?;
        }
    }
    Ok(e)
}

impl Walk<'_, '_, '_> {
    /// Emits tiles up to the next cut or the end: these are the works in the end.
    fn part(&mut self) -> Result<(), LowerError> {
        let (mut next, mut started) = (0, None);
        while let Some(work) = self.works.get(next) {
            next += 1;
            let reads = |work: &Work| self.conv.reads_above(work);
            if self.e.is_long() && !self.works.get(next).is_some_and(reads) {
                self.works = &self.works[..next];
            }
            if next == 1 {
                self.begin_early();
            }
            self.turn(work.layer);
            let ahead = match started.take() {
                Some(ahead) => ahead,
                None => self.start(work, self.works.len() == next)?,
            };
            // What the load module fills for the other layer's tile doesn't wait for this one.
            let other = self
                .works
                .get(next)
                .filter(|other| other.layer != work.layer);
            if let Some(other) = other.filter(|_| next > 1) {
                self.turn(other.layer);
                let [acc, _] = self.accs(other);
                if self.preloads(other, &acc) {
                    started = Some(self.start(other, self.works.len() == next + 1)?);
                }
                self.turn(work.layer);
            }
            // The last of its layer.
            let mut behind = self.works[next..].iter();
            let is_last = !behind.any(|other| other.layer == work.layer);
            self.tile(work, ahead, is_last)?;
        }
        self.leave()
    }

    /// It is the turn of a layer.
    pub(super) fn turn(&mut self, layer: usize) {
        if let Some((conv, progress)) = self.other.as_mut().filter(|_| self.waits == layer) {
            std::mem::swap(&mut self.conv, conv);
            std::mem::swap(&mut self.progress, progress);
            self.waits = 1 - layer;
        }
    }

    /// Where the next tile's sums lie, and those of the one behind it.
    pub(super) fn accs(&self, work: &Work) -> [Acc; 2] {
        let number = self.progress.first_acc + self.progress.tiles.used();
        [number, number + 1].map(|tile| self.conv.acc(work, tile))
    }

    /// What came last used a chunk's part of the scratchpads up.
    fn free_chunk(&mut self) -> Result<(), LowerError> {
        self.chunks += 1;
        self.progress.chunks.free(&mut self.e)?;
        self.note_told();
        Ok(())
    }

    fn tile(&mut self, work: &Work, ahead: Option<Ahead>, is_last: bool) -> Result<(), LowerError> {
        let [acc, above] = self.accs(work);
        for (i, chunk) in work.chunks.iter().enumerate() {
            let first = self.chunks == 0;
            if first {
                self.load_constants()?;
            }
            self.load_chunk(work, chunk, i == 0)?;
            self.load_ahead()?;
            let ahead = ahead.filter(|ahead| ahead.behind == i);
            if let Some(ahead) = ahead {
                self.preload(work, &acc, ahead)?;
            }
            let starts = i == 0 && self.conv.bias_first();
            let sums = match self.conv.starts(work) {
                Start::Products if i == 0 => Sums::Set,
                _ => Sums::Add,
            };
            let behind = starts && sums == Sums::Set;
            // The first tile's bias has a token of its own: it needs no input.
            if starts && first && self.conv.bias.is_some() {
                self.e.wait(Done::BiasLoaded)?;
                if !behind {
                    self.add_bias(work, &acc)?;
                }
            }
            self.e.wait(Done::Loaded)?;
            if starts && !first && !behind {
                self.add_bias(work, &acc)?;
            }
            let last = is_last && i + 1 == work.chunks.len();
            let by_parts = last && self.conv.ends_by_parts();
            let preloaded = ahead.is_some_and(|ahead| ahead.tells);
            if by_parts {
                self.multiply_and_store(work, chunk, &acc, sums, preloaded)?;
            } else {
                self.multiply(work, chunk, &acc, sums, &(0..work.co.len()))?;
            }
            if self.chunks + 1 == self.early.chunks {
                self.hand_on()?;
            }
            if behind {
                self.add_bias(work, &acc)?;
            }
            // What is pooled gets its bias from the scratchpads after the last chunk.
            if !(last && self.conv.pool.is_some()) {
                self.free_chunk()?;
            }
            if preloaded && !by_parts {
                self.e.wait(Done::Preloaded)?;
            }
        }
        if let Some(window) = self.conv.pool {
            self.pool_sums(window, work, &acc, above.base)?;
            if !self.conv.bias_first() {
                self.add_bias(work, &acc)?;
            }
            if is_last && !work.chunks.is_empty() {
                self.free_chunk()?;
            }
        }
        let residual = match &self.conv.residual {
            None | Some(Residual::Stored(_)) => 0,
            Some(Residual::Start(_, ops)) => count_vectors(*ops),
            Some(Residual::Product(product)) => {
                self.residual_chunk(product, work, &acc)?;
                count_vectors(&product.division.before)
            }
        };
        let vectors = self.conv.region_vectors() + residual;
        if !is_last || work.chunks.is_empty() || !self.conv.ends_by_parts() {
            self.end_tile(work, &acc, vectors, is_last)?;
        }
        self.tiles += 1;
        self.progress.tiles.free(&mut self.e)?;
        self.stored.push(self.e.told(Done::Stored.edge()));
        Ok(())
    }

    /// Starts a tile where its part of the accumulators is free; how the load module fills some of it, if it does.
    fn start(&mut self, work: &Work, is_last: bool) -> Result<Option<Ahead>, LowerError> {
        let [acc, _] = &self.accs(work);
        let preloads = self.preloads(work, acc);
        // Behind the second chunk nothing is left to take before the token that the part is free.
        let mut behind = usize::from(self.conv.inp.count > 1 && work.chunks.len() > 1);
        let is_first = self.tiles == 0;
        let is_early = is_first && self.early.chunks > 0;
        if is_early {
            // The token that all outputs are in memory comes after the one that the part is free.
            behind = behind.min(self.early.chunks - 1);
        }
        let mut ahead = preloads.then_some(Ahead {
            behind,
            freed: None,
            tells: behind + 1 >= work.chunks.len(),
        });
        if is_first {
            // Where it isn't early, the first chunk waits until the layer before has stored all that it computed.
            self.start_first(work, acc, preloads)?;
            if let Some(ahead) = ahead.as_mut().filter(|_| is_early) {
                ahead.freed = Some(self.e.told(Done::Freed.edge()));
            }
            return Ok(ahead);
        }
        self.hand_on()?;
        self.progress.tiles.fill(&mut self.e)?;
        // Commands that load vectors may say that the part is free.
        self.load_vectors(&work.co)?;
        match &mut ahead {
            Some(ahead) => {
                ahead.freed = Some(self.tell_load(Done::Freed)?);
                // The next layer finds as many tokens as without: another in place of the one that is taken early.
                if is_last && behind == 0 && self.conv.inp.count > 1 {
                    self.e.tell(Done::Multiplied)?;
                }
            }
            None => self.load_stored(work, acc, false)?,
        }
        self.start_sums(work, acc)?;
        Ok(ahead)
    }

    /// Lets the load module fill accumulators behind a chunk.
    fn preload(&mut self, work: &Work, acc: &Acc, ahead: Ahead) -> Result<(), LowerError> {
        if let Some(freed) = ahead.freed {
            self.e.reach(Done::Freed.edge(), freed)?;
        }
        self.load_stored(work, acc, true)?;
        match ahead.tells {
            true => self.e.tell(Done::Preloaded),
            false => Ok(()),
        }
    }

    /// Adds a residual: its load and its products are a chunk, with lane operations between them.
    fn residual_chunk(
        &mut self,
        product: &Product,
        work: &Work,
        acc: &Acc,
    ) -> Result<(), LowerError> {
        self.progress.chunks.fill(&mut self.e)?;
        self.take_outputs()?;
        self.load_residual(product, work, self.progress.loaded_diagonals)?;
        self.progress.loaded_diagonals = self.progress.loaded_diagonals.max(work.co.end);
        self.e.tell(Done::Loaded)?;
        let division = &product.division;
        if !division.low().is_empty() {
            self.e.wait(Done::Loaded)?;
            self.add_digits(product, work, acc, division.low())?;
        }
        self.lanes(&division.before, self.conv.region_vectors(), work, acc)?;
        if division.low().is_empty() {
            self.e.wait(Done::Loaded)?;
        }
        self.add_digits(product, work, acc, division.high())?;
        self.free_chunk()
    }

    /// The last products of the last tile, by parts that are stored while the next is multiplied.
    fn multiply_and_store(
        &mut self,
        work: &Work,
        chunk: &Chunk,
        acc: &Acc,
        sums: Sums,
        preloaded: bool,
    ) -> Result<(), LowerError> {
        let blocks = work.co.len();
        for part in transfer::parts(0..blocks, blocks.div_ceil(LAST_PARTS)) {
            self.multiply(work, chunk, acc, sums, &part)?;
            if preloaded && part.start == 0 {
                self.e.wait(Done::Preloaded)?;
            }
            self.e.tell(Done::Computed)?;
            self.store(work, &part, acc)?;
        }
        Ok(())
    }

    /// The epilogue and the store.
    fn end_tile(
        &mut self,
        work: &Work,
        acc: &Acc,
        vectors: usize,
        is_last: bool,
    ) -> Result<(), LowerError> {
        let blocks = work.co.len();
        // Without operations there is nothing that a store could overlap.
        let parts = if is_last && !self.conv.epilogue.is_empty() {
            LAST_PARTS
        } else {
            1
        };
        let size = blocks.div_ceil(parts);
        for part in transfer::parts(0..blocks, size) {
            self.lanes_of(&self.conv.epilogue, vectors, [&(0..blocks), &part], acc)?;
            self.e.tell(Done::Computed)?;
            self.store(work, &part, acc)?;
        }
        Ok(())
    }

    /// Zeroes the sums or starts them with the residual, and adds the regions that are vectors; or starts with these.
    pub(super) fn start_sums(&mut self, work: &Work, acc: &Acc) -> Result<(), LowerError> {
        let Some(Residual::Start(input, prologue)) = &self.conv.residual else {
            let copies = self.conv.copies_bias && self.conv.region_vectors() > 0;
            if !copies && self.conv.starts(work) == Start::Cleared {
                let sums = work.co.len() * acc.pitch;
                self.e.clear(Rect::run(acc.base, sums))?;
            }
            return self.add_region_vectors(work, acc);
        };
        let to = [acc.base, acc.pitch];
        for rows in transfers(*input, work.places(), self.conv.out_size, to) {
            self.e.load(MemType::Acc8, rows)?;
        }
        self.lanes(prologue, self.conv.region_vectors(), work, acc)?;
        self.add_region_vectors(work, acc)
    }

    /// The bias as more steps of the matrix unit for each tile that is kept.
    fn add_bias(&mut self, work: &Work, acc: &Acc) -> Result<(), LowerError> {
        let Some(bias) = &self.conv.bias else {
            return Ok(());
        };
        if !self.conv.regions.is_empty() {
            return self.add_regions(work, acc, [bias.inp, bias.wgt]);
        }
        let steps = self.conv.shape.bias;
        let digit = |(i, tile): (usize, usize)| {
            let dst = acc.base + i / steps * acc.pitch;
            uop([dst, bias.inp, bias.wgt + tile])
        };
        let tiles = work.co.start * steps..work.co.end * steps;
        let uops = tiles.enumerate().map(digit).collect();
        self.add_digits_of_bias(work, uops, Loops::run(acc.kept, [1, 0]))
    }

    /// Steps of the bias, the first of which may replace what tiles hold.
    pub(super) fn add_digits_of_bias(
        &mut self,
        work: &Work,
        uops: Vec<Uop>,
        loops: Loops,
    ) -> Result<(), LowerError> {
        match self.conv.starts(work) {
            Start::Bias => self.e.gemm_anew(uops, loops),
            Start::Cleared | Start::Products => self.e.gemm(uops, loops),
        }
    }

    /// Lane operations on a whole tile; the first vector is the `vectors`-th of the layer.
    fn lanes(
        &mut self,
        ops: &[LaneOp],
        vectors: usize,
        work: &Work,
        acc: &Acc,
    ) -> Result<(), LowerError> {
        let all = 0..work.co.len();
        self.lanes_of(ops, vectors, [&all, &all], acc)
    }

    /// Lane operations on some of all blocks of a tile.
    fn lanes_of(
        &mut self,
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
                    self.e.immediate(op.kind, imm, tiles)?;
                }
                LaneOperand::Plane(_) => {
                    let reason = format!("{op} differs from position to position");
                    return Err(self.e.fault(Fault::Inconsistent(reason)));
                }
                LaneOperand::Vec(_) => {
                    let row = self.conv.vector_base + next * all.len();
                    let blocks = part.clone();
                    let pairs = blocks.map(|co| [acc.base + co * acc.pitch, row + co]);
                    self.e.join(op.kind, pairs, Loops::run(acc.kept, [1, 0]))?;
                    next += 1;
                }
            }
        }
        Ok(())
    }

    /// Stores some blocks of a tile.
    fn store(&mut self, work: &Work, part: &Range<usize>, acc: &Acc) -> Result<(), LowerError> {
        self.e.wait(Done::Computed)?;
        let base = acc.base + part.start * acc.pitch;
        let all = self.conv.outputs(work, part, [base, acc.pitch]);
        // One transfer for all blocks has a row for each.
        let by_row = all.len() < part.len();
        for (rows, block) in all.into_iter().zip(part.start..) {
            let how = self.conv.roundings.map(|_| Requantize {
                table: (acc.entries[0] + block * self.conv.shape.entry) as u16,
                by_row,
                residual: acc
                    .distance
                    .unwrap_or(0)
                    .div_ceil(Requantize::RESIDUAL_TILES) as u8,
            });
            self.e.store(rows, how)?;
        }
        Ok(())
    }
}
