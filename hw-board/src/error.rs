//! What can go wrong between the host and a board.

use std::fmt::Display;
use std::path::Path;

use thiserror::Error;

/// A board that can't be opened, or a run that failed on it, in words: which file or register, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct BoardError(pub(crate) String);

impl BoardError {
    /// Of a file, a device node or an attribute of the kernel.
    pub(crate) fn at(path: &Path, what: impl Display) -> Self {
        Self(format!("{}: {what}", path.display()))
    }

    /// Of what the system refused.
    pub(crate) fn io(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::at(&path, format_args!("{what}: {source}"))
    }
}
