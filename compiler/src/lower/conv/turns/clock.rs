//! About how many cycles two layers take whose tiles take turns: what modules are given, one after another.

use super::super::super::tile::{BUS_BYTES, ConvShape};
use super::super::work::{Chunk, Work};
use vta_isa::{Config, MemType};

/// A tile that has its turn: which of its layer's, and the last that it reads of the other's.
pub(super) struct Turn {
    pub layer: usize,
    pub tile: usize,
    pub reads: Option<usize>,
}

/// Cycles to begin an instruction, and of a LOAD until its first beat.
const START: usize = 7;
const LATENCY: usize = 22;
/// Halves of a cycle in which a beat is stored, on a machine that reads ahead what it stores and on one that doesn't.
const STORES: [usize; 2] = [2, 3];

/// Cycles that a tile takes.
pub(super) struct Cycles {
    /// Of each chunk: its LOADs, and its products.
    chunks: Vec<[usize; 2]>,
    /// Of its STOREs, on each of two machines.
    store: [usize; 2],
}

impl Cycles {
    /// Of all tiles of a layer.
    pub fn of(shape: &ConvShape, config: &Config, works: &[Work]) -> Vec<Self> {
        let before = works.iter().map(Some);
        let pairs = works.iter().zip(std::iter::once(None).chain(before));
        pairs
            .map(|(work, before)| Self {
                chunks: chunks(shape, config, work, before),
                store: STORES.map(|halves| store(shape, config, work, halves)),
            })
            .collect()
    }

    /// Of all tiles together.
    pub fn sum(all: &[Self]) -> Self {
        let mut sum = Self {
            chunks: vec![[0; 2]],
            store: [0; 2],
        };
        for one in all {
            for at in 0..2 {
                sum.chunks[0][at] += one.chunks.iter().map(|chunk| chunk[at]).sum::<usize>();
                sum.store[at] += one.store[at];
            }
        }
        sum
    }

    /// What two layers take at least, on both machines together.
    pub fn least(sums: [&Self; 2]) -> usize {
        let all = |of: fn(&Self) -> usize| sums.iter().map(|one| of(one)).sum::<usize>();
        let busy = all(|one| one.chunks[0][0]).max(all(|one| one.chunks[0][1]));
        let stores = [all(|one| one.store[0]), all(|one| one.store[1])];
        stores.map(|store| store.max(busy)).iter().sum()
    }
}

fn beats(config: &Config, mem: MemType, tiles: usize) -> usize {
    (tiles * config.elem_bytes(mem)).div_ceil(BUS_BYTES)
}

fn chunks(
    shape: &ConvShape,
    config: &Config,
    work: &Work,
    before: Option<&Work>,
) -> Vec<[usize; 2]> {
    let [co, rows, _] = work.places().map(|range| range.len());
    if shape.window_rows > 0 {
        let [_, height, width] = shape.windows_of(work.places()).map(|range| range.len());
        let load = co * (beats(config, MemType::Inp, height * width) + LATENCY);
        let compute = co * shape.weight_row() * (work.area() * shape.window_step() + START + rows);
        return vec![[load, compute]];
    }
    let alone = before.filter(|_| work.chunks.len() == 1);
    let one = |chunk: &Chunk| {
        let (ci, area) = (chunk.ci.len(), chunk.rows.len * chunk.cols.len);
        let whole = chunk.cols.len == shape.input[1] && chunk.rows.step == 1;
        let mut load = 0;
        if !alone.is_some_and(|before| before.chunks.first() == Some(chunk)) {
            load += beats(config, MemType::Inp, ci * area) + if whole { 1 } else { ci } * LATENCY;
        }
        if !alone.is_some_and(|before| before.co == work.co) {
            let tiles = shape.weight_tiles([co, ci, chunk.kernel_rows.len()]);
            load += beats(config, shape.weights_mem(), tiles) + LATENCY;
        }
        let taps = chunk.kernel_rows.len() * shape.tiles_across();
        [load, co * ci * work.area() * taps + START]
    };
    work.chunks.iter().map(one).collect()
}

fn store(shape: &ConvShape, config: &Config, work: &Work, halves: usize) -> usize {
    let [co, rows, cols] = work.places().map(|range| range.len());
    let whole = cols == shape.output[1];
    let (runs, length, stores) = if whole {
        (co, rows * cols, 1)
    } else {
        (co * rows, cols, co)
    };
    runs * (beats(config, MemType::Out, length) * halves / 2 + 3) + stores * START
}

/// When modules are done with what they were given, in cycles.
#[derive(Default)]
struct Clock {
    load: usize,
    compute: usize,
    store: usize,
    /// Of each layer, when its last two chunks were multiplied and its last two tiles stored.
    multiplied: [[usize; 2]; 2],
    stored: [[usize; 2]; 2],
}

impl Clock {
    /// A tile that reads what was in memory at a time; when its first chunk was multiplied.
    fn tile(&mut self, layer: usize, cycles: &Cycles, machine: usize, from: usize) -> usize {
        let [free, last] = self.stored[layer];
        let mut first = None;
        for [load, compute] in &cycles.chunks {
            let [before, last] = self.multiplied[layer];
            self.load = self.load.max(before).max(from) + load;
            self.compute = self.compute.max(self.load).max(free) + compute;
            self.multiplied[layer] = [last, self.compute];
            first.get_or_insert(self.compute);
        }
        self.store = self.store.max(self.compute) + cycles.store[machine];
        self.stored[layer] = [last, self.store];
        first.unwrap_or(self.compute)
    }
}

/// About how many cycles tiles in turns take, on both machines together.
pub(super) fn time(turns: &[Turn], cycles: [&[Cycles]; 2]) -> usize {
    (0..STORES.len())
        .map(|machine| time_on(turns, cycles, machine))
        .sum()
}

fn time_on(turns: &[Turn], cycles: [&[Cycles]; 2], machine: usize) -> usize {
    let mut clock = Clock::default();
    // When each tile of the first layer is stored, and when its first chunk is multiplied.
    let (mut stored, mut begun): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    for turn in turns {
        let from = turn.reads.map_or(0, |tile| {
            // Compute knows two tiles behind it.
            let told = begun.get(tile + 2).or(stored.get(tile));
            told.copied().unwrap_or(clock.store)
        });
        let cycles = &cycles[turn.layer][turn.tile];
        let first = clock.tile(turn.layer, cycles, machine, from);
        if turn.layer == 0 {
            begun.push(first);
            stored.push(clock.store);
        }
    }
    clock.store
}
