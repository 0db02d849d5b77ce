//! A convolution with everything that its tiles need, once its form and tile are chosen, and what is known while they
//! are emitted.

use std::ops::Range;

use vta_isa::MemType;
use vta_program::BufferId;
use vta_program::listing::{ConvGeometry, Role};
use vta_program::packing::halves;

use super::super::emit::Emitter;
use super::super::geometry::window;
use super::super::lowering::Lowering;
use super::super::ring::Ring;
use super::super::tile::{ConvShape, ConvTile, Room};
use super::super::tokens::Done;
use super::super::transfer::Base;
use super::choice::Choice;
use super::division::Division;
use super::pack::{self, Digits};
use super::parts::Parts;
use super::work::{Chunk, Weights, Work};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::Window;

/// One convolution with everything that its tiles need.
pub(super) struct Conv<'g> {
    pub shape: ConvShape,
    pub tile: ConvTile,
    pub input: Base,
    /// What padding in the scratchpad holds.
    pub pad_value: i8,
    pub weights: BufferId,
    /// Of weights in several parts: which tiles are all zeros, in the order of memory.
    pub blank: Vec<bool>,
    pub bias: Option<Bias>,
    /// Output rows and columns of each region, if there are several: the biases are theirs.
    pub regions: Vec<[Range<usize>; 2]>,
    /// Sums start as copies of the regions that are vectors.
    pub copies_bias: bool,
    pub vectors: Option<BufferId>,
    /// Entries of STOREs that requantise.
    pub roundings: Option<BufferId>,
    pub residual: Option<Residual<'g>>,
    /// The epilogue, after a bias that the matrix unit adds and without what comes before a
    /// residual that it adds.
    pub epilogue: Vec<LaneOp>,
    pub pool: Option<&'g Window>,
    pub output: Base,
    /// Output rows and columns in memory.
    pub out_size: [usize; 2],
    /// The parts of the scratchpads.
    pub inp: Places,
    pub wgt: Places,
    pub acc: Places,
    /// First accumulator tile of the vectors.
    pub vector_base: usize,
    /// Its weights and its STOREs' entries stay, those of all blocks.
    pub stays: bool,
}

/// Parts of a scratchpad that a layer fills in turn, in tiles.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// Where the first starts.
    pub first: usize,
    pub size: usize,
    pub count: usize,
}

impl Places {
    /// Some tiles in equal parts.
    pub fn new(tiles: Range<usize>, count: usize) -> Self {
        Self {
            first: tiles.start,
            size: tiles.len() / count,
            count,
        }
    }

    /// The first tile of the part that has its turn.
    pub const fn at(&self, turn: usize) -> usize {
        self.first + turn % self.count * self.size
    }

    /// All tiles of that part.
    pub const fn part(&self, turn: usize) -> Range<usize> {
        self.at(turn)..self.at(turn) + self.size
    }
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

/// What the sums of a tile start from, if not from a residual or a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Tiles that are cleared.
    Cleared,
    /// The first digit of the bias.
    Bias,
    /// The first products.
    Products,
}

/// A residual.
pub(super) enum Residual<'g> {
    /// Loaded as the start of the sums, then aligned.
    Start(Base, &'g [LaneOp]),
    /// Added by the matrix unit.
    Product(Product),
    /// Added by the STOREs.
    Stored(Base),
}

/// Where a tile's sums lie: for each block the first `kept` of every `pitch` tiles from `base`.
#[derive(Clone, Copy)]
pub(super) struct Acc {
    pub base: usize,
    pub pitch: usize,
    pub kept: usize,
    /// From a sum to its residual, if STOREs add that.
    pub distance: Option<usize>,
    /// The first tile of the STOREs' entries, and how many they are.
    pub entries: [usize; 2],
}

/// A residual that the matrix unit adds.
pub(super) struct Product {
    pub input: Base,
    pub diagonals: BufferId,
    /// The first scratchpad tile of the residual.
    pub inp: usize,
    /// The first scratchpad tile of the diagonals.
    pub wgt: usize,
    pub division: Division,
}

