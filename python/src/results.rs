//! Results as Python has them: the dataclasses of `pyvta/_results.py`, and JSON.

use pyo3::prelude::*;
use serde_json::Value;

/// A class of `pyvta/_results.py`.
///
/// # Errors
/// A class that there isn't.
pub fn result<'py>(py: Python<'py>, class: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("pyvta._results")?.getattr(class)
}

/// A JSON value as Python has it.
///
/// # Errors
/// None.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    loads(py, &value.to_string())
}

/// As [`to_python`], of JSON's text.
///
/// # Errors
/// Text that is no JSON.
pub fn loads<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}
