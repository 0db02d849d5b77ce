//! GEMM and ALU instructions that run with their own loops: what is too long to be listed, or
//! must run in its order. They work on the scratchpads' own tiles.

use std::collections::HashMap;
use std::ops::Range;

use vta_isa::{Alu, AluOperand, Config, Gemm, MemType, Uop};

use crate::batch::reach;
use crate::ops::{Kind, Op, Shape, Tables, Touches};
use crate::versions::Pad;

/// The groups of a list of micro-ops.
#[derive(Clone, Copy, Debug)]
struct Groups {
    table: u32,
    count: u32,
    /// Micro-ops of the longest.
    longest: u32,
}

/// Makes operations of single instructions.
#[derive(Debug)]
pub(crate) struct Loops<'a> {
    config: &'a Config,
    shape: Shape,
    groups: HashMap<Vec<u32>, Groups>,
    /// Which turn last wrote a tile, for finding destinations that meet.
    seen: Vec<u32>,
    turn: u32,
}

impl<'a> Loops<'a> {
    pub fn new(config: &'a Config, shape: Shape) -> Self {
        Self {
            config,
            shape,
            groups: HashMap::new(),
            seen: vec![0; config.depth(MemType::Acc)],
            turn: 0,
        }
    }

    /// Sorts micro-ops by destination: those of one are summed one after the other.
    fn groups(&mut self, uops: &[u32], tables: &mut Tables) -> Groups {
        if let Some(groups) = self.groups.get(uops) {
            return *groups;
        }
        let dst = |word: &u32| u32::from(Uop::decode(*word).dst);
        let mut sorted = uops.to_vec();
        sorted.sort_by_key(dst);
        let first = tables.list(&sorted);
        let mut table = Vec::new();
        let (mut start, mut longest) = (0, 0);
        for run in sorted.chunk_by(|a, b| dst(a) == dst(b)) {
            let len = run.len() as u32;
            table.extend([dst(&run[0]), first + start, first + start + len]);
            (start, longest) = (start + len, longest.max(len));
        }
        let groups = Groups {
            table: tables.list(&table),
            count: table.len() as u32 / 3,
            longest,
        };
        self.groups.insert(uops.to_vec(), groups);
        groups
    }

