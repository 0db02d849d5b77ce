//! How a convolution starts beside the end of the layer before, and what it leaves to the next.

use std::ops::Range;

use vta_isa::{Config, Extension, MemType, Module};

use super::super::LowerError;
use super::super::seam::{Seam, meet};
use super::super::tile::BUS_BYTES;
use super::super::tokens::Done;
use super::super::transfer::{Run, Transfer};
use super::layer::{Acc, Conv, Progress, Residual, Walk};
use super::work::{Chunk, Work};

impl Conv<'_> {
    /// Chooses the halves of the first weights and sums so that they don't touch what the layer
    /// before still uses, where that is possible.
    pub(super) fn enter(&self, seam: &Seam, works: &[Work]) -> Progress {
        let mut progress = Progress::new(&self.tile);
        let Some(work) = works.first() else {
            return progress;
        };
        if let Some(chunk) = work.chunks.first() {
            let clear = |&half: &usize| !self.touches(seam, work, chunk, half);
            progress.weights = (0..self.wgt.count).find(clear).unwrap_or(0);
        }
        let clear = |&tile: &usize| !meet(&tiles(work, &self.acc(work, tile)), &seam.acc);
        progress.first_acc = (0..self.acc.count).find(clear).unwrap_or(0);
        progress
    }

    /// Whether a chunk's weights in a half touch what the layer before reads to its end.
    fn touches(&self, seam: &Seam, work: &Work, chunk: &Chunk, half: usize) -> bool {
        let weights = self.weight_tiles(work, chunk, half);
        seam.wgt.iter().any(|used| meet(used, &weights))
    }

    fn weight_tiles(&self, work: &Work, chunk: &Chunk, half: usize) -> Range<usize> {
        if self.stays {
            return self.wgt.part(half);
        }
        let sizes = [work.co.len(), chunk.ci.len(), chunk.kernel_rows.len()];
        let base = self.wgt.at(half);
        base..base + self.shape.weight_tiles(sizes)
    }

    /// About how many cycles the STOREs of a tile take.
    fn storing(&self, config: &Config, work: &Work) -> usize {
        let sums = work.co.len() * work.area();
        let beats = (sums * config.elem_bytes(MemType::Out)).div_ceil(BUS_BYTES);
        beats * 3 / 2 + self.shape.distance(sums).map_or(0, |_| sums)
    }

    /// Weight tiles that the last chunk and what follows it read.
    fn read_last(&self, work: &Work, chunk: &Chunk, progress: &Progress) -> Vec<Range<usize>> {
        if let Some(Residual::Product(product)) = &self.residual {
            let count = product.division.tiles(self.shape.co);
            let diagonals = product.wgt..product.wgt + count;
            return Vec::from([diagonals]);
        }
        let mut read = vec![self.weight_tiles(work, chunk, progress.weights + 1)];
        if let Some(bias) = &self.bias
            && (!self.bias_first() || work.chunks.len() == 1)
        {
            read.push(bias.wgt..bias.wgt + self.shape.bias_tiles(self.shape.co));
        }
        read
    }
}

