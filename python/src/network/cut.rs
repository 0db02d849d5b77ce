//! `cut`.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use vta_app::cut::{CutOptions, cut as part_of};
use vta_app::options::names::INPUT_SHAPE;

use crate::given::text;
use crate::options::{self, Origin};
use crate::watch::aside;

/// The part of an ONNX model, float or int8, between values with these names, as ONNX's bytes.
///
/// `model` is an ONNX file, ONNX as bytes or an `onnx.ModelProto`. `inputs` and `outputs` are names of values, or one
/// name; without `inputs` the part begins at the model's, as far as it needs them, without `outputs` it ends at the
/// model's. Nodes and weights keep their names; weights that lie in other files are put in. `Check.cut` has names
/// that help.
///
/// Raises `UsageError` for names that no value has and inputs that don't determine the outputs.
#[pyfunction]
#[pyo3(
    signature = (model, inputs = None, outputs = None, **given),
    text_signature = "(model, inputs=None, outputs=None, *, input_shapes=None)"
)]
pub fn cut<'py>(
    model: &Bound<'py, PyAny>,
    inputs: Option<&Bound<'py, PyAny>>,
    outputs: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let options = options::some(given, &[INPUT_SHAPE])?;
    let (py, origin) = (model.py(), Origin::of(model)?);
    let options = CutOptions {
        inputs: names("inputs", inputs)?,
        outputs: names("outputs", outputs)?,
        shapes: options.shapes,
    };
    let bytes = origin.bytes(py).map(<[u8]>::to_vec);
    let model = Path::new(&origin.name);
    let part = aside(py, None, |_| part_of(model, bytes, options))?;
    Ok(PyBytes::new(py, &part.onnx))
}

/// One name, or several.
fn names(argument: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    let Some(given) = given else {
        return Ok(Vec::new());
    };
    if let Ok(name) = text(argument, given) {
        return Ok(vec![name]);
    }
    given
        .try_iter()?
        .map(|name| text(argument, &name?))
        .collect()
}
