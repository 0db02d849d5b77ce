//! Where cycles go.

use numpy::IntoPyArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::Value;
use vta_sim::views::Lane;

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Report>()
}

/// Where the cycles of one pass over a network went: BATCH images on the cycle-level model.
///
/// In a notebook it shows itself as a page.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Report(vta_app::Report);

impl Report {
    pub fn new(report: vta_app::Report) -> Self {
        Self(report)
    }
}

#[pymethods]
impl Report {
    /// The model's name.
    #[getter]
    fn title(&self) -> &str {
        &self.0.title
    }

    /// The board or file whose timing it is.
    #[getter]
    fn timing(&self) -> &str {
        &self.0.timed.board
    }

    /// Cycles of the pass.
    #[getter]
    fn cycles(&self) -> u64 {
        self.0.cycles()
    }

    /// Cycles that no schedule of these layers, one after the other, can beat.
    #[getter]
    fn bound_cycles(&self) -> u64 {
        self.0.bound_cycles()
    }

    /// What the device takes of the pass, in milliseconds at its clock.
    #[getter]
    fn pass_ms(&self) -> f64 {
        self.0.timed.device_ms()
    }

    /// An estimate of the energy of the pass, in microjoules.
    #[getter]
    fn energy_uj(&self) -> f64 {
        self.0.energy_uj()
    }

    /// A dict for each layer in the program's order, with the keys of `vta run --json`: `name`, `kind`, `macs`,
    /// `cycles`, `bound_cycles`, `utilization`, `spend`, `stalls`, `energy_uj`, `limited_by`, `why` and more.
    #[getter]
    fn layers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut all = self.0.json();
        to_python(py, &all["layers"].take())
    }

    /// Cycles that units waited, by unit and reason: `{"load": {"dram": 120}}`.
    #[getter]
    fn stalls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stalls = PyDict::new(py);
        for stall in self.0.json()["stalls"].as_array().into_iter().flatten() {
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
        let all = py.detach(|| serde_json::to_value(&self.0));
        let all = all.map_err(|error| PyValueError::new_err(error.to_string()))?;
        to_python(py, &all)
    }

    /// The layers as a pandas.DataFrame, a row each; what their cycles were spent on is in columns
    /// `spend_*`. Needs `pip install pyvta[pandas]`.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("pyvta._report")?;
        module.call_method1("to_pandas", (slf,))
    }

    /// One HTML page that needs nothing else.
    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.html())
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
        let columns = py.detach(|| self.0.busy());
        let busy = PyDict::new(py);
        for (number, lane) in Lane::ALL.into_iter().enumerate() {
            let values: Vec<f64> = columns.iter().map(|column| column[number]).collect();
            busy.set_item(lane.words(), values.into_pyarray(py))?;
        }
        Ok(busy)
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("pyvta._report")?;
        module.call_method1("frame", (slf,))
    }

    fn __repr__(&self) -> String {
        let (title, timing) = (&self.0.title, &self.0.timed.board);
        let (cycles, bound) = (self.0.cycles(), self.0.bound_cycles());
        format!("<Report of {title} on {timing}: {cycles} cycles, bound {bound}>")
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A JSON value as Python has it.
///
/// # Errors
/// A number that Python hasn't, of which there is none.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::Number(value) => match (value.as_u64(), value.as_i64()) {
            (Some(value), _) => value.into_pyobject(py)?.into_any(),
            (None, Some(value)) => value.into_pyobject(py)?.into_any(),
            (None, None) => value.as_f64().into_pyobject(py)?.into_any(),
        },
        Value::String(value) => value.into_pyobject(py)?.into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            list.into_any()
        }
        Value::Object(values) => {
            let dict = PyDict::new(py);
            for (name, value) in values {
                dict.set_item(name, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
