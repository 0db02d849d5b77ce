//! The tiling search for convolutions: a pure function from shape and configuration to tile.
//!
//! A tile is `co` output blocks by `rows` by `cols` output positions; its reduction runs in
//! chunks of `ci` input blocks (and, for kernels too large for the scratchpads, of `kernel_rows`
//! rows). The input and weight scratchpads are split into `halves` (2: loading the next chunk
//! overlaps computing this one), the accumulators likewise (storing overlaps computing).
//!
//! The cost is an estimate in cycles on a bus of 8 bytes a cycle:
//!
//! - load: 8-byte beats of all input and weight tiles loaded, and 23 for each LOAD;
//! - compute: GEMM steps, reset (unless the first products replace what was there), copy or residual load, ALU steps (two a vector step), beats of
//!   vectors, and 7 for each instruction;
//! - store: 1.5 a beat, 1 where STOREs round, and 7 for each STORE;
//! - total: the largest of the three, plus the first chunk's load and the last tile's store,
//!   which nothing overlaps (without halves: the sum of the three).

mod groups;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use vta_isa::{Config, Extension, Gemm, Load, MemType, Requantize};
use vta_program::listing::ResidualBy;

pub use groups::Groups;

use super::transfer::strides;
use crate::qgraph::window::Window;

/// Bytes that the bus moves in a cycle, in estimates.
pub(super) const BUS_BYTES: usize = 8;

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

impl ConvShape {
    /// Input rows (axis 0) or columns (axis 1) that `out` outputs and `kernel` taps touch.
    pub fn extent(&self, axis: usize, out: usize, kernel: usize) -> usize {
        (out - 1) * self.window.stride[axis] + (kernel - 1) * self.window.dilation[axis] + 1
    }

    /// At most how many input rows a chunk of `kernel_rows` taps loads for `out` output rows: one
    /// tap needs one row each.
    fn height(&self, out: usize, kernel_rows: usize) -> usize {
        match kernel_rows {
            rows if self.window_rows > 0 => self.extent(0, out, rows),
            1 => out,
            _ => self.extent(0, out, kernel_rows).min(self.input[0]),
        }
    }

    /// At most how many input columns a chunk loads for `out` output columns.
    fn width(&self, out: usize) -> usize {
        let width = self.extent(1, out, self.window.kernel[1]);
        match self.window_rows {
            0 => width.min(self.input[1]),
            // Rows of a window an odd number of tiles apart lie in banks of their own.
            _ => width | 1,
        }
    }

    /// Input rows and columns of an output tile where DEPTHWISE multiplies, padding among them.
    pub(super) fn frame(&self, [rows, cols]: [usize; 2]) -> [usize; 2] {
        [self.height(rows, self.window.kernel[0]), self.width(cols)]
    }

    /// The outputs of an axis (0: rows, 1: columns) whose tap lies inside the input.
    pub(super) fn valid(&self, axis: usize, tap: usize) -> Range<usize> {
        self.window
            .valid(axis, tap, self.input[axis], self.output[axis])
    }

