//! Chains: neighbouring ALU instructions, and GEMM's reset, on the same accumulator tiles run as
//! one operation that holds each tile in registers.

use std::ops::Range;

use vta_isa::AluOperand;
use vta_isa::resolve::{AluAccess, meet, merge};

use crate::ops::{Touches, narrow};
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
    /// Destination and source, ascending, each destination once. Without a source tile the source
    /// is the destination.
    tiles: Vec<(u32, u32)>,
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
    /// Zeroes tiles, ascending.
    pub fn clear(tiles: impl IntoIterator<Item = u32>) -> Self {
        Self::of_stages(vec![Stage {
            op: StageOp::Clear,
            imm: Some(0),
            tiles: tiles.into_iter().map(|t| (t, t)).collect(),
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
        let mut times = vec![0usize; depth];
        let mut lists: Vec<Vec<(u32, u32)>> = Vec::new();
        access.steps().try_for_each(|(dst, src)| {
            let time = &mut times[dst as usize];
            if *time == lists.len() {
                if *time == MAX_STAGES {
                    return None;
                }
                lists.push(Vec::new());
            }
            lists[*time].push((dst as u32, src as u32));
            *time += 1;
            Some(())
        })?;
        let stages = lists.into_iter().map(|mut tiles| {
            tiles.sort_unstable();
            let op = StageOp::Alu(alu.op);
            Stage { op, imm, tiles }
        });
        let chain = Self::of_stages(stages.collect());
        (!meet(&chain.written, &chain.read)).then_some(chain)
    }

    /// A chain that may not be sound.
    fn of_stages(stages: Vec<Stage>) -> Self {
        let pairs = || stages.iter().flat_map(|stage| &stage.tiles);
        let foreign = pairs().filter(|(dst, src)| src != dst);
        Self {
            written: ranges(pairs().map(|pair| pair.0)),
            read: ranges(foreign.map(|pair| pair.1)),
            stages,
        }
    }

    /// Joins another chain to this one; whether it could, else this one is as it was.
    ///
    /// - *Pattern*: ALU instructions and resets that follow each other on the same accumulator
    ///   tiles.
    /// - *Condition*: they have a written tile in common, neither writes a tile that the other
    ///   reads for another tile, and together they have no more than so many stages.
    /// - *Proof*: each tile then depends on its own earlier value, immediates, and tiles that no
    ///   stage writes. So the stages may run tile by tile instead of stage by stage, each tile
    ///   held in registers from the first to the last. That a stage visits a tile once is by
    ///   construction: the n-th visit of an instruction is a stage of its own.
    pub fn append(&mut self, more: &Self) -> bool {
        if self.stages.len() + more.stages.len() > MAX_STAGES
            || !meet(&self.written, &more.written)
            || meet(&self.written, &more.read)
            || meet(&self.read, &more.written)
        {
            return false;
        }
        self.stages.extend_from_slice(&more.stages);
        for (all, more) in [
            (&mut self.written, &more.written),
            (&mut self.read, &more.read),
        ] {
            all.extend_from_slice(more);
            merge(all);
        }
        true
    }

    /// Runs of tiles that the chain writes, ascending.
    pub fn written_runs(&self) -> impl Iterator<Item = Range<u32>> {
        self.written.iter().map(narrow)
    }

    /// Moves each tile by how far `shift` says, modulo 2^32.
    #[must_use]
    pub fn placed(mut self, shift: impl Fn(u32) -> u32) -> Self {
        for (dst, src) in self.stages.iter_mut().flat_map(|stage| &mut stage.tiles) {
            *dst = dst.wrapping_add(shift(*dst));
            *src = src.wrapping_add(shift(*src));
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
        let written: Vec<usize> = self.written.iter().cloned().flatten().collect();
        let first = written.first().copied().unwrap_or(0);
        let end = written.last().map_or(first, |last| last + 1);
        let mut numbers = vec![0; end - first];
        for (number, tile) in written.iter().enumerate() {
            numbers[tile - first] = number;
        }
        let mut stages = Vec::with_capacity(self.stages.len() * STAGE_WORDS);
        for stage in &self.stages {
            let whole = stage.tiles.len() == written.len();
            let (operand, imm) = match stage.imm {
                Some(imm) if whole => (StageOperand::Imm, imm),
                Some(imm) => (StageOperand::ImmOfSome, imm),
                None => (StageOperand::Tiles, 0),
            };
            let (mut base, mut table) = (0, 0);
            if operand != StageOperand::Imm {
                base = stage.tiles.iter().map(|t| t.1).min().unwrap_or(0);
                let mut sources = vec![UNTOUCHED; written.len()];
                for &(dst, src) in &stage.tiles {
                    sources[numbers[dst as usize - first]] = src - base;
                }
                table = list(&sources);
            }
            stages.extend([stage.op.word(), operand as u32, imm as u32, table, base]);
        }
        let offsets: Vec<u32> = written.iter().map(|t| (t - first) as u32).collect();
        vec![
            first as u32,
            self.stages.len() as u32,
            list(&stages),
            list(&offsets),
        ]
    }
}

/// The ranges of some tiles, ascending and apart.
fn ranges(tiles: impl Iterator<Item = u32>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for tile in tiles.map(|tile| tile as usize) {
        match ranges.last_mut() {
            Some(last) if last.end == tile => last.end += 1,
            _ => ranges.push(tile..tile + 1),
        }
    }
    merge(&mut ranges);
    ranges
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
mod tests {
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
        let sources: Vec<_> = chain.stages.iter().map(|s| s.tiles.clone()).collect();
        assert_eq!(
            sources,
            [
                vec![(0, 10), (1, 11)],
                vec![(0, 20), (1, 21)],
                vec![(0, 30), (1, 31)]
            ]
        );
        pool.iter_out = 100;
        assert!(of(&pool, &[(0, 10)]).is_none(), "100 stages are too many");
    }

    #[test]
    fn chains_join_unless_one_reads_what_the_other_writes() {
        let imm = |first| of(&alu(AluOp::Shr, AluOperand::Imm(3), 4), &[(first, 0)]).unwrap();
        let add = |dst, src| of(&alu(AluOp::Add, AluOperand::Acc, 4), &[(dst, src)]).unwrap();
        let mut chain = imm(0);
        assert!(chain.append(&add(0, 8)) && chain.append(&imm(0)) && chain.append(&imm(3)));
        assert!(!chain.append(&imm(8)), "the chain has read tile 8");
        assert!(!chain.append(&add(4, 0)), "the chain writes tile 3");
        assert!(chain.append(&add(4, 8)), "sources may be shared");
        assert_eq!(chain.stages.len(), 5);
        assert!(!add(0, 8).append(&Chain::clear([9])));
        assert!(!imm(0).append(&imm(4)), "no tile in common");
    }

    #[test]
    fn words_say_which_tiles_a_stage_touches() {
        let mut chain = Chain::clear([2, 3, 5]);
        assert!(chain.append(&of(&alu(AluOp::Add, AluOperand::Acc, 2), &[(2, 9)]).unwrap()));
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
}
