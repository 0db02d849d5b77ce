//! A convolution as the matrix unit sees it, and its tiles.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use vta_isa::{MemType, Requantize};
use vta_program::listing::ResidualBy;

use super::groups::Groups;
use super::room::Room;
use crate::qgraph::window::Window;

/// Bytes that the bus moves in a cycle, in estimates.
pub(in crate::lower) const BUS_BYTES: usize = 8;

/// A convolution in blocks, as the matrix unit sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Input channel blocks that each output block reads.
    pub ci: usize,
    /// Output channel blocks.
    pub co: usize,
    /// Input rows and columns.
    pub input: [usize; 2],
    /// Output rows and columns.
    pub output: [usize; 2],
    /// From inputs to outputs.
    pub window: Window,
    /// ALU steps for each output tile and immediate operation or two for a vector one.
    pub alu_steps: usize,
    /// Constant vectors.
    pub vectors: usize,
    /// Accumulator tiles of an output block's entry for STOREs that requantise; 0 where they keep the low byte.
    pub entry: usize,
    /// How a residual joins. Loaded into the accumulators it is the sums' start, two beats a tile in which nothing
    /// else is computed, and its lane operations. As products it has an input region of its own.
    pub residual: ResidualBy,
    /// Steps in which the matrix unit adds the bias, 0 if it doesn't: one input tile and as many
    /// weight tiles for each output block and region are resident.
    pub bias: usize,
    /// Strides of a max pool that joins: tiles are whole strides of whole rows.
    pub pool: Option<[usize; 2]>,
    /// Groups, if there are several: which input blocks the `ci` are then depends on the output
    /// block.
    pub groups: Option<Groups>,
    /// How many rectangles of outputs have a bias of their own; 0 where all have the same.
    pub regions: usize,
    /// Output positions in no region, where there are some: nothing is added to their sums.
    pub plain: usize,
    /// Parts that the weights are the sums of: weight tiles for each tap.
    pub weight_parts: usize,
    /// Every weight is 1, from a channel to itself: a sum over windows. One weight tile serves
    /// all taps and blocks.
    pub ones: bool,
    /// The first products on each sum replace what its tile held, so that nothing is cleared.
    pub anew: bool,
    /// Kernel rows whose taps a weight tile holds, where DEPTHWISE multiplies; 0 where GEMM does.
    pub window_rows: usize,
    /// What padding in the scratchpad holds, where that has any: the input's zero point, if the machine has PAD.
    pub pad_value: i8,
    /// Every weight has 4 bits in DRAM, as LOADs of WGT4 read them.
    pub wgt4: bool,
}

/// Which operand stays while the other changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopOrder {
    /// All positions for a group of output channels: weights stay if they are one chunk.
    ChannelsOutside,
    /// All output channels for a group of positions: inputs stay if they are one chunk.
    PositionsOutside,
}

/// A choice of tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvTile {
    /// Output blocks.
    pub co: usize,
    /// Input blocks in a chunk.
    pub ci: usize,
    /// Kernel rows in a chunk.
    pub kernel_rows: usize,
    /// Output rows and columns.
    pub output: [usize; 2],
    /// Parts of the input and weight scratchpads: 2, or 1 when halves are too small.
    pub halves: usize,
    /// Parts of the accumulator scratchpad.
    pub acc_halves: usize,
    /// The outer loop.
    pub order: LoopOrder,
}

impl ConvTile {
    /// Which of a layer's tiles comes last of those that have some blocks, rows and columns of its outputs.
    pub(in crate::lower) fn last(
        &self,
        shape: &ConvShape,
        places: &[Range<usize>; 3],
    ) -> Option<usize> {
        let ([rows, cols], [height, width]) = (self.output, shape.output);
        let sizes = [(self.co, shape.co), (rows, height), (cols, width)];
        let mut at = [0; 3];
        for ((at, range), (size, all)) in at.iter_mut().zip(places).zip(sizes) {
            *at = range.end.min(all).checked_sub(1)? / size;
        }
        let [groups, rows, cols] = sizes.map(|(size, all)| all.div_ceil(size));
        let position = at[1] * cols + at[2];
        Some(match self.order {
            LoopOrder::ChannelsOutside => at[0] * rows * cols + position,
            LoopOrder::PositionsOutside => position * groups + at[0],
        })
    }
}

