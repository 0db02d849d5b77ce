//! Levels and launches: which operations may run side by side, and how few launches run them.
//!
//! An operation's level is one more than that of the last operation that it must wait for. All
//! of a level runs in one launch, cut into blocks; levels too small to share are put into one
//! launch of a single work-group that runs them one after the other.

use std::collections::HashMap;
use std::ops::Range;

use vta_isa::resolve::Rows;
use vta_isa::{Config, MemType};

use crate::ops::{OP_WORDS, Op, Room, Shape};
use crate::scopes::Scopes;
use crate::versions::Scratchpad;
use crate::views::{Refresh, Side};

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
    pub scopes: Scopes,
    /// Bytes of a tile of each scratchpad.
    pub tile_bytes: [u64; 3],
    /// Base and bytes of the device's memory buffer.
    pub dram: (u64, u64),
}

/// Orders operations and cuts them.
pub(crate) struct Scheduler<'a> {
    goal: Goal<'a>,
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

impl<'a> Scheduler<'a> {
    /// Without an operation.
    pub fn new(goal: Goal<'a>) -> Self {
        Self {
            levels: Levels::new(goal.config, goal.room, goal.dram.0, goal.dram.1),
            goal,
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
            side: Side::of(op, self.goal.scopes),
        };
        let fills = Refresh::of(&op.touches, self.goal.scopes, self.goal.tile_bytes);
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
        let Goal { shape, cut, .. } = self.goal;
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
        let cut = self.goal.cut;
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
        run_in(Scopes::default(), ops)
    }

    fn run_in(scopes: Scopes, ops: Vec<Op>) -> Scheduled {
        let goal = Goal {
            config: &Config::default(),
            shape: Shape::VECTORS,
            room: Room::default(),
            cut: CUT,
            scopes,
            tile_bytes: [16, 256, 64],
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

    /// Loads weights and multiplies them, small or not.
    fn fill_and_read(cost: u64, tiles: Range<usize>) -> [Op; 2] {
        let fill = Touches::default().writing(Scratchpad::Wgt, tiles.clone());
        let read = acc(0..4, 0..4).reading(Scratchpad::Wgt, tiles);
        [op(cost, fill), op(cost, read)]
    }

    #[test]
    fn no_launch_fills_what_it_reads_through_a_view() {
        let groups = |scopes: &str, cost| {
            let ops = [0..4, 4..8, 0..4].map(|tiles| fill_and_read(cost, tiles));
            let s = run_in(scopes.parse().unwrap(), ops.into_iter().flatten().collect());
            let kinds = s.launches.iter().map(|launch| {
                let first = s.levels[launch.first_level as usize] as usize;
                let end = s.levels[launch.last_level as usize] as usize;
                let blocks = s.blocks.chunks(2).take(end).skip(first);
                let (fills, reads): (Vec<u32>, Vec<u32>) =
                    blocks.map(|b| b[0]).partition(|op| op % 2 == 0);
                [fills.is_empty(), reads.is_empty()].map(|none| !none)
            });
            kinds.collect::<Vec<_>>()
        };
        // Loads of other tiles share the products' levels, and small levels share launches.
        for cost in [10, 500] {
            assert!(groups("weights=buffer", cost).contains(&[true, true]));
            assert!(groups("activations=image", cost).contains(&[true, true]));
            for scope in ["constant", "image", "image2d"] {
                let found = groups(&format!("weights={scope}"), cost);
                assert!(!found.contains(&[true, true]), "{scope} {found:?}");
                assert!(found.len() >= 4, "{scope} {found:?}");
            }
        }
    }

    #[test]
    fn copies_come_between_what_fills_and_what_reads() {
        let scopes: Scopes = "weights=image2d".parse().unwrap();
        let of = |s: &Scheduled| s.refreshes.iter().map(Vec::len).collect::<Vec<_>>();
        let chain = || op(10, acc(8..9, 8..9));
        let [fill, read] = fill_and_read(10, 0..4);
        // Small levels that neither fill nor read join either launch.
        let s = run_in(scopes, vec![fill.clone(), read.clone(), read.clone()]);
        assert_eq!((s.launches.len(), of(&s)), (2, vec![0, 1, 0]));
        let s = run_in(scopes, vec![fill.clone()]);
        assert_eq!(
            (s.launches.len(), of(&s)),
            (1, vec![0, 1]),
            "for the next batch"
        );
        let s = run_in(scopes, vec![read.clone()]);
        assert_eq!((s.launches.len(), of(&s)), (1, vec![0, 0]));
        let large = op(500, acc(20..21, 20..21));
        let after = op(10, acc(20..21, 0..1));
        let s = run_in(scopes, vec![fill, large, chain(), chain(), after, read]);
        let first = s.refreshes.iter().position(|r| !r.is_empty()).unwrap();
        assert_eq!(of(&s).iter().sum::<usize>(), 1);
        assert!(first > 0 && first < s.launches.len(), "{:?}", s.launches);
        for scopes in ["weights=image", "weights=constant", "activations=image2d"] {
            let ops = fill_and_read(10, 0..4).to_vec();
            assert_eq!(
                of(&run_in(scopes.parse().unwrap(), ops))
                    .iter()
                    .sum::<usize>(),
                0
            );
        }
    }

    #[test]
    fn an_empty_batch_has_no_launch() {
        let s = run(vec![]);
        assert!(s.launches.is_empty() && s.levels == [0]);
    }
}
