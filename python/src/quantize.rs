//! `quantize`.

use std::path::PathBuf;
use std::sync::Mutex;

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};
use vta_app::model::{Form, Port, Ports};
use vta_app::options::NetworkOptions;
use vta_app::quantize::{Quantized, quantize_arrays};
use vta_app::{Error, Tensor};
use vta_compiler::quantize::{Method, Mode, Options as How, WeightScales};
use vta_files::output;

use crate::arrays::{Taken, Unit, feeds, take};
use crate::error::{raise, usage};
use crate::options::{Origin, shapes};
use crate::report::to_python;
use crate::watch::aside;

/// Adds the function and its result.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<QuantizedModel>()?;
    module.add_function(wrap_pyfunction!(quantize, module)?)
}

/// An int8 model: what `pyvta.quantize` gives. `InferenceSession`, `compile` and `verify` take it.
#[pyclass(frozen, module = "pyvta._pyvta")]
struct QuantizedModel {
    quantized: Quantized,
    report: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl QuantizedModel {
    /// The model as ONNX with QuantizeLinear and DequantizeLinear, which other runtimes load, too.
    fn to_onnx<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.quantized.onnx)
    }

    /// Writes the ONNX file, whole or not at all.
    ///
    /// Raises `FileError` for what can't be written.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let written = py.detach(|| output::write(&path, &self.quantized.onnx));
        written.map_err(|error| raise(Error::from(error)))
    }

    /// How many images it was calibrated with.
    #[getter]
    fn images(&self) -> usize {
        self.quantized.images
    }

    /// How many nodes the model has.
    #[getter]
    fn nodes(&self) -> usize {
        self.quantized.nodes
    }

    /// How many pairs of layers were equalised.
    #[getter]
    fn equalized(&self) -> usize {
        self.quantized.equalized
    }

    /// What quantising costs, as a dict: `output_db`, signal to noise of the outputs in dB, `images`, `remarks`,
    /// and `layers`, those that cost most first, with `name`, `kind`, `own_db`, `so_far_db`, `output_db` and
    /// `advice`. It is measured when it is first asked for, on some of the calibration images.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = || self.report.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(report) = &*known() {
            return Ok(report.bind(py).clone());
        }
        let json = aside(py, None, |watch| Ok(self.quantized.report(watch)?.json()))?;
        let report = to_python(py, &json)?;
        *known() = Some(report.clone().unbind());
        Ok(report)
    }

    fn __repr__(&self) -> String {
        let (nodes, images) = (self.quantized.nodes, self.quantized.images);
        format!("<QuantizedModel: {nodes} nodes, calibrated with {images} images>")
    }
}

/// Quantises a float model to int8 with calibration images.
///
/// `model` is an ONNX file, ONNX as bytes or an `onnx.ModelProto`. `calibration` is an iterable of batches,
/// each an array of the only input, images first, or a dict of arrays for several; or one such array. At most
/// `limit` images are taken of it. Arrays of a list are borrowed, those that an iterator makes are copied.
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
    limit: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<QuantizedModel> {
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
    let quantized = aside(py, progress, |watch| {
        quantize_arrays(model, &batches, &how, watch)
    })?;
    Ok(QuantizedModel {
        quantized,
        report: Mutex::new(None),
    })
}

/// The options of quantising, and those of opening a model.
fn how(given: Option<&Bound<'_, PyDict>>) -> PyResult<(How, NetworkOptions)> {
    let (mut how, mut options) = (How::new(Mode::Multiply), NetworkOptions::default());
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let wrong = |error: String| usage(format!("`{name}`: {error}"));
        match &*name {
            "method" => {
                let method = value.extract::<String>()?.parse::<Method>();
                how.method = method.map_err(wrong)?;
            }
            "mode" => {
                how.mode = match &*value.extract::<String>()? {
                    "multiply" => Mode::Multiply,
                    "shift" => Mode::Shift,
                    other => {
                        return Err(wrong(format!("no '{other}' (there are multiply, shift)")));
                    }
                }
            }
            "weights" => {
                how.weights = match &*value.extract::<String>()? {
                    "per-channel" => WeightScales::PerChannel,
                    "per-tensor" => WeightScales::PerTensor,
                    other => {
                        let there = "(there are per-channel, per-tensor)";
                        return Err(wrong(format!("no '{other}' {there}")));
                    }
                }
            }
            "bias_correction" => how.bias_correction = value.extract()?,
            "equalize" => how.equalize = value.extract()?,
            "input_shapes" if value.is_none() => {}
            "input_shapes" => options.shapes = shapes(&value)?,
            _ => return Err(PyTypeError::new_err(format!("no option '{name}'"))),
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
    if calibration.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "calibration is arrays, or batches of them: read the images first",
        ));
    }
    let one = calibration.hasattr("__array__")? || calibration.cast::<PyMapping>().is_ok();
    let given = match one {
        true => PyList::new(calibration.py(), [calibration])?.into_any(),
        false => calibration.clone(),
    };
    // An iterator may write into the same array again.
    let keep = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
    let (mut taken, mut left) = (Vec::new(), limit.unwrap_or(usize::MAX));
    for batch in given.try_iter()? {
        let batch = batch?;
        if left == 0 {
            break;
        }
        let batch = arrays(&batch, left, keep)?;
        let found = take(&batch, inputs, Unit::Model)?;
        let images = images(&batch)?;
        left = left.saturating_sub(images);
        taken.push(found);
    }
    Ok(taken)
}

/// A batch's first images, as arrays of its own unless they are kept for us.
fn arrays<'py>(batch: &Bound<'py, PyAny>, most: usize, keep: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = batch.py();
    let numpy = py.import("numpy")?;
    let one = |value: &Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
        let array = match keep {
            true => numpy.call_method1("asarray", (value,))?,
            false => numpy.call_method1("array", (value,))?,
        };
        let first = array.cast::<PyUntypedArray>()?.shape().first().copied();
        match first {
            Some(images) if images > most => {
                array.get_item(pyo3::types::PySlice::new(py, 0, most as isize, 1))
            }
            _ => Ok(array),
        }
    };
    let Ok(batch) = batch.cast::<PyMapping>() else {
        return one(batch);
    };
    let all = PyDict::new(py);
    for pair in batch.items()?.iter() {
        let (name, value): (String, Bound<'py, PyAny>) = pair.extract()?;
        all.set_item(name, one(&value)?)?;
    }
    Ok(all.into_any())
}

/// How many images the first array of a batch has.
fn images(batch: &Bound<'_, PyAny>) -> PyResult<usize> {
    let first = match batch.cast::<PyDict>() {
        Ok(all) => all.iter().next().map(|(_, value)| value),
        Err(_) => Some(batch.clone()),
    };
    let Some(first) = first else { return Ok(0) };
    let shape = first.cast::<PyUntypedArray>()?.shape().first().copied();
    Ok(shape.unwrap_or(1))
}
