//! What the hazard checker finds, as values and as text.

use std::fmt;
use std::ops::Range;

use vta_isa::tokens::At;

use super::races::MAX_RANGES;

/// Hazards that a report keeps; more are only counted.
pub const MAX_HAZARDS: usize = 256;

/// A memory that several modules reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SharedMemory {
    /// The input scratchpad: load writes, compute reads.
    Inp,
    /// The weight scratchpad: load writes, compute reads.
    Wgt,
    /// The accumulator scratchpad, which STORE reads as output tiles: compute writes and reads, store reads, load
    /// writes where a program preloads.
    Acc,
    /// Device memory: store writes; load, compute, and the host after FINISH read.
    Dram,
}

impl SharedMemory {
    /// The name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inp => "inp",
            Self::Wgt => "wgt",
            Self::Acc => "acc",
            Self::Dram => "dram",
        }
    }
}

/// How an instruction touches a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// It takes what lies there.
    Read,
    /// It changes what lies there.
    Write,
    /// FINISH: the host may read from then on.
    HandOver,
}

impl AccessKind {
    /// As in "this instruction ...".
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::HandOver => "hands over",
        }
    }
}

/// One side of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The instruction.
    pub at: At,
    /// What it does.
    pub kind: AccessKind,
}

/// Two instructions of different modules that touch the same tiles or bytes, one of them
/// writing, with no chain of tokens and program order from one to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// Where.
    pub memory: SharedMemory,
    /// Tiles, or bytes of DRAM, ascending; the first 16 ranges.
    pub ranges: Vec<Range<u64>>,
    /// How many tiles or bytes there are in all.
    pub count: u64,
    /// The instruction that stands first in the run.
    pub first: Access,
    /// The one that stands later.
    pub second: Access,
}

/// An ALU instruction whose next step reads a tile that the RTL hasn't written back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AluHazard {
    /// The instruction.
    pub at: At,
    /// The step that writes the tile, from 0; the next step reads it. The first such pair.
    pub step: u64,
    /// The accumulator tile.
    pub tile: u16,
    /// The index of the next step that is the tile: `dst` with an immediate, else `src`.
    pub index: &'static str,
}

/// Something that a device may do in more than one order, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hazard {
    /// Two modules, one place, no order.
    Race(Race),
    /// An ALU step too close to the one before.
    Alu(AluHazard),
}

impl Hazard {
    /// Index of the later of its instructions.
    pub const fn insn(&self) -> usize {
        match self {
            Self::Race(race) => race.second.at.index,
            Self::Alu(alu) => alu.at.index,
        }
    }

    /// Both indices, to sort by.
    pub(super) const fn key(&self) -> (usize, usize) {
        match self {
            Self::Race(race) => (race.second.at.index, race.first.at.index),
            Self::Alu(alu) => (alu.at.index, alu.at.index),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, verb) = (&self.at, self.kind.verb());
        write!(f, "{at} in {} {verb}", at.insn.module())
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.memory == SharedMemory::Dram;
        let unit = if bytes { "bytes" } else { "tiles" };
        write!(f, "{} {unit} ", self.memory.name())?;
        for (i, Range { start, end }) in self.ranges.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            if bytes {
                write!(f, "{comma}{start:#x}..{end:#x}")?;
            } else {
                write!(f, "{comma}{start}..{end}")?;
            }
        }
        // There may be no more than these; the count is right either way.
        if self.ranges.len() == MAX_RANGES {
            write!(f, " and so on ({} in all)", self.count)?;
        }
        let (first, second) = (&self.first, &self.second);
        write!(f, ": {first}, {second}, and no chain of tokens orders them")
    }
}

impl fmt::Display for AluHazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            step,
            tile,
            index,
        } = self;
        let next = step + 1;
        write!(
            f,
            "acc tile {tile}: {at}: {index} of step {next} is dst of step {step}, which isn't \
             written back yet"
        )
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Race(race) => race.fmt(f),
            Self::Alu(alu) => alu.fmt(f),
        }
    }
}

/// Why an instruction was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unchecked {
    /// GEMM or ALU whose micro-ops, or some of them, are unknown: their tiles aren't checked.
    UnknownUops,
    /// An index leaves its scratchpad: a device refuses the instruction.
    OutOfRange,
}

/// What the checker left out, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Why.
    pub what: Unchecked,
    /// The first instruction.
    pub first: At,
    /// How many instructions.
    pub count: usize,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, first, count } = self;
        match what {
            Unchecked::UnknownUops => write!(
                f,
                "not checked: what {count} GEMM or ALU instruction(s) touch through micro-ops \
                 whose contents are unknown, from {first} on"
            ),
            Unchecked::OutOfRange => write!(
                f,
                "not checked: {count} instruction(s) that leave a scratchpad, from {first} on"
            ),
        }
    }
}

/// The hazards of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Instructions looked at.
    pub insns: usize,
    /// Hazards by the index of their later instruction; at most [`MAX_HAZARDS`].
    pub hazards: Vec<Hazard>,
    /// How many were found in all.
    pub found: u64,
    /// What was left out.
    pub notes: Vec<Note>,
}

impl Report {
    /// Whether no hazard was found. What [`Self::notes`] says was left out may still have some.
    pub const fn is_clean(&self) -> bool {
        self.found == 0
    }
}
