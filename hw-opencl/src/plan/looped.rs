//! GEMM and ALU instructions that run with their own loops: what is too long to be listed, or
//! must run in its order. They work on the scratchpads' own tiles.

use std::collections::HashMap;
use std::ops::Range;

use vta_isa::resolve::{AffineTiles, AluAccess, DepthwiseAccess, GemmAccess, Loops, TileSet};
use vta_isa::{AluOperand, Uop};

use crate::plan::ops::{Kind, Op, Tables, Touches};
use crate::plan::target::Target;
use crate::plan::versions::Scratchpad;
use crate::words::StageOp;

/// The groups of a list of micro-ops.
#[derive(Clone, Copy, Debug)]
struct Groups {
    table: u32,
    count: u32,
    /// Micro-ops of the longest.
    longest: u32,
}

/// Makes operations of single instructions.
#[derive(Debug, Default)]
pub(crate) struct Looped {
    groups: HashMap<Vec<Uop>, Groups>,
}

impl Looped {
    /// Sorts micro-ops by destination: those of one are summed one after the other.
    fn groups(&mut self, uops: &[Uop], tables: &mut Tables) -> Groups {
        if let Some(groups) = self.groups.get(uops) {
            return *groups;
        }
        let mut sorted = uops.to_vec();
        sorted.sort_by_key(|uop| uop.dst);
        let first = tables.uops(&sorted);
        let mut table = Vec::new();
        let (mut start, mut longest) = (0, 0);
        for run in sorted.chunk_by(|a, b| a.dst == b.dst) {
            let len = run.len() as u32;
            table.extend([run[0].dst.into(), first + start, first + start + len]);
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

    /// An instruction that isn't a reset: blocks of outputs, which run its loops, if these are
    /// apart.
    pub fn gemm(&mut self, target: &Target, access: &GemmAccess<'_>, tables: &mut Tables) -> Op {
        let Some([src, wgt]) = access.operands else {
            return gemm_in_order(target, access, tables);
        };
        let groups = self.groups(access.uops.known, tables);
        // A loop that leaves the destination where it is belongs to the sum.
        let once = access.dst.loops.without_repeats();
        if !destinations_differ(groups, tables, once) {
            return gemm_in_order(target, access, tables);
        }
        let trips = once.trips.map(u32::from);
        let sums = [0, 1].map(|d| u32::from(access.dst.loops.trips[d]) / trips[d]);
        let [dst, src, wgt] = [access.dst, src, wgt].map(|t| t.loops.factors.map(u32::from));
        let rows = trips[0] * trips[1];
        let shared = (0..2).all(|d| trips[d] == 1 || wgt[d] == 0);
        let at_once = if shared && rows > 1 {
            target.shape.rows
        } else {
            1
        };
        let blocks = rows.div_ceil(at_once);
        let chunks = (target.config.block() as u32) / target.shape.lanes;
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
        let cost = sum * u64::from(blocks * at_once * groups.count) * target.config.macs_per_step();
        let touches = gemm_touches(access);
        Op {
            kind: Kind::Gemm,
            units: groups.count * blocks * target.config.batch() as u32 * chunks,
            args,
            touches,
            cost,
        }
    }
}

/// An instruction as it is, a reset, too.
fn gemm_in_order(target: &Target, access: &GemmAccess<'_>, tables: &mut Tables) -> Op {
    let gemm = &access.gemm;
    let loops = [gemm.dst_loops(), gemm.src_loops(), gemm.wgt_loops()];
    let mut args = own_loops(loops, access.uops.known, tables);
    args.push(gemm.reset.into());
    Op {
        kind: Kind::GemmInOrder,
        units: target.config.lanes() as u32 / target.shape.lanes,
        args,
        touches: gemm_touches(access),
        cost: gemm.steps().saturating_mul(target.config.macs_per_step()),
    }
}

/// An instruction as it is.
pub(crate) fn alu_in_order(target: &Target, access: &AluAccess<'_>, tables: &mut Tables) -> Op {
    let alu = &access.alu;
    let no_weights = Loops {
        factors: [0; 2],
        ..alu.dst_loops()
    };
    let loops = [alu.dst_loops(), alu.src_loops(), no_weights];
    let (use_imm, imm) = match alu.operand {
        AluOperand::Acc => (0, 0),
        AluOperand::Imm(imm) => (1, i32::from(imm) as u32),
    };
    let mut args = own_loops(loops, access.uops.known, tables);
    args.extend([StageOp::Alu(alu.op).word(), use_imm, imm]);
    let dst = span(&access.dst);
    let mut touches = Touches::default()
        .reading(Scratchpad::Acc, dst.clone())
        .writing(Scratchpad::Acc, dst);
    if let Some(src) = &access.src {
        touches = touches.reading(Scratchpad::Acc, span(src));
    }
    Op {
        kind: Kind::AluInOrder,
        units: target.config.lanes() as u32 / target.shape.lanes,
        args,
        touches,
        cost: alu.steps().saturating_mul(4 * target.config.lanes() as u64),
    }
}

/// A DEPTHWISE. Its trips run side by side where each step has an accumulator tile of its own.
pub(crate) fn windows(target: &Target, access: &DepthwiseAccess<'_>, tables: &mut Tables) -> Op {
    let (insn, config) = (&access.insn, &target.config);
    let loops = [access.dst, access.src, access.wgt].map(|tiles| tiles.loops);
    let mut args = own_loops(loops, access.uops.known, tables);
    let apart = access.dst.is_apart();
    args.extend([insn.rows, insn.columns].map(u32::from));
    args.extend([u32::from(insn.pitch), insn.overwrite.into(), apart.into()]);
    let (dst, inputs) = (span(&access.dst), access.inputs());
    let mut touches = Touches::default()
        .reading(Scratchpad::Acc, dst.clone())
        .writing(Scratchpad::Acc, dst)
        .reading(Scratchpad::Wgt, span(&access.wgt));
    for run in inputs.runs() {
        touches = touches.reading(Scratchpad::Inp, run);
    }
    let trips = u32::from(insn.iter_out) * u32::from(insn.iter_in);
    let macs = insn.taps() * config.lanes();
    Op {
        kind: Kind::Windows,
        units: config.lanes() as u32 / target.shape.lanes * if apart { trips } else { 1 },
        args,
        touches,
        cost: insn.steps().saturating_mul(macs as u64),
    }
}

/// The words of loops around destination, source and weights, which have the same trips, and of
/// the micro-ops in them.
fn own_loops(loops: [Loops; 3], uops: &[Uop], tables: &mut Tables) -> Vec<u32> {
    let first = tables.uops(uops);
    let mut words = loops[0].trips.map(u32::from).to_vec();
    words.extend(loops.iter().flat_map(|l| l.factors.map(u32::from)));
    words.extend([first, first + uops.len() as u32]);
    words
}

/// Whether destinations of different groups and trips never meet.
fn destinations_differ(groups: Groups, tables: &Tables, loops: Loops) -> bool {
    let mut seen = TileSet::EMPTY;
    let first = |group| tables.words[(groups.table + 3 * group) as usize];
    (0..groups.count).map(first).all(|dst| {
        let mut tiles = loops.offsets().map(|offset| u64::from(dst) + offset);
        // Checked against the scratchpad's depth with the instruction, so that no tile is beyond.
        tiles.all(|tile| seen.insert(tile as usize))
    })
}

/// The tiles from the lowest to the highest, as what orders operations.
fn span(tiles: &AffineTiles<'_>) -> Range<usize> {
    let span = tiles.span();
    span.start as usize..span.end as usize
}

fn gemm_touches(access: &GemmAccess<'_>) -> Touches {
    let dst = span(&access.dst);
    let mut touches = Touches::default()
        .reading(Scratchpad::Acc, dst.clone())
        .writing(Scratchpad::Acc, dst);
    if let Some([src, wgt]) = &access.operands {
        touches = touches
            .reading(Scratchpad::Inp, span(src))
            .reading(Scratchpad::Wgt, span(wgt));
    }
    touches
}
