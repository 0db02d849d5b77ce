//! Chains: neighbouring ALU instructions, GEMM's reset and STOREs on the same accumulator tiles run as
//! one operation that holds each tile in registers.

use std::ops::Range;

use vta_isa::AluOperand;
use vta_isa::resolve::{AluAccess, Rows, meet, merge};

use crate::plan::ops::{Touches, add_range, narrow};
use crate::plan::runs::{Run, by_visit, push, runs};
use crate::plan::versions::Scratchpad;
use crate::words::{STAGE_WORDS, StageOp, StageOperand, UNTOUCHED};

/// Stages of one chain.
const MAX_STAGES: usize = 64;

/// Parts of one chain.
const MAX_PARTS: usize = 8;

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

/// A row of a STORE: tiles, and bytes of DRAM from the first of the device's buffer on.
#[derive(Clone, Debug)]
struct Stored {
    tiles: Range<usize>,
    bytes: Range<usize>,
}

impl Stored {
    /// What it stores of some tiles.
    fn within(&self, tiles: &Range<usize>) -> Option<Self> {
        let tile_bytes = self.bytes.len() / self.tiles.len();
        let tiles = self.tiles.start.max(tiles.start)..self.tiles.end.min(tiles.end);
        let at = |tile| self.bytes.start + (tile - self.tiles.start) * tile_bytes;
        (!tiles.is_empty()).then(|| Self {
            bytes: at(tiles.start)..at(tiles.end),
            tiles,
        })
    }
}

