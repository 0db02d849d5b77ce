//! From errors to exceptions, whose classes are those of `pyvta/errors.py`.

use std::io::ErrorKind;
use std::path::Path;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use vta_app::options::names::Front;
use vta_app::{Error, message};
use vta_driver::TimelineError;
use vta_files::output::FileError;

/// The classes, which Python has: they are exceptions of its own as well, as `InputError` is a `ValueError`.
mod classes {
    use pyo3::import_exception;

    import_exception!(pyvta.errors, VtaError);
    import_exception!(pyvta.errors, UsageError);
    import_exception!(pyvta.errors, FloatModelError);
    import_exception!(pyvta.errors, InputError);
    import_exception!(pyvta.errors, ModelError);
    import_exception!(pyvta.errors, DeviceError);
    import_exception!(pyvta.errors, RunError);
    import_exception!(pyvta.errors, FileError);
    import_exception!(pyvta.errors, MemoryLimitError);
    import_exception!(pyvta.errors, WaitError);
    import_exception!(pyvta.errors, WaitTimeoutError);
    import_exception!(pyvta.errors, VtaWarning);
}

pub use classes::VtaWarning;

/// The exception of an error, by its cause.
pub fn raise(error: Error) -> PyErr {
    let text = message(&error, Front::Python);
    match error {
        Error::Usage(_) => classes::UsageError::new_err(text),
        Error::Float(_) => classes::FloatModelError::new_err(text),
        Error::Input { .. } => classes::InputError::new_err(text),
        Error::Model { .. } => classes::ModelError::new_err(text),
        Error::Device { .. } => classes::DeviceError::new_err(text),
        Error::Run { .. } => classes::RunError::new_err(text),
        Error::Io { path, source } => {
            let (kind, number) = (source.kind(), source.raw_os_error());
            file(&path.display().to_string(), kind, number, text)
        }
        Error::Output(
            FileError::Create { path, kind, .. } | FileError::Write { path, kind, .. },
        ) => file(&path, kind, None, text),
        Error::Output(_) => classes::FileError::new_err(text),
        Error::Memory { .. } => classes::MemoryLimitError::new_err(text),
        Error::Cancelled => PyKeyboardInterrupt::new_err(text),
        // Causes that are new have no class yet.
        _ => classes::VtaError::new_err(text),
    }
}

/// A file's error has the system's number and words, and the file's name, where there is a number.
fn file(path: &str, kind: ErrorKind, number: Option<i32>, text: String) -> PyErr {
    let name = match kind {
        ErrorKind::NotFound => "ENOENT",
        ErrorKind::PermissionDenied => "EACCES",
        ErrorKind::AlreadyExists => "EEXIST",
        ErrorKind::IsADirectory => "EISDIR",
        ErrorKind::InvalidInput if Path::new(path).is_dir() => "EISDIR",
        ErrorKind::NotADirectory => "ENOTDIR",
        ErrorKind::ReadOnlyFilesystem => "EROFS",
        ErrorKind::StorageFull => "ENOSPC",
        ErrorKind::QuotaExceeded => "EDQUOT",
        ErrorKind::BrokenPipe => "EPIPE",
        ErrorKind::WouldBlock => "EAGAIN",
        _ => "",
    };
    let known = |py: Python<'_>| -> PyResult<(i32, String)> {
        let number = match number {
            Some(number) => number,
            None => py.import("errno")?.getattr(name)?.extract()?,
        };
        let words = py.import("os")?.call_method1("strerror", (number,))?;
        Ok((number, words.extract()?))
    };
    match Python::attach(known) {
        Ok((number, words)) => classes::FileError::new_err((number, words, path.to_owned())),
        Err(_) => classes::FileError::new_err(text),
    }
}

/// A wait that can't be satisfied, or not in time.
pub fn unsatisfied(error: &TimelineError) -> PyErr {
    let text = error.to_string();
    match error {
        TimelineError::Timeout { .. } => classes::WaitTimeoutError::new_err(text),
        _ => classes::WaitError::new_err(text),
    }
}

/// Data that isn't what it should be.
pub fn input(text: impl Into<String>) -> PyErr {
    classes::InputError::new_err(text.into())
}

/// Options that make no sense.
pub fn usage(text: impl Into<String>) -> PyErr {
    classes::UsageError::new_err(text.into())
}
