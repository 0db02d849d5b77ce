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

mod cost;
mod groups;
mod room;
mod shape;

use vta_isa::{Config, Gemm, Load, MemType};

pub(super) use cost::Busy;
use cost::{busy, of_all_tiles};
pub use groups::Groups;
pub(super) use room::Room;
pub(super) use shape::{BUS_BYTES, Order};
pub use shape::{ConvShape, ConvTile, LoopOrder};

use super::transfer::strides;

/// The cheapest tile and its cost.
///
/// # Errors
/// The limit that no tile meets, in words.
pub(super) fn search(shape: &ConvShape, room: &Room<'_>) -> Result<(u64, ConvTile), String> {
    check_limits(shape)?;
    let mut best: Option<(u64, ConvTile)> = None;
    for parts in PARTS {
        visit(shape, room, parts, &mut |busy, tile| {
            let cost = busy.total(&tile);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, tile));
            }
        });
        if best.is_some() {
            break;
        }
    }
    best.ok_or_else(|| explain(shape, room))
}

/// The `count` tiles with two parts of each scratchpad that are cheapest beside what another layer keeps busy.
pub(super) fn cheapest(
    shape: &ConvShape,
    room: &Room<'_>,
    beside: Busy,
    count: usize,
) -> Vec<ConvTile> {
    let mut all = Vec::new();
    if check_limits(shape).is_ok() {
        visit(shape, room, PARTS[0], &mut |busy, tile| {
            all.push((busy.and(beside).total(&tile), tile));
        });
    }
    all.sort_by_key(|(cost, _)| *cost);
    all.into_iter().map(|(_, tile)| tile).take(count).collect()
}

/// The `count` cheapest tiles with their costs in cycles, cheapest first; the one that the search takes is among them.
pub fn candidates(shape: &ConvShape, config: &Config, count: usize) -> Vec<(u64, ConvTile)> {
    let room = &Room::all(config);
    let mut all = Vec::new();
    if check_limits(shape).is_ok() {
        for parts in PARTS {
            visit(shape, room, parts, &mut |busy, tile| {
                all.push((busy.total(&tile), tile));
            });
        }
    }
    // The order of the search breaks ties, as it does there.
    all.sort_by_key(|(cost, _)| *cost);
    all.truncate(count);
    // The search takes the first parts that a tile fits, where others may look cheaper.
    if let Ok(searched) = search(shape, room)
        && !all.contains(&searched)
    {
        all.truncate(count.saturating_sub(1));
        all.push(searched);
    }
    all
}

/// What a tile that comes from elsewhere keeps busy; `None` when it doesn't fit shape and machine.
pub(super) fn appraise(shape: &ConvShape, room: &Room<'_>, tile: &ConvTile) -> Option<Busy> {
    check_limits(shape).ok()?;
    let [rows, cols] = shape.sides();
    let known = PARTS.contains(&[tile.halves, tile.acc_halves])
        && parts(shape.co).contains(&tile.co)
        && chunks(shape).contains(&(tile.ci, tile.kernel_rows))
        && rows.contains(&tile.output[0])
        && cols.contains(&tile.output[1]);
    (known && fits(shape, room, tile)).then(|| busy(shape, tile, room, of_all_tiles(shape)))
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

fn explain(shape: &ConvShape, room: &Room<'_>) -> String {
    let [kh, kw] = shape.window.kernel;
    let (inp, wgt, acc) = (
        room.depth(MemType::Inp),
        room.depth(MemType::Wgt),
        room.depth(MemType::Acc),
    );
    let acc_tiles = shape.accumulators(1, 1) + shape.vectors;
    format!(
        "no tile fits: one output position of a {kh}x{kw} kernel needs, row by row, {kw} weight \
         tiles (the scratchpad holds {wgt}), {} input tiles (it holds {inp}), {} accumulator \
         tiles (it holds {acc}) and {kw} micro-ops (it holds {})",
        shape.extent(1, 1, kw),
        acc_tiles,
        room.depth(MemType::Uop),
    )
}

impl ConvShape {
    /// Rows and columns that an output tile may have.
    fn sides(&self) -> [Vec<usize>; 2] {
        let [oh, ow] = self.output;
        match self.pool {
            None => [parts(oh), parts(ow)],
            Some([s0, _]) => [parts(oh / s0).iter().map(|r| r * s0).collect(), vec![ow]],
        }
    }
}

/// `ceil(n / 1), ceil(n / 2) ..` without repeats.
fn parts(n: usize) -> Vec<usize> {
    let mut parts: Vec<usize> = (1..=n).map(|k| n.div_ceil(k)).collect();
    parts.dedup();
    parts
}

/// Shows `see` every tile that fits, with what it keeps busy.
fn visit(
    shape: &ConvShape,
    room: &Room<'_>,
    [halves, acc_halves]: [usize; 2],
    see: &mut dyn FnMut(Busy, ConvTile),
) {
    let ([rows, cols], same) = (shape.sides(), of_all_tiles(shape));
    for co in parts(shape.co) {
        for (ci, kernel_rows) in chunks(shape) {
            // Of tiles that cost the same the widest is first: its rows are long runs of DRAM.
            for &c in &cols {
                for &r in &rows {
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
                        if fits(shape, room, &tile) {
                            see(busy(shape, &tile, room, same), tile);
                        }
                    }
                }
            }
        }
    }
}

/// Whether a tile fits the scratchpads and the instruction fields.
fn fits(shape: &ConvShape, room: &Room<'_>, tile: &ConvTile) -> bool {
    let [r, c] = tile.output;
    let sums = tile.co * r * c;
    let (inp, wgt) = shape.streamed(room, sums);
    let weights = shape.weight_tiles([tile.co, tile.ci, tile.kernel_rows]);
    let kept = shape.vectors * tile.co;
    // Each part of the accumulators has entries, or all blocks have theirs behind them.
    let (kept, used, wgt) = if room.stays {
        let used = shape.accumulators(tile.co, r * c) - shape.entry * tile.co;
        (shape.entry * shape.co, used, wgt * tile.halves)
    } else {
        (kept, shape.accumulators(tile.co, r * c), wgt)
    };
    let acc = room.depth(MemType::Acc).saturating_sub(kept);
    let uops = match shape.window_rows {
        0 => tile.co * tile.ci * tile.kernel_rows * shape.tiles_across() * shape.phases(),
        _ => weights,
    };
    if used > acc / tile.acc_halves
        || weights > wgt / tile.halves
        || uops > room.depth(MemType::Uop)
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
