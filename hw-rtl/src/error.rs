//! Why a design can't be opened, or a run of it failed.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// What can go wrong with a library.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RtlError {
    /// It can't be opened, or lacks what is asked of it.
    #[error("{}: {reason}", path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system gave no thread.
    #[error("the system gives no thread for the design: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
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
    /// The design did what no design may, or nothing: it stood still, didn't finish, left, or ended itself.
    #[error("{0}")]
    Misbehaved(String),
    /// It failed before, and is in no state to run again.
    #[error("the design failed before and must be opened again: {0}")]
    Broken(String),
}

impl RtlError {
    pub(crate) fn library(path: &Path, reason: impl Display) -> Self {
        Self::Library {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}
