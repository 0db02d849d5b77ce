//! Loads of a convolution: inputs and weights of chunks, biases, vectors, each unless it is there.

use std::ops::Range;

use vta_isa::{Load, MemType};

use super::super::LowerError;
use super::super::emit::Emitter;
use super::super::ring::Ring;
use super::super::tile::ConvTile;
use super::super::tokens::Done;
use super::layer::Conv;
use super::work::{Chunk, Transfer, Weights, Work, inputs, run};

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
            self.load_input(e, &blocks, chunk, half)?;
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
            e.load(bias.input, run(0, 1).load(MemType::Inp, bias.inp))?;
        }
        if progress.loaded_bias < co.end {
            let tiles = |blocks: usize| self.shape.bias_tiles(blocks);
            let count = tiles(co.end - progress.loaded_bias);
            let digits = run(tiles(progress.loaded_bias), count);
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
        for t in inputs(blocks, chunk, self.shape.input) {
            e.load(self.input, t.load(MemType::Inp, half))?;
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
            return e.load(self.weights, run(0, 1).load(MemType::Wgt, half));
        }
        let [kh, _] = self.shape.window.kernel;
        let across = self.shape.tiles_across();
        let row = self.shape.ci * kh * across;
        let block = work.co.start * row + chunk.ci.start * kh * across;
        let first = block + chunk.kernel_rows.start * across;
        let rows = Transfer {
            offset: 0,
            dram: first,
            y: work.co.len(),
            x: chunk.ci.len() * chunk.kernel_rows.len() * across,
            stride: row,
        };
        e.load(self.weights, rows.load(MemType::Wgt, half))
    }
}
