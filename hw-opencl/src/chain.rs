//! Chains: neighbouring ALU instructions, and GEMM's reset, on the same accumulator tiles run as
//! one operation that holds each tile in registers.

use std::ops::Range;

use vta_isa::AluOperand;
use vta_isa::resolve::{AluAccess, meet, merge};

use crate::ops::{Touches, add_range, narrow};
use crate::runs::{Run, by_visit, push, runs};
use crate::versions::Scratchpad;
use crate::words::{STAGE_WORDS, StageOp, StageOperand, UNTOUCHED};

/// Stages of one chain.
const MAX_STAGES: usize = 64;

/// One operation on some tiles.
#[derive(Clone, Debug)]
struct Stage {
    op: StageOp,
    /// `None` reads source tiles.
    imm: Option<i32>,
    /// Destinations and sources, ascending, each destination once. Without a source tile the
    /// source is the destination.
    runs: Vec<Run>,
}

impl Stage {
    /// Tiles that it writes.
    fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len as usize).sum()
    }
}

/// Stages whose tiles don't depend on each other: no stage reads a tile that the chain writes,
/// except the one that it changes.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    stages: Vec<Stage>,
    /// Tiles that it writes, ascending and apart.
    written: Vec<Range<usize>>,
    /// Likewise those that a stage reads for another tile.
    read: Vec<Range<usize>>,
}

impl Chain {
    /// Zeroes runs of tiles, ascending.
    pub fn clear(runs: impl IntoIterator<Item = Range<u32>>) -> Self {
        let run = |tiles: Range<u32>| Run {
            dst: tiles.start,
            src: tiles.start,
            len: tiles.end - tiles.start,
            step: 1,
        };
        Self::of_stages(vec![Stage {
            op: StageOp::Clear,
            imm: Some(0),
            runs: runs.into_iter().map(run).collect(),
        }])
    }

    /// The stages of an ALU instruction: the n-th step on a tile belongs to the n-th. `None` when
    /// they would depend on each other or be too many.
    pub fn of(access: &AluAccess<'_>, depth: usize) -> Option<Self> {
        let alu = &access.alu;
        let imm = match alu.operand {
            AluOperand::Acc => None,
            AluOperand::Imm(imm) => Some(i32::from(imm)),
        };
        let mut runs = runs(access);
        runs.sort_by_key(|run| run.dst);
        let once = runs.windows(2).all(|w| w[0].written().end <= w[1].dst);
        let lists = match once {
            true => vec![runs],
            false => by_visit(access, depth, MAX_STAGES)?,
        };
        let stage = |runs| Stage {
            op: StageOp::Alu(alu.op),
            imm,
            runs,
        };
        let chain = Self::of_stages(lists.into_iter().map(stage).collect());
        (!meet(&chain.written, &chain.read)).then_some(chain)
    }

    /// A chain that may not be sound.
    fn of_stages(stages: Vec<Stage>) -> Self {
        let runs = || stages.iter().flat_map(|stage| &stage.runs);
        let foreign = runs().filter(|run| !run.in_place());
        Self {
            written: ranges(runs().map(Run::written)),
            read: ranges(foreign.map(Run::read)),
            stages,
        }
    }

    /// Joins another chain to this one; gives it back when it can't, and this one is as it was.
    ///
    /// - *Pattern*: ALU instructions and resets that follow each other on the same accumulator
    ///   tiles.
    /// - *Condition*: they have a written tile in common, neither writes a tile that the other
    ///   reads for another tile, and together they have no more than so many stages.
    /// - *Proof*: each tile then depends on its own earlier value, immediates, and tiles that no
    ///   stage writes. So the stages may run tile by tile instead of stage by stage, each tile
    ///   held in registers from the first to the last. That a stage visits a tile once is by
    ///   construction: the n-th visit of an instruction is a stage of its own.
    pub fn append(&mut self, more: Self) -> Option<Self> {
        if self.stages.len() + more.stages.len() > MAX_STAGES
            || !meet(&self.written, &more.written)
            || meet(&self.written, &more.read)
            || meet(&self.read, &more.written)
        {
            return Some(more);
        }
        self.stages.extend(more.stages);
        for (all, more) in [
            (&mut self.written, more.written),
            (&mut self.read, more.read),
        ] {
            all.extend(more);
            merge(all);
        }
        None
    }

