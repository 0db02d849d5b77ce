//! About how many cycles a convolution takes with a tile.

use vta_isa::{Extension, MemType};
use vta_program::listing::ResidualBy;

use super::room::Room;
use super::shape::{BUS_BYTES, ConvShape, ConvTile, LoopOrder};

/// Cycles for which a layer has the modules, and those at its ends.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::lower) struct Busy {
    pub load: usize,
    pub compute: usize,
    pub store: usize,
    pub ends: usize,
}

impl Busy {
    /// Of two layers that take turns.
    pub fn and(self, other: Self) -> Self {
        Self {
            load: self.load + other.load,
            compute: self.compute + other.compute,
            store: self.store + other.store,
            ends: self.ends + other.ends,
        }
    }

    /// Cycles in all.
    pub fn total(self, tile: &ConvTile) -> u64 {
        let Self {
            load,
            compute,
            store,
            ends,
        } = self;
        let total = match (tile.halves, tile.acc_halves) {
            (2, 2) => load.max(compute).max(store) + ends,
            (2, _) => load.max(compute + store) + ends,
            (_, 2) => (load + compute).max(store) + ends,
            _ => load + compute + store,
        };
        total as u64
    }
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
pub(super) fn of_all_tiles(shape: &ConvShape) -> [usize; 2] {
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

/// For how long a tile keeps the modules busy.
pub(super) fn busy(
    shape: &ConvShape,
    tile: &ConvTile,
    room: &Room<'_>,
    [products, side_groups]: [usize; 2],
) -> Busy {
    let [oh, ow] = shape.output;
    let beats = |mem: MemType, n: usize| (n * room.config.elem_bytes(mem)).div_ceil(BUS_BYTES);
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
    let (_, streamed) = shape.streamed(room, 0);
    let resident = beats(MemType::Wgt, room.depth(MemType::Wgt) - streamed);
    // Loads of the compute module share the bus.
    let load = inp_loads * inp_chunk + wgt_loads * wgt_chunk + residual + resident;
    let gemm = match shape.window_rows {
        0 => products + 7 * tiles * chunks * side_groups,
        _ => tiles * window_cycles(shape, tile),
    };
    // The load module may bring what STOREs read.
    let preloads = room.config.extensions().contains(Extension::Preload);
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
    let (ends, compute) = if shape.entry == 0 {
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
    Busy {
        load,
        compute,
        store,
        ends,
    }
}
