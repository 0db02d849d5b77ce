//! What a simulator reports of a bad program.

use thiserror::Error;
use vta_driver::{MemoryError, OverBudget};
use vta_isa::tokens::{At, TokenError};

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
    /// A window has no tap, or more than a row of a weight tile holds.
    #[error(
        "{at}: a window has {rows} rows of {columns} taps, but a weight tile holds 1 to {most} for a channel"
    )]
    Window {
        /// Where.
        at: Box<At>,
        /// `rows`.
        rows: u8,
        /// `columns`.
        columns: u8,
        /// Taps that a row of a weight tile holds.
        most: usize,
    },
    /// Tokens or the end of the run are wrong, deadlocks among them.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The run takes more GEMM and ALU steps than it may.
    #[error(transparent)]
    Budget(#[from] OverBudget),
}
