//! What programs do differently on the original RTL.
//!
//! The static check accepts these programs, and every executor of this project does with them
//! what the instruction set says. The RTL does something else:
//!
//! | program | on the RTL |
//! |---|---|
//! | GEMM or ALU with a trip count of 0 | 2^14 trips |
//! | GEMM without micro-ops | 2^14 micro-ops |
//! | GEMM with neither | hangs |
//! | ALU without micro-ops | aborts |
//! | LOAD or STORE with `y_size` 0 and `x_size` over 0 | hangs |
//! | LOAD of several rows of micro-ops | loads one |
//! | ALU with an immediate and `src` another tile than `dst` | takes `acc[src]` |
//!
//! What needs an extension that it lacks is the configuration's to say, and an ALU hazard has a
//! name of its own ([`super::first_alu_hazard`]).

use std::fmt;

use vta_isa::tokens::At;
use vta_isa::{Alu, AluOperand, Config, Insn, MemType, Uop};
use vta_replay::Case;

use super::program::{HazardError, case_memory};
use super::uops::{KnownUops, UopSource};

/// What a count of 0 is on the RTL, for trips and micro-ops: its counters have 14 bits.
const WRAPPED: u16 = 1 << 14;

/// What the RTL does with an instruction that does something else by the instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deviation {
    /// A trip count of 0 is 2^14; the field.
    Trips(&'static str),
    /// No micro-ops are 2^14.
    Uops,
    /// The RTL never ends.
    Hangs(&'static str),
    /// The simulation of the RTL aborts.
    Aborts(&'static str),
    /// One row of micro-ops is loaded.
    Rows,
    /// The operand is another tile than the result.
    Operand,
}

impl Deviation {
    /// Whether the program comes to an end there, with other results.
    pub const fn finishes(self) -> bool {
        match self {
            Self::Trips(_) | Self::Uops | Self::Rows | Self::Operand => true,
            Self::Hangs(_) | Self::Aborts(_) => false,
        }
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trips(field) => write!(f, "{field} of 0 is {WRAPPED} trips on the RTL"),
            Self::Uops => write!(f, "no micro-ops are {WRAPPED} on the RTL"),
            Self::Hangs(why) => write!(f, "the RTL hangs on {why}"),
            Self::Aborts(why) => write!(f, "the RTL aborts on {why}"),
            Self::Rows => f.write_str("the RTL loads one row of micro-ops, whatever y_size is"),
            Self::Operand => f.write_str(
                "the RTL takes the operand of an immediate from src, which is another tile than dst",
            ),
        }
    }
}

/// An instruction that does something else on the original RTL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviationAt {
    /// The instruction.
    pub at: At,
    /// What it does there.
    pub what: Deviation,
}

impl fmt::Display for DeviationAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// What an instruction does on the original RTL, if it isn't what the instruction set says; the
/// first reason. `uops` are its micro-ops as far as they are known.
pub fn deviation(insn: &Insn, uops: &[Uop]) -> Option<Deviation> {
    match insn {
        Insn::Load(load) => {
            let rows = load.mem == MemType::Uop && load.y_size > 1 && load.x_size > 0;
            no_rows(load.x_size, load.y_size).or(rows.then_some(Deviation::Rows))
        }
        Insn::Store(store) => no_rows(store.x_size, store.y_size),
        Insn::Gemm(gemm) => {
            let trips = no_trips(gemm.iter_out, gemm.iter_in);
            match (gemm.uop_count(), trips) {
                (0, Some(_)) => Some(Deviation::Hangs("neither micro-ops nor trips")),
                (0, None) => Some(Deviation::Uops),
                (_, trips) => trips,
            }
        }
        Insn::Alu(alu) if alu.uop_count() == 0 => {
            Some(Deviation::Aborts("an ALU instruction without micro-ops"))
        }
        Insn::Alu(alu) => {
            let operand = (!same_tiles(alu, uops)).then_some(Deviation::Operand);
            no_trips(alu.iter_out, alu.iter_in).or(operand)
        }
        // The original has none.
        Insn::Finish(_) | Insn::Depthwise(_) => None,
    }
}

/// The instructions, in program order, that do something else on the original RTL.
pub fn deviations(config: &Config, insns: &[Insn], uops: UopSource<'_>) -> Vec<DeviationAt> {
    let mut followed = KnownUops::new(uops, config, insns);
    let of = |(index, insn): (usize, &Insn)| {
        let known = followed.next(insn).map_or(&[][..], |uops| uops.known);
        let what = deviation(insn, known)?;
        let at = At { index, insn: *insn };
        Some(DeviationAt { at, what })
    };
    insns.iter().enumerate().filter_map(of).collect()
}

/// [`deviations`] of a recorded run, with the micro-ops of its DRAM.
///
/// # Errors
/// [`HazardError`] when its allocations overlap.
pub fn case_deviations(case: &Case) -> Result<Vec<DeviationAt>, HazardError> {
    let memory = case_memory(case)?;
    let uops = UopSource::Memory(&memory);
    Ok(deviations(&case.config, &case.insns, uops))
}

fn no_rows(x_size: u16, y_size: u16) -> Option<Deviation> {
    (x_size > 0 && y_size == 0).then_some(Deviation::Hangs("x_size without y_size"))
}

fn no_trips(iter_out: u16, iter_in: u16) -> Option<Deviation> {
    let fields = [("iter_out", iter_out), ("iter_in", iter_in)];
    let mut zero = fields.into_iter().filter(|(_, trips)| *trips == 0);
    zero.next().map(|(field, _)| Deviation::Trips(field))
}

/// Whether an immediate's operand is the tile of its result in every step.
fn same_tiles(alu: &Alu, uops: &[Uop]) -> bool {
    // A factor counts from the second trip on.
    let moves = |trips: u16, dst: u16, src: u16| trips <= 1 || dst == src;
    match alu.operand {
        AluOperand::Acc => true,
        AluOperand::Imm(_) => {
            uops.iter().all(|uop| uop.dst == uop.src)
                && moves(alu.iter_out, alu.dst_factor_out, alu.src_factor_out)
                && moves(alu.iter_in, alu.dst_factor_in, alu.src_factor_in)
        }
    }
}

/// An instruction with the counts that it has on the original RTL, for its time: 0 trips and no
/// micro-ops are 2^14.
#[must_use]
pub fn counts_on_rtl(insn: &Insn) -> Insn {
    let trips = |n: u16| if n == 0 { WRAPPED } else { n };
    let end = |bgn: u16, end: u16| if bgn == end { bgn + WRAPPED } else { end };
    let mut insn = *insn;
    match &mut insn {
        Insn::Gemm(gemm) => {
            (gemm.iter_out, gemm.iter_in) = (trips(gemm.iter_out), trips(gemm.iter_in));
            gemm.uop_end = end(gemm.uop_bgn, gemm.uop_end);
        }
        Insn::Alu(alu) => {
            (alu.iter_out, alu.iter_in) = (trips(alu.iter_out), trips(alu.iter_in));
            alu.uop_end = end(alu.uop_bgn, alu.uop_end);
        }
        Insn::Load(_) | Insn::Store(_) | Insn::Depthwise(_) | Insn::Finish(_) => {}
    }
    insn
}

#[cfg(test)]
mod tests;