impl Walk<'_, '_, '_> {
    /// The first tile's start. Sums are cleared beside the last stores of the layer before, if
    /// those read other tiles; the token that its outputs are in memory goes on to the load
    /// module.
    pub(super) fn start_first(
        &mut self,
        work: &Work,
        acc: &Acc,
        preloads: bool,
    ) -> Result<(), LowerError> {
        let vectors = self.conv.vectors.map(|_| {
            let count = self.conv.shape.vectors * work.co.len();
            self.conv.vector_base..self.conv.vector_base + count
        });
        let early = self.early.chunks > 0;
        let reads = match self.conv.residual {
            Some(Residual::Start(..)) => true,
            Some(Residual::Stored(_)) => !preloads && !early,
            Some(Residual::Product(_)) | None => false,
        };
        let used = &self.e.lowering.seam.acc;
        let waits = reads
            || meet(&tiles(work, acc), used)
            || vectors.is_some_and(|tiles| meet(&tiles, used));
        self.e.wait(Done::EarlyStored)?;
        if waits {
            self.hand_on()?;
        }
        self.load_vectors(&work.co)?;
        if !preloads {
            self.load_stored(work, acc, false)?;
        } else if early {
            self.e.tell(Done::Freed)?;
        }
        self.start_sums(work, acc)?;
        if early { Ok(()) } else { self.hand_on() }
    }

    /// Finds the chunks that are early, and a half for the first one's inputs.
    pub(super) fn begin_early(&mut self) {
        self.early.chunks = self.early_chunks();
        if self.early.chunks > 0 {
            let clear = |&half: &usize| !self.reads_inputs(half);
            self.progress.inputs = (0..self.conv.inp.count).find(clear).unwrap_or(0);
        }
    }

    /// How many chunks come before one that reads what the layer before stores last: at most the first tile's and one of the second, whose
    /// sums may lie where the last STORE reads. Layers whose STOREs round do so: with an epilogue much of the last STORE overlaps that.
    fn early_chunks(&self) -> usize {
        let (conv, seam) = (self.conv, &self.e.lowering.seam);
        let [first, second, ..] = self.works else {
            return 0;
        };
        let halved = conv.inp.count > 1 && conv.acc.count > 1;
        let others = conv.bias.is_some() || conv.vectors.is_some() || conv.pool.is_some();
        let able = halved && conv.is_rounded() && !others && !first.chunks.is_empty();
        let acc = tiles(first, &conv.acc(first, self.progress.first_acc));
        let able = able && first.layer == second.layer;
        if !able || meet(&acc, &seam.acc) || self.fetches_ahead() {
            return 0;
        }
        let stored = |(work, chunk): &(&Work, &Chunk)| {
            seam.is_stored(&conv.inputs(work, chunk, 0))
                && seam.is_stored(&conv.residual(work, [0, work.area()]))
        };
        let first = first.chunks.iter().map(|chunk| (first, chunk));
        let next = second.chunks.first().map(|chunk| (second, chunk));
        first.chain(next).take_while(stored).count()
    }

    /// Whether the layer before reads inputs in a half to its end.
    fn reads_inputs(&self, half: usize) -> bool {
        meet(&self.conv.inp.part(half), &self.e.lowering.seam.inp)
    }

    /// What the load module does next may read what the tile reads of the other layer.
    pub(super) fn take_stored(&mut self, work: &Work) -> Result<(), LowerError> {
        let reads = work.reads.and_then(|tile| tile.checked_sub(self.first));
        let Some(&stored) = reads.and_then(|tile| self.stored.get(tile)) else {
            return Ok(());
        };
        let before = self.told.partition_point(|[_, taken]| *taken < stored);
        let told = match self.told.get(before) {
            Some(&[told, _]) => told,
            None => {
                self.e.reach(Done::Stored.edge(), stored)?;
                self.tell_load(Done::Multiplied)?
            }
        };
        self.e.reach(Done::Multiplied.edge(), told)
    }

    /// Tells the load module; the token's number.
    pub(super) fn tell_load(&mut self, done: Done) -> Result<usize, LowerError> {
        self.e.tell(done)?;
        Ok(self.note_told())
    }

    /// Notes what was told the load module last; the token's number.
    pub(super) fn note_told(&mut self) -> usize {
        let told = self.e.told(Done::Multiplied.edge());
        self.told.push([told, self.e.taken(Done::Stored.edge())]);
        told
    }

    /// Hands on that all outputs of the layer before are in memory, once.
    pub(super) fn hand_on(&mut self) -> Result<(), LowerError> {
        if self.early.handed.is_none() {
            self.e.hand_on()?;
            self.early.handed = Some(self.e.told(Done::InMemory.edge()));
        }
        Ok(())
    }

    /// Compute multiplies for some cycles. Before, it hands on that all outputs of the layer before are in memory, if the load module wants
    /// to know next and they should be.
    pub(super) fn spend(&mut self, cycles: usize) -> Result<(), LowerError> {
        let early = &mut self.early;
        let due = self.chunks + 1 >= early.chunks;
        let stored = early.spent >= self.e.lowering.seam.storing;
        early.spent += cycles;
        if due && stored {
            self.hand_on()
        } else {
            Ok(())
        }
    }

    /// What the load module does next may read any output of the layer before, if compute has handed on that they are in memory.
    pub(super) fn take_outputs(&mut self) -> Result<(), LowerError> {
        let handed = self.early.handed.unwrap_or(0);
        self.e.reach(Done::InMemory.edge(), handed)
    }

    /// Whether the load module waited for all outputs of the layer before.
    pub(super) fn has_taken_outputs(&self) -> bool {
        let handed = self.early.handed;
        handed.is_some_and(|number| self.e.taken(Done::InMemory.edge()) >= number)
    }

    /// Whether the next weights are loaded beside the first ones, since the bus is what the layer waits for.
    fn fetches_ahead(&self) -> bool {
        let (conv, config) = (self.conv, self.e.lowering.config);
        let weights = conv.shape.co * conv.shape.weight_row();
        let beats = (weights * config.elem_bytes(conv.shape.weights_mem())).div_ceil(BUS_BYTES);
        conv.wgt.count > 1 && !conv.shape.ones && beats as u64 > conv.shape.products()
    }

    /// Loads constants before the first chunk's input: its weights as soon as their half is
    /// free, then the bias of its blocks, which has a token of its own, and the next weights if
    /// the bus is what the layer waits for.
    pub(super) fn load_constants(&mut self) -> Result<(), LowerError> {
        let mut chunks = self
            .works
            .iter()
            .filter(|work| work.layer == self.works[0].layer)
            .flat_map(|w| w.chunks.iter().map(move |c| (w, c)));
        let Some((work, chunk)) = chunks.next() else {
            return Ok(());
        };
        self.load_first(work, chunk)?;
        let next = chunks.find(|(w, c)| w.weights(c) != work.weights(chunk));
        if let Some((work, chunk)) = next.filter(|_| self.fetches_ahead()) {
            let half = self.conv.wgt.at(self.progress.weights);
            self.fetch_weights(work, chunk, half)?;
            self.progress.ahead = Some(work.weights(chunk));
        }
        Ok(())
    }

    fn load_first(&mut self, work: &Work, chunk: &Chunk) -> Result<(), LowerError> {
        let touches = self
            .conv
            .touches(&self.e.lowering.seam, work, chunk, self.progress.weights);
        self.e.wait(Done::EarlyMultiplied)?;
        if touches {
            self.e.wait(Done::LastMultiplied)?;
        }
        self.load_weights(work, chunk)?;
        let early = self.early.chunks > 0 && !self.reads_inputs(self.progress.inputs);
        self.early.owes = early && !touches;
        if self.early.owes {
            return Ok(());
        }
        if !touches {
            self.e.wait(Done::LastMultiplied)?;
        }
        // Pooled sums get theirs at the end, where the chunk's token has told of it.
        if self.conv.bias_first() && self.conv.bias.is_some() {
            self.load_bias(&work.co)?;
            self.e.tell(Done::BiasLoaded)?;
        }
        self.e.settle(Module::Load)
    }

    /// What the load module does next is behind the layer before, if the first chunk's inputs weren't.
    pub(super) fn take_multiplied(&mut self) -> Result<(), LowerError> {
        match std::mem::take(&mut self.early.owes) {
            true => self.e.wait(Done::LastMultiplied),
            false => Ok(()),
        }
    }

    /// Leaves the tokens of the seam that tiles and chunks don't leave, and says what they mean.
    pub(super) fn leave(&mut self) -> Result<(), LowerError> {
        self.hand_on()?;
        self.e.leave(Done::Stored)?;
        if self.chunks == 0 {
            // The load module took none, and one was handed on to it.
            self.e.wait(Done::EarlyMultiplied)?;
            self.e.settle(Module::Load)?;
        } else {
            self.take_outputs()?;
            self.e.leave(Done::Multiplied)?;
        }
        let Some(work) = self.works.last() else {
            return Ok(());
        };
        let last = self.progress.first_acc + self.progress.tiles.used() - 1;
        let acc = tiles(work, &self.conv.acc(work, last));
        let mut last_first = self.works.iter().rev();
        let multiplied = last_first.find_map(|w| w.chunks.last().map(|chunk| (w, chunk)));
        let wgt = match multiplied {
            Some((work, chunk)) => self.conv.read_last(work, chunk, &self.progress),
            None => self.e.lowering.seam.wgt.clone(),
        };
        let unstored = self.unstored();
        // A residual or the input of a bias lies behind.
        let beside =
            matches!(self.conv.residual, Some(Residual::Product(_))) || self.conv.bias.is_some();
        let inp = if beside {
            0..usize::MAX
        } else {
            self.conv.inp.part(self.progress.inputs + 1)
        };
        let storing = self.conv.storing(self.e.lowering.config, work);
        self.e.lowering.seam = Seam {
            wgt,
            inp,
            acc,
            unstored,
            storing,
        };
        Ok(())
    }

    /// What may not be in memory when the first token that is left in compute->load comes: tiles that compute didn't wait for before.
    fn unstored(&mut self) -> Option<Vec<Run>> {
        let rounds = self.e.has(Extension::Requant);
        if !rounds || self.conv.pool.is_some() || self.chunks == 0 {
            return None;
        }
        let first = self.e.told(Done::EarlyMultiplied.edge()) - 1;
        let before = self.told.partition_point(|[told, _]| *told <= first);
        let taken = before.checked_sub(1).map_or(0, |at| self.told[at][1]);
        let known = self.stored.partition_point(|stored| *stored <= taken);
        let mut runs = Vec::new();
        for work in &self.works[known..] {
            self.turn(work.layer);
            let outputs = self
                .conv
                .outputs(work, &(0..work.co.len()), [0, work.area()]);
            runs.extend(outputs.into_iter().flat_map(Transfer::runs));
        }
        // Nor what the layer before stores last, if compute didn't wait for that until its last chunk.
        if self.early.chunks >= self.chunks {
            runs.extend(self.e.lowering.seam.unstored.iter().flatten().cloned());
        }
        Some(runs)
    }
}

/// All accumulators of a tile: its sums and what STOREs read beside them.
fn tiles(work: &Work, acc: &Acc) -> Range<usize> {
    let sums = acc.base + work.co.len() * acc.pitch;
    let [entries, count] = acc.entries;
    acc.base..sums.max(entries + count)
}