    /// Output blocks with each of the input blocks that they read.
    fn block_pairs(&self) -> u64 {
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
    pub(super) fn distance(&self, sums: usize) -> Option<usize> {
        let by_store = self.residual == ResidualBy::Store;
        by_store.then(|| sums.next_multiple_of(Requantize::RESIDUAL_TILES))
    }

    /// Accumulator tiles of `co` output blocks of `area` positions: sums, the residual that STOREs add, their entries.
    pub(super) fn accumulators(&self, co: usize, area: usize) -> usize {
        let sums = co * area;
        self.distance(sums).unwrap_or(0) + sums + self.entry * co
    }

    /// Input and weight tiles of the scratchpads that are left for chunks when an output tile
    /// has `sums` accumulator tiles. Above them lie the residual, then the bias input; the
    /// diagonals, then the bias.
    pub(super) fn streamed(&self, config: &Config, sums: usize) -> (usize, usize) {
        let (bias, digits) = (self.bias.min(1), self.bias_tiles(self.co));
        let (residual, diagonals) = match self.residual {
            ResidualBy::Product { .. } => (sums, self.diagonals()),
            ResidualBy::None | ResidualBy::Load | ResidualBy::Store => (0, 0),
        };
        (
            config.depth(MemType::Inp).saturating_sub(bias + residual),
            config
                .depth(MemType::Wgt)
                .saturating_sub(digits + diagonals),
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
    pub(super) fn first_input(&self, co: usize) -> usize {
        self.groups.map_or(0, |g| g.first(co, self.ci))
    }

    /// Input blocks between the first and the last that some output blocks read of `ci`, which
    /// count from each one's first.
    pub(super) fn input_blocks(&self, co: &Range<usize>, ci: &Range<usize>) -> Range<usize> {
        let last = co.end.saturating_sub(1).max(co.start);
        self.first_input(co.start) + ci.start..self.first_input(last) + ci.end
    }

    /// Whether any weight of an output block meets the `ci`-th input block from its first on.
    pub(super) fn reads(&self, co: usize, ci: usize) -> bool {
        let touches = |g: Groups| g.touched(co).contains(&(self.first_input(co) + ci));
        self.groups.is_none_or(touches)
    }

    /// Input blocks that a chunk of a tile holds at most.
    fn chunk_blocks(&self, tile: &ConvTile) -> usize {
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
    pub(super) fn weights_mem(&self) -> MemType {
        if self.wgt4 {
            MemType::Wgt4
        } else {
            MemType::Wgt
        }
    }

    /// Weight tiles of some output blocks, input blocks and kernel rows.
    pub(super) fn weight_tiles(&self, [co, ci, kernel_rows]: [usize; 3]) -> usize {
        match self.window_rows {
            _ if self.ones => 1,
            0 => co * ci * kernel_rows * self.tiles_across(),
            rows => co * ci * kernel_rows.div_ceil(rows),
        }
    }

    /// Weight tiles of a kernel row for a pair of blocks.
    pub(super) fn tiles_across(&self) -> usize {
        self.window.kernel[1] * self.weight_parts
    }

    /// Weight tiles of an output block.
    pub(super) fn weight_row(&self) -> usize {
        match self.window_rows {
            0 => self.ci * self.window.kernel[0] * self.tiles_across(),
            rows => self.window.kernel[0].div_ceil(rows),
        }
    }

    /// Weight tiles of a bias that the matrix unit adds.
    pub(super) fn bias_tiles(&self, co: usize) -> usize {
        co * self.regions.max(1) * self.bias
    }

    /// Positions of which one is kept.
    pub(super) fn phases(&self) -> usize {
        self.pool.map_or(1, |[s0, s1]| s0 * s1)
    }

    /// Whether every output has an input at some tap.
    pub(super) fn has_inner_tap(&self) -> bool {
        (0..2).all(|axis| {
            let whole = |tap| self.valid(axis, tap) == (0..self.output[axis]);
            (0..self.window.kernel[axis]).any(whole)
        })
    }

    /// Rows and columns that an output tile may have.
    fn sides(&self) -> [Vec<usize>; 2] {
        let [oh, ow] = self.output;
        match self.pool {
            None => [parts(oh), parts(ow)],
            Some([s0, _]) => [parts(oh / s0).iter().map(|r| r * s0).collect(), vec![ow]],
        }
    }
}

/// The cheapest tile and its cost.
///
/// # Errors
/// The limit that no tile meets, in words.
pub(super) fn search(shape: &ConvShape, config: &Config) -> Result<(u64, ConvTile), String> {
    check_limits(shape)?;
    let mut best: Option<(u64, ConvTile)> = None;
    for parts in PARTS {
        visit(shape, config, parts, &mut |cost, tile| {
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, tile));
            }
        });
        if best.is_some() {
            break;
        }
    }
    best.ok_or_else(|| explain(shape, config))
}

/// The `count` cheapest tiles with their costs in cycles, cheapest first; the one that the search takes is among them.
pub fn candidates(shape: &ConvShape, config: &Config, count: usize) -> Vec<(u64, ConvTile)> {
    let mut all = Vec::new();
    if check_limits(shape).is_ok() {
        for parts in PARTS {
            visit(shape, config, parts, &mut |cost, tile| {
                all.push((cost, tile))
            });
        }
    }
    // The order of the search breaks ties, as it does there.
    all.sort_by_key(|(cost, _)| *cost);
    all.truncate(count);
    // The search takes the first parts that a tile fits, where others may look cheaper.
    if let Ok(searched) = search(shape, config)
        && !all.contains(&searched)
    {
        all.truncate(count.saturating_sub(1));
        all.push(searched);
    }
    all
}

/// The cost of a tile that comes from elsewhere; `None` when it doesn't fit shape and machine.
pub(super) fn appraise(shape: &ConvShape, config: &Config, tile: &ConvTile) -> Option<u64> {
    check_limits(shape).ok()?;
    let [rows, cols] = shape.sides();
    let known = PARTS.contains(&[tile.halves, tile.acc_halves])
        && parts(shape.co).contains(&tile.co)
        && chunks(shape).contains(&(tile.ci, tile.kernel_rows))
        && rows.contains(&tile.output[0])
        && cols.contains(&tile.output[1]);
    (known && fits(shape, config, tile)).then(|| cost(shape, tile, config, of_all_tiles(shape)))
}

/// Parts of the scratchpads and of the accumulators, best first.
const PARTS: [[usize; 2]; 4] = [[2, 2], [2, 1], [1, 2], [1, 1]];

/// Limits of instruction fields that no tile can avoid.
fn check_limits(shape: &ConvShape) -> Result<(), String> {
    for (name, sides) in [
        ("input columns", shape.input),
        ("output columns", shape.output),
    ] {
        strides(sides, name)?;
    }
    Ok(())
}

fn explain(shape: &ConvShape, config: &Config) -> String {
    let [kh, kw] = shape.window.kernel;
    let (inp, wgt, acc) = (
        config.depth(MemType::Inp),
        config.depth(MemType::Wgt),
        config.depth(MemType::Acc),
    );
    let acc_tiles = shape.accumulators(1, 1) + shape.vectors;
    format!(
        "no tile fits: one output position of a {kh}x{kw} kernel needs, row by row, {kw} weight \
         tiles (the scratchpad holds {wgt}), {} input tiles (it holds {inp}), {} accumulator \
         tiles (it holds {acc}) and {kw} micro-ops (it holds {})",
        shape.extent(1, 1, kw),
        acc_tiles,
        config.depth(MemType::Uop),
    )
}

/// `ceil(n / 1), ceil(n / 2) ..` without repeats.
fn parts(n: usize) -> Vec<usize> {
    let mut parts: Vec<usize> = (1..=n).map(|k| n.div_ceil(k)).collect();
    parts.dedup();
    parts
}

/// Shows `see` every tile that fits, with its cost.
fn visit(
    shape: &ConvShape,
    config: &Config,
    [halves, acc_halves]: [usize; 2],
    see: &mut dyn FnMut(u64, ConvTile),
) {
    let ([rows, cols], same) = (shape.sides(), of_all_tiles(shape));
    for co in parts(shape.co) {
        for (ci, kernel_rows) in chunks(shape) {
            for &r in &rows {
                for &c in &cols {
                    for order in [LoopOrder::ChannelsOutside, LoopOrder::PositionsOutside] {
                        let tile = ConvTile {
                            co,
                            ci,
                            kernel_rows,
                            output: [r, c],
                            halves,
                            acc_halves,
                            order,
                        };
                        if fits(shape, config, &tile) {
                            see(cost(shape, &tile, config, same), tile);
                        }
                    }
                }
            }
        }
    }
}

/// Whether a tile fits the scratchpads and the instruction fields.
fn fits(shape: &ConvShape, config: &Config, tile: &ConvTile) -> bool {
    let [r, c] = tile.output;
    let sums = tile.co * r * c;
    let acc = config
        .depth(MemType::Acc)
        .saturating_sub(shape.vectors * tile.co);
    let (inp, wgt) = shape.streamed(config, sums);
    let weights = shape.weight_tiles([tile.co, tile.ci, tile.kernel_rows]);
    let uops = match shape.window_rows {
        0 => tile.co * tile.ci * tile.kernel_rows * shape.tiles_across() * shape.phases(),
        _ => weights,
    };
    if shape.accumulators(tile.co, r * c) > acc / tile.acc_halves
        || weights > wgt / tile.halves
        || uops > config.depth(MemType::Uop)
    {
        return false;
    }
    let (height, width) = (shape.height(r, tile.kernel_rows), shape.width(c));
    let [row_phases, column_phases] = shape.pool.unwrap_or([1, 1]);
    let row_factor = shape.window.stride[0] * row_phases * width;
    // A pool reads the tile above, which the other half keeps.
    // Weights of one output block are a single row.
    let stride = tile.co == 1 || Load::FIELDS.x_stride.fits(shape.weight_row());
    let order =
        shape.pool.is_none() || (tile.acc_halves == 2 && tile.order == LoopOrder::ChannelsOutside);
    order
        && stride
        && shape.chunk_blocks(tile) * height * width <= inp / tile.halves
        && (Gemm::FIELDS.src_factor_out.fits(row_factor) || r == row_phases)
        && Gemm::FIELDS
            .src_factor_in
            .fits(shape.window.stride[1] * column_phases)
        && Gemm::FIELDS.dst_factor_out.fits(c)
}

/// Reduction chunks: some input blocks with the whole kernel, or one with some kernel rows; where DEPTHWISE multiplies,
/// everything.
fn chunks(shape: &ConvShape) -> Vec<(usize, usize)> {
    if shape.window_rows > 0 {
        return vec![(shape.ci, shape.window.kernel[0])];
    }
    let whole = parts(shape.ci)
        .into_iter()
        .map(|ci| (ci, shape.window.kernel[0]));
    let rows = parts(shape.window.kernel[0])
        .into_iter()
        .skip(1)
        .map(|rows| (1, rows));
    whole.chain(rows).collect()
}

/// Instructions of a chunk's products away from the upper and lower edges: taps whose columns
/// differ are apart.
fn side_groups(shape: &ConvShape) -> usize {
    let mut columns: Vec<_> = (0..shape.window.kernel[1])
        .map(|x| shape.valid(1, x))
        .collect();
    columns.dedup();
    columns.len()
}

/// Cycles of the DEPTHWISE instructions of a tile: a column of a window takes one for every four rows, the first of each
/// row of outputs has all columns.
fn window_cycles(shape: &ConvShape, tile: &ConvTile) -> usize {
    let (across, [rows, cols]) = (shape.window.kernel[1], tile.output);
    let columns = across + (cols - 1) * shape.window.stride[1].min(across);
    let insns = tile.co * shape.weight_row();
    insns * (rows * columns * shape.window_rows.div_ceil(4) + 7)
}

/// What every tile of a shape has: steps of products, and [`side_groups`].
fn of_all_tiles(shape: &ConvShape) -> [usize; 2] {
    [shape.products() as usize, side_groups(shape)]
}

/// How much of a layer's ends goes beside the layers before and behind, where STOREs round: most where these have compute to do.
fn beside(shape: &ConvShape, ends: usize, [tiles, chunks]: [usize; 2]) -> usize {
    match shape.window_rows {
        1.. if tiles > 1 => ends * 3 / 4,
        0 if tiles > 1 && tiles * chunks > 3 => ends / 4,
        _ => 0,
    }
}

fn cost(
    shape: &ConvShape,
    tile: &ConvTile,
    config: &Config,
    [products, side_groups]: [usize; 2],
) -> u64 {
    let [oh, ow] = shape.output;
    let beats = |mem: MemType, n: usize| (n * config.elem_bytes(mem)).div_ceil(BUS_BYTES);
    let (groups, positions) = (
        shape.co.div_ceil(tile.co),
        oh.div_ceil(tile.output[0]) * ow.div_ceil(tile.output[1]),
    );
    let chunks = shape.ci.div_ceil(tile.ci) * shape.window.kernel[0].div_ceil(tile.kernel_rows);
    let tiles = groups * positions;
    let (stay_wgt, stay_inp) = (
        chunks == 1 && tile.order == LoopOrder::ChannelsOutside,
        chunks == 1 && tile.order == LoopOrder::PositionsOutside && shape.groups.is_none(),
    );
    let height = shape.height(tile.output[0], tile.kernel_rows);
    let width = shape.width(tile.output[1]);
    let blocks = shape.chunk_blocks(tile);
    // Padding isn't on the bus.
    let inside = height.min(shape.input[0]) * width.min(shape.input[1]);
    let inp_chunk = beats(MemType::Inp, blocks * inside) + 23 * blocks;
    let weights = shape.weight_tiles([tile.co, tile.ci, tile.kernel_rows]);
    let wgt_chunk = beats(shape.weights_mem(), weights) + 23;
    let inp_loads = if stay_inp { positions } else { tiles * chunks };
    let wgt_loads = if shape.ones {
        1
    } else if stay_wgt {
        groups
    } else {
        tiles * chunks
    };
    let outputs = shape.co * oh * ow;
    let residual = match shape.residual {
        ResidualBy::None => 0,
        _ => beats(MemType::Acc8, outputs) + 23 * tiles,
    };
    let (_, streamed) = shape.streamed(config, 0);
    let resident = beats(MemType::Wgt, config.depth(MemType::Wgt) - streamed);
    // Loads of the compute module share the bus.
    let load = inp_loads * inp_chunk + wgt_loads * wgt_chunk + residual + resident;
    let gemm = match shape.window_rows {
        0 => products + 7 * tiles * chunks * side_groups,
        _ => tiles * window_cycles(shape, tile),
    };
    // The load module may bring what STOREs read.
    let preloads = config.extensions().contains(Extension::Preload);
    let own = |cycles: usize| if preloads { 0 } else { cycles };
    let start = match shape.residual {
        ResidualBy::Load => residual,
        ResidualBy::Store if shape.anew => own(residual),
        ResidualBy::Store => own(residual) + outputs,
        _ if shape.anew => 0,
        ResidualBy::None | ResidualBy::Product { .. } => outputs,
    };
    let vector_loads = if tile.order == LoopOrder::ChannelsOutside {
        groups
    } else {
        tiles
    };
    // Each half of the accumulators has entries of its own.
    let entries = tiles.min(vector_loads * tile.acc_halves);
    let entries = entries * beats(MemType::Acc, shape.entry * tile.co);
    let vectors = vector_loads * beats(MemType::Acc, shape.vectors * tile.co) + own(entries);
    let load = load + entries - own(entries);
    let kept = outputs / shape.phases();
    // About two comparisons for each position.
    let pooling = if shape.pool.is_some() { 2 * outputs } else { 0 };
    let added = if shape.bias > 0 { shape.bias } else { 2 };
    let steps = (kept * shape.alu_steps).saturating_sub(shape.co * shape.plain * added);
    // A single digit of the bias takes the place of what would clear.
    let instructions =
        3 + shape.regions.max(1) + shape.alu_steps - usize::from(shape.anew && shape.bias == 1);
    let compute = gemm + start + vectors + pooling + steps + 7 * tiles * instructions;
    // What STOREs that round take more: for each row in DRAM, and to read residuals. Others wait for ALU steps.
    let rows = if tile.output[1] < ow {
        tile.output[0]
    } else {
        1
    };
    let residuals = usize::from(shape.residual == ResidualBy::Store) * kept;
    let rounded = usize::from(shape.entry > 0) * (3 * tiles * tile.co * rows + residuals);
    // Where STOREs round, layers are bound by the bus, and by little: what is loaded counts beside the longest.
    let half_cycles = if shape.entry == 0 { 3 } else { 2 };
    let store = beats(MemType::Out, kept) * half_cycles / 2 + 7 * tiles * tile.co + rounded;
    let ends = inp_chunk + wgt_chunk + store / tiles.max(1);
    let (fill, compute) = if shape.entry == 0 {
        (ends, compute)
    } else {
        // Where one operand stays, both come beside the last chunk that has the old one.
        let changes = match (stay_wgt, stay_inp) {
            (true, _) => groups - 1,
            (_, true) => positions - 1,
            _ => 0,
        };
        let late = (inp_chunk + wgt_chunk).saturating_sub(compute / tiles);
        (
            ends - beside(shape, ends, [tiles, chunks]) + load / 16,
            compute + changes * late,
        )
    };
    let total = match (tile.halves, tile.acc_halves) {
        (2, 2) => load.max(compute).max(store) + fill,
        (2, _) => load.max(compute + store) + fill,
        (_, 2) => (load + compute).max(store) + fill,
        _ => load + compute + store,
    };
    total as u64
}
