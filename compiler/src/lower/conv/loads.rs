//! Loads of a convolution: inputs and weights of chunks, biases, vectors, each unless it is there.

use std::ops::Range;

use vta_isa::{Extension, Load, MemType};

use super::super::LowerError;
use super::super::tokens::Done;
use super::super::transfer::{Transfer, transfers};
use super::layer::{Acc, Conv, Residual, Walk};
use super::work::{Chunk, Work, inputs};

/// Output blocks whose weights are loaded beside a chunk of the other layer.
const AHEAD: usize = 4;

impl Conv<'_> {
    /// The transfers of a chunk's inputs to a place.
    pub(super) fn inputs(&self, work: &Work, chunk: &Chunk, sram: usize) -> Vec<Transfer> {
        if self.shape.window_rows > 0 {
            return self.windows(work, sram).0;
        }
        let blocks = self.shape.input_blocks(&work.co, &chunk.ci);
        inputs(self.input, &blocks, chunk, self.shape.input, sram)
    }

    /// The transfers of a tile's residual that STOREs add, to a place.
    pub(super) fn residual(&self, work: &Work, [sram, pitch]: [usize; 2]) -> Vec<Transfer> {
        match &self.residual {
            Some(Residual::Stored(input)) => {
                transfers(*input, work.places(), self.out_size, [sram, pitch])
            }
            _ => Vec::new(),
        }
    }

    /// The half of the accumulators in which a tile's sums are.
    fn half(&self, acc: &Acc) -> usize {
        usize::from(acc.base > self.acc.first)
    }
}

