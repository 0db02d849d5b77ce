//! What callers give: whole numbers, sizes, switches and text, numpy's among them. Errors name the argument.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::error::{input, usage};

/// The name of a value's class, for messages.
pub fn kind(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().name();
    name.map_or_else(|_| "that".to_owned(), |name| name.to_string())
}

/// The error of an argument of another type.
pub fn mistyped(name: &str, what: &str, value: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("`{name}` is {what}, not {}", kind(value)))
}

/// A whole number of at least 0.
///
/// # Errors
/// `TypeError` for what is no whole number, `wrong` for one out of range.
pub fn whole(name: &str, value: &Bound<'_, PyAny>, wrong: fn(String) -> PyErr) -> PyResult<u64> {
    let mistyped = || mistyped(name, "a whole number", value);
    if value.is_instance_of::<PyBool>() {
        return Err(mistyped());
    }
    value.extract::<u64>().map_err(|error| {
        if error.is_instance_of::<PyTypeError>(value.py()) {
            return mistyped();
        }
        let must = match value.lt(0) {
            Ok(true) => "at least 0".to_owned(),
            _ => format!("at most {}", u64::MAX),
        };
        wrong(format!("`{name}` is {value}, but it must be {must}"))
    })
}

/// An option's number.
///
/// # Errors
/// As for [`whole`].
pub fn size(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let number = whole(name, value, usage)?;
    usize::try_from(number).map_err(|error| usage(format!("`{name}`: {error}")))
}

/// A number, or a sequence or array of them.
///
/// # Errors
/// As for [`whole`].
pub fn sizes(
    name: &str,
    value: &Bound<'_, PyAny>,
    wrong: fn(String) -> PyErr,
) -> PyResult<Vec<u64>> {
    let is_number = value.extract::<u64>().is_ok() && !value.is_instance_of::<PyBool>();
    if is_number || value.is_instance_of::<PyString>() {
        return Ok(vec![whole(name, value, wrong)?]);
    }
    let Ok(all) = value.try_iter() else {
        return Ok(vec![whole(name, value, wrong)?]);
    };
    all.map(|size| whole(name, &size?, wrong)).collect()
}

/// True or False.
///
/// # Errors
/// `TypeError` for anything else.
pub fn switch(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let switch = value.extract();
    switch.map_err(|_| mistyped(name, "True or False", value))
}

/// Text.
///
/// # Errors
/// `TypeError` for anything else.
pub fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.extract().map_err(|_| mistyped(name, "text", value))
}

/// A path.
///
/// # Errors
/// `TypeError` for anything else.
pub fn path(name: &str, value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    value.extract().map_err(|_| mistyped(name, "a path", value))
}

/// A name, or a path as text.
///
/// # Errors
/// As for [`path`], and `InputError` for a path that is no text.
pub fn name(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = path(name, value)?.into_os_string().into_string();
    text.map_err(|path| input(format!("{} is no text", path.display())))
}
