//! Points of sweeps, one by one.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use vta_app::sweep::sweeper::{Study, Sweeper as Points, Workload};
use vta_app::sweep::table::{Measured, Row};

use crate::error::raise;
use crate::layers::{Layer, topology};
use crate::options::config;
use crate::watch::aside;

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sweeper>()
}

/// What is measured: a model's name or file, or layers.
#[derive(FromPyObject)]
enum Work {
    Model(String),
    Layers(Vec<Layer>),
}

/// A network, or layers, on the points of a grid, which are measured one by one; `pyvta.sweep` is made of it.
#[pyclass(frozen, module = "pyvta._pyvta")]
struct Sweeper(Points);

#[pymethods]
impl Sweeper {
    #[new]
    #[pyo3(signature = (work, vary, *, config = None, board = None, timing = None, threads = 1))]
    fn new(
        py: Python<'_>,
        work: Work,
        vary: Vec<String>,
        config: Option<&Bound<'_, PyAny>>,
        board: Option<String>,
        timing: Option<String>,
        threads: usize,
    ) -> PyResult<Self> {
        let study = Study {
            work: match work {
                Work::Model(name) => Workload::Model(name),
                Work::Layers(layers) => Workload::Layers(topology(layers).map_err(raise)?),
            },
            vary,
            config: config.map(self::config).transpose()?,
            board,
            timing,
        };
        let sweeper = aside(py, None, |watch| Points::open(&study, Some(threads), watch))?;
        Ok(Self(sweeper))
    }

    /// The figures of a point that could be computed, in order.
    #[staticmethod]
    fn figures(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        figures(py, None)
    }

    fn __len__(&self) -> usize {
        self.0.grid().size()
    }

    /// A point's value of each parameter, as text.
    fn point<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        let grid = self.0.grid();
        let point = grid.point(index).map_err(raise)?;
        let values = PyDict::new(py);
        for (key, value) in grid.keys().zip(point.values) {
            values.set_item(key, value)?;
        }
        Ok(values)
    }

    /// Measures a point: its figures, or `error` alone.
    fn measure<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        let Row { outcome, .. } = py.detach(|| self.0.measure(index)).map_err(raise)?;
        match outcome {
            Ok(measured) => figures(py, Some(&measured)),
            Err(error) => {
                let row = PyDict::new(py);
                row.set_item("error", error)?;
                Ok(row)
            }
        }
    }
}

/// By their names in tables; without a point the names alone.
fn figures<'py>(py: Python<'py>, of: Option<&Measured>) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("cycles", of.map(|m| m.cycles))?;
    row.set_item("images", of.map(|m| m.images))?;
    row.set_item("bound_cycles", of.map(|m| m.bound_cycles))?;
    row.set_item("macs", of.map(|m| m.macs))?;
    row.set_item("utilization", of.map(|m| m.utilization))?;
    row.set_item("dram_bytes", of.map(|m| m.dram_bytes))?;
    row.set_item("energy_uj", of.map(|m| m.energy_uj))?;
    row.set_item("area_mm2", of.map(|m| m.area_mm2))?;
    Ok(row)
}
