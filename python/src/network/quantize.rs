//! `quantize`.

use std::mem;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString};
use vta_app::options::{Quantizing, did_you_mean};
use vta_app::quantize::{Quantized, quantize_arrays};
use vta_app::{Target, Watch};
use vta_compiler::quantize::{Activations, Method, Mode, WeightScales, ZeroPoints};

use crate::arrays::{Unit, feeds, take};
use crate::error::{raise, usage};
use crate::given::{mistyped, size, switch, text};
use crate::options::{Origin, shapes};
use crate::results::{result, to_python};
use crate::watch::aside;

/// What the report of a `pyvta.QuantizedModel` is measured on.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Measured(Quantized);

#[pymethods]
impl Measured {
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = aside(py, None, |watch| Ok(self.0.report(watch)?.json()))?;
        to_python(py, &json)
    }
}

/// Quantises a float model to int8, or to int16 beside weights of int8, with calibration images.
///
/// `model` is an ONNX file, ONNX as bytes or an `onnx.ModelProto`. `calibration` is an iterable of batches,
/// each an array of the only input, images first, or a dict of arrays for several; or one such array. A batch
/// may be a list of arrays, too, one for each input and labels behind them, as PyTorch's DataLoaders give.
/// Tensors of PyTorch's are arrays. At most `limit` images are taken. Arrays of a list are borrowed, those
/// that an iterator makes are copied.
///
/// A fifth of the images, of 5 or more, is kept out of the calibration: the int8 model is compared with the float one
/// on them, as `fidelity` says, and `VtaWarning` tells of outputs that lost their meaning. `held_out` is how many
/// are, or batches of other images to compare on.
///
/// `method` chooses the scales of activations: `"mse"`, `"min-max"`, `"percentile"`, `"percentile:99.9"` or
/// `"entropy"`; None is `"mse"`, or what loses less on images kept out. `mode` is `"multiply"` for any scales, or
/// `"shift"` for powers of two. `activations` are `"int8"`, or `"int16"` for machines whose inputs and outputs have 16 bits:
/// then the method is `"min-max"`, and no zero points are. `weights` share scales `"per-channel"` or `"per-tensor"`. `zero_points` are
/// `"auto"`, where a range that isn't the same on both sides of 0 gains more by one than it costs cycles, or
/// `"symmetric"` for none, or `"asymmetric"`. `bias_correction` takes off what rounded weights add to the mean of a
/// channel, `adaptive_rounding` rounds weights so that their errors cancel on what a layer sees of the images,
/// `equalize` makes the ranges of channels alike; None does so where it doesn't lose more on images kept out.
/// `int4` names layers whose weights have 4 bits, which machines with WGT4 load in half the time, or is `"all"`, or
/// `"last:2"` for the last two. `keep_float` names nodes or their outputs that stay in float on the host, or is `"AUTO"`: as few as bring each
/// output to `target`: 0.99 is a relative error of 0.01, or of scores of classes, that the largest is expected to stay
/// so in 99 % of images. `progress(done, all)` hears of images.
///
/// Raises `InputError` for arrays that aren't the model's, `ModelError` for what can't be quantised.
#[pyfunction]
#[pyo3(
    signature = (model, calibration, *, limit = None, progress = None, **options),
    text_signature = "(model, calibration, *, method=None, mode='multiply', activations='int8', weights='per-channel', \
                      zero_points='auto', bias_correction=True, adaptive_rounding=True, equalize=None, held_out=None, keep_float=None, int4=None, target=0.99, \
                      input_shapes=None, limit=None, progress=None)"
)]
pub fn quantize<'py>(
    model: &Bound<'py, PyAny>,
    calibration: &Bound<'py, PyAny>,
    limit: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let limit = limit.map(|limit| size("limit", limit)).transpose()?;
    let (how, held, options) = how(options)?;
    let (py, origin) = (model.py(), Origin::of(model)?);
    let (name, bytes) = (&*origin.name, origin.bytes(py).map(<[u8]>::to_vec));
    let model = aside(py, None, |_| options.open(name, bytes))?;
    if model.is_compiled() {
        return Err(usage(format!("{name} is compiled already")));
    }
    let tensors = model.inputs().map_err(raise)?;
    let dimensions = tensors.iter().map(|tensor| &tensor.port);
    let dimensions = dimensions.map(|p| (&p.name, p.shape.len(), p.image().len()));
    let dimensions = dimensions.collect::<Vec<_>>();
    let read = |images: &Bound<'py, PyAny>, limit: Option<usize>| -> PyResult<Vec<_>> {
        let given = (images, dimensions.clone(), limit);
        let given = py
            .import("pyvta._batches")?
            .call_method1("batches", given)?;
        let taken = given.try_iter()?;
        let taken = taken.map(|batch| take(&batch?, &tensors, Unit::Model));
        taken.collect()
    };
    let taken = read(calibration, limit)?;
    let others = match &held {
        Some(images) => read(images, None)?,
        None => Vec::new(),
    };
    let batches = taken.iter().map(|batch| feeds(batch));
    let batches: Vec<_> = batches.collect::<PyResult<_>>()?;
    let others = others.iter().map(|batch| feeds(batch));
    let others: Vec<_> = others.collect::<PyResult<_>>()?;
    let mut quantized = aside(py, progress, |watch| {
        let quantized = quantize_arrays(model, &batches, &others, &how, watch)?;
        for warning in quantized.fidelity.warnings() {
            watch.note(&warning);
        }
        Ok(quantized)
    })?;
    let onnx = PyBytes::new(py, &mem::take(&mut quantized.onnx));
    let facts = (quantized.nodes, quantized.images, quantized.equalized);
    let fidelity = to_python(py, &quantized.fidelity.json())?;
    let class = result(py, "QuantizedModel")?;
    class.call1((
        facts.0,
        facts.1,
        facts.2,
        fidelity,
        onnx,
        Measured(quantized),
    ))
}

