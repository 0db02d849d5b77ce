//! What can be wrong with an output.

use std::io;
use std::path::Path;

use thiserror::Error;

/// An output that can't be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file can't be made, or may not be replaced.
    #[error("{path}: {message}")]
    Create {
        /// The file, as the caller named it.
        path: String,
        /// What the system said.
        message: String,
    },
    /// The file could be made, but not be written to its end: a full disk, a closed pipe.
    #[error("{path}: {message}")]
    Write {
        /// The file, as the caller named it.
        path: String,
        /// What the system said.
        message: String,
    },
    /// Another process has the file's [`FileLock`](super::FileLock).
    #[error("{path}: another process is writing this file")]
    Locked {
        /// The file, as the caller named it.
        path: String,
    },
}

impl FileError {
    /// Of a file that could not be made, or that somebody else has locked.
    pub(super) fn create(path: &Path, error: &io::Error) -> Self {
        use io::ErrorKind;
        let (path, message) = (path.display().to_string(), error.to_string());
        match error.kind() {
            ErrorKind::WouldBlock => Self::Locked { path },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Write { path, message },
            _ => Self::Create { path, message },
        }
    }

    /// Of a file that could not be written to its end, or not be put into its place.
    pub fn write(path: &Path, error: &io::Error) -> Self {
        let (path, message) = (path.display().to_string(), error.to_string());
        Self::Write { path, message }
    }
}