    /// Runs of tiles that the chain writes, ascending.
    pub fn written_runs(&self) -> impl Iterator<Item = Range<u32>> {
        self.written.iter().map(narrow)
    }

    /// Moves tiles: `parts` cuts a range where what it holds goes to different places, each part
    /// with how far, modulo 2^32.
    #[must_use]
    pub fn placed<P>(mut self, parts: impl Fn(Range<u32>) -> P) -> Self
    where
        P: Iterator<Item = (Range<u32>, u32)>,
    {
        for stage in &mut self.stages {
            let mut moved = Vec::with_capacity(stage.runs.len());
            for run in &stage.runs {
                for (part, by) in parts(run.written()) {
                    let dst = part.start.wrapping_add(by);
                    let len = part.end - part.start;
                    if run.in_place() {
                        push(
                            &mut moved,
                            Run {
                                dst,
                                src: dst,
                                len,
                                ..*run
                            },
                        );
                        continue;
                    }
                    let from = run.src + (part.start - run.dst) * run.step;
                    let end = from + (len - 1) * run.step + 1;
                    for (src, by) in parts(from..end) {
                        let run = Run {
                            dst: dst.wrapping_add((src.start - from) * run.step),
                            src: src.start.wrapping_add(by),
                            len: if run.step == 0 {
                                len
                            } else {
                                src.end - src.start
                            },
                            step: if len == 1 { 1 } else { run.step },
                        };
                        push(&mut moved, run);
                    }
                }
            }
            stage.runs = moved;
        }
        Self::of_stages(self.stages)
    }

    /// What the chain touches.
    pub fn touches(&self) -> Touches {
        let mut reads = [&self.written[..], &self.read].concat();
        merge(&mut reads);
        let mut touches = Touches::default();
        touches.reads[Scratchpad::Acc as usize] = reads;
        touches.writes[Scratchpad::Acc as usize].clone_from(&self.written);
        touches
    }

    /// The chain's words. `list` stores a list of words and says where.
    pub fn encode(&self, mut list: impl FnMut(&[u32]) -> u32) -> Vec<u32> {
        let first = self.written.first().map_or(0, |run| run.start);
        let tiles: usize = self.written.iter().map(Range::len).sum();
        let before = self.written.iter().scan(0, |sum, run| {
            let before = *sum;
            *sum += run.len();
            Some(before)
        });
        let before: Vec<usize> = before.collect();
        // The tiles of a run are in one of the ranges.
        let number = |tile: usize| {
            let range = self.written.partition_point(|range| range.end <= tile);
            before[range] + (tile - self.written[range].start)
        };
        let mut sources = Vec::new();
        let mut stages = Vec::with_capacity(self.stages.len() * STAGE_WORDS);
        for stage in &self.stages {
            let whole = stage.len() == tiles;
            let (operand, imm) = match stage.imm {
                Some(imm) if whole => (StageOperand::Imm, imm),
                Some(imm) => (StageOperand::ImmOfSome, imm),
                None => (StageOperand::Tiles, 0),
            };
            let (mut base, mut table) = (0, 0);
            if operand != StageOperand::Imm {
                base = stage.runs.iter().map(|run| run.src).min().unwrap_or(0);
                sources.clear();
                sources.resize(tiles, UNTOUCHED);
                for run in &stage.runs {
                    let at = number(run.dst as usize);
                    let all = &mut sources[at..at + run.len as usize];
                    for (source, n) in all.iter_mut().zip(0..) {
                        *source = run.src - base + n * run.step;
                    }
                }
                table = list(&sources);
            }
            stages.extend([stage.op.word(), operand as u32, imm as u32, table, base]);
        }
        let written = self.written.iter().cloned().flatten();
        let offsets: Vec<u32> = written.map(|t| (t - first) as u32).collect();
        vec![
            first as u32,
            self.stages.len() as u32,
            list(&stages),
            list(&offsets),
        ]
    }
}

