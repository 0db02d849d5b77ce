//! From errors to exceptions, whose classes are those of `pyvta/errors.py`.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use vta_app::error::{Error, message};
use vta_app::options::names::Front;

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
        Error::Io { .. } | Error::Output(_) => classes::FileError::new_err(text),
        Error::Memory { .. } => classes::MemoryLimitError::new_err(text),
        Error::Cancelled => PyKeyboardInterrupt::new_err(text),
        // Causes that are new have no class yet.
        _ => classes::VtaError::new_err(text),
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
