//! Tables of layers.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use vta_app::Error;
use vta_app::sweep::{Shape, Workload};

use crate::error::raise;

/// A `pyvta.Layer`.
#[derive(FromPyObject)]
pub struct Layer {
    name: String,
    input: [usize; 2],
    filter: [usize; 2],
    channels: usize,
    filters: usize,
    stride: usize,
    depthwise: bool,
    dense: bool,
}

/// Layers as what is measured.
pub fn workload(layers: Vec<Layer>) -> Result<Workload, Error> {
    let layer = |layer: Layer| {
        let shape = Shape {
            input: layer.input,
            filter: layer.filter,
            channels: layer.channels,
            filters: layer.filters,
            stride: layer.stride,
            depthwise: layer.depthwise,
            dense: layer.dense,
        };
        (layer.name, shape)
    };
    Workload::of_layers("layers", layers.into_iter().map(layer).collect())
}

/// The layers of a table: the fields of `pyvta.Layer` in their order.
#[pyfunction]
pub fn read_layers(py: Python<'_>, path: PathBuf) -> PyResult<Vec<Bound<'_, PyTuple>>> {
    let table = py.detach(|| Workload::read(&path)).map_err(raise)?;
    let fields = table.layers.iter().flatten().map(|(name, s)| {
        let [input, filter] = [s.input, s.filter].map(<(usize, usize)>::from);
        (
            name,
            input,
            filter,
            s.channels,
            s.filters,
            s.stride,
            s.depthwise,
            s.dense,
        )
            .into_pyobject(py)
    });
    fields.collect()
}
