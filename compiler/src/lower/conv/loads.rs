//! Loads of a convolution: inputs and weights of chunks, biases, vectors, each unless it is there.

use std::ops::Range;

use vta_isa::MemType;

use super::super::LowerError;
use super::super::emit::Emitter;
use super::super::ring::Ring;
use super::super::tile::ConvTile;
use super::super::tokens::Done;
use super::super::transfer::Transfer;
use super::layer::Conv;
use super::work::{Chunk, Weights, Work, inputs};

/// What the halves hold and how many chunks were started, over a whole layer.
pub(super) struct Progress {
    /// Of the input and weight scratchpads, by chunks.
    pub chunks: Ring,
    /// Of the accumulators, by tiles.
    pub tiles: Ring,
    /// Loads so far, and where the first went: its half.
    pub inputs: usize,
    pub weights: usize,
    /// The accumulator half of the first tile.
    pub first_acc: usize,
    /// With its input blocks and the output rows and columns.
    pub loaded_input: Option<(Chunk, [Range<usize>; 3])>,
    pub loaded_weights: Option<Weights>,
    /// Weights that were loaded before those of their chunk were due.
    pub ahead: Option<Weights>,
    pub loaded_vectors: Option<Range<usize>>,
    /// Output blocks whose bias is resident.
    pub loaded_bias: usize,
    /// Output blocks whose diagonals are resident.
    pub loaded_diagonals: usize,
}

impl Progress {
    pub fn new(tile: &ConvTile) -> Self {
        Self {
            chunks: Ring::new(tile.halves, Done::Multiplied),
            tiles: Ring::new(tile.acc_halves, Done::Stored),
            inputs: 0,
            weights: 0,
            first_acc: 0,
            loaded_input: None,
            loaded_weights: None,
            ahead: None,
            loaded_vectors: None,
            loaded_bias: 0,
            loaded_diagonals: 0,
        }
    }
}

impl Conv<'_> {
    pub(super) fn load_vectors(
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
        let vectors = Transfer {
            base: buffer.into(),
            sram: self.vector_base,
            dram: co.start,
            size: [self.shape.vectors, co.len()],
            stride: self.shape.co,
            step: 1,
        };
        e.load(MemType::Acc, vectors)
    }

    /// Loads what the chunk needs and the halves don't hold yet; with a tile's first chunk, the
    /// bias of its blocks.
    pub(super) fn load_chunk(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        progress: &mut Progress,
        first: bool,
    ) -> Result<(), LowerError> {
        progress.chunks.fill(e, Some(Done::InMemory))?;
        let blocks = self.shape.input_blocks(&work.co, &chunk.ci);
        let places = [blocks.clone(), work.rows.clone(), work.cols.clone()];
        let input = (chunk.clone(), places);
        if progress.loaded_input.as_ref() != Some(&input) {
            let half = progress.inputs % self.tile.halves * self.inp_half;
            for rows in inputs(self.input, &blocks, chunk, self.shape.input, half) {
                e.load(MemType::Inp, rows)?;
            }
            progress.loaded_input = Some(input);
            progress.inputs += 1;
        }
        self.load_weights(e, work, chunk, progress)?;
        if first {
            self.load_bias(e, &work.co, progress)?;
        }
        e.tell(Done::Loaded)
    }

    /// Groups come in ascending order, so what is resident is a prefix.
    pub(super) fn load_bias(
        &self,
        e: &mut Emitter<'_, '_>,
        co: &Range<usize>,
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let Some(bias) = &self.bias else {
            return Ok(());
        };
        if progress.loaded_bias == 0 {
            e.load(MemType::Inp, Transfer::run(bias.input, [bias.inp, 0], 1))?;
        }
        if progress.loaded_bias < co.end {
            let [from, end] = [progress.loaded_bias, co.end].map(|co| self.shape.bias_tiles(co));
            let digits = Transfer::run(bias.digits, [bias.wgt + from, from], end - from);
            e.load(MemType::Wgt, digits)?;
            progress.loaded_bias = co.end;
        }
        Ok(())
    }

    /// Loads the chunk's weights unless they were loaded last.
    pub(super) fn load_weights(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let weights = work.weights(chunk);
        let resident = self.shape.ones && progress.loaded_weights.is_some();
        if resident || progress.loaded_weights.as_ref() == Some(&weights) {
            return Ok(());
        }
        let half = progress.weights % self.tile.halves * self.wgt_half;
        progress.weights += 1;
        let ahead = progress.ahead.take().filter(|ahead| *ahead == weights);
        progress.loaded_weights = Some(weights);
        if ahead.is_some() {
            return Ok(());
        }
        self.fetch_weights(e, work, chunk, half)
    }

    /// Loads a chunk's weights to a place.
    pub(super) fn fetch_weights(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        half: usize,
    ) -> Result<(), LowerError> {
        if self.shape.ones {
            return e.load(MemType::Wgt, Transfer::run(self.weights, [half, 0], 1));
        }
        let [kh, _] = self.shape.window.kernel;
        let across = self.shape.tiles_across();
        let row = self.shape.ci * kh * across;
        let block = work.co.start * row + chunk.ci.start * kh * across;
        let tiles = chunk.ci.len() * chunk.kernel_rows.len() * across;
        let rows = Transfer {
            base: self.weights.into(),
            sram: half,
            dram: block + chunk.kernel_rows.start * across,
            size: [work.co.len(), tiles],
            stride: row,
            step: 1,
        };
        e.load(MemType::Wgt, rows)
    }
}
