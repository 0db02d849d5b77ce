//! How a convolution starts beside the end of the layer before, and what it leaves to the next.

use std::ops::Range;

use vta_isa::Module;

use super::super::LowerError;
use super::super::seam::{Seam, meet};
use super::super::tile::BUS_BYTES;
use super::super::tokens::Done;
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
        let halves = 0..self.tile.halves;
        if let Some(chunk) = work.chunks.first() {
            let clear = |&half: &usize| !self.touches(seam, work, chunk, half);
            progress.weights = halves.clone().find(clear).unwrap_or(0);
        }
        let clear = |&tile: &usize| !meet(&tiles(work, &self.acc(work, tile)), &seam.acc);
        progress.first_acc = (0..self.tile.acc_halves).find(clear).unwrap_or(0);
        progress
    }

    /// Whether a chunk's weights in a half touch what the layer before reads to its end.
    fn touches(&self, seam: &Seam, work: &Work, chunk: &Chunk, half: usize) -> bool {
        let weights = self.weight_tiles(work, chunk, half);
        seam.wgt.iter().any(|used| meet(used, &weights))
    }

    fn weight_tiles(&self, work: &Work, chunk: &Chunk, half: usize) -> Range<usize> {
        let sizes = [work.co.len(), chunk.ci.len(), chunk.kernel_rows.len()];
        let base = half * self.wgt_half;
        base..base + self.shape.weight_tiles(sizes)
    }

    /// Weight tiles that the last chunk and what follows it read.
    fn read_last(&self, work: &Work, chunk: &Chunk, progress: &Progress) -> Vec<Range<usize>> {
        if let Some(Residual::Product(product)) = &self.residual {
            let count = product.division.tiles(self.shape.co);
            let diagonals = product.wgt..product.wgt + count;
            return Vec::from([diagonals]);
        }
        let half = (progress.weights + 1) % self.tile.halves;
        let mut read = vec![self.weight_tiles(work, chunk, half)];
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
        let reads = match self.conv.residual {
            Some(Residual::Start(..)) => true,
            Some(Residual::Stored(_)) => !preloads,
            Some(Residual::Product(_)) | None => false,
        };
        let used = &self.e.lowering.seam.acc;
        let waits = reads
            || meet(&tiles(work, acc), used)
            || vectors.is_some_and(|tiles| meet(&tiles, used));
        self.e.wait(Done::EarlyStored)?;
        if waits {
            self.e.hand_on()?;
        }
        self.load_vectors(&work.co)?;
        if !preloads {
            self.load_stored(work, acc, false)?;
        }
        self.start_sums(work, acc)?;
        if waits { Ok(()) } else { self.e.hand_on() }
    }

    /// Loads constants before the first chunk's input: its weights as soon as their half is
    /// free, then the bias of its blocks, which has a token of its own, and the next weights if
    /// the bus is what the layer waits for.
    pub(super) fn load_constants(&mut self) -> Result<(), LowerError> {
        let mut chunks = self
            .works
            .iter()
            .flat_map(|w| w.chunks.iter().map(move |c| (w, c)));
        let Some((work, chunk)) = chunks.next() else {
            return Ok(());
        };
        self.load_first(work, chunk)?;
        let weights = self.conv.shape.co * self.conv.shape.weight_row();
        let config = self.e.lowering.config;
        let beats =
            (weights * config.elem_bytes(self.conv.shape.weights_mem())).div_ceil(BUS_BYTES) as u64;
        let next = chunks.find(|(w, c)| w.weights(c) != work.weights(chunk));
        if let Some((work, chunk)) = next
            && self.conv.tile.halves > 1
            && !self.conv.shape.ones
            && beats > self.conv.shape.products()
        {
            let half = self.progress.weights % self.conv.tile.halves * self.conv.wgt_half;
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

    /// Leaves the tokens of the seam that tiles and chunks don't leave, and says what they mean.
    pub(super) fn leave(&mut self) -> Result<(), LowerError> {
        self.progress.tiles.leave(&mut self.e)?;
        if self.progress.chunks.used() == 0 {
            // The load module took none, and one was handed on to it.
            self.e.wait(Done::EarlyMultiplied)?;
            self.e.settle(Module::Load)?;
        } else {
            self.progress.chunks.leave(&mut self.e)?;
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
        self.e.lowering.seam = Seam { wgt, acc };
        Ok(())
    }
}

/// All accumulators of a tile: its sums and what STOREs read beside them.
fn tiles(work: &Work, acc: &Acc) -> Range<usize> {
    let sums = acc.base + work.co.len() * acc.pitch;
    let [entries, count] = acc.entries;
    acc.base..sums.max(entries + count)
}
