//! Levels and launches: which operations may run side by side, and how few launches run them.
//!
//! An operation's level is one more than that of the last operation that it must wait for. All
//! of a level runs in one launch, cut into blocks; levels too small to share are put into one
//! launch of a single work-group that runs them one after the other.

use std::ops::Range;

use vta_isa::resolve::Rows;
use vta_isa::{Config, MemType};

use crate::ops::{OP_WORDS, Op, Room, Shape};
use crate::versions::Scratchpad;

/// DRAM is tracked in at most so many pieces.
const MAX_GRANULES: u64 = 1 << 22;

/// How work is cut for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The cost of a block, at least.
    pub block_cost: u64,
    /// Blocks of an operation, at most.
    pub max_blocks: u32,
    /// A level that costs less is not shared.
    pub small_cost: u64,
    /// The blocks of a level, long ones first, are dealt to so many stripes that follow each
    /// other. A runtime that hands a thread half of a launch at once then gives it a fair half.
    pub stripes: usize,
}

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
    dram_base: u64,
    granule_bytes: u64,
    /// Pieces of DRAM that an operation reads and writes, kept for their memory.
    dram: [Vec<Range<usize>>; 2],
}

impl Levels {
    fn new(config: &Config, room: Room, dram_base: u64, dram_bytes: u64) -> Self {
        // Tiles of activations that lie beside each other must not wait for each other.
        let mut granule_bytes = config.elem_bytes(MemType::Out) as u64;
        while dram_bytes / granule_bytes > MAX_GRANULES {
            granule_bytes *= 2;
        }
        let [inp, wgt, acc] = Scratchpad::ALL.map(|scratchpad| room.tiles(config, scratchpad));
        let dram = dram_bytes.div_ceil(granule_bytes) as usize;
        Self {
            memories: [inp, wgt, acc, dram].map(Track::new),
            dram_base,
            granule_bytes,
            dram: [Vec::new(), Vec::new()],
        }
    }

    fn granules(&self, rows: Option<&Rows>, granules: &mut Vec<Range<usize>>) {
        let (base, granule) = (self.dram_base, self.granule_bytes);
        granules.clear();
        granules.extend(rows.into_iter().flat_map(Rows::apart).map(|row| {
            let (first, end) = (row.start - base, row.end - base);
            (first / granule) as usize..end.div_ceil(granule) as usize
        }));
    }

    fn place(&mut self, op: &Op) -> u32 {
        let t = &op.touches;
        let mut dram = std::mem::take(&mut self.dram);
        self.granules(t.reads_dram.as_ref(), &mut dram[0]);
        self.granules(t.writes_dram.as_ref(), &mut dram[1]);
        let reads = t.reads.iter().chain([&dram[0]]);
        let writes = t.writes.iter().chain([&dram[1]]);
        let first = self.memories.iter().zip(reads.clone().zip(writes.clone()));
        let first = first.map(|(track, (reads, writes))| track.first(reads, writes));
        let level = first.max().unwrap_or(0);
        for (track, (reads, writes)) in self.memories.iter_mut().zip(reads.zip(writes)) {
            track.note(reads, writes, level);
        }
        self.dram = dram;
        level
    }
}

/// What a schedule is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal<'a> {
    pub config: &'a Config,
    pub shape: Shape,
    pub room: Room,
    pub cut: Cut,
    /// Base and bytes of the device's memory buffer.
    pub dram: (u64, u64),
}

/// Orders operations and cuts them.
pub(crate) struct Scheduler<'a> {
    goal: Goal<'a>,
    levels: Levels,
    /// Of each operation.
    sizes: Vec<Size>,
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
}

impl<'a> Scheduler<'a> {
    /// Without an operation.
    pub fn new(goal: Goal<'a>) -> Self {
        Self {
            levels: Levels::new(goal.config, goal.room, goal.dram.0, goal.dram.1),
            goal,
            sizes: Vec::new(),
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
        };
        let mut words = [0; OP_WORDS];
        words[..3].copy_from_slice(&[op.kind as u32, size.units, size.chunk]);
        words[3..3 + op.args.len()].copy_from_slice(&op.args);
        self.out.ops.extend(words);
        self.sizes.push(size);
    }

    /// Units of one block of an operation.
    fn chunk(&self, op: &Op) -> u32 {
        let Goal { shape, cut, .. } = self.goal;
        let unit_cost = (op.cost / u64::from(op.units).max(1)).max(1);
        let wanted = (cut.block_cost / unit_cost).clamp(1, u32::MAX.into()) as u32;
        let least = op.units.div_ceil(cut.max_blocks);
        wanted.max(least).max(1).next_multiple_of(shape.group)
    }

