//! How a convolution starts beside the end of the layer before, and what it leaves to the next.

use std::ops::Range;

use vta_isa::{MemType, Module};

use super::super::LowerError;
use super::super::emit::Emitter;
use super::super::seam::{Seam, meet};
use super::super::tile::BUS_BYTES;
use super::super::tokens::Done;
use super::layer::{Acc, Conv, Residual};
use super::loads::Progress;
use super::work::{Chunk, Work};

impl Conv<'_> {
    /// Chooses the halves of the first weights and sums so that they don't touch what the layer
    /// before still uses, where that is possible.
    pub(super) fn enter(
        &self,
        e: &Emitter<'_, '_>,
        works: &[Work],
    ) -> Result<Progress, LowerError> {
        let mut progress = Progress::new(&self.tile);
        let Some(work) = works.first() else {
            return Ok(progress);
        };
        let seam = &e.lowering.seam;
        let halves = 0..self.tile.halves;
        if let Some(chunk) = work.chunks.first() {
            let clear = |&half: &usize| !self.touches(seam, work, chunk, half);
            progress.weights = halves.clone().find(clear).unwrap_or(0);
        }
        let clear = |&tile: &usize| !meet(&tiles(work, &self.acc(work, tile)), &seam.acc);
        progress.first_acc = (0..self.tile.acc_halves).find(clear).unwrap_or(0);
        Ok(progress)
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

    /// The first tile's start. Sums are cleared beside the last stores of the layer before, if
    /// those read other tiles; the token that its outputs are in memory goes on to the load
    /// module.
    pub(super) fn start_first(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        acc: &Acc,
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let vectors = self.vectors.map(|_| {
            let count = self.shape.vectors * work.co.len();
            self.vector_base..self.vector_base + count
        });
        let reads = matches!(self.residual, Some(Residual::Start(..)));
        let used = &e.lowering.seam.acc;
        let waits = reads
            || meet(&tiles(work, acc), used)
            || vectors.is_some_and(|tiles| meet(&tiles, used));
        e.wait(Done::EarlyStored)?;
        if waits {
            e.hand_on()?;
        }
        self.load_vectors(e, &work.co, progress)?;
        self.start_sums(e, work, acc)?;
        if waits { Ok(()) } else { e.hand_on() }
    }

    /// Loads constants before the first chunk's input: its weights as soon as their half is
    /// free, then the bias of its blocks, which has a token of its own, and the next weights if
    /// the bus is what the layer waits for.
    pub(super) fn load_constants(
        &self,
        e: &mut Emitter<'_, '_>,
        works: &[Work],
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let mut chunks = works
            .iter()
            .flat_map(|w| w.chunks.iter().map(move |c| (w, c)));
        let Some((work, chunk)) = chunks.next() else {
            return Ok(());
        };
        self.load_first(e, work, chunk, progress)?;
        let taps = self.shape.window.kernel[0] * self.shape.tiles_across();
        let weights = self.shape.co * self.shape.ci * taps;
        let config = e.lowering.config;
        let beats = (weights * config.elem_bytes(MemType::Wgt)).div_ceil(BUS_BYTES) as u64;
        let next = chunks.find(|(w, c)| w.weights(c) != work.weights(chunk));
        if let Some((work, chunk)) = next
            && self.tile.halves > 1
            && !self.shape.ones
            && beats > self.shape.products()
        {
            let half = progress.weights % self.tile.halves * self.wgt_half;
            self.fetch_weights(e, work, chunk, half)?;
            progress.ahead = Some(work.weights(chunk));
        }
        Ok(())
    }

    fn load_first(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let touches = self.touches(&e.lowering.seam, work, chunk, progress.weights);
        e.wait(Done::EarlyMultiplied)?;
        if touches {
            e.wait(Done::LastMultiplied)?;
        }
        self.load_weights(e, work, chunk, progress)?;
        if !touches {
            e.wait(Done::LastMultiplied)?;
        }
        // Pooled sums get theirs at the end, where the chunk's token has told of it.
        if self.bias_first() && self.bias.is_some() {
            self.load_bias(e, &work.co, progress)?;
            e.tell(Done::BiasLoaded)?;
        }
        e.settle(Module::Load)
    }

    /// Leaves the tokens of the seam that tiles and chunks don't leave, and says what they mean.
    pub(super) fn leave(
        &self,
        e: &mut Emitter<'_, '_>,
        works: &[Work],
        progress: &Progress,
    ) -> Result<(), LowerError> {
        progress.tiles.leave(e)?;
        if progress.chunks.used() == 0 {
            // The load module took none, and one was handed on to it.
            e.wait(Done::EarlyMultiplied)?;
            e.settle(Module::Load)?;
        } else {
            progress.chunks.leave(e)?;
        }
        let Some(work) = works.last() else {
            return Ok(());
        };
        let last = progress.first_acc + progress.tiles.used() - 1;
        let acc = tiles(work, &self.acc(work, last));
        let mut last_first = works.iter().rev();
        let multiplied = last_first.find_map(|w| w.chunks.last().map(|chunk| (w, chunk)));
        let wgt = match multiplied {
            Some((work, chunk)) => self.read_last(work, chunk, progress),
            None => e.lowering.seam.wgt.clone(),
        };
        e.lowering.seam = Seam { wgt, acc };
        Ok(())
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

/// All tiles of a tile's sums.
fn tiles(work: &Work, acc: &Acc) -> Range<usize> {
    acc.base..acc.base + work.co.len() * acc.pitch
}
