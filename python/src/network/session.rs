//! `InferenceSession`: a network loaded on its devices, as onnxruntime has it.

use std::sync::{Arc, Mutex, PoisonError};

use numpy::PyArray4;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping};
use vta_app::{Session, Tensor};
use vta_compiler::graph::Element;

use crate::arrays::{Unit, feeds, list, made, no_dict, take};
use crate::error::input;
use crate::fork;
use crate::given::mistyped;
use crate::network::pixels;
use crate::network::report::report;
use crate::options::{self, Origin};
use crate::results::result;
use crate::watch::{aside, watched};

/// The `NodeArg` of an input or output.
fn node_arg<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let port = &tensor.port;
    let kind = match port.element {
        Element::F32 => "tensor(float)",
        Element::I8 => "tensor(int8)",
        Element::U8 => "tensor(uint8)",
        Element::I16 => "tensor(int16)",
        Element::U16 => "tensor(uint16)",
        Element::I32 => "tensor(int32)",
        Element::I64 => "tensor(int64)",
        Element::Bool => "tensor(bool)",
    };
    let (shape, image) = (PyList::empty(py), port.image());
    if image.len() < port.shape.len() {
        shape.append("batch")?;
    }
    image.iter().try_for_each(|size| shape.append(size))?;
    let zero = tensor.scale.map(|_| tensor.zero);
    result(py, "NodeArg")?.call1((&port.name, shape, kind, tensor.scale, zero))
}

/// A network compiled for a device and loaded on it.
///
/// `model` is an ONNX file, a bundle (`.vta`), `"demo"`, `"zoo:NAME"`, ONNX as bytes, an `onnx.ModelProto`
/// or what `pyvta.quantize` gives. It must have int8 tensors: a float model raises `FloatModelError`.
///
/// `device` is `"sim"` (fast, the default), `"cycle"` (counts cycles, see `report`), `"oracle"` (slow,
/// obvious) or `"opencl[:SEL]"`; several with commas between share the network.
///
/// | option | is |
/// |---|---|
/// | `config` | a `vta_config.json`, or a dict of its keys; the board's, or else 1x16x16 |
/// | `board` | a board, whose limits and timing hold: a preset's name or a TOML file |
/// | `timing` | timing alone of a board, for `device="cycle"` |
/// | `threads` | threads, at least 1; one for each core |
/// | `batch` | runs in flight on each device, at least 1; 1, and 2 on OpenCL |
/// | `allow_host` | let the host compute what no device can |
/// | `input_shapes` | shapes that an ONNX file leaves open: `{"input": (1, 3, 224, 224)}` or one shape |
/// | `requant` | `"precise"` or `"fast"`: how int32 sums become int8; what the model says |
/// | `timing_only` | count cycles and compute nothing, for `device="cycle"` |
/// | `placement` | a TOML file that says which layers run on which device |
/// | `tiles` | a cache of measured tiles |
/// | `costs`, `host_speed` | prices and speeds for estimates, in TOML, for `device="cycle"` |
/// | `scope`, `bitstream` | memory scopes and bitstream of OpenCL devices |
///
/// Threads may share a session: it runs for one at a time, without Python's lock. It can be pickled, by
/// its model's path or bytes and its options, and is compiled again where it is loaded.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct InferenceSession {
    session: Arc<Mutex<Session>>,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    origin: Origin,
    /// What the network was made of: what was given as `model`.
    #[pyo3(get)]
    model: Py<PyAny>,
    options: Py<PyDict>,
    /// How the model wants its input made, as it says itself.
    recipe: Option<String>,
}

