//! Keyword arguments that say how a network is compiled and where it runs.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping};
use vta_app::options::names::{Front, Name};
use vta_app::options::{ConfigSource, InputShape, NetworkOptions, Slot, named};
use vta_compiler::semantics::Requant;

use crate::error::usage;
use crate::given::{self, path, size, switch, text};

/// Reads keyword arguments; what is `None` is as if it weren't given.
///
/// # Errors
/// `TypeError` for a name that is no option or a value of another type, `UsageError` for one that makes
/// no sense.
pub fn read(given: Option<&Bound<'_, PyDict>>) -> PyResult<NetworkOptions> {
    some(given, &NetworkOptions::NAMES)
}

/// As [`read`], where only some options make sense.
///
/// # Errors
/// As for [`read`], and `TypeError` for others.
pub fn some(given: Option<&Bound<'_, PyDict>>, names: &[Name]) -> PyResult<NetworkOptions> {
    let mut options = NetworkOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let option = named(&name, names, Front::Python).map_err(PyTypeError::new_err)?;
        if let Some(slot) = options.slot(option).filter(|_| !value.is_none()) {
            set(&name, slot, &value)?;
        }
    }
    Ok(options)
}

/// The device, `sim` where none is given.
///
/// # Errors
/// `TypeError` for what is no text.
pub fn device(given: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
    given.map_or(Ok("sim".to_owned()), |given| text("device", given))
}

fn set(name: &str, slot: Slot<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match slot {
        Slot::Text(of) => *of = Some(given::name(name, value)?),
        Slot::Path(of) => *of = Some(path(name, value)?),
        Slot::Count(of) => *of = Some(size(name, value)?),
        Slot::Flag(of) => *of = switch(name, value)?,
        Slot::Config(of) => *of = Some(config(value)?),
        Slot::Shapes(of) => *of = shapes(value)?,
        Slot::Requant(of) => *of = Some(requant(&text(name, value)?)?),
    }
    Ok(())
}

/// A configuration: a file, or a mapping of its keys.
///
/// # Errors
/// `TypeError` for what is neither, `UsageError` for values that JSON doesn't have.
pub fn config(value: &Bound<'_, PyAny>) -> PyResult<ConfigSource> {
    if let Ok(path) = value.extract::<PathBuf>() {
        return Ok(path.into());
    }
    let Ok(keys) = value.cast::<PyMapping>() else {
        return Err(PyTypeError::new_err(
            "`config` is a path or a dict of the keys of a vta_config.json",
        ));
    };
    Ok(ConfigSource::Keys(given::keys("config", keys)?))
}

/// `{"input": (1, 3, 224, 224)}`, or the dimensions alone of the only input.
pub fn shapes(value: &Bound<'_, PyAny>) -> PyResult<Vec<InputShape>> {
    let shape = |name: String, shape: &Bound<'_, PyAny>| {
        let shape = given::sizes("input_shapes", shape, usage)?;
        let shape: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
        match shape {
            Ok(shape) if !shape.contains(&0) => Ok(InputShape { name, shape }),
            _ => Err(usage("`input_shapes`: a dimension is at least 1")),
        }
    };
    let Ok(all) = value.cast::<PyMapping>() else {
        return Ok(vec![shape(String::new(), value)?]);
    };
    let mut shapes = Vec::new();
    for pair in all.items()?.iter() {
        let (name, of): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        shapes.push(shape(text("input_shapes", &name)?, &of)?);
    }
    Ok(shapes)
}

fn requant(name: &str) -> PyResult<Requant> {
    let found = name.parse::<Requant>();
    found.map_err(|error| usage(format!("`requant`: {error}")))
}

/// Where a network comes from, so that it can be opened again.
#[derive(Debug)]
pub enum Origin {
    /// A file, `demo` or `zoo:NAME`.
    Name(String),
    /// An ONNX model in memory.
    Bytes(Py<PyBytes>),
}

impl Origin {
    /// Of a path or name, bytes, or an object with a method `to_onnx`.
    ///
    /// # Errors
    /// `TypeError` for anything else, and what that method raises.
    pub fn of(model: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = model.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone().unbind()));
        }
        // The latter is that of ONNX's own class of models.
        for method in ["to_onnx", "SerializeToString"] {
            if model.hasattr(method)? {
                let bytes = model.call_method0(method)?;
                return Ok(Self::Bytes(bytes.cast_into::<PyBytes>()?.unbind()));
            }
        }
        if model.extract::<PathBuf>().is_err() {
            let kind = given::kind(model);
            return Err(PyTypeError::new_err(format!(
                "a model is a path, 'demo', 'zoo:NAME', ONNX as bytes or what has them, not {kind}"
            )));
        }
        Ok(Self::Name(given::name("model", model)?))
    }

    /// The ONNX model, where it is in memory.
    pub fn bytes<'py>(&'py self, py: Python<'py>) -> Option<&'py [u8]> {
        match self {
            Self::Name(_) => None,
            Self::Bytes(bytes) => Some(bytes.bind(py).as_bytes()),
        }
    }

    /// What opens it again, in another process and folder, too.
    pub fn again<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.bind(py).clone().into_any()),
            Self::Name(name) => again(name.into_pyobject(py)?.as_any()),
        }
    }

    /// Its name for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Bytes(_) => "the model",
        }
    }
}

/// An option as another process and folder needs it: the whole path of a file that is there.
///
/// # Errors
/// A path without a folder that this process may see.
pub fn again<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match value.extract::<PathBuf>() {
        Ok(path) if path.is_file() => {
            let path = std::path::absolute(&path)?;
            Ok(path.into_os_string().into_pyobject(value.py())?.into_any())
        }
        _ => Ok(value.clone()),
    }
}
