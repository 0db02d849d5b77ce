//! Points of sweeps, one by one.

pub mod explore;
pub mod layers;
pub mod tune;

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use serde_json::Value;
use vta_app::sweep::{Measured, Sweeper as Points};

use crate::error::raise;
use crate::options::machine;
use crate::results::{measured, to_python};
use crate::sweep::layers::{Layer, workload};
use crate::watch::aside;

/// What is measured: a model's name or file, or layers.
#[derive(FromPyObject)]
enum Work {
    Model(String),
    Layers(Vec<Layer>),
}

/// A network, or layers, on the points of a grid, which are measured one by one; `pyvta.sweep` is made of it.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Sweeper(Points);

#[pymethods]
impl Sweeper {
    #[new]
    #[pyo3(signature = (work, vary, *, config = None, board = None, timing = None, costs = None, threads = 1))]
    #[allow(clippy::too_many_arguments, reason = "each is an argument there")]
    fn new(
        py: Python<'_>,
        work: Work,
        vary: Vec<String>,
        config: Option<&Bound<'_, PyAny>>,
        board: Option<String>,
        timing: Option<String>,
        costs: Option<PathBuf>,
        threads: usize,
    ) -> PyResult<Self> {
        let work = match work {
            Work::Model(name) => vec![name].into(),
            Work::Layers(layers) => workload(layers).map_err(raise)?,
        };
        let target = machine(config, [board, timing], costs, threads)?;
        let sweeper = aside(py, None, |watch| Points::open(&work, &vary, &target, watch))?;
        Ok(Self(sweeper))
    }

    /// The names of a point's figures, in order, each with a number of its type.
    #[staticmethod]
    fn figures(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        to_python(py, &Value::from(Measured::default().figures()))
    }

    fn __len__(&self) -> usize {
        self.0.points()
    }

    /// A point's value of each parameter, as text.
    fn point<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        self.0.point(index).map_err(raise)?.into_py_dict(py)
    }

    /// Measures a point: its figures, or `error` alone.
    fn measure<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        measured(py, &self.0, index)
    }
}