    /// Whether destinations of different groups and trips never meet.
    fn destinations_differ(
        &mut self,
        groups: Groups,
        tables: &Tables,
        trips: [u32; 2],
        factors: [u32; 2],
    ) -> bool {
        let all = u64::from(groups.count) * u64::from(trips[0]) * u64::from(trips[1]);
        if all > self.seen.len() as u64 {
            return false;
        }
        self.turn += 1;
        for g in 0..groups.count {
            let dst = tables.words[(groups.table + 3 * g) as usize];
            for i in 0..trips[0] {
                for j in 0..trips[1] {
                    // Checked against the scratchpad's depth with the instruction.
                    let at = (dst + i * factors[0] + j * factors[1]) as usize;
                    if std::mem::replace(&mut self.seen[at], self.turn) == self.turn {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// An instruction that isn't a reset: blocks of outputs, which run its loops, if these are
    /// apart.
    pub fn gemm(&mut self, gemm: &Gemm, uops: &[u32], tables: &mut Tables) -> Op {
        let groups = self.groups(uops, tables);
        // A loop that leaves the destination where it is belongs to the sum.
        let iter = [gemm.iter_out, gemm.iter_in].map(u32::from);
        let dst = [gemm.dst_factor_out, gemm.dst_factor_in].map(u32::from);
        let src = [gemm.src_factor_out, gemm.src_factor_in].map(u32::from);
        let wgt = [gemm.wgt_factor_out, gemm.wgt_factor_in].map(u32::from);
        let mut trips = iter;
        let mut sums = [1; 2];
        for d in 0..2 {
            if dst[d] == 0 {
                (trips[d], sums[d]) = (1, iter[d]);
            }
        }
        if !self.destinations_differ(groups, tables, trips, dst) {
            return self.gemm_in_order(gemm, uops, tables);
        }
        let rows = trips[0] * trips[1];
        let shared = (0..2).all(|d| trips[d] == 1 || wgt[d] == 0);
        let at_once = if shared && rows > 1 {
            self.shape.rows
        } else {
            1
        };
        let blocks = rows.div_ceil(at_once);
        let chunks = (self.config.block() as u32) / self.shape.lanes;
        let args = vec![
            trips[0],
            trips[1],
            dst[0],
            dst[1],
            src[0],
            src[1],
            wgt[0],
            wgt[1],
            sums[0],
            sums[1],
            src[0],
            src[1],
            wgt[0],
            wgt[1],
            groups.count,
            groups.table,
            blocks,
            at_once,
        ];
        // The sum's length decides how much a unit has to do.
        let sum = u64::from(sums[0]) * u64::from(sums[1]) * u64::from(groups.longest);
        let cost = sum * u64::from(blocks * at_once * groups.count) * self.config.macs_per_step();
        let touches = gemm_touches(gemm, uops);
        Op {
            kind: Kind::Gemm,
            units: groups.count * blocks * self.config.batch() as u32 * chunks,
            args,
            touches,
            cost,
        }
    }

    /// An instruction as it is, a reset, too.
    pub fn gemm_in_order(&self, gemm: &Gemm, uops: &[u32], tables: &mut Tables) -> Op {
        let first = tables.list(uops);
        let factors = [
            gemm.dst_factor_out,
            gemm.dst_factor_in,
            gemm.src_factor_out,
            gemm.src_factor_in,
            gemm.wgt_factor_out,
            gemm.wgt_factor_in,
        ];
        let mut args = vec![gemm.iter_out.into(), gemm.iter_in.into()];
        args.extend(factors.map(u32::from));
        args.extend([first, first + uops.len() as u32, gemm.reset.into()]);
        let touches = gemm_touches(gemm, uops);
        Op {
            kind: Kind::GemmInOrder,
            units: self.config.lanes() as u32 / self.shape.lanes,
            args,
            touches,
            cost: gemm.steps().saturating_mul(self.config.macs_per_step()),
        }
    }

    /// An instruction as it is.
    pub fn alu_in_order(&self, alu: &Alu, uops: &[u32], tables: &mut Tables) -> Op {
        let first = tables.list(uops);
        let factors = [
            alu.dst_factor_out,
            alu.dst_factor_in,
            alu.src_factor_out,
            alu.src_factor_in,
        ];
        let (use_imm, imm) = match alu.operand {
            AluOperand::Acc => (0, 0),
            AluOperand::Imm(imm) => (1, i32::from(imm) as u32),
        };
        let mut args = vec![alu.iter_out.into(), alu.iter_in.into()];
        args.extend(factors.map(u32::from));
        args.extend([0, 0, first, first + uops.len() as u32]);
        args.extend([alu.op.code().into(), use_imm, imm]);
        let iter = (alu.iter_out, alu.iter_in);
        let dst = span(
            uops,
            |u| u.dst,
            reach(iter, (alu.dst_factor_out, alu.dst_factor_in)),
        );
        let mut touches = Touches::default()
            .reading(Pad::Acc, dst.clone())
            .writing(Pad::Acc, dst);
        if use_imm == 0 {
            let src = span(
                uops,
                |u| u.src,
                reach(iter, (alu.src_factor_out, alu.src_factor_in)),
            );
            touches = touches.reading(Pad::Acc, src);
        }
        Op {
            kind: Kind::AluInOrder,
            units: self.config.lanes() as u32 / self.shape.lanes,
            args,
            touches,
            cost: alu.steps().saturating_mul(4 * self.config.lanes() as u64),
        }
    }
}

/// The tiles from the smallest index of the micro-ops to the largest with its loops.
fn span(uops: &[u32], index: impl Fn(Uop) -> u16, reach: u64) -> Range<usize> {
    let all = uops.iter().map(|w| usize::from(index(Uop::decode(*w))));
    let first = all.clone().min().unwrap_or(0);
    first..all.max().map_or(first, |last| last + reach as usize + 1)
}

fn gemm_touches(gemm: &Gemm, uops: &[u32]) -> Touches {
    let iter = (gemm.iter_out, gemm.iter_in);
    let dst = span(
        uops,
        |u| u.dst,
        reach(iter, (gemm.dst_factor_out, gemm.dst_factor_in)),
    );
    let mut touches = Touches::default()
        .reading(Pad::Acc, dst.clone())
        .writing(Pad::Acc, dst);
    if !gemm.reset {
        let src = (gemm.src_factor_out, gemm.src_factor_in);
        let wgt = (gemm.wgt_factor_out, gemm.wgt_factor_in);
        touches = touches
            .reading(Pad::Inp, span(uops, |u| u.src, reach(iter, src)))
            .reading(Pad::Wgt, span(uops, |u| u.wgt, reach(iter, wgt)));
    }
    touches
}
