//! What there is: networks, boards, devices; and what becomes of a network's nodes.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;
use vta_app::check::{Also, NodeVerdict, attributes};
use vta_app::open;
use vta_app::options::names::{BOARD, CONFIG, INPUT_SHAPE};

use crate::given::switch;
use crate::options::{self, Origin};
use crate::results::{result, to_python};
use crate::watch::aside;

type ModelRow = (String, (usize, usize, usize), usize, u64, u64, &'static str);

/// The fields of `pyvta.ModelInfo` in their order.
#[pyfunction]
pub fn list_models(py: Python<'_>) -> PyResult<Vec<ModelRow>> {
    let models = aside(py, None, |_| open::models())?;
    let row = |(name, of, about): (String, open::Outline, _)| {
        let [c, h, w] = of.input;
        (name, (c, h, w), of.layers, of.macs, of.weights, about)
    };
    Ok(models.into_iter().map(row).collect())
}

/// The fields of `pyvta.BoardInfo` by name.
#[pyfunction]
pub fn list_boards(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let boards = aside(py, None, |_| open::boards())?;
    let all: Value = boards.iter().map(open::board_json).collect();
    to_python(py, &all)
}

/// Dicts with `device`, `name` and what else is known.
#[pyfunction]
pub fn list_devices(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let devices = aside(py, None, |_| open::Devices::find())?;
    to_python(py, &devices.json())
}

/// What becomes of a network on a machine: which nodes the device computes, which the host, and which
/// nothing can. Nothing runs.
///
/// Models are those of `InferenceSession`, float ones among them, and so are the options. `hazards` looks
/// for races between the modules of the device, too. Programs by hand have `pyvta.isa.check`.
///
/// >>> pyvta.check("demo").nodes[0].attributes["kernel"]  # doctest: +SKIP
///
/// Raises `FileError` and `ModelError` for what can't be read at all.
#[pyfunction]
#[pyo3(
    signature = (model, *, hazards = None, **given),
    text_signature = "(model, *, hazards=False, config=None, board=None, input_shapes=None)"
)]
pub fn check<'py>(
    model: &Bound<'py, PyAny>,
    hazards: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = options::some(given, &[CONFIG, BOARD, INPUT_SHAPE])?;
    let hazards = hazards.map(|given| switch("hazards", given)).transpose()?;
    let (py, origin) = (model.py(), Origin::of(model)?);
    let bytes = origin.bytes(py);
    let also = Also {
        hazards: hazards.unwrap_or(false),
        ..Also::default()
    };
    let file = Path::new(&origin.name);
    let found = aside(py, None, |_| {
        vta_app::check::check(file, bytes, &options, also)
    })?;
    let network = found.network.unwrap_or_default();
    let class = result(py, "CheckedNode")?;
    let node = |node: &NodeVerdict| {
        let (place, why) = node.place();
        let attributes = to_python(py, &attributes(&node.attributes))?;
        let (name, operator, shape) = (&node.name, &node.operator, &node.shape);
        class.call1((name, operator, shape, node.macs, attributes, place, why))
    };
    let nodes: Vec<_> = network.nodes.iter().map(node).collect::<PyResult<_>>()?;
    let hazards = found.hazards.iter();
    let hazards = hazards.map(|(at, hazard)| format!("{at}{hazard}"));
    let hazards: Vec<_> = hazards.collect();
    let (unread, is_float) = (network.unread, network.is_float);
    let cut = network.cut.map(|cut| (cut.inputs, cut.outputs));
    let class = result(py, "Check")?;
    class.call1((
        found.faults,
        hazards,
        found.notes,
        nodes,
        unread,
        is_float,
        cut,
    ))
}
