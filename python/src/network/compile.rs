//! `compile` and `verify`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde_json::{Value, json};
use vta_app::Session;
use vta_app::check::attributes;
use vta_app::open::Preprocess;
use vta_app::options::names;
use vta_driver::{NodeInfo, TensorInfo};
use vta_files::output;

use crate::arrays::{Unit, feeds, take};
use crate::error::{raise, usage};
use crate::options::{self, Origin};
use crate::results::{loads, result, to_python};
use crate::watch::{aside, watched};

/// Compiles an int8 network for a machine: `compile("model.onnx", board="pynq").save("model.vta")`.
///
/// Models are those of `InferenceSession`, and so are the options. `preprocess` says how pictures become
/// inputs, for `vta run` to know: `"imagenet"`, `"cifar10"` or `"raw"`; by default what the model says.
///
/// Raises `FloatModelError` for a float model, `UsageError` for one that is compiled already, `ModelError` for
/// what can't be compiled.
#[pyfunction]
#[pyo3(
    signature = (model, *, preprocess = None, **given),
    text_signature = "(model, *, config=None, board=None, allow_host=False, input_shapes=None, \
                      requant=None, tiles=None, preprocess=None)"
)]
pub fn compile<'py>(
    model: &Bound<'py, PyAny>,
    preprocess: Option<&str>,
    given: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let names = [
        names::CONFIG,
        names::BOARD,
        names::ALLOW_HOST,
        names::INPUT_SHAPE,
        names::REQUANT,
        names::TILES,
    ];
    let mut options = options::some(given, &names)?;
    options.preprocess = preprocess.map(preset).transpose()?.unwrap_or_default();
    let (py, origin) = (model.py(), Origin::of(model)?);
    let (name, bytes) = (&*origin.name, origin.bytes(py).map(<[u8]>::to_vec));
    let (program, host_ops, image) = aside(py, None, |watch| {
        let compiled = vta_app::compile::of_model(options.open(name, bytes)?, &options, watch)?;
        let image = compiled.to_bundle()?;
        Ok((compiled.device_program()?, compiled.host_ops(), image))
    })?;
    let layers = &program.layers;
    let names: Vec<&str> = layers.iter().map(|layer| &*layer.name).collect();
    let nodes = layers.iter().flat_map(|layer| {
        let nodes = layer.nodes.iter();
        nodes.map(move |node| described(&layer.name, node))
    });
    let nodes = to_python(py, &nodes.collect())?;
    let config = loads(py, &program.config.to_json())?;
    let bundle = PyBytes::new(py, &image);
    result(py, "Compiled")?.call1((bundle, host_ops, names, nodes, config))
}

/// A node that a layer computes.
fn described(layer: &str, node: &NodeInfo) -> Value {
    let tensor = |t: &TensorInfo| json!({"name": t.name, "shape": t.shape});
    let inputs: Vec<Value> = node.inputs.iter().map(tensor).collect();
    json!({
        "layer": layer, "name": node.name, "kind": node.kind,
        "attributes": attributes(&node.attributes),
        "inputs": inputs, "output": tensor(&node.output),
    })
}

/// Writes a file, whole or not at all.
#[pyfunction]
pub fn write_file(py: Python<'_>, path: PathBuf, data: &[u8]) -> PyResult<()> {
    let written = py.detach(|| output::write(&path, data));
    written.map_err(|error| raise(error.into()))
}

/// A way to make inputs of pictures, by name.
pub fn preset(name: &str) -> PyResult<Preprocess> {
    let found = Preprocess::named(name);
    found.map_err(|error| usage(format!("`preprocess`: {error}")))
}

/// Runs a network on a device and compares every layer with the reference interpreter, value by value.
///
/// `inputs` is the array of the only input, or a dict of arrays as for `InferenceSession.run`; options are
/// those of `InferenceSession`.
///
/// Raises what `InferenceSession` and its `run` do, and `UsageError` for a bundle, whose layers aren't known.
#[pyfunction]
#[pyo3(
    signature = (model, inputs, device = None, *, progress = None, **given),
    text_signature = "(model, inputs, device='sim', *, progress=None, config=None, board=None, timing=None, \
                      threads=None, batch=None, allow_host=False, input_shapes=None, requant=None, \
                      placement=None, tiles=None, scope=None, bitstream=None)"
)]
pub fn verify<'py>(
    model: &Bound<'py, PyAny>,
    inputs: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut options = options::read(given)?;
    options.device = options::device(device)?;
    let (py, origin) = (model.py(), Origin::of(model)?);
    let (name, bytes) = (&*origin.name, origin.bytes(py).map(<[u8]>::to_vec));
    let mut session = aside(py, None, |watch| {
        Session::verifying(options.open(name, bytes)?, &options, watch)
    })?;
    let taken = take(inputs, session.inputs(), Unit::Model)?;
    let feeds = feeds(&taken)?;
    let layers = session.program().layers.len();
    let found = watched(py, progress, |watch| session.run(&feeds, watch))?;
    let images = found.outputs.first().map_or(0, |output| output.images);
    result(py, "Verification")?.call1((images, layers, found.mismatches))
}
