//! Why a design can't be opened, or a run of it failed.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// What can go wrong with a library.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RtlError {
    /// The file can't be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The library.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file is no library for this machine.
    #[error("{}: no library of this machine: {reason}", path.display())]
    Foreign {
        /// The library.
        path: PathBuf,
        /// What it is.
        reason: String,
    },
    /// The system's loader refuses it.
    #[error("{}: it can't be loaded: {reason}", path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// A function is missing.
    #[error("{}: it has no {symbol}: {needed}", path.display())]
    Symbol {
        /// The library.
        path: PathBuf,
        /// The function's name.
        symbol: &'static str,
        /// What needs it.
        needed: &'static str,
    },
    /// A library holds one design, with one host.
    #[error("{}: it is open already: a library holds one design", path.display())]
    Busy {
        /// The library.
        path: PathBuf,
    },
    /// The library can't write the waveform.
    #[error("{}: it can't write the waveform {}: VTADPITrace gave {code}", path.display(), wave.display())]
    Wave {
        /// The library.
        path: PathBuf,
        /// The waveform.
        wave: PathBuf,
        /// What the function returned.
        code: i32,
    },
    /// The system gave no thread.
    #[error("the system gives no thread for the design: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
    },
    /// FINISH wasn't reached in time.
    #[error(
        "the design hasn't finished after {clocks} clocks; a run of these instructions has {limit} at most"
    )]
    Clocks {
        /// Clocks of the run so far.
        clocks: u64,
        /// The deadline.
        limit: u64,
    },
    /// No clock passes any more.
    #[error("the design stands still: no clock for {silent:?}, after {clocks} of the run")]
    Silent {
        /// How long.
        silent: Duration,
        /// Clocks of the run so far.
        clocks: u64,
    },
    /// `VTADPISim` returned, though nobody told it to.
    #[error(
        "VTADPISim returned {code} after {clocks} clocks of the run, though nobody told it to leave"
    )]
    Left {
        /// What it returned.
        code: i32,
        /// Clocks of the run so far.
        clocks: u64,
    },
    /// The design ended itself: an assertion, `$fatal`, `$stop` or `$finish`.
    #[error("the design ended itself after {clocks} clocks of the run: {text}")]
    Ended {
        /// What the library says of it.
        text: String,
        /// Clocks of the run so far.
        clocks: u64,
    },
    /// The library called `abort`.
    #[error(
        "the design's library called abort after {clocks} clocks of the run, as Verilator's own $stop and $fatal do; \
         it printed why"
    )]
    Aborted {
        /// Clocks of the run so far.
        clocks: u64,
    },
    /// An access outside of all allocations.
    #[error("the design {does} where nothing is allocated: {reason}")]
    Nowhere {
        /// `reads` or `writes`.
        does: &'static str,
        /// The beat's first byte.
        addr: u64,
        /// What the memory said, and whose address it would be.
        reason: String,
    },
    /// The design did what no design may.
    #[error("{0}")]
    Misbehaved(String),
    /// It failed before, and is in no state to run again.
    #[error("the design failed before and must be opened again: {0}")]
    Broken(String),
}