/// The options of [`quantize`].
const NAMES: [&str; 15] = [
    "activations",
    "method",
    "mode",
    "weights",
    "zero_points",
    "bias_correction",
    "adaptive_rounding",
    "equalize",
    "held_out",
    "keep_float",
    "int4",
    "target",
    "input_shapes",
    "limit",
    "progress",
];

/// A name, or some.
fn names(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if value.is_instance_of::<PyString>() {
        return Ok(vec![text(name, value)?]);
    }
    let all = value
        .try_iter()
        .map_err(|_| mistyped(name, "names", value))?;
    all.map(|one| text(name, &one?)).collect()
}

/// The options of quantising, images to compare on, and the options of opening a model.
fn how<'py>(
    given: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Quantizing, Option<Bound<'py, PyAny>>, Target)> {
    let (mut all, mut options) = (Quantizing::default(), Target::default());
    let (mut held, mut activations) = (None, Activations::Int8);
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let wrong = |error: String| usage(format!("`{name}`: {error}"));
        let how = &mut all.options;
        match &*name {
            "method" | "equalize" | "held_out" | "keep_float" | "int4" if value.is_none() => {}
            "method" => {
                all.choose_method = false;
                let method = text(&name, &value)?.parse::<Method>();
                how.method = method.map_err(wrong)?;
            }
            "mode" => {
                let all = [("multiply", Mode::Multiply), ("shift", Mode::Shift)];
                how.mode = one_of(&text(&name, &value)?, all).map_err(wrong)?;
            }
            "activations" => {
                let all = [("int8", Activations::Int8), ("int16", Activations::Int16)];
                activations = one_of(&text(&name, &value)?, all).map_err(wrong)?;
            }
            "weights" => {
                let (channel, tensor) = (WeightScales::PerChannel, WeightScales::PerTensor);
                let all = [("per-channel", channel), ("per-tensor", tensor)];
                how.weights = one_of(&text(&name, &value)?, all).map_err(wrong)?;
            }
            "zero_points" => {
                let all = [
                    ("auto", ZeroPoints::Auto),
                    ("symmetric", ZeroPoints::Symmetric),
                    ("asymmetric", ZeroPoints::Asymmetric),
                ];
                how.zero_points = one_of(&text(&name, &value)?, all).map_err(wrong)?;
            }
            "bias_correction" => how.bias_correction = switch(&name, &value)?,
            "adaptive_rounding" => how.adaptive_rounding = switch(&name, &value)?,
            "equalize" => {
                all.choose_equalize = false;
                how.equalize = switch(&name, &value)?;
            }
            "held_out" if value.is_instance_of::<PyInt>() || value.extract::<usize>().is_ok() => {
                all.held_out = Some(size(&name, &value)?);
            }
            "held_out" => held = Some(value),
            "keep_float" => all.keep_float = names(&name, &value)?,
            "int4" => all.int4 = names(&name, &value)?,
            "target" => {
                let number = value.extract();
                all.target = number.map_err(|_| mistyped(&name, "a number", &value))?;
            }
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
    let given = all.options;
    all.options = given.with_activations(activations);
    if !all.choose_method {
        all.options.method = given.method;
    }
    Ok((all, held, options))
}

/// What a name stands for.
fn one_of<T, const N: usize>(name: &str, all: [(&str, T); N]) -> Result<T, String> {
    let known = all.each_ref().map(|(known, _)| *known).join(", ");
    let found = all.into_iter().find(|(known, _)| *known == name);
    let none = || format!("no '{name}' (there are {known})");
    found.map(|(_, one)| one).ok_or_else(none)
}