    /// What is to be copied to the device, with the tables that operations share.
    pub fn finish(self, tables: Vec<u32>) -> Scheduled {
        let Self { sizes, mut out, .. } = self;
        let cut = self.goal.cut;
        out.tables = tables;
        let mut order: Vec<u32> = (0..sizes.len() as u32).collect();
        // Long blocks first, so that no work-group starts one when the others are done.
        order.sort_by_key(|&i| {
            let Size { level, cost, .. } = sizes[i as usize];
            (level, std::cmp::Reverse(cost), i)
        });
        let mut small: Option<Launch> = None;
        let mut blocks = Vec::new();
        for ops in order.chunk_by(|&a, &b| sizes[a as usize].level == sizes[b as usize].level) {
            let level = out.levels.len() as u32;
            let first_block = out.blocks.len() / 2;
            out.levels.push(first_block as u32);
            blocks.clear();
            for &op in ops {
                let Size { units, chunk, .. } = sizes[op as usize];
                let firsts = (0..units).step_by(chunk as usize);
                blocks.extend(firsts.map(|first| [op, first]));
            }
            for stripe in 0..cut.stripes {
                let blocks = blocks.iter().skip(stripe).step_by(cut.stripes);
                out.blocks.extend(blocks.flatten());
            }
            let cost: u64 = ops.iter().map(|&op| sizes[op as usize].cost).sum();
            let launch = Launch {
                first_level: level,
                last_level: level + 1,
                groups: (out.blocks.len() / 2 - first_block) as u32,
            };
            match &mut small {
                Some(run) if cost < cut.small_cost => run.last_level = level + 1,
                run => {
                    out.launches.extend(run.take());
                    if cost < cut.small_cost {
                        *run = Some(Launch {
                            groups: 1,
                            ..launch
                        });
                    } else {
                        out.launches.push(launch);
                    }
                }
            }
        }
        out.launches.extend(small);
        out.levels.push(out.blocks.len() as u32 / 2);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Kind, Touches};

    const CUT: Cut = Cut {
        block_cost: 100,
        max_blocks: 4,
        small_cost: 50,
        stripes: 1,
    };

    fn op(cost: u64, touches: Touches) -> Op {
        Op {
            kind: Kind::Chain,
            units: 10,
            args: vec![],
            touches,
            cost,
        }
    }

    fn acc(reads: Range<usize>, writes: Range<usize>) -> Touches {
        Touches::default()
            .reading(Scratchpad::Acc, reads)
            .writing(Scratchpad::Acc, writes)
    }

    fn run(ops: Vec<Op>) -> Scheduled {
        let goal = Goal {
            config: &Config::default(),
            shape: Shape::VECTORS,
            room: Room::default(),
            cut: CUT,
            dram: (0x1000, 1 << 20),
        };
        let mut scheduler = Scheduler::new(goal);
        ops.iter().for_each(|op| scheduler.add(op));
        scheduler.finish(vec![])
    }

    fn levels_of(s: &Scheduled, ops: usize) -> Vec<usize> {
        let level = |op: usize| {
            let at = s.blocks.chunks(2).position(|b| b[0] == op as u32).unwrap();
            s.levels
                .iter()
                .rposition(|first| *first as usize <= at)
                .unwrap()
        };
        (0..ops).map(level).collect()
    }

    #[test]
    fn reads_and_writes_of_a_tile_keep_their_order() {
        let s = run(vec![
            op(500, acc(0..0, 0..8)),   // 0 writes
            op(500, acc(0..0, 8..16)),  // 0 writes elsewhere
            op(500, acc(4..12, 0..0)),  // 1 reads both
            op(500, acc(0..1, 0..0)),   // 1 reads beside it
            op(500, acc(0..0, 11..12)), // 2 writes what was read
            op(500, acc(11..12, 0..0)), // 3 reads that
            op(500, acc(0..0, 0..0)),   // 0 touches nothing
        ]);
        assert_eq!(levels_of(&s, 7), [0, 0, 1, 1, 2, 3, 0]);
        assert_eq!(s.launches.len(), 4);
    }

    #[test]
    fn rows_of_dram_are_ordered_but_not_what_lies_between() {
        let rows = |first, row_bytes, stride_bytes, rows| {
            Some(Rows {
                first,
                row_bytes,
                stride_bytes,
                rows,
            })
        };
        let writes = |dram| Touches {
            writes_dram: dram,
            ..Touches::default()
        };
        let reads = |dram| Touches {
            reads_dram: dram,
            ..Touches::default()
        };
        let s = run(vec![
            op(500, writes(rows(0x1000, 16, 0x1000, 4))),
            op(500, reads(rows(0x1800, 16, 0, 9))),
            op(500, reads(rows(0x3000, 1, 0, 9))),
            op(500, writes(rows(0x3000, 1, 0, 1))),
        ]);
        assert_eq!(levels_of(&s, 4), [0, 0, 1, 2]);
    }

    #[test]
    fn every_unit_is_in_one_block_and_small_levels_share_a_launch() {
        let s = run(vec![
            op(1000, acc(0..4, 0..4)),
            op(10, acc(0..4, 0..4)),
            op(10, acc(0..4, 0..4)),
            op(1000, acc(0..4, 0..4)),
        ]);
        let launch = |first_level, last_level, groups| Launch {
            first_level,
            last_level,
            groups,
        };
        assert_eq!(
            s.launches,
            [launch(0, 1, 4), launch(1, 3, 1), launch(3, 4, 4)]
        );
        let chunk = s.ops[2];
        let firsts: Vec<u32> = s
            .blocks
            .chunks(2)
            .filter(|b| b[0] == 0)
            .map(|b| b[1])
            .collect();
        assert_eq!(chunk, 3);
        assert_eq!(firsts, [0, 3, 6, 9]);
    }

    #[test]
    fn an_empty_batch_has_no_launch() {
        let s = run(vec![]);
        assert!(s.launches.is_empty() && s.levels == [0]);
    }
}
