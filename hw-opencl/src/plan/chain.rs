//! Chains: neighbouring ALU instructions, and GEMM's reset, on the same accumulator tiles run as
//! one operation that holds each tile in registers.

use std::ops::Range;

use vta_isa::AluOperand;
use vta_isa::resolve::{AluAccess, meet, merge};

use crate::plan::ops::{Touches, add_range, narrow};
use crate::plan::runs::{Run, by_visit, push, runs};
use crate::plan::versions::Scratchpad;
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
        let lists = if once {
            vec![runs]
        } else {
            by_visit(access, depth, MAX_STAGES)?
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
mod tests;