#[pymethods]
impl InferenceSession {
    #[new]
    #[pyo3(
        signature = (model, device = None, **options),
        text_signature = "(model, device='sim', *, config=None, board=None, timing=None, threads=None, \
                          batch=None, allow_host=False, input_shapes=None, requant=None, timing_only=False, \
                          placement=None, tiles=None, costs=None, host_speed=None, scope=None, bitstream=None)"
    )]
    fn new(
        model: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = model.py();
        let given = match options {
            Some(options) => options.copy()?,
            None => PyDict::new(py),
        };
        let mut read = options::read(options)?;
        read.device = options::device(device)?;
        given.set_item("device", &read.device)?;
        let origin = Origin::of(model)?;
        let (name, bytes) = (&*origin.name, origin.bytes(py).map(<[u8]>::to_vec));
        let (session, recipe) = aside(py, None, |watch| {
            let model = read.open(name, bytes)?;
            let recipe = model.metadata().get("preprocess").cloned();
            Ok((Session::open(model, &read, watch)?, recipe))
        })?;
        Ok(Self {
            inputs: session.inputs().to_vec(),
            outputs: session.outputs().to_vec(),
            session: Arc::new(Mutex::new(session)),
            origin,
            model: model.clone().unbind(),
            options: given.unbind(),
            recipe,
        })
    }

    /// What the network takes: a list of `NodeArg`, each with `name`, `shape`, `type`, `scale` and `zero`.
    fn get_inputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let inputs = self.inputs.iter();
        inputs.map(|tensor| node_arg(py, tensor)).collect()
    }

    /// What the network gives: a list of `NodeArg`.
    fn get_outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let outputs = self.outputs.iter();
        outputs.map(|tensor| node_arg(py, tensor)).collect()
    }

    /// Runs the network: `run(None, {"input": array})` is a list of all outputs, a name or a list of names instead of
    /// `None` gives those.
    ///
    /// Arrays are float32 (other floats are converted), or the type of the model's input, with any number of
    /// images in the first dimension. They are borrowed where they are contiguous: don't write to them
    /// meanwhile. Outputs have the model's type, unit and rank, the images first.
    ///
    /// `progress(done, all)` is called a few times a second with images.
    ///
    /// Raises `InputError` for names, types, shapes and values that aren't the model's, `DeviceError` and
    /// `RunError` for devices, `KeyboardInterrupt` after Ctrl-C. The session can be used again.
    #[pyo3(signature = (output_names, input_feed, *, progress = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        output_names: Option<&Bound<'py, PyAny>>,
        input_feed: &Bound<'py, PyAny>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.run_in(py, Unit::Model, output_names, input_feed, progress)
    }

    /// As `run`, in the device's unit: an output of the device is int8, of which each step is `scale` and
    /// `zero` stands for 0 (see `get_outputs`), and an int8 array is an input in such steps. What the host
    /// takes or gives is as in `run`.
    #[pyo3(signature = (output_names, input_feed, *, progress = None))]
    fn run_quantized<'py>(
        &self,
        py: Python<'py>,
        output_names: Option<&Bound<'py, PyAny>>,
        input_feed: &Bound<'py, PyAny>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.run_in(py, Unit::Steps, output_names, input_feed, progress)
    }

    /// The network's input of pictures: uint8 `[images, C, H, W]`, which are fitted to its size and
    /// preprocessed as the model says, or by a `preset`: `"imagenet"`, `"cifar10"` or `"raw"`.
    ///
    /// Raises `InputError` for arrays that are no pictures, and networks that take none.
    #[pyo3(signature = (images, preset = None))]
    fn preprocess<'py>(
        &self,
        images: &Bound<'py, PyAny>,
        preset: Option<&str>,
    ) -> PyResult<Bound<'py, PyArray4<f32>>> {
        pixels::prepared(images, &self.inputs, self.recipe.as_ref(), preset)
    }

    /// Where the cycles of a pass (BATCH images) went; None before the first run, and on other devices than
    /// `"cycle"`.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = py.detach(|| {
            let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            session.report()
        });
        found.map(|found| report(py, found)).transpose()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        options::source(py, "again", (&self.origin.model, &self.options))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!(
            "InferenceSession('{}', {})",
            self.origin.name,
            self.options.bind(py)
        )
    }
}

impl Drop for InferenceSession {
    fn drop(&mut self) {
        fork::spare(&self.session);
    }
}

impl InferenceSession {
    fn run_in<'py>(
        &self,
        py: Python<'py>,
        unit: Unit,
        names: Option<&Bound<'py, PyAny>>,
        feed: &Bound<'py, PyAny>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let wanted = self.wanted(names)?;
        if feed.cast::<PyMapping>().is_err() {
            return Err(no_dict(&self.inputs));
        }
        let taken = take(feed, &self.inputs, unit)?;
        let feeds = feeds(&taken)?;
        let (feeds, tensors) = (&feeds[..], &self.outputs);
        let (images, outputs) = watched(py, progress, |watch| {
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            let found = session.run(feeds, watch)?;
            // Other threads may run while this one unpacks its outputs.
            drop(session);
            let images = found.outputs.first().map_or(0, |output| output.images);
            let mut found: Vec<_> = found.outputs.into_iter().map(Some).collect();
            let mut given = Vec::with_capacity(wanted.len());
            for (position, &at) in wanted.iter().enumerate() {
                let again = wanted[position + 1..].contains(&at);
                let output = if again {
                    found[at].clone()
                } else {
                    found[at].take()
                };
                given.extend(output.map(|output| (at, made(output, unit))));
            }
            Ok((images, given))
        })?;
        let batched = images != 1 || taken.iter().any(|(_, taken)| taken.batched);
        let list = PyList::empty(py);
        for (at, array) in outputs {
            let port = &tensors[at].port;
            let mut shape = port.image().to_vec();
            if batched || shape.len() < port.shape.len() {
                shape.insert(0, images);
            }
            list.append(array(py, &shape)?)?;
        }
        Ok(list)
    }

    /// The outputs that are wanted, by their numbers.
    fn wanted(&self, names: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<usize>> {
        let tensors = &self.outputs;
        let Some(given) = names else {
            return Ok((0..tensors.len()).collect());
        };
        let names = match given.extract::<String>() {
            Ok(name) => vec![name],
            Err(_) => {
                let wrong = |_| mistyped("output_names", "None, a name or a list of names", given);
                given.extract::<Vec<String>>().map_err(wrong)?
            }
        };
        let number = |name: &String| {
            let found = tensors.iter().position(|tensor| tensor.port.name == *name);
            found.ok_or_else(|| input(format!("no output '{name}' (there is {})", list(tensors))))
        };
        names.iter().map(number).collect()
    }
}