impl ConvShape {
    /// Input rows (axis 0) or columns (axis 1) that `out` outputs and `kernel` taps touch.
    pub fn extent(&self, axis: usize, out: usize, kernel: usize) -> usize {
        (out - 1) * self.window.stride[axis] + (kernel - 1) * self.window.dilation[axis] + 1
    }

    /// At most how many input rows a chunk of `kernel_rows` taps loads for `out` output rows: one
    /// tap needs one row each.
    pub(in crate::lower) fn height(&self, out: usize, kernel_rows: usize) -> usize {
        match kernel_rows {
            rows if self.window_rows > 0 => self.extent(0, out, rows),
            1 => out,
            _ => self.extent(0, out, kernel_rows).min(self.input[0]),
        }
    }

    /// At most how many input columns a chunk loads for `out` output columns.
    pub(in crate::lower) fn width(&self, out: usize) -> usize {
        let width = self.extent(1, out, self.window.kernel[1]);
        match self.window_rows {
            0 => width.min(self.input[1]),
            // Rows of a window an odd number of tiles apart lie in banks of their own.
            _ => width | 1,
        }
    }

    /// Input rows and columns of an output tile where DEPTHWISE multiplies, padding among them.
    pub(in crate::lower) fn frame(&self, [rows, cols]: [usize; 2]) -> [usize; 2] {
        [self.height(rows, self.window.kernel[0]), self.width(cols)]
    }

    /// The outputs of an axis (0: rows, 1: columns) whose tap lies inside the input.
    pub(in crate::lower) fn valid(&self, axis: usize, tap: usize) -> Range<usize> {
        self.window
            .valid(axis, tap, self.input[axis], self.output[axis])
    }

    /// Output blocks with each of the input blocks that they read.
    pub(in crate::lower) fn block_pairs(&self) -> u64 {
        if self.groups.is_none() {
            return (self.co * self.ci) as u64;
        }
        let pairs = (0..self.co).flat_map(|co| (0..self.ci).map(move |ci| (co, ci)));
        pairs.filter(|&(co, ci)| self.reads(co, ci)).count() as u64
    }

    /// GEMM steps by the first part of the weights: all taps of all outputs but those on padding. Or those of DEPTHWISE.
    pub fn products(&self) -> u64 {
        if self.window_rows > 0 {
            let outputs = self.co * self.output[0] * self.output[1];
            return (outputs * self.window.kernel[0].div_ceil(self.window_rows)) as u64;
        }
        let taps = |axis: usize| -> usize {
            let count = |tap| self.valid(axis, tap).len();
            (0..self.window.kernel[axis]).map(count).sum()
        };
        self.block_pairs() * (taps(0) * taps(1)) as u64
    }

    /// GEMM steps of the mathematics: `CI * KH * KW` blocks for every output, padding included.
    pub fn dense_products(&self) -> u64 {
        let outputs = self.output[0] * self.output[1];
        self.block_pairs() * (outputs * self.window.area()) as u64
    }

    /// From the first sum of an output tile to its residual, if STOREs add that.
    pub(in crate::lower) fn distance(&self, sums: usize) -> Option<usize> {
        let by_store = self.residual == ResidualBy::Store;
        by_store.then(|| sums.next_multiple_of(Requantize::RESIDUAL_TILES))
    }

    /// Accumulator tiles of `co` output blocks of `area` positions: sums, the residual that STOREs add, their entries.
    pub(in crate::lower) fn accumulators(&self, co: usize, area: usize) -> usize {
        let sums = co * area;
        self.distance(sums).unwrap_or(0) + sums + self.entry * co
    }

    /// Input and weight tiles of the scratchpads that are left for chunks when an output tile
    /// has `sums` accumulator tiles. Above them lie the residual, then the bias input; the
    /// diagonals, then the bias.
    pub(in crate::lower) fn streamed(&self, room: &Room<'_>, sums: usize) -> (usize, usize) {
        let (bias, digits) = (self.bias.min(1), self.bias_tiles(self.co));
        let (residual, diagonals) = match self.residual {
            ResidualBy::Product { .. } => (sums, self.diagonals()),
            ResidualBy::None | ResidualBy::Load | ResidualBy::Store => (0, 0),
        };
        (
            room.depth(MemType::Inp).saturating_sub(bias + residual),
            room.depth(MemType::Wgt).saturating_sub(digits + diagonals),
        )
    }

