//! `compile` and `verify`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;
use vta_app::Session;
use vta_app::bundle::{self, Bundle};
use vta_app::options::names;
use vta_app::options::{BundleOptions, PreprocessOptions, Preset};

use crate::arrays::{Unit, feeds, take};
use crate::error::{raise, usage};
use crate::options::{self, Origin};
use crate::watch::{aside, watched};

/// Adds the functions and their results.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Compiled>()?;
    module.add_class::<Verification>()?;
    module.add_function(wrap_pyfunction!(compile, module)?)?;
    module.add_function(wrap_pyfunction!(verify, module)?)
}

/// A network compiled for a machine: what `pyvta.compile` gives.
#[pyclass(frozen, module = "pyvta._pyvta")]
struct Compiled(Bundle);

#[pymethods]
impl Compiled {
    /// Writes the bundle, whole or not at all; its bytes. `InferenceSession` and `vta run` open it.
    ///
    /// Raises `FileError` for what can't be written.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        py.detach(|| self.0.save(&path)).map_err(raise)
    }

    /// Operators that the host computes.
    #[getter]
    fn host_ops(&self) -> usize {
        self.0.host_ops
    }

    /// The names of the device's layers, in the order in which they run.
    #[getter]
    fn layers(&self) -> Vec<String> {
        let layers = self.0.program.layers.iter();
        layers.map(|layer| layer.name.clone()).collect()
    }

    /// The machine's configuration, with the keys of a `vta_config.json`.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = self.0.program.config.to_json();
        py.import("json")?.call_method1("loads", (json,))
    }

    fn __repr__(&self) -> String {
        let layers = self.0.program.layers.len();
        format!(
            "<Compiled: {layers} layers, {} operators of the host>",
            self.0.host_ops
        )
    }
}

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
fn compile(
    model: &Bound<'_, PyAny>,
    preprocess: Option<&str>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<Compiled> {
    let names = [
        names::CONFIG,
        names::BOARD,
        names::ALLOW_HOST,
        names::INPUT_SHAPE,
        names::REQUANT,
        names::TILES,
    ];
    let options = options::some(given, &names)?;
    let (py, origin) = (model.py(), Origin::of(model)?);
    let (name, bytes) = (origin.name(), origin.bytes(py).map(<[u8]>::to_vec));
    let args = BundleOptions {
        config: options.target.device.config.clone(),
        board: options.target.device.board.clone(),
        allow_host: options.target.allow_host,
        requant: options.requant,
        tiles: options.target.tiles.clone(),
        preprocess: PreprocessOptions {
            preprocess: preprocess.map(preset).transpose()?,
            ..PreprocessOptions::default()
        },
        ..BundleOptions::new(name)
    };
    let compiled = aside(py, None, |watch| {
        bundle::of_model(options.open(name, bytes)?, &args, watch)
    });
    compiled.map(Compiled)
}

/// A way to make inputs of pictures, by name.
pub fn preset(name: &str) -> PyResult<Preset> {
    let found = serde_json::from_value(Value::from(name));
    found.map_err(|error| usage(format!("`preprocess`: {error}")))
}

/// What `pyvta.verify` found. It is true when nothing differs.
#[pyclass(frozen, module = "pyvta._pyvta")]
struct Verification {
    /// How many images were run.
    #[pyo3(get)]
    images: usize,
    /// How many layers of each were compared.
    #[pyo3(get)]
    layers: usize,
    /// A line for each layer of an image whose output isn't the reference interpreter's.
    #[pyo3(get)]
    mismatches: Vec<String>,
}

#[pymethods]
impl Verification {
    fn __bool__(&self) -> bool {
        self.mismatches.is_empty()
    }

    fn __repr__(&self) -> String {
        let Self {
            images,
            layers,
            mismatches,
        } = self;
        let wrong = mismatches.len();
        format!("<Verification: {images} images, {layers} layers each, {wrong} mismatches>")
    }
}

/// Runs a network on a device and compares every layer with the reference interpreter, value by value.
///
/// `inputs` is the array of the only input, or a dict of arrays as for `InferenceSession.run`; options are
/// those of `InferenceSession`.
///
/// Raises what `InferenceSession` and its `run` do, and `UsageError` for a bundle, whose layers aren't known.
#[pyfunction]
#[pyo3(
    signature = (model, inputs, device = "sim", *, progress = None, **given),
    text_signature = "(model, inputs, device='sim', *, progress=None, config=None, board=None, timing=None, \
                      threads=None, batch=None, allow_host=False, input_shapes=None, requant=None, \
                      placement=None, tiles=None, scope=None, bitstream=None)"
)]
fn verify(
    model: &Bound<'_, PyAny>,
    inputs: &Bound<'_, PyAny>,
    device: &str,
    progress: Option<&Bound<'_, PyAny>>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<Verification> {
    let mut options = options::read(given)?;
    options.target.device.device = device.to_owned();
    let (py, origin) = (model.py(), Origin::of(model)?);
    let (name, bytes) = (origin.name(), origin.bytes(py).map(<[u8]>::to_vec));
    let mut session = aside(py, None, |watch| {
        Session::verifying(options.open(name, bytes)?, &options.target, watch)
    })?;
    let (ports, tensors) = (
        session.ports().map_err(raise)?,
        session.inputs().map_err(raise)?,
    );
    let taken = take(inputs, (&ports.inputs, &tensors), Unit::Model)?;
    let feeds = feeds(&taken)?;
    let layers = session.program().layers.len();
    let found = watched(py, progress, |watch| session.run(&feeds, watch))?;
    Ok(Verification {
        images: found.outputs.first().map_or(0, |output| output.images),
        layers,
        mismatches: found.mismatches,
    })
}
