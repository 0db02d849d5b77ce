//! Where cycles go: what `pyvta.Report` is made of.

use numpy::ToPyArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use vta_sim::views::Lane;

use crate::results::to_python;

/// What makes an object again, and of what.
pub type Pickled<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>);

/// A report's page and columns, which are made when they are asked for.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Views(vta_app::Report);

#[pymethods]
impl Views {
    /// One HTML page, and the busy shares of each unit by its name.
    fn make<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyDict>)> {
        let (page, columns) = py.detach(|| (self.0.html(), self.0.busy()));
        let busy = PyDict::new(py);
        for (at, lane) in Lane::ALL.into_iter().enumerate() {
            let of_lane: Vec<f64> = columns.iter().map(|column| column[at]).collect();
            busy.set_item(lane.words(), of_lane.to_pyarray(py))?;
        }
        Ok((page, busy))
    }
}

/// A `pyvta.Report`.
///
/// # Errors
/// None.
pub fn report<'py>(py: Python<'py>, report: vta_app::Report) -> PyResult<Bound<'py, PyAny>> {
    let mut figures = report.json();
    figures["title"] = report.title.clone().into();
    let class = py.import("pyvta._report")?.getattr("Report")?;
    class.call1((to_python(py, &figures)?, Views(report)))
}
