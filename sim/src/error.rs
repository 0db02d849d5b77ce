//! What a simulator reports of a bad program.

use std::fmt;

use thiserror::Error;
use vta_driver::MemoryError;
use vta_isa::{Insn, Module};

/// Where a fault is: the instruction's index in the run and its assembly text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Index in the run, from 0.
    pub index: usize,
    /// The instruction.
    pub insn: Insn,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {} ({})", self.index, self.insn)
    }
}

/// An instruction that waits for tokens that never come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Which module waits.
    pub module: Module,
    /// At which instruction.
    pub at: At,
    /// The empty queues that it waits for.
    pub waits_for: Vec<&'static str>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {} for {}",
            self.module,
            self.at,
            self.waits_for.join(" and ")
        )
    }
}

/// Why a run stopped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SimError {
    /// A scratchpad or micro-op index is out of range.
    #[error("{at}: {field} reaches {value}, but the {scratchpad} scratchpad has {depth} entries")]
    Scratchpad {
        /// Where.
        at: Box<At>,
        /// Which index.
        field: &'static str,
        /// The largest index that the instruction touches, or the first outside.
        value: u64,
        /// Which scratchpad.
        scratchpad: &'static str,
        /// Its depth.
        depth: usize,
    },
    /// A DRAM access is outside the allocations.
    #[error("{at}: {source}")]
    Dram {
        /// Where.
        at: Box<At>,
        /// The access.
        source: MemoryError,
    },
    /// `uop_end < uop_bgn`.
    #[error("{at}: uop_end {end} is below uop_bgn {bgn}")]
    UopRange {
        /// Where.
        at: Box<At>,
        /// `uop_bgn`.
        bgn: u16,
        /// `uop_end`.
        end: u16,
    },
    /// A token flag towards a module that isn't there.
    #[error("{at}: {flag} in the {module} module, which has no neighbour there")]
    TokenFlag {
        /// Where.
        at: Box<At>,
        /// The flag.
        flag: &'static str,
        /// The module.
        module: Module,
    },
    /// A LOAD or STORE of a memory type that it can't take.
    #[error("{at}: memory type {mem} can't be loaded")]
    MemType {
        /// Where.
        at: Box<At>,
        /// The type.
        mem: vta_isa::MemType,
    },
    /// No module can go on.
    #[error("deadlock: {}", .stuck.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Deadlock {
        /// The modules that have instructions left.
        stuck: Vec<Stuck>,
    },
    /// The run doesn't end in FINISH.
    #[error("the run of {insns} instructions does not end in FINISH")]
    NoFinish {
        /// How many instructions there are.
        insns: usize,
    },
    /// Instructions after FINISH.
    #[error("{at}: FINISH must be the last of the {insns} instructions")]
    EarlyFinish {
        /// Where.
        at: Box<At>,
        /// How many instructions there are.
        insns: usize,
    },
    /// The run does more GEMM and ALU steps than allowed.
    #[error("{at}: the run exceeds the limit of {limit} GEMM and ALU steps")]
    StepLimit {
        /// Where.
        at: Box<At>,
        /// The limit.
        limit: u64,
    },
}