    /// Diagonal weight tiles that are resident for a residual.
    pub(crate) fn diagonals(&self) -> usize {
        match self.residual {
            ResidualBy::None | ResidualBy::Load | ResidualBy::Store => 0,
            ResidualBy::Product { steps, uniform } => {
                steps as usize * if uniform { 1 } else { self.co }
            }
        }
    }

    /// The first input block that an output block reads.
    pub(in crate::lower) fn first_input(&self, co: usize) -> usize {
        self.groups.map_or(0, |g| g.first(co, self.ci))
    }

    /// Input blocks between the first and the last that some output blocks read of `ci`, which
    /// count from each one's first.
    pub(in crate::lower) fn input_blocks(
        &self,
        co: &Range<usize>,
        ci: &Range<usize>,
    ) -> Range<usize> {
        let last = co.end.saturating_sub(1).max(co.start);
        self.first_input(co.start) + ci.start..self.first_input(last) + ci.end
    }

    /// Whether any weight of an output block meets the `ci`-th input block from its first on.
    pub(in crate::lower) fn reads(&self, co: usize, ci: usize) -> bool {
        let touches = |g: Groups| g.touched(co).contains(&(self.first_input(co) + ci));
        self.groups.is_none_or(touches)
    }

    /// Input blocks that a chunk of a tile holds at most.
    pub(in crate::lower) fn chunk_blocks(&self, tile: &ConvTile) -> usize {
        if self.groups.is_none() {
            return tile.ci;
        }
        let blocks = |first: usize| {
            let co = first..(first + tile.co).min(self.co);
            self.input_blocks(&co, &(0..tile.ci)).len()
        };
        let all = (0..self.co).step_by(tile.co.max(1)).map(blocks);
        all.max().unwrap_or(tile.ci)
    }

    /// What weights are loaded as.
    pub(in crate::lower) fn weights_mem(&self) -> MemType {
        if self.wgt4 {
            MemType::Wgt4
        } else {
            MemType::Wgt
        }
    }

    /// Weight tiles of some output blocks, input blocks and kernel rows.
    pub(in crate::lower) fn weight_tiles(&self, [co, ci, kernel_rows]: [usize; 3]) -> usize {
        match self.window_rows {
            _ if self.ones => 1,
            0 => co * ci * kernel_rows * self.tiles_across(),
            rows => co * ci * kernel_rows.div_ceil(rows),
        }
    }

    /// Weight tiles of a kernel row for a pair of blocks.
    pub(in crate::lower) fn tiles_across(&self) -> usize {
        self.window.kernel[1] * self.weight_parts
    }

    /// Weight tiles of an output block.
    pub(in crate::lower) fn weight_row(&self) -> usize {
        match self.window_rows {
            0 => self.ci * self.window.kernel[0] * self.tiles_across(),
            rows => self.window.kernel[0].div_ceil(rows),
        }
    }

    /// Weight tiles of a bias that the matrix unit adds.
    pub(in crate::lower) fn bias_tiles(&self, co: usize) -> usize {
        co * self.regions.max(1) * self.bias
    }

    /// Positions of which one is kept.
    pub(in crate::lower) fn phases(&self) -> usize {
        self.pool.map_or(1, |[s0, s1]| s0 * s1)
    }

    /// Whether every output has an input at some tap.
    pub(in crate::lower) fn has_inner_tap(&self) -> bool {
        (0..2).all(|axis| {
            let whole = |tap| self.valid(axis, tap) == (0..self.output[axis]);
            (0..self.window.kernel[axis]).any(whole)
        })
    }

    /// Columns that a window moves on by and reads anew.
    pub(in crate::lower) fn window_step(&self) -> usize {
        self.window.stride[1].min(self.window.kernel[1])
    }
}

/// How two layers take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lower) struct Order {
    pub tiles: [ConvTile; 2],
    /// Tiles of inputs, weights and accumulators that the second layer has.
    pub room: [usize; 3],
    /// Tiles of the first layer from the last one that a tile of the second reads to the one behind which that comes.
    pub lag: usize,
}
