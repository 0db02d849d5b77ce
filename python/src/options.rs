//! Keyword arguments that say how a network is compiled and where it runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping};
use vta_app::Target;
use vta_app::options::names::{Front, Name};
use vta_app::options::{ConfigSource, Slot, named};
use vta_compiler::semantics::Requant;

use crate::error::{raise, usage};
use crate::given::{self, path, size, switch, text};

/// Reads keyword arguments; what is `None` is as if it weren't given.
///
/// # Errors
/// `TypeError` for a name that is no option or a value of another type, `UsageError` for one that makes
/// no sense.
pub fn read(given: Option<&Bound<'_, PyDict>>) -> PyResult<Target> {
    some(given, &Target::NAMES)
}

/// As [`read`], where only some options make sense.
///
/// # Errors
/// As for [`read`], and `TypeError` for others.
pub fn some(given: Option<&Bound<'_, PyDict>>, names: &[Name]) -> PyResult<Target> {
    let mut options = Target::default();
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
    if value.cast::<PyMapping>().is_err() {
        return Err(PyTypeError::new_err(
            "`config` is a path or a dict of the keys of a vta_config.json",
        ));
    }
    let keys: String = source(value.py(), "keys_of", (value,))?.extract()?;
    let keys = serde_json::from_str(&keys).map_err(|error| raise(error.into()))?;
    Ok(ConfigSource::Keys(keys))
}

/// A machine whose points are measured, on so many threads.
///
/// # Errors
/// As for [`config`].
pub fn machine(
    given: Option<&Bound<'_, PyAny>>,
    [board, timing]: [Option<String>; 2],
    costs: Option<PathBuf>,
    threads: usize,
) -> PyResult<Target> {
    Ok(Target {
        threads: Some(threads),
        config: given.map(config).transpose()?,
        board,
        timing,
        costs,
        ..Target::default()
    })
}

/// `{"input": (1, 3, 224, 224)}`, or the dimensions alone of the only input.
pub fn shapes(value: &Bound<'_, PyAny>) -> PyResult<BTreeMap<String, Vec<usize>>> {
    let shape = |name: String, shape: &Bound<'_, PyAny>| {
        let shape = given::sizes("input_shapes", shape, usage)?;
        let shape: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
        match shape {
            Ok(shape) if !shape.contains(&0) => Ok((name, shape)),
            _ => Err(usage("`input_shapes`: a dimension is at least 1")),
        }
    };
    let Ok(all) = value.cast::<PyMapping>() else {
        return Ok([shape(String::new(), value)?].into());
    };
    let mut shapes = BTreeMap::new();
    for pair in all.items()?.iter() {
        let (name, of): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        shapes.extend([shape(text("input_shapes", &name)?, &of)?]);
    }
    Ok(shapes)
}

fn requant(name: &str) -> PyResult<Requant> {
    let found = name.parse::<Requant>();
    found.map_err(|error| usage(format!("`requant`: {error}")))
}

/// Calls a function of `pyvta/_source.py`.
///
/// # Errors
/// What it raises.
pub fn source<'py>(
    py: Python<'py>,
    function: &str,
    given: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("pyvta._source")?.call_method1(function, given)
}

/// Where a network comes from, so that it can be opened again.
#[derive(Debug)]
pub struct Origin {
    /// A file, `demo` or `zoo:NAME`, or an ONNX model's bytes.
    pub model: Py<PyAny>,
    /// Its name, for messages.
    pub name: String,
}

impl Origin {
    /// Of a path or name, bytes, or an object that has them.
    ///
    /// # Errors
    /// `TypeError` for anything else, and what such an object raises.
    pub fn of(model: &Bound<'_, PyAny>) -> PyResult<Self> {
        let model = source(model.py(), "model_of", (model,))?;
        let name = if model.is_instance_of::<PyBytes>() {
            "the model".to_owned()
        } else {
            given::name("model", &model)?
        };
        let model = model.unbind();
        Ok(Self { model, name })
    }

    /// The ONNX model, where it is in memory.
    pub fn bytes<'py>(&'py self, py: Python<'py>) -> Option<&'py [u8]> {
        let bytes = self.model.bind(py).cast::<PyBytes>();
        bytes.ok().map(PyBytesMethods::as_bytes)
    }
}
