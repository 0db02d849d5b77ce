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
        /// Its kind.
        kind: io::ErrorKind,
    },
    /// The file could be made, but not be written to its end: a full disk, a closed pipe.
    #[error("{path}: {message}")]
    Write {
        /// The file, as the caller named it.
        path: String,
        /// What the system said.
        message: String,
        /// Its kind.
        kind: io::ErrorKind,
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
        let (name, message, kind) = (path.display().to_string(), error.to_string(), error.kind());
        match kind {
            ErrorKind::WouldBlock => Self::Locked { path: name },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::write(path, error),
            _ => Self::Create {
                path: name,
                message,
                kind,
            },
        }
    }

    /// Of a file that could not be written to its end, or not be put into its place.
    pub fn write(path: &Path, error: &io::Error) -> Self {
        Self::Write {
            path: path.display().to_string(),
            message: error.to_string(),
            kind: error.kind(),
        }
    }
}