/// A convolution whose tiles are being emitted, one after another, or two that take turns.
pub(super) struct Walk<'r, 'l, 'a> {
    pub conv: &'r Conv<'r>,
    pub progress: Progress,
    /// The one whose turn it isn't, and which of the two that is.
    pub other: Option<(&'r Conv<'r>, Progress)>,
    pub waits: usize,
    pub e: Emitter<'l, 'a>,
    /// The tiles up to the next cut, as far as it is known, and how many were before them.
    pub works: &'r [Work],
    pub first: usize,
    pub early: Early,
    /// How many tiles and chunks were used up, since the last cut.
    pub tiles: usize,
    pub chunks: usize,
    /// The number of the token that a tile is stored.
    pub stored: Vec<usize>,
    /// Tokens to the load module, by number, and how many tokens of stored tiles compute took before each.
    pub told: Vec<[usize; 2]>,
}

/// How a layer starts before all outputs of the layer before are in memory.
#[derive(Default)]
pub(super) struct Early {
    /// Chunks that are loaded before.
    pub chunks: usize,
    /// About how many cycles products took so far.
    pub spent: usize,
    /// The number of the token that all of them are, once compute has handed it on.
    pub handed: Option<usize>,
    /// Whether it still has to take the token that the layer before reads no scratchpad any more.
    pub owes: bool,
}

/// What the parts of a convolution hold, since the last cut.
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
    /// Output blocks whose entries lie in each half, and where.
    pub loaded_entries: [Option<(Range<usize>, usize)>; 2],
    /// Output blocks whose weights are there to stay.
    pub staying: usize,
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
            loaded_entries: [None, None],
            staying: 0,
            loaded_bias: 0,
            loaded_diagonals: 0,
        }
    }
}

