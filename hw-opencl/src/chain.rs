//! Chains: neighbouring ALU instructions, and GEMM's reset, on the same accumulator tiles run as
//! one operation that holds each tile in registers.

use std::ops::Range;

use vta_isa::AluOperand;
use vta_isa::resolve::{AluAccess, merge};

use crate::ops::Touches;
use crate::versions::Pad;
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
    /// Whether the chain writes a tile.
    written: Vec<bool>,
    /// Whether a stage reads a tile for another.
    read: Vec<bool>,
}

impl Chain {
    /// Zeroes tiles, ascending.
    pub fn clear(tiles: impl IntoIterator<Item = u32>) -> Self {
        let stage = Stage {
            op: StageOp::Clear,
            imm: Some(0),
            tiles: tiles.into_iter().map(|t| (t, t)).collect(),
        };
        let mut chain = Self {
            stages: Vec::new(),
            written: Vec::new(),
            read: Vec::new(),
        };
        chain.add(stage);
        chain
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
        let mut chain = Self {
            stages: Vec::new(),
            written: Vec::new(),
            read: Vec::new(),
        };
        for mut tiles in lists {
            tiles.sort_unstable();
            let op = StageOp::Alu(alu.op);
            chain.add(Stage { op, imm, tiles });
        }
        chain.is_sound().then_some(chain)
    }

    /// Adds a stage without asking whether the chain stays sound.
    fn add(&mut self, stage: Stage) {
        for &(dst, src) in &stage.tiles {
            mark(&mut self.written, dst);
            if src != dst {
                mark(&mut self.read, src);
            }
        }
        self.stages.push(stage);
    }

    /// Whether no tile is both written and read for another.
    fn is_sound(&self) -> bool {
        self.written
            .iter()
            .zip(&self.read)
            .all(|(w, r)| !(*w && *r))
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
        let clash = |a: &[bool], b: &[bool]| a.iter().zip(b).any(|(a, b)| *a && *b);
        if self.stages.len() + more.stages.len() > MAX_STAGES
            || !clash(&self.written, &more.written)
            || clash(&self.written, &more.read)
            || clash(&self.read, &more.written)
        {
            return false;
        }
        more.stages.iter().for_each(|stage| self.add(stage.clone()));
        true
    }

    /// Runs of tiles that the chain writes, ascending.
    pub fn written_runs(&self) -> Vec<Range<u32>> {
        let runs = runs(&self.written).into_iter();
        runs.map(|r| r.start as u32..r.end as u32).collect()
    }

    /// Moves each tile by how far `shift` says, modulo 2^32.
    pub fn place(&mut self, shift: impl Fn(u32) -> u32) {
        self.written.clear();
        self.read.clear();
        for mut stage in std::mem::take(&mut self.stages) {
            for (dst, src) in &mut stage.tiles {
                *dst = dst.wrapping_add(shift(*dst));
                *src = src.wrapping_add(shift(*src));
            }
            self.add(stage);
        }
    }

    /// What the chain touches.
    pub fn touches(&self) -> Touches {
        let written = runs(&self.written);
        let mut touches = Touches::default();
        let reads = &mut touches.reads[Pad::Acc as usize];
        reads.extend(written.iter().cloned().chain(runs(&self.read)));
        merge(reads);
        touches.writes[Pad::Acc as usize] = written;
        touches
    }

    /// The chain's words. `list` stores a list of words and says where.
    pub fn encode(&self, mut list: impl FnMut(&[u32]) -> u32) -> Vec<u32> {
        let written: Vec<usize> = runs(&self.written).into_iter().flatten().collect();
        let first = written.first().copied().unwrap_or(0);
        let mut numbers = vec![0; self.written.len() - first];
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

/// Runs of flags that are set.
fn runs(flags: &[bool]) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut runs = Vec::new();
    for run in flags.chunk_by(|a, b| a == b) {
        if run[0] {
            runs.push(at..at + run.len());
        }
        at += run.len();
    }
    runs
}

fn mark(flags: &mut Vec<bool>, tile: u32) {
    let tile = tile as usize;
    if flags.len() <= tile {
        flags.resize(tile + 1, false);
    }
    flags[tile] = true;
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
        let acc = Pad::Acc as usize;
        assert_eq!(touches.writes[acc], [2..4, 5..6]);
        assert_eq!(touches.reads[acc], [2..4, 5..6, 9..11]);
    }
}
