//! `quantize`.

use std::mem;
use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PySlice, PyString, PyTuple};
use vta_app::Tensor;
use vta_app::open::{Form, Port, Ports};
use vta_app::options::NetworkOptions;
use vta_app::options::did_you_mean;
use vta_app::quantize::{Quantized, quantize_arrays};
use vta_compiler::quantize::{Method, Mode, Options as How, WeightScales};

use crate::arrays::{Taken, Unit, feeds, no_dict, take, untyped};
use crate::compile::write_file;
use crate::error::usage;
use crate::given::{size, switch, text};
use crate::options::{Origin, shapes};
use crate::report::Pickled;
use crate::results::to_python;
use crate::watch::aside;

/// Adds the function and its result.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<QuantizedModel>()?;
    module.add_function(wrap_pyfunction!(unpickle_quantized, module)?)?;
    module.add_function(wrap_pyfunction!(quantize, module)?)
}

/// An int8 model: what `pyvta.quantize` gives. `InferenceSession`, `compile` and `verify` take it.
#[pyclass(frozen, module = "pyvta._pyvta")]
struct QuantizedModel {
    onnx: Py<PyBytes>,
    /// How many nodes the model has.
    #[pyo3(get)]
    nodes: usize,
    /// How many images it was calibrated with.
    #[pyo3(get)]
    images: usize,
    /// How many pairs of layers were equalised.
    #[pyo3(get)]
    equalized: usize,
    /// What the report is measured on; `None` of a model that came from another process.
    source: Option<Quantized>,
    report: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl QuantizedModel {
    /// The model as ONNX with QuantizeLinear and DequantizeLinear, which other runtimes load, too.
    fn to_onnx<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.onnx.bind(py).clone()
    }

    /// Writes the ONNX file, whole or not at all.
    ///
    /// Raises `FileError` for what can't be written.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        write_file(py, path, self.onnx.as_bytes(py))
    }

    /// What quantising costs, as a dict: `output_db`, signal to noise of the outputs in dB, `images`, `remarks`,
    /// and `layers`, those that cost most first, with `name`, `kind`, `own_db`, `so_far_db`, `output_db` and
    /// `advice`. It is measured when it is first asked for, on some of the calibration images.
    ///
    /// A model that was pickled has the report only if it was asked for before: else `UsageError` is raised.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = || self.report.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(report) = &*known() {
            return Ok(report.bind(py).clone());
        }
        let Some(source) = &self.source else {
            return Err(usage(
                "`report` is measured where the model was quantised: ask for it before pickling",
            ));
        };
        let json = aside(py, None, |watch| Ok(source.report(watch)?.json()))?;
        let report = to_python(py, &json)?;
        *known() = Some(report.clone().unbind());
        Ok(report)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Pickled<'py>> {
        let again = py.import("pyvta._pyvta")?.getattr("unpickle_quantized")?;
        let report = self.report.lock().unwrap_or_else(|e| e.into_inner());
        let report = report.as_ref().map(|report| report.clone_ref(py));
        let facts = (self.nodes, self.images, self.equalized);
        let state = (&self.onnx, facts, report).into_pyobject(py)?;
        Ok((again, state))
    }

    fn __repr__(&self) -> String {
        let (nodes, images) = (self.nodes, self.images);
        format!("<QuantizedModel: {nodes} nodes, calibrated with {images} images>")
    }
}

/// A model that came from another process.
#[pyfunction]
fn unpickle_quantized(
    onnx: Py<PyBytes>,
    facts: (usize, usize, usize),
    report: Option<Py<PyAny>>,
) -> QuantizedModel {
    let (nodes, images, equalized) = facts;
    QuantizedModel {
        onnx,
        nodes,
        images,
        equalized,
        source: None,
        report: Mutex::new(report),
    }
}

