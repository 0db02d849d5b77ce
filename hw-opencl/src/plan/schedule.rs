//! Levels and launches: which operations may run side by side, and how few launches run them.
//!
//! An operation's level is one more than that of the last operation that it must wait for. All
//! of a level runs in one launch, cut into blocks; levels too small to share are put into one
//! launch of a single work-group that runs them one after the other.

use std::collections::HashMap;
use std::ops::Range;

use vta_isa::MemType;

use crate::plan::ops::{OP_WORDS, Op};
use crate::plan::target::Target;
use crate::plan::versions::Scratchpad;
use crate::plan::views::{Refresh, Side};

/// DRAM is tracked in at most so many pieces.
const MAX_GRANULES: u64 = 1 << 22;

/// One launch: levels and work-groups. Only a single work-group runs more than one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub first_level: u32,
    pub last_level: u32,
    pub groups: u32,
}

/// What the kernel reads, ready to be copied to the device.
#[derive(Debug, Default)]
pub(crate) struct Scheduled {
    /// `OP_WORDS` for each operation.
    pub ops: Vec<u32>,
    /// Pairs of operation and first unit.
    pub blocks: Vec<u32>,
    /// First block of each level, and the end of the last.
    pub levels: Vec<u32>,
    pub tables: Vec<u32>,
    pub launches: Vec<Launch>,
    /// What is copied to 2D images before each launch, and at the end.
    pub refreshes: Vec<Vec<Refresh>>,
}

/// The last levels that wrote and read each piece of a memory, plus one.
struct Track {
    wrote: Vec<u32>,
    read: Vec<u32>,
}

impl Track {
    fn new(pieces: usize) -> Self {
        Self {
            wrote: vec![0; pieces],
            read: vec![0; pieces],
        }
    }

    /// The first level in which something that reads and writes these pieces may run.
    fn first(&self, reads: &[Range<usize>], writes: &[Range<usize>]) -> u32 {
        let after = |levels: &[u32], pieces: &[Range<usize>]| {
            let levels = pieces.iter().flat_map(|r| &levels[r.clone()]);
            levels.copied().max().unwrap_or(0)
        };
        let behind_writes = after(&self.wrote, reads).max(after(&self.wrote, writes));
        behind_writes.max(after(&self.read, writes))
    }

    /// Notes what is read and written in a level.
    fn note(&mut self, reads: &[Range<usize>], writes: &[Range<usize>], level: u32) {
        for (levels, pieces) in [(&mut self.read, reads), (&mut self.wrote, writes)] {
            for range in pieces {
                for last in &mut levels[range.clone()] {
                    *last = (*last).max(level + 1);
                }
            }
        }
    }
}

/// The levels of all operations, in program order.
struct Levels {
    /// The scratchpads in the order of `Scratchpad`, and DRAM.
    memories: [Track; 4],
    granule_bytes: usize,
}

impl Levels {
    fn new(target: &Target) -> Self {
        let (config, (_, dram_bytes)) = (&target.config, target.dram);
        // Tiles of activations that lie beside each other must not wait for each other.
        let mut granule_bytes = config.elem_bytes(MemType::Out) as u64;
        while dram_bytes / granule_bytes > MAX_GRANULES {
            granule_bytes *= 2;
        }
        let [inp, wgt, acc] =
            Scratchpad::ALL.map(|scratchpad| target.room.tiles(config, scratchpad));
        let dram = dram_bytes.div_ceil(granule_bytes) as usize;
        Self {
            memories: [inp, wgt, acc, dram].map(Track::new),
            granule_bytes: granule_bytes as usize,
        }
    }

    fn place(&mut self, op: &Op) -> u32 {
        let granule = self.granule_bytes;
        let granules = |bytes: &Vec<Range<usize>>| -> Vec<_> {
            let granules = bytes.iter();
            granules
                .map(|b| b.start / granule..b.end.div_ceil(granule))
                .collect()
        };
        let t = &op.touches;
        let (reads, writes) = (granules(&t.reads_dram), granules(&t.writes_dram));
        let memories = || {
            let reads = t.reads.iter().chain([&reads]);
            reads.zip(t.writes.iter().chain([&writes]))
        };
        let tracks = self.memories.iter().zip(memories());
        let first = tracks.map(|(track, (reads, writes))| track.first(reads, writes));
        let level = first.max().unwrap_or(0);
        for (track, (reads, writes)) in self.memories.iter_mut().zip(memories()) {
            track.note(reads, writes, level);
        }
        level
    }
}

/// Orders operations and cuts them.
pub(crate) struct Scheduler {
    target: Target,
    levels: Levels,
    /// Of each operation.
    sizes: Vec<Size>,
    /// What operations write that 2D images must take over.
    fills: HashMap<u32, Vec<Refresh>>,
    /// What is known while operations come.
    out: Scheduled,
}

/// What of an operation is needed when all have their levels.
#[derive(Clone, Copy, Debug)]
struct Size {
    level: u32,
    units: u32,
    /// Units of one block.
    chunk: u32,
    cost: u64,
    side: Side,
}