/// The ranges of some tiles, ascending and apart.
fn ranges(runs: impl Iterator<Item = Range<u32>>) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for run in runs {
        add_range(&mut ranges, run.start as usize..run.end as usize);
    }
    merge(&mut ranges);
    ranges
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
mod tests {
    use proptest::prelude::*;
    use vta_isa::resolve::Uops;
    use vta_isa::{Alu, AluOp, Uop};

    use super::*;

    /// One trip over `inner` with factors of 1.
    fn alu(op: AluOp, operand: AluOperand, inner: u16) -> Alu {
        Alu {
            deps: vta_isa::Deps::NONE,
            op,
            operand,
            uop_bgn: 0,
            uop_end: 1,
            iter_out: 1,
            iter_in: inner,
            dst_factor_out: 0,
            dst_factor_in: 1,
            src_factor_out: 0,
            src_factor_in: 1,
        }
    }

    fn of(alu: &Alu, pairs: &[(u16, u16)]) -> Option<Chain> {
        let uop = |&(dst, src): &(u16, u16)| Uop { dst, src, wgt: 0 };
        let uops: Vec<_> = pairs.iter().map(uop).collect();
        Chain::of(&AluAccess::of(*alu, Uops::of(&uops)), 64)
    }

    #[test]
    fn a_source_that_another_step_writes_is_no_chain() {
        let two = |inner| alu(AluOp::Add, AluOperand::Acc, inner);
        assert!(of(&two(4), &[(0, 4)]).is_some(), "beside each other");
        assert!(
            of(&two(5), &[(0, 4)]).is_none(),
            "tile 4 is read, then written"
        );
        assert!(of(&two(4), &[(0, 0)]).is_some(), "each tile reads itself");
        assert!(
            of(&two(1), &[(0, 1), (1, 0)]).is_none(),
            "they read each other"
        );
        assert!(of(&alu(AluOp::Add, AluOperand::Imm(1), 5), &[(0, 4)]).is_some());
    }

    #[test]
    fn steps_on_one_tile_become_stages_in_their_order() {
        let mut pool = alu(AluOp::Max, AluOperand::Acc, 2);
        pool.uop_end = 3;
        let chain = of(&pool, &[(0, 10), (0, 20), (0, 30)]).unwrap();
        let runs: Vec<_> = chain.stages.iter().map(|s| &s.runs[..]).collect();
        let run = |src| Run {
            len: 2,
            ..Run::one(0, src)
        };
        assert_eq!(runs, [[run(10)], [run(20)], [run(30)]]);
        pool.iter_out = 100;
        assert!(of(&pool, &[(0, 10)]).is_none(), "100 stages are too many");
    }

    #[test]
    fn chains_join_unless_one_reads_what_the_other_writes() {
        let imm = |first| of(&alu(AluOp::Shr, AluOperand::Imm(3), 4), &[(first, 0)]).unwrap();
        let add = |dst, src| of(&alu(AluOp::Add, AluOperand::Acc, 4), &[(dst, src)]).unwrap();
        let mut chain = imm(0);
        let mut takes = |more| chain.append(more).is_none();
        assert!(takes(add(0, 8)) && takes(imm(0)) && takes(imm(3)));
        assert!(!takes(imm(8)), "the chain has read tile 8");
        assert!(!takes(add(4, 0)), "the chain writes tile 3");
        assert!(takes(add(4, 8)), "sources may be shared");
        assert_eq!(chain.stages.len(), 5);
        assert!(add(0, 8).append(Chain::clear([9..10])).is_some());
        assert!(imm(0).append(imm(4)).is_some(), "no tile in common");
    }