/// Quantises a float model to int8 with calibration images.
///
/// `model` is an ONNX file, ONNX as bytes or an `onnx.ModelProto`. `calibration` is an iterable of batches,
/// each an array of the only input, images first, or a dict of arrays for several; or one such array. A batch
/// may be a list of arrays, too, one for each input and labels behind them, as PyTorch's DataLoaders give.
/// Tensors of PyTorch's are arrays. At most `limit` images are taken. Arrays of a list are borrowed, those
/// that an iterator makes are copied.
///
/// `method` chooses the scales of activations: `"mse"`, `"min-max"`, `"percentile"`, `"percentile:99.9"` or
/// `"entropy"`. `mode` is `"multiply"` for any scales, or `"shift"` for powers of two. `weights` share scales
/// `"per-channel"` or `"per-tensor"`. `bias_correction` takes off what rounded weights add to the mean of a
/// channel, `equalize` makes the ranges of channels alike. `progress(done, all)` hears of images.
///
/// Raises `InputError` for arrays that aren't the model's, `ModelError` for what can't be quantised.
#[pyfunction]
#[pyo3(
    signature = (model, calibration, *, limit = None, progress = None, **options),
    text_signature = "(model, calibration, *, method='mse', mode='multiply', weights='per-channel', \
                      bias_correction=True, equalize=True, input_shapes=None, limit=None, progress=None)"
)]
fn quantize(
    model: &Bound<'_, PyAny>,
    calibration: &Bound<'_, PyAny>,
    limit: Option<&Bound<'_, PyAny>>,
    progress: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<QuantizedModel> {
    let limit = limit.map(|limit| size("limit", limit)).transpose()?;
    let (how, options) = how(options)?;
    let (py, origin) = (model.py(), Origin::of(model)?);
    let (name, bytes) = (origin.name(), origin.bytes(py).map(<[u8]>::to_vec));
    let model = aside(py, None, |_| options.open(name, bytes))?;
    let Form::Graph(graph) = model.form() else {
        return Err(usage(format!("{name} is compiled already")));
    };
    let (ports, tensors) = (Ports::of_graph(graph).inputs, model.inputs());
    let taken = batches(calibration, (&ports, &tensors), limit)?;
    let batches = taken.iter().map(|batch| feeds(batch));
    let batches: Vec<_> = batches.collect::<PyResult<_>>()?;
    let mut quantized = aside(py, progress, |watch| {
        quantize_arrays(model, &batches, &how, watch)
    })?;
    let onnx = mem::take(&mut quantized.onnx);
    Ok(QuantizedModel {
        onnx: PyBytes::new(py, &onnx).unbind(),
        nodes: quantized.nodes,
        images: quantized.images,
        equalized: quantized.equalized,
        source: Some(quantized),
        report: Mutex::new(None),
    })
}

/// The options of [`quantize`].
const NAMES: [&str; 8] = [
    "method",
    "mode",
    "weights",
    "bias_correction",
    "equalize",
    "input_shapes",
    "limit",
    "progress",
];

/// The options of quantising, and those of opening a model.
fn how(given: Option<&Bound<'_, PyDict>>) -> PyResult<(How, NetworkOptions)> {
    let (mut how, mut options) = (How::new(Mode::Multiply), NetworkOptions::default());
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let wrong = |error: String| usage(format!("`{name}`: {error}"));
        match &*name {
            "method" => {
                let method = text(&name, &value)?.parse::<Method>();
                how.method = method.map_err(wrong)?;
            }
            "mode" => {
                how.mode = match &*text(&name, &value)? {
                    "multiply" => Mode::Multiply,
                    "shift" => Mode::Shift,
                    other => {
                        return Err(wrong(format!("no '{other}' (there are multiply, shift)")));
                    }
                }
            }
            "weights" => {
                how.weights = match &*text(&name, &value)? {
                    "per-channel" => WeightScales::PerChannel,
                    "per-tensor" => WeightScales::PerTensor,
                    other => {
                        let there = "(there are per-channel, per-tensor)";
                        return Err(wrong(format!("no '{other}' {there}")));
                    }
                }
            }
            "bias_correction" => how.bias_correction = switch(&name, &value)?,
            "equalize" => how.equalize = switch(&name, &value)?,
            "input_shapes" if value.is_none() => {}
            "input_shapes" => options.shapes = shapes(&value)?,
            _ => {
                let meant = did_you_mean(&name, NAMES);
                let all = NAMES.join(", ");
                let text = format!("no option '{name}'{meant} (there are {all})");
                return Err(PyTypeError::new_err(text));
            }
        }
    }
    Ok((how, options))
}