impl Scheduler {
    /// Without an operation.
    pub fn new(target: Target) -> Self {
        Self {
            levels: Levels::new(&target),
            target,
            sizes: Vec::new(),
            fills: HashMap::new(),
            out: Scheduled::default(),
        }
    }

    /// The next operation, in an order in which they may run one after the other.
    pub fn add(&mut self, op: &Op) {
        let size = Size {
            level: self.levels.place(op),
            units: op.units,
            chunk: self.chunk(op),
            cost: op.cost,
            side: Side::of(op, self.target.scopes),
        };
        let fills = Refresh::of(&op.touches, self.target.scopes, self.target.tile_bytes);
        if !fills.is_empty() {
            self.fills.insert(self.sizes.len() as u32, fills);
        }
        let mut words = [0; OP_WORDS];
        words[..3].copy_from_slice(&[op.kind as u32, size.units, size.chunk]);
        words[3..3 + op.args.len()].copy_from_slice(&op.args);
        self.out.ops.extend(words);
        self.sizes.push(size);
    }

    /// Units of one block of an operation.
    fn chunk(&self, op: &Op) -> u32 {
        let Target { shape, cut, .. } = self.target;
        let unit_cost = (op.cost / u64::from(op.units).max(1)).max(1);
        let wanted = (cut.block_cost / unit_cost).clamp(1, u32::MAX.into()) as u32;
        let least = op.units.div_ceil(cut.max_blocks);
        wanted.max(least).max(1).next_multiple_of(shape.group)
    }

    /// What is to be copied to the device, with the tables that operations share.
    pub fn finish(self, tables: Vec<u32>) -> Scheduled {
        let Self {
            sizes,
            mut fills,
            mut out,
            ..
        } = self;
        let cut = self.target.cut;
        out.tables = tables;
        let mut order: Vec<u32> = (0..sizes.len() as u32).collect();
        // Long blocks first, so that no work-group starts one when the others are done.
        order.sort_by_key(|&i| {
            let Size { level, cost, .. } = sizes[i as usize];
            (level, std::cmp::Reverse(cost), i)
        });
        let mut launcher = Launcher::default();
        let mut blocks = Vec::new();
        let levels = order.chunk_by(|&a, &b| sizes[a as usize].level == sizes[b as usize].level);
        let levels = levels.flat_map(|ops| Side::apart(ops, |op| sizes[op as usize].side));
        for (side, ops) in levels {
            let level = out.levels.len() as u32;
            let first_block = out.blocks.len() / 2;
            out.levels.push(first_block as u32);
            blocks.clear();
            for &op in &ops {
                let Size { units, chunk, .. } = sizes[op as usize];
                let firsts = (0..units).step_by(chunk as usize);
                blocks.extend(firsts.map(|first| [op, first]));
            }
            for stripe in 0..cut.stripes {
                let blocks = blocks.iter().skip(stripe).step_by(cut.stripes);
                out.blocks.extend(blocks.flatten());
            }
            let cost: u64 = ops.iter().map(|&op| sizes[op as usize].cost).sum();
            let groups = (out.blocks.len() / 2 - first_block) as u32;
            launcher.level(level, side, (cost >= cut.small_cost).then_some(groups));
            let fills = ops.iter().filter_map(|op| fills.remove(op));
            launcher.stale.extend(fills.flatten());
        }
        (out.launches, out.refreshes) = launcher.finish();
        out.levels.push(out.blocks.len() as u32 / 2);
        out
    }
}

/// Makes launches of levels, one after the other.
#[derive(Default)]
struct Launcher {
    launches: Vec<Launch>,
    refreshes: Vec<Vec<Refresh>>,
    /// What of 2D images is older than the buffers.
    stale: Vec<Refresh>,
    /// What the last launch does, when it is one of small levels that another may join.
    open: Option<Side>,
}

impl Launcher {
    /// The next level, shared by so many work-groups, or small.
    fn level(&mut self, level: u32, side: Side, shared: Option<u32>) {
        if shared.is_none()
            && let Some(both) = self.open.and_then(|open| open.with(side))
            && let Some(last) = self.launches.last_mut()
        {
            last.last_level = level + 1;
            self.open = Some(both);
            self.refresh(side);
            return;
        }
        self.launches.push(Launch {
            first_level: level,
            last_level: level + 1,
            groups: shared.unwrap_or(1),
        });
        self.refreshes.push(Vec::new());
        self.refresh(side);
        self.open = shared.is_none().then_some(side);
    }

    /// Copies what the last launch reads. What is stale then was filled by earlier ones: a launch
    /// that fills reads nothing.
    fn refresh(&mut self, side: Side) {
        if side == Side::Reads
            && let Some(before) = self.refreshes.last_mut()
        {
            before.extend(Refresh::merged(std::mem::take(&mut self.stale)));
        }
    }

    /// The launches, and the copies before each and at the end, where the next batch finds every
    /// image up to date.
    fn finish(mut self) -> (Vec<Launch>, Vec<Vec<Refresh>>) {
        self.refreshes.push(Refresh::merged(self.stale));
        (self.launches, self.refreshes)
    }
}

#[cfg(test)]
mod tests;
