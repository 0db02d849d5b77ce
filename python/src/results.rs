//! Results as Python has them: the dataclasses of `pyvta/_results.py`, and JSON.

use pyo3::prelude::*;
use serde_json::{Value, json};
use vta_app::sweep::Sweeper;

use crate::error::raise;

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

/// Measures a point: its figures, or `error` alone.
///
/// # Errors
/// `UsageError` for an index that no point has.
pub fn measured<'py>(
    py: Python<'py>,
    points: &Sweeper,
    index: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let row = py.detach(|| points.measure(index)).map_err(raise)?;
    let figures = match row.outcome {
        Ok(measured) => measured.figures().into(),
        Err(error) => json!({ "error": error }),
    };
    to_python(py, &figures)
}

/// As [`to_python`], of JSON's text.
///
/// # Errors
/// Text that is no JSON.
pub fn loads<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}