impl Walk<'_, '_, '_> {
    /// Loads what a tile's STOREs read beside its sums: their entries, unless its half has them, and a residual.
    /// `preload`: by the load module.
    pub(super) fn load_stored(
        &mut self,
        work: &Work,
        acc: &Acc,
        preload: bool,
    ) -> Result<(), LowerError> {
        self.load_entries(work, acc, preload)?;
        let to = [acc.base + acc.distance.unwrap_or(0), acc.pitch];
        let mut residual = self.conv.residual(work, to).into_iter();
        residual.try_for_each(|rows| self.e.load_by(MemType::Acc8, preload, rows))
    }

    /// Loads the entries of a tile's blocks, or of all if they stay, unless they are there.
    fn load_entries(&mut self, work: &Work, acc: &Acc, preload: bool) -> Result<(), LowerError> {
        if let Some(buffer) = self
            .conv
            .roundings
            .filter(|_| self.lacks_entries(work, acc))
        {
            let entry = self.conv.shape.entry;
            let [first, count] = acc.entries;
            self.progress.loaded_entries[self.conv.half(acc)] = Some((work.co.clone(), first));
            let entries = match self.conv.stays {
                true => Transfer::run(
                    buffer,
                    [self.conv.vector_base, 0],
                    self.conv.shape.co * entry,
                ),
                false => Transfer::run(buffer, [first, work.co.start * entry], count),
            };
            self.e.load_by(MemType::Acc, preload, entries)?;
        }
        Ok(())
    }

    /// Loads some more of what stays of the other layer, beside the products of a chunk: all at once would take longer than those.
    pub(super) fn load_ahead(&mut self) -> Result<(), LowerError> {
        let Some((other, progress)) = &self.other else {
            return Ok(());
        };
        let (to, waits) = (other.shape.co.min(progress.staying + AHEAD), self.waits);
        // Before, the layer before may use its place.
        if other.stays && self.tiles > 0 && self.has_taken_outputs() {
            self.turn(waits);
            self.load_staying(to)?;
            self.turn(1 - waits);
        }
        Ok(())
    }

    /// Loads what stays up to an output block, unless it is there: weights, and entries if the load module can do so.
    fn load_staying(&mut self, to: usize) -> Result<(), LowerError> {
        let (conv, from) = (self.conv, self.progress.staying);
        if from >= to {
            return Ok(());
        }
        self.progress.staying = to;
        let run = |buffer, first: usize, each: usize| {
            let places = [first + from * each, from * each];
            Transfer::run(buffer, places, (to - from) * each)
        };
        let weights = run(conv.weights, conv.wgt.first, conv.shape.weight_row());
        self.e.load(conv.shape.weights_mem(), weights)?;
        let lacks = self.progress.loaded_entries == [None, None];
        match conv.roundings.filter(|_| lacks && self.loads_entries()) {
            Some(entries) => {
                let entries = run(entries, conv.vector_base, conv.shape.entry);
                self.e.load_by(MemType::Acc, true, entries)
            }
            None => Ok(()),
        }
    }

    /// Whether the load module brings entries that stay with their weights. Beside the first tile STOREs of the layer before may read their
    /// place.
    fn loads_entries(&self) -> bool {
        self.tiles > 0 && self.e.has(Extension::Preload)
    }

    /// Whether the load module brings what [`Self::load_stored`] loads, beside the tile's products, and there is any. Vectors
    /// it doesn't bring: it would have to wait for lane operations that take long, and inputs behind them, too.
    pub(super) fn preloads(&self, work: &Work, acc: &Acc) -> bool {
        let residual = matches!(self.conv.residual, Some(Residual::Stored(_)));
        let entries = self.conv.roundings.is_some() && self.lacks_entries(work, acc);
        self.e.has(Extension::Preload) && !work.chunks.is_empty() && (residual || entries)
    }

    fn lacks_entries(&self, work: &Work, acc: &Acc) -> bool {
        if self.conv.stays {
            return !self.loads_entries() && self.progress.loaded_entries == [None, None];
        }
        let entries = &self.progress.loaded_entries[self.conv.half(acc)];
        *entries != Some((work.co.clone(), acc.entries[0]))
    }

    pub(super) fn load_vectors(&mut self, co: &Range<usize>) -> Result<(), LowerError> {
        let Some(buffer) = self.conv.vectors else {
            return Ok(());
        };
        if self.progress.loaded_vectors.as_ref() == Some(co) {
            return Ok(());
        }
        self.progress.loaded_vectors = Some(co.clone());
        // Rows lie `co.len()` apart in the scratchpad, however short the last group is.
        let vectors = Transfer {
            base: buffer.into(),
            sram: self.conv.vector_base,
            dram: co.start,
            size: [self.conv.shape.vectors, co.len()],
            stride: self.conv.shape.co,
            step: 1,
        };
        self.e.load(MemType::Acc, vectors)
    }

    /// Loads what the chunk needs and the halves don't hold yet; with a tile's first chunk, the
    /// bias of its blocks.
    pub(super) fn load_chunk(
        &mut self,
        work: &Work,
        chunk: &Chunk,
        first: bool,
    ) -> Result<(), LowerError> {
        self.progress.chunks.fill(&mut self.e)?;
        let early = self.early.chunks;
        if self.chunks >= early {
            if early > 0 && !self.has_taken_outputs() {
                // Meanwhile the layer before stores.
                self.load_weights(work, chunk)?;
            }
            self.take_outputs()?;
        }
        self.take_stored(work)?;
        let blocks = self.conv.shape.input_blocks(&work.co, &chunk.ci);
        let places = [blocks, work.rows.clone(), work.cols.clone()];
        let input = (chunk.clone(), places);
        if self.progress.loaded_input.as_ref() != Some(&input) {
            let half = self.conv.inp.at(self.progress.inputs);
            if self.conv.shape.window_rows > 0 {
                self.load_windows(work, half)?;
            } else {
                for rows in self.conv.inputs(work, chunk, half) {
                    self.e.load(MemType::Inp, rows)?;
                }
            }
            self.progress.loaded_input = Some(input);
            self.progress.inputs += 1;
        }
        self.load_weights(work, chunk)?;
        if first {
            self.load_bias(&work.co)?;
        }
        self.e.tell(Done::Loaded)?;
        self.take_multiplied()
    }

    /// Groups come in ascending order, so what is resident is a prefix.
    pub(super) fn load_bias(&mut self, co: &Range<usize>) -> Result<(), LowerError> {
        let Some(bias) = &self.conv.bias else {
            return Ok(());
        };
        if self.progress.loaded_bias == 0 {
            self.e
                .load(MemType::Inp, Transfer::run(bias.input, [bias.inp, 0], 1))?;
        }
        if self.progress.loaded_bias < co.end {
            let [from, end] =
                [self.progress.loaded_bias, co.end].map(|co| self.conv.shape.bias_tiles(co));
            let digits = Transfer::run(bias.digits, [bias.wgt + from, from], end - from);
            self.e.load(MemType::Wgt, digits)?;
            self.progress.loaded_bias = co.end;
        }
        Ok(())
    }

    /// Loads the chunk's weights unless they were loaded last.
    pub(super) fn load_weights(&mut self, work: &Work, chunk: &Chunk) -> Result<(), LowerError> {
        if self.conv.stays {
            return self.load_staying(work.co.end);
        }
        let weights = work.weights(chunk);
        let resident = self.conv.shape.ones && self.progress.loaded_weights.is_some();
        if resident || self.progress.loaded_weights.as_ref() == Some(&weights) {
            return Ok(());
        }
        let half = self.conv.wgt.at(self.progress.weights);
        self.progress.weights += 1;
        let ahead = self.progress.ahead.take().filter(|ahead| *ahead == weights);
        self.progress.loaded_weights = Some(weights);
        if ahead.is_some() {
            return Ok(());
        }
        self.fetch_weights(work, chunk, half)
    }

    /// Loads a chunk's weights to a place.
    pub(super) fn fetch_weights(
        &mut self,
        work: &Work,
        chunk: &Chunk,
        half: usize,
    ) -> Result<(), LowerError> {
        if self.conv.shape.ones {
            let tile = Transfer::run(self.conv.weights, [half, 0], 1);
            return self.e.load(MemType::Wgt, tile);
        }
        let shape = &self.conv.shape;
        let [kh, _] = shape.window.kernel;
        let before = |ci: usize, rows: usize| shape.weight_tiles([1, ci, rows]);
        let row = shape.weight_row();
        let tiles = before(chunk.ci.len(), chunk.kernel_rows.len());
        let rows = Transfer {
            base: self.conv.weights.into(),
            sram: half,
            dram: work.co.start * row
                + before(chunk.ci.start, kh)
                + before(1, chunk.kernel_rows.start),
            size: [work.co.len(), tiles],
            // A row alone has no next one, which might be further away than the field can say.
            stride: if Load::FIELDS.x_stride.fits(row) {
                row
            } else {
                tiles
            },
            step: 1,
        };
        self.e.load(shape.weights_mem(), rows)
    }
}