impl Lowering<'_> {
    /// Packs the constants and divides the scratchpads.
    pub(super) fn prepare<'g>(
        &mut self,
        parts: &Parts<'g>,
        choice: Choice,
        room: &Room<'_>,
    ) -> Conv<'g> {
        let Choice {
            cost: _,
            shape,
            tile,
            digits,
            product,
            epilogue,
            regions: places,
        } = choice;
        let block = self.config.block();
        let depth = |mem: MemType| room.depth(mem);
        let base = |mem: MemType| room.first(mem);
        let sums = tile.co * tile.output[0] * tile.output[1];
        let (inp, wgt) = shape.streamed(room, sums);
        // Vectors lie at the end; the parts for sums share what is in front of them.
        let stays = room.stays;
        let kept = if stays {
            shape.entry * shape.co
        } else {
            shape.vectors * tile.co
        };
        let vector_base = base(MemType::Acc) + depth(MemType::Acc) - kept;
        let [_, channels] = parts.channels;
        let taps = parts.weights.len() / (channels * shape.weight_parts).max(1);
        let packed = pack::weights(parts.weights, [channels, taps], &shape, block);
        let blank = pack::blank(&packed, &shape, block);
        let (role, packed) = match shape.wgt4 {
            true => {
                let tiles = packed.chunks(block * block);
                (Role::Weights4, tiles.flat_map(halves).collect())
            }
            false => (Role::Weights, packed),
        };
        let weights = self.constant(parts.name, role, packed);
        let bias = digits.map(|digits| self.bias(parts.name, digits, &shape));
        let ops = parts.prologue(product.as_ref()).iter().chain(&epilogue);
        let regions = places.iter().filter(|_| bias.is_none());
        let regions = regions.map(|region| &region.bias[..]);
        let lists: Vec<&[i32]> = regions.chain(ops.filter_map(LaneOp::vector)).collect();
        let vectors = self.vectors(parts.name, &lists, shape.co);
        let (batch, store) = (self.config.batch(), parts.store);
        let roundings = store.map(|store| pack::roundings(store, shape.co, batch, block));
        let roundings = roundings.map(|bytes| self.constant(parts.name, Role::Roundings, bytes));
        let stored = store.and_then(|store| store.residual.as_ref());
        let stored = stored.map(|(id, ..)| Residual::Stored(self.base(*id)));
        let residual = parts.residual.map(|(id, ops)| {
            let input = self.base(id);
            let Some(division) = product else {
                return Residual::Start(input, ops);
            };
            let packed = division.pack(shape.co, block);
            Residual::Product(Product {
                input,
                diagonals: self.constant(parts.name, Role::Diagonals, packed),
                inp,
                wgt,
                division,
            })
        });
        let divided = |mem, tiles, count| Places::new(base(mem)..base(mem) + tiles, count);
        let output = parts.pool.map_or(parts.output, |p| p.output);
        let [_, oh, ow] = self.tile_chw(output);
        Conv {
            input: self.base(parts.input),
            pad_value: shape.pad_value,
            weights,
            blank,
            bias,
            regions: places.into_iter().map(|r| r.places).collect(),
            copies_bias: self.copies(shape.residual, shape.plain),
            vectors,
            roundings,
            residual: residual.or(stored),
            epilogue,
            pool: parts.pool.map(|p| p.window),
            output: self.base(output),
            out_size: [oh, ow],
            inp: divided(MemType::Inp, inp, tile.halves),
            wgt: divided(MemType::Wgt, wgt, if stays { 1 } else { tile.halves }),
            acc: Places::new(base(MemType::Acc)..vector_base, tile.acc_halves),
            vector_base,
            stays,
            shape,
            tile,
        }
    }

    /// The constant of vectors for `co` output blocks, if there are any.
    pub(in crate::lower) fn vectors(
        &mut self,
        name: &str,
        lists: &[&[i32]],
        co: usize,
    ) -> Option<BufferId> {
        let (batch, block) = (self.config.batch(), self.config.block());
        let bytes = pack::vectors(lists, co, batch, block);
        (!lists.is_empty()).then(|| self.constant(name, Role::Vectors, bytes))
    }

    /// The constants of a bias that the matrix unit adds, at the ends of their scratchpads.
    fn bias(&mut self, name: &str, digits: Digits, shape: &ConvShape) -> Bias {
        let input = pack::bias_input(self.config);
        let depth = |mem: MemType| self.config.depth(mem);
        let (inp, wgt) = (depth(MemType::Inp) - 1, depth(MemType::Wgt));
        Bias {
            input: self.constant(name, Role::BiasInput, input),
            digits: self.constant(name, Role::Bias, digits.tiles),
            inp,
            wgt: wgt - shape.bias_tiles(shape.co),
        }
    }
}

impl Conv<'_> {
    /// What a convolution computes, for listings. Of one whose form is chosen; its tile and its instructions have no part in it.
    pub(super) fn geometry(&self, parts: &Parts<'_>) -> ConvGeometry {
        let shape = &self.shape;
        let range = |range: &Range<usize>| [range.start as u32, range.end as u32];
        let blank = (0..).zip(&self.blank).filter(|(_, blank)| **blank);
        // Rows that were cut anew are those of the tensor again; gathered patches have a window of their own.
        let listed = if shape.window.area() == parts.window.area() {
            parts.window
        } else {
            &shape.window
        };
        ConvGeometry {
            window: window(listed),
            output: shape.output.map(|size| size as u32),
            group: parts.group as u32,
            parts: shape.weight_parts as u32,
            blank: match shape.weight_parts {
                1 => Vec::new(),
                _ => blank.map(|(at, _)| at).collect(),
            },
            bias_steps: match &self.bias {
                Some(_) => shape.bias as u32,
                None => 0,
            },
            regions: self
                .regions
                .iter()
                .map(|region| region.each_ref().map(range))
                .collect(),
            residual: shape.residual,
            window_rows: shape.window_rows as u32,
            pool: self.pool.map(window),
        }
    }
}
