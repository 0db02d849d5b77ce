//! Why a cycle simulation stopped.

use thiserror::Error;
use vta_driver::OverBudget;
use vta_isa::Module;
use vta_isa::tokens::{At, Stuck, TokenError};

use super::Edge;

/// What the cycle model reports of a bad program.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CycleError {
    /// The timing parameters can't be used.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// A token flag without a neighbour, or a FINISH that is missing or not the last.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// More instructions than a run may have.
    #[error("the run has {insns} instructions, but at most {} fit", u32::MAX)]
    TooManyInsns {
        /// How many instructions there are.
        insns: usize,
    },
    /// Nothing can go on and FINISH was not reached.
    #[error("deadlock in cycle {cycle}: {}", deadlock_text(.stuck, .fetch.as_deref()))]
    Deadlock {
        /// The cycle of the last thing that happened.
        cycle: u64,
        /// The head instruction of each module that has one, and the tokens that it lacks.
        stuck: Vec<Stuck>,
        /// The instruction that fetch can't deliver, because its module's queue is full.
        fetch: Option<Box<(At, Module)>>,
    },
    /// FINISH was reached, but instructions before it never run.
    #[error("deadlock behind FINISH: {}", deadlock_text(.stuck, None))]
    StuckBehindFinish {
        /// The next instruction of each module that waits, and the tokens that it lacks.
        stuck: Vec<Stuck>,
    },
    /// A token counter is full, so that the RTL would lose the token.
    #[error("{at}: pushes {edge} in cycle {cycle}, but the counter is full at {limit}")]
    LostPush {
        /// The instruction that pushes.
        at: Box<At>,
        /// Which counter.
        edge: Edge,
        /// The cycle of the push.
        cycle: u64,
        /// Where the counter saturates.
        limit: u32,
    },
    /// The run takes more cycles, or moves more bytes, than it may.
    #[error(transparent)]
    Budget(#[from] OverBudget),
}

fn deadlock_text(stuck: &[Stuck], fetch: Option<&(At, Module)>) -> String {
    let modules = stuck.iter().map(ToString::to_string);
    let fetch = fetch.map(|blocked| {
        let (at, module) = blocked;
        format!("fetch waits at {at} for room in the queue of {module}")
    });
    let parts: Vec<_> = modules.chain(fetch).collect();
    parts.join("; ")
}

/// A timing file or value that can't be used.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum TimingError {
    /// Not TOML of the expected form; unknown keys are refused by name.
    #[error("timing file: {0}")]
    Toml(String),
    /// The preset's name is unknown.
    #[error("timing preset is `{0}`, but only `pynq` and `de10` exist")]
    Preset(String),
    /// A value is outside its range.
    #[error("timing key {key} is {value}, but it must be {limit}")]
    Range {
        /// The key; `dram.` stands before those of the DRAM.
        key: &'static str,
        /// Its value.
        value: String,
        /// The legal values in words.
        limit: String,
    },
}

/// A value outside its range.
pub(super) fn range(
    key: &'static str,
    value: impl ToString,
    limit: impl Into<String>,
) -> TimingError {
    TimingError::Range {
        key,
        value: value.to_string(),
        limit: limit.into(),
    }
}