    #[test]
    fn words_say_which_tiles_a_stage_touches() {
        let mut chain = Chain::clear([2..4, 5..6]);
        let add = of(&alu(AluOp::Add, AluOperand::Acc, 2), &[(2, 9)]).unwrap();
        assert!(chain.append(add).is_none());
        let mut lists = Vec::new();
        let touches = chain.touches();
        let args = chain.encode(|list| {
            lists.push(list.to_vec());
            lists.len() as u32
        });
        assert_eq!(lists[0], [0, 1, UNTOUCHED]);
        assert_eq!(
            lists[1],
            [8, 0, 0, 0, 0, AluOp::Add.code().into(), 2, 0, 1, 9]
        );
        assert_eq!(lists[2], [0, 1, 3], "offsets of the tiles");
        assert_eq!(args, [2, 2, 2, 3]);
        let acc = Scratchpad::Acc as usize;
        assert_eq!(touches.writes[acc], [2..4, 5..6]);
        assert_eq!(touches.reads[acc], [2..4, 5..6, 9..11]);
    }

    /// What a chain says of each tile: by stage, destination and source.
    fn pairs(chain: &Chain) -> Vec<Vec<(u32, u32)>> {
        let of = |run: &Run| {
            let run = *run;
            (0..run.len).map(move |n| (run.dst + n, run.src + n * run.step))
        };
        let stage = |stage: &Stage| stage.runs.iter().flat_map(of).collect();
        chain.stages.iter().map(stage).collect()
    }

    proptest! {
        /// Runs say the same of every tile as the instruction's steps one by one.
        #[test]
        fn stages_are_the_nth_steps_on_each_tile(
            uops in prop::collection::vec((0u16..12, 20u16..32), 1..5),
            trips in [1u16..5, 1u16..5],
            factors in [0u16..5, 0u16..5, 0u16..3, 0u16..3],
            immediate: bool,
        ) {
            let alu = Alu {
                operand: if immediate { AluOperand::Imm(1) } else { AluOperand::Acc },
                uop_end: uops.len() as u16,
                iter_out: trips[0],
                dst_factor_out: factors[0],
                dst_factor_in: factors[1],
                src_factor_out: factors[2],
                src_factor_in: factors[3],
                ..alu(AluOp::Add, AluOperand::Acc, trips[1])
            };
            let uops: Vec<_> = uops.iter().map(|&(dst, src)| Uop { dst, src, wgt: 0 }).collect();
            let access = AluAccess::of(alu, Uops::of(&uops));
            let mut expected: Vec<Vec<(u32, u32)>> = Vec::new();
            for (dst, src) in access.steps().map(|(d, s)| (d as u32, s as u32)) {
                let free = expected.iter().position(|s| s.iter().all(|pair| pair.0 != dst));
                let at = free.unwrap_or(expected.len());
                expected.resize(expected.len().max(at + 1), Vec::new());
                expected[at].push((dst, src));
            }
            expected.iter_mut().for_each(|stage| stage.sort_unstable());
            let all = || expected.iter().flatten();
            let read = |tile| all().any(|&(dst, src)| src == tile && dst != src);
            let sound = !all().any(|&(dst, _)| read(dst));
            let chain = Chain::of(&access, 64);
            prop_assert_eq!(chain.is_some(), sound && expected.len() <= MAX_STAGES);
            let Some(chain) = chain else { return Ok(()) };
            prop_assert_eq!(pairs(&chain), expected.clone());
            // Every third tile goes elsewhere.
            let moved = |tile: u32| tile + 100 * (tile / 3 % 2) + 1000;
            let parts = |tiles: Range<u32>| {
                let (start, end) = (tiles.start, tiles.end);
                let ends = tiles.filter(move |tile| tile % 3 == 2 || *tile + 1 == end);
                let mut from = None;
                ends.map(move |end| {
                    let first = from.replace(end + 1).unwrap_or(start);
                    (first..end + 1, moved(first) - first)
                })
            };
            let placed = chain.placed(parts);
            let map = |&(dst, src): &(u32, u32)| (moved(dst), moved(src));
            let expected: Vec<Vec<_>> = expected.iter().map(|s| s.iter().map(map).collect()).collect();
            prop_assert_eq!(pairs(&placed), expected);
        }
    }
}
