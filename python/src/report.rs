//! Where cycles go.

use std::sync::OnceLock;

use numpy::ToPyArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use serde_json::Value;
use vta_sim::views::Lane;

use crate::given::json;
use crate::results::to_python;

/// What makes an object again, and of what.
pub type Pickled<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>);

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Report>()?;
    module.add_function(wrap_pyfunction!(unpickle_report, module)?)
}

/// Where the cycles of one pass over a network went: BATCH images on the cycle-level model.
///
/// In a notebook it shows itself as a page.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Report {
    /// With the keys of `vta run --json`, and `title`.
    figures: Value,
    /// What the views are made of; `None` of a report that came from another process.
    source: Option<vta_app::Report>,
    views: OnceLock<Views>,
}

/// What is made when it is first asked for.
#[derive(Default)]
struct Views {
    page: String,
    /// By unit.
    busy: Vec<Vec<f64>>,
}

impl Report {
    pub fn new(report: vta_app::Report) -> Self {
        let mut figures = report.json();
        figures["title"] = report.title.clone().into();
        Self {
            figures,
            source: Some(report),
            views: OnceLock::new(),
        }
    }

    fn views(&self) -> &Views {
        self.views.get_or_init(|| {
            let Some(report) = &self.source else {
                return Views::default();
            };
            let columns = report.busy();
            let of_lane =
                |lane: usize| -> Vec<f64> { columns.iter().map(|column| column[lane]).collect() };
            Views {
                page: report.html(),
                busy: (0..Lane::COUNT).map(of_lane).collect(),
            }
        })
    }
}

/// A report that came from another process.
#[pyfunction]
fn unpickle_report(
    figures: &Bound<'_, PyAny>,
    page: String,
    busy: Vec<Vec<f64>>,
) -> PyResult<Report> {
    Ok(Report {
        figures: json("figures", figures, 0)?,
        source: None,
        views: OnceLock::from(Views { page, busy }),
    })
}

#[pymethods]
impl Report {
    /// The model's name.
    #[getter]
    fn title(&self) -> &str {
        text(&self.figures["title"])
    }

    /// The board or file whose timing it is.
    #[getter]
    fn timing(&self) -> &str {
        text(&self.figures["timing"])
    }

    /// Cycles of the pass.
    #[getter]
    fn cycles(&self) -> Option<u64> {
        self.figures["cycles"].as_u64()
    }

    /// Cycles that no schedule of these layers, one after the other, can beat.
    #[getter]
    fn bound_cycles(&self) -> Option<u64> {
        self.figures["bound_cycles"].as_u64()
    }

    /// What the device takes of the pass, in milliseconds at its clock.
    #[getter]
    fn pass_ms(&self) -> Option<f64> {
        self.figures["pass_ms"].as_f64()
    }

    /// An estimate of the energy of the pass, in microjoules.
    #[getter]
    fn energy_uj(&self) -> Option<f64> {
        self.figures["energy_uj"].as_f64()
    }

    /// A dict for each layer in the program's order, with the keys of `vta run --json`: `name`, `kind`, `macs`,
    /// `cycles`, `bound_cycles`, `utilization`, `spend`, `stalls`, `energy_uj`, `limited_by`, `why` and more.
    #[getter]
    fn layers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.figures["layers"])
    }

    /// Cycles that units waited, by unit and reason: `{"load": {"dram": 120}}`.
    #[getter]
    fn stalls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stalls = PyDict::new(py);
        for stall in self.figures["stalls"].as_array().into_iter().flatten() {
            let (unit, reason) = (text(&stall["unit"]), text(&stall["reason"]));
            let of_unit = match stalls.get_item(unit)? {
                Some(of_unit) => of_unit.cast_into::<PyDict>()?,
                None => PyDict::new(py),
            };
            of_unit.set_item(reason, stall["cycles"].as_u64())?;
            stalls.set_item(unit, of_unit)?;
        }
        Ok(stalls)
    }

    /// Everything: totals and `layers`, with the keys of `vta run --json`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.figures)
    }

    /// The layers as a pandas.DataFrame, a row each; what their cycles were spent on is in columns
    /// `spend_*`. Needs `pip install pyvta[pandas]`.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("pyvta._report")?;
        module.call_method1("to_pandas", (slf,))
    }

    /// One HTML page that needs nothing else.
    fn to_html(&self, py: Python<'_>) -> &str {
        &py.detach(|| self.views()).page
    }

    /// Busy units over time, layers above them, as a matplotlib.figure.Figure. Needs `pip install
    /// pyvta[plot]`.
    fn timeline<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("pyvta._report")?;
        module.call_method1("timeline", (slf,))
    }

    /// Busy shares over the pass, 0 to 1: a dict of float64 arrays by the units' names, each of a thousand
    /// columns of equal width.
    fn busy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let busy = PyDict::new(py);
        for (lane, values) in Lane::ALL.into_iter().zip(&py.detach(|| self.views()).busy) {
            busy.set_item(lane.words(), values.to_pyarray(py))?;
        }
        Ok(busy)
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("pyvta._report")?;
        module.call_method1("frame", (slf,))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Pickled<'py>> {
        let views = py.detach(|| self.views());
        let again = py.import("pyvta._pyvta")?.getattr("unpickle_report")?;
        let state = (self.to_dict(py)?, &views.page, &views.busy);
        Ok((again, state.into_pyobject(py)?))
    }

    fn __repr__(&self) -> String {
        let [title, timing] = ["title", "timing"].map(|key| text(&self.figures[key]));
        let [cycles, bound] = ["cycles", "bound_cycles"].map(|key| &self.figures[key]);
        format!("<Report of {title} on {timing}: {cycles} cycles, bound {bound}>")
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
