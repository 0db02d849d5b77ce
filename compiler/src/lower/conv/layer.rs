//! A convolution with everything that its tiles need, once its form and tile are chosen.

use std::ops::Range;

use vta_program::BufferId;

use super::super::places::Place;
use super::super::tile::{ConvShape, ConvTile};
use super::division::Division;
use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::Window;

/// One convolution with everything that its tiles need.
pub(super) struct Conv<'g> {
    pub shape: ConvShape,
    pub tile: ConvTile,
    pub input: Place,
    pub weights: BufferId,
    /// Of weights in several parts: which tiles are all zeros, in the order of memory.
    pub blank: Vec<bool>,
    pub bias: Option<Bias>,
    /// Output rows and columns of each region, if there are several: the biases are theirs.
    pub regions: Vec<[Range<usize>; 2]>,
    pub vectors: Option<BufferId>,
    pub residual: Option<Residual<'g>>,
    /// The epilogue, after a bias that the matrix unit adds and without what comes before a
    /// residual that it adds.
    pub epilogue: Vec<LaneOp>,
    pub pool: Option<&'g Window>,
    pub output: Place,
    /// Output rows and columns in memory.
    pub out_size: [usize; 2],
    /// Where a part of each scratchpad starts, in tiles.
    pub inp_half: usize,
    pub wgt_half: usize,
    pub acc_half: usize,
    /// First accumulator tile of the vectors.
    pub vector_base: usize,
}

/// The constants of a bias that the matrix unit adds.
pub(super) struct Bias {
    pub input: BufferId,
    pub digits: BufferId,
    /// The scratchpad tile of the constant input.
    pub inp: usize,
    /// The scratchpad tile of the first block's digits.
    pub wgt: usize,
}

/// A residual.
pub(super) enum Residual<'g> {
    /// Loaded as the start of the sums, then aligned.
    Start(Place, &'g [LaneOp]),
    /// Added by the matrix unit.
    Product(Product),
}

/// Where a tile's sums lie: for each block the first `kept` of every `pitch` tiles from `base`.
#[derive(Clone, Copy)]
pub(super) struct Acc {
    pub base: usize,
    pub pitch: usize,
    pub kept: usize,
}

/// A residual that the matrix unit adds.
pub(super) struct Product {
    pub input: Place,
    pub diagonals: BufferId,
    /// The first scratchpad tile of the residual.
    pub inp: usize,
    /// The first scratchpad tile of the diagonals.
    pub wgt: usize,
    pub division: Division,
}