/// The arrays of calibration batches, with no more images than the limit.
fn batches<'py>(
    calibration: &Bound<'py, PyAny>,
    inputs: (&[Port], &[Tensor]),
    limit: Option<usize>,
) -> PyResult<Vec<Vec<(String, Taken<'py>)>>> {
    let wrong =
        || PyTypeError::new_err("calibration is arrays, or batches of them: read the images first");
    if calibration.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    let one = calibration.hasattr("__array__")? || calibration.cast::<PyMapping>().is_ok();
    let given = match one {
        true => PyList::new(calibration.py(), [calibration])?.into_any(),
        false => calibration.clone(),
    };
    // An iterator may write into the same array again.
    let keep = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
    let (mut taken, mut left) = (Vec::new(), limit.unwrap_or(usize::MAX));
    for batch in given.try_iter().map_err(|_| wrong())? {
        let batch = batch?;
        if left == 0 {
            break;
        }
        let named = by_name(&batch, inputs.0)?;
        let (batch, images) = arrays(named, inputs.0, left, keep)?;
        left = left.saturating_sub(images);
        taken.push(take(batch.as_any(), inputs, Unit::Model)?);
    }
    Ok(taken)
}

/// A batch's arrays by the inputs' names: as they are in a dict, or one behind the other in a list or tuple, where
/// what follows those of the inputs (labels, in data sets of PyTorch's) is nothing to a model.
fn by_name<'py>(batch: &Bound<'py, PyAny>, ports: &[Port]) -> PyResult<Bound<'py, PyDict>> {
    let py = batch.py();
    if let Ok(named) = batch.cast::<PyMapping>() {
        return Ok(py.get_type::<PyDict>().call1((named,))?.cast_into()?);
    }
    let is_list = batch.is_instance_of::<PyList>() || batch.is_instance_of::<PyTuple>();
    let mut parts = Vec::new();
    if is_list {
        parts = batch.try_iter()?.collect::<PyResult<_>>()?;
    }
    // A list of images is an array of the only input.
    let is_input = |part: &Bound<'py, PyAny>, port: &Port| {
        part.hasattr("__array__").unwrap_or(false)
            && dimensions(part).is_ok_and(|n| n == port.shape.len())
    };
    let listed = parts.len() >= ports.len() && parts.iter().zip(ports).all(|(a, p)| is_input(a, p));
    if !listed && ports.len() > 1 {
        return Err(no_dict(ports));
    }
    let named = PyDict::new(py);
    match listed {
        true => {
            let mut pairs = ports.iter().zip(parts);
            pairs.try_for_each(|(port, part)| named.set_item(&port.name, part))?;
        }
        false => {
            let mut ports = ports.iter();
            ports.try_for_each(|port| named.set_item(&port.name, batch))?;
        }
    }
    Ok(named)
}

/// A batch's first images, as arrays of its own unless they are kept for us; and how many there are.
fn arrays<'py>(
    batch: Bound<'py, PyDict>,
    ports: &[Port],
    most: usize,
    keep: bool,
) -> PyResult<(Bound<'py, PyDict>, usize)> {
    let py = batch.py();
    let (own, mut images) = (PyDict::new(py), 0);
    for (name, value) in batch {
        let mut array = untyped(&value)?.into_any();
        if !keep {
            array = array.call_method0("copy")?;
        }
        let port = ports
            .iter()
            .find(|port| name.eq(&port.name).unwrap_or(false));
        let is_one =
            port.is_none_or(|port| dimensions(&array).is_ok_and(|n| n <= port.image().len()));
        images = match is_one {
            true => 1,
            false => array.len()?.min(most),
        };
        if !is_one && most < array.len()? {
            array = array.get_item(PySlice::new(py, 0, most as isize, 1))?;
        }
        own.set_item(name, array)?;
    }
    Ok((own, images))
}

fn dimensions(array: &Bound<'_, PyAny>) -> PyResult<usize> {
    array.getattr("ndim")?.extract()
}
