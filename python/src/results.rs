//! Results as Python has them: the dataclasses of `pyvta/_results.py`, and JSON.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
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
/// A number that Python hasn't, of which there is none.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::Number(value) => match (value.as_u64(), value.as_i64()) {
            (Some(value), _) => value.into_pyobject(py)?.into_any(),
            (None, Some(value)) => value.into_pyobject(py)?.into_any(),
            (None, None) => value.as_f64().into_pyobject(py)?.into_any(),
        },
        Value::String(value) => value.into_pyobject(py)?.into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            list.into_any()
        }
        Value::Object(values) => {
            let dict = PyDict::new(py);
            for (name, value) in values {
                dict.set_item(name, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