/// Stages whose tiles don't depend on each other: no stage reads a tile that the chain writes,
/// except the one that it changes. Behind the stages, some of the tiles are stored, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    stages: Vec<Stage>,
    /// Tiles that it writes, ascending and apart.
    written: Vec<Range<usize>>,
    /// Likewise those that a stage reads for another tile.
    read: Vec<Range<usize>>,
    stores: Vec<Stored>,
    /// Whether these clamp to int8.
    saturates: bool,
    /// Likewise those that are stored.
    stored: Vec<Range<usize>>,
    /// Likewise the bytes of DRAM that they are stored to.
    bytes: Vec<Range<usize>>,
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
            ..Self::default()
        }
    }

    /// Stores tiles, clamped or their low bytes, to rows of DRAM, which don't overlap, from the first byte of the device's
    /// buffer on.
    pub fn store(tiles: &Range<usize>, rows: &Rows, saturates: bool) -> Self {
        let cols = tiles.len() / usize::from(rows.rows);
        let firsts = tiles.clone().step_by(cols);
        let row = |(first, bytes): (usize, Range<u64>)| Stored {
            tiles: first..first + cols,
            bytes: bytes.start as usize..bytes.end as usize,
        };
        let nothing = Self {
            saturates,
            ..Self::default()
        };
        nothing.storing(firsts.zip(rows.iter()).map(row).collect())
    }

    fn storing(self, stores: Vec<Stored>) -> Self {
        let apart = |of: fn(&Stored) -> &Range<usize>| {
            let mut all = Vec::new();
            for stored in &stores {
                add_range(&mut all, of(stored).clone());
            }
            merge(&mut all);
            all
        };
        Self {
            stored: apart(|stored| &stored.tiles),
            bytes: apart(|stored| &stored.bytes),
            stores,
            ..self
        }
    }

    /// Joins another chain to this one; gives it back when it can't, and this one is as it was.
    ///
    /// - *Pattern*: ALU instructions, resets and STOREs that follow each other on the same
    ///   accumulator tiles.
    /// - *Condition*: the second writes or stores a tile that the first writes, neither writes a tile
    ///   that the other reads for another tile, the second touches no tile and no byte of DRAM that
    ///   the first stores, both clamp what they store or neither does, and together they have no more than so many stages.
    /// - *Proof*: each tile then depends on its own earlier value, immediates, and tiles that no
    ///   stage writes. So the stages may run tile by tile instead of stage by stage, each tile
    ///   held in registers from the first to the last, and stored as the last stage left it: none
    ///   that came behind its STORE changes it. That a stage visits a tile once is by
    ///   construction: the n-th visit of an instruction is a stage of its own.
    pub fn append(&mut self, more: Self) -> Option<Self> {
        if self.stages.len() + more.stages.len() > MAX_STAGES
            || !(meet(&self.written, &more.written) || meet(&self.written, &more.stored))
            || meet(&self.written, &more.read)
            || meet(&self.read, &more.written)
            || meet(&self.stored, &more.written)
            || meet(&self.stored, &more.stored)
            || meet(&self.bytes, &more.bytes)
            || self.saturates != more.saturates
                && ![&*self, &more].iter().any(|c| c.stores.is_empty())
        {
            return Some(more);
        }
        self.saturates |= more.saturates;
        self.stages.extend(more.stages);
        self.stores.extend(more.stores);
        for (all, more) in [
            (&mut self.written, more.written),
            (&mut self.read, more.read),
            (&mut self.stored, more.stored),
            (&mut self.bytes, more.bytes),
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

    /// The chain as one for all tiles for which the same stages read others.
    ///
    /// - *Pattern*: ALU instructions that read another tile, but not for all of the chain's: a pooling
    ///   window takes the last row of the strip before, whose own chain has that row.
    /// - *Condition*: no more than so many parts.
    /// - *Proof*: no stage reads a tile that the chain writes, except its own, so that each tile may
    ///   run before, behind or beside any other. A part then doesn't wait for what only others read.
    pub fn parts(self) -> Vec<Self> {
        let mut parts = vec![self.tiles()];
        for stage in &self.stages {
            let foreign = stage.runs.iter().filter(|run| !run.in_place());
            let reads = ranges(foreign.map(Run::written));
            let cut = |part: Vec<Range<usize>>| {
                let rest = beside(&reads, &part);
                [beside(&rest, &part), rest]
            };
            parts = parts.into_iter().flat_map(cut).collect();
            parts.retain(|part| !part.is_empty());
        }
        match parts.len() {
            2..=MAX_PARTS => parts.iter().map(|part| self.within(part)).collect(),
            _ => vec![self],
        }
    }

    /// What it does to some tiles, ascending and apart.
    fn within(&self, tiles: &[Range<usize>]) -> Self {
        let stage = |stage: &Stage| Stage {
            runs: {
                let runs = stage.runs.iter();
                runs.flat_map(|run| tiles.iter().filter_map(|t| run.within(&narrow(t))))
                    .collect()
            },
            ..*stage
        };
        let stages = self.stages.iter().map(stage);
        let stores = self.stores.iter();
        let stores = stores.flat_map(|row| tiles.iter().filter_map(|tiles| row.within(tiles)));
        let stages = stages.filter(|stage| !stage.runs.is_empty()).collect();
        let part = Self {
            saturates: self.saturates,
            ..Self::of_stages(stages)
        };
        part.storing(stores.collect())
    }

    /// Tiles that it has in registers, ascending and apart.
    fn tiles(&self) -> Vec<Range<usize>> {
        let mut tiles = [&self.written[..], &self.stored].concat();
        merge(&mut tiles);
        tiles
    }

    /// How many tiles it has in registers.
    pub fn len(&self) -> usize {
        self.tiles().iter().map(Range::len).sum()
    }

    /// What the chain touches.
    pub fn touches(&self) -> Touches {
        let mut reads = [&self.written[..], &self.read, &self.stored].concat();
        merge(&mut reads);
        let mut touches = Touches {
            writes_dram: self.bytes.clone(),
            ..Touches::default()
        };
        touches.reads[Scratchpad::Acc as usize] = reads;
        touches.writes[Scratchpad::Acc as usize].clone_from(&self.written);
        touches
    }

    /// The chain's words. `list` stores a list of words and says where.
    pub fn encode(&self, mut list: impl FnMut(&[u32]) -> u32) -> Vec<u32> {
        let ranges = self.tiles();
        let first = ranges.first().map_or(0, |run| run.start);
        let tiles: usize = ranges.iter().map(Range::len).sum();
        let before = ranges.iter().scan(0, |sum, run| {
            let before = *sum;
            *sum += run.len();
            Some(before)
        });
        let before: Vec<usize> = before.collect();
        // The tiles of a run are in one of the ranges.
        let number = |tile: usize| {
            let range = ranges.partition_point(|range| range.end <= tile);
            before[range] + (tile - ranges[range].start)
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
        let base = self.bytes.first().map_or(0, |bytes| bytes.start);
        let mut places = UNTOUCHED;
        if !self.stores.is_empty() {
            sources.clear();
            sources.resize(tiles, UNTOUCHED);
            for Stored { tiles, bytes } in &self.stores {
                let at = number(tiles.start);
                let all = &mut sources[at..at + tiles.len()];
                let places = bytes.clone().step_by(bytes.len() / tiles.len());
                for (place, at) in all.iter_mut().zip(places) {
                    *place = (at - base) as u32;
                }
            }
            places = list(&sources);
        }
        let offsets: Vec<u32> = ranges
            .into_iter()
            .flatten()
            .map(|t| (t - first) as u32)
            .collect();
        vec![
            first as u32,
            self.stages.len() as u32,
            list(&stages),
            list(&offsets),
            places,
            base as u32,
            self.saturates.into(),
        ]
    }
}

/// What of some ranges isn't in others, all ascending and apart.
fn beside(others: &[Range<usize>], all: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut rest = Vec::new();
    for range in all {
        let mut from = range.start;
        for other in others
            .iter()
            .filter(|o| o.start < range.end && o.end > range.start)
        {
            if from < other.start {
                rest.push(from..other.start);
            }
            from = from.max(other.end);
        }
        if from < range.end {
            rest.push(from..range.end);
        }
    }
    rest
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
