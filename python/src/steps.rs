//! A program written by hand, cycle by cycle.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use vta_app::options::names::{BOARD, CONFIG, TIMING};
use vta_app::run::steps::Steps as Inner;

use crate::error::raise;
use crate::options;
use crate::results::to_python;

/// A program at one of its cycles; `pyvta.Stepper` is made of it.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Steps(Mutex<Inner>);

#[pymethods]
impl Steps {
    #[new]
    #[pyo3(signature = (text, **given), text_signature = "(text, *, config=None, board=None, timing=None)")]
    fn new(py: Python<'_>, text: &str, given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let target = options::some(given, &[CONFIG, BOARD, TIMING])?;
        let steps = py.detach(|| Inner::open(text, &target));
        steps.map(Mutex::new).map(Self).map_err(raise)
    }

    /// What stays the same from cycle to cycle.
    fn overview<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let overview = py.detach(|| self.inner().overview()).map_err(raise)?;
        to_python(py, &overview)
    }

    /// The machine behind a cycle; before the first one where it is `None`.
    fn state<'py>(&self, py: Python<'py>, cycle: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let state = py.detach(|| self.inner().state(cycle));
        to_python(py, &state)
    }
}

impl Steps {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
