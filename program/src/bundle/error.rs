//! What can be wrong with a bundle, and its versions.

use thiserror::Error;

use vta_files::output::FileError;

/// The version of bundles that hold a program alone.
pub const BUNDLE_VERSION: u32 = 1;
/// The version of bundles with layers of the host.
pub const HOSTED_VERSION: u32 = 4;
/// The first version of bundles with layers of the host in another form; up to [`HOSTED_VERSION`] they
/// are read no more.
pub(super) const FORMER_VERSION: u32 = 2;

/// A bundle that can't be read or written.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The file can't be opened or read.
    #[error("bundle {path}: {message}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        message: String,
    },
    /// The file can't be written.
    #[error("bundle {0}")]
    Write(#[from] FileError),
    /// The file doesn't start like a bundle.
    #[error("bundle: this is no .vta program (it doesn't start with the magic bytes)")]
    Magic,
    /// Another version.
    #[error(
        "bundle: format version {found}, but this build reads {BUNDLE_VERSION} and \
         {HOSTED_VERSION}"
    )]
    Version {
        /// The file's version.
        found: u32,
    },
    /// A version that was written before and is read no more.
    #[error(
        "bundle: format version {found} of an earlier build, whose layers of the host are kept in \
         another form; compile the model again"
    )]
    Former {
        /// The file's version.
        found: u32,
    },
    /// Bytes are missing, have changed since the file was written, or contradict each other.
    #[error("bundle: {section}: {message}")]
    Invalid {
        /// Which part.
        section: &'static str,
        /// What is wrong.
        message: String,
    },
}

/// Bytes of a part that aren't what they should be.
pub(super) fn invalid(section: &'static str, message: impl ToString) -> BundleError {
    BundleError::Invalid {
        section,
        message: message.to_string(),
    }
}
