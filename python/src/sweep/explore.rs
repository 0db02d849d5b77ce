//! Explorations, whose points are measured one by one.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use serde_json::Value;
use vta_app::Error;
use vta_app::sweep::{Explorer as Chosen, Measured, Objective, Walk};

use crate::error::raise;
use crate::options::machine;
use crate::results::{measured, to_python};
use crate::watch::aside;

/// Networks on machines that a search chooses; `pyvta.explore` is made of it.
#[pyclass(module = "pyvta._pyvta")]
pub struct Explorer(Chosen);

#[pymethods]
impl Explorer {
    #[new]
    #[pyo3(signature = (models, vary, *, area = None, objective, points, searches, seed, config = None,
                        board = None, timing = None, costs = None, threads = 1))]
    #[allow(clippy::too_many_arguments, reason = "each is an argument there")]
    fn new(
        py: Python<'_>,
        models: Vec<String>,
        vary: Vec<String>,
        area: Option<f64>,
        objective: Vec<String>,
        points: usize,
        searches: usize,
        seed: u64,
        config: Option<&Bound<'_, PyAny>>,
        board: Option<String>,
        timing: Option<String>,
        costs: Option<PathBuf>,
        threads: usize,
    ) -> PyResult<Self> {
        let objectives = objective.iter().map(|name| name.parse::<Objective>());
        let walk = Walk {
            area_mm2: area,
            objectives: objectives.collect::<Result<_, Error>>().map_err(raise)?,
            points,
            searches,
            shard: None,
            seed,
        };
        let target = machine(config, [board, timing], costs, threads)?;
        let work = models.into();
        let chosen = aside(py, None, |watch| {
            Chosen::open(&work, &vary, &target, &walk, watch)
        })?;
        Ok(Self(chosen))
    }

    /// The points that are wanted next; none when it is over.
    fn next_points(&mut self, py: Python<'_>) -> Vec<usize> {
        py.detach(|| self.0.next_points())
    }

    /// Points that are asked for so far, and at most.
    fn progress(&self) -> (usize, usize) {
        self.0.progress()
    }

    /// The keys of the machines' axes.
    fn keys(&self) -> Vec<String> {
        self.0.keys()
    }

    /// A point's value of each axis, as text.
    fn point<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let values = self.0.sweeper().point(index).map_err(raise)?;
        Ok(values.into_py_dict(py)?.into_any())
    }

    /// Measures a point: its figures, or `error` alone.
    fn measure<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        measured(py, self.0.sweeper(), index)
    }

    /// Takes a point's figures, as JSON has them, or `error` alone.
    fn tell(&mut self, index: usize, result: &str) -> PyResult<()> {
        let value: Value = serde_json::from_str(result).map_err(unreadable)?;
        let outcome = match value.get("error") {
            Some(error) => Err(error.as_str().unwrap_or_default().to_owned()),
            None => Ok(serde_json::from_value::<Measured>(value).map_err(unreadable)?),
        };
        self.0.tell(index, outcome);
        Ok(())
    }

    /// The machines that no other beats: their values, figures, gain and what they wait for.
    fn best<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let best = aside(py, None, |watch| self.0.best(watch))?;
        let keys = self.0.keys();
        best.iter()
            .map(|best| to_python(py, &best.json(&keys).into()))
            .collect()
    }
}

fn unreadable(error: serde_json::Error) -> PyErr {
    raise(Error::Usage(
        format!("no result of a point: {error}").into(),
    ))
}
