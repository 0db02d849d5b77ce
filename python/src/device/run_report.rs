//! What a program by hand took: `RunReport`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use vta_app::run::insn_times;
use vta_driver::{Batch, RunReport as Counted};
use vta_isa::MemType;
use vta_isa::tokens::Edge;
use vta_sim::cycle;

use crate::device::opened::Opened;
use crate::network::report::Pickled;
use crate::results::result;
use crate::watch::aside;

/// The cycles of each instruction of a run, counted at each call.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct InsnTimes {
    device: Arc<Opened>,
    batch: Arc<Batch>,
}

#[pymethods]
impl InsnTimes {
    fn count(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<u64>)>> {
        let Opened { timing, config, .. } = &*self.device;
        let Some((timing, budget)) = timing else {
            return Ok(Vec::new());
        };
        aside(py, None, |_| {
            let run = cycle::Run {
                insns: &self.batch.insns,
                insn_addr: self.batch.insn_addr.0,
            };
            insn_times(budget, timing, config, run)
        })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Pickled<'py>> {
        let state = (&self.device.name, self.count(py)?).into_pyobject(py)?;
        Ok((result(py, "_Counted")?, state))
    }
}

/// The report of a run.
///
/// # Errors
/// None.
pub fn run_report<'py>(
    py: Python<'py>,
    device: &Arc<Opened>,
    batch: &Arc<Batch>,
    counted: &Counted,
) -> PyResult<Bound<'py, PyAny>> {
    let traffic = &counted.traffic;
    let bytes = MemType::ALL.map(|mem| (mem.name(), traffic.bytes[mem.index()]));
    let tokens = Edge::ALL.into_iter().zip(counted.leftover_tokens);
    let tokens = tokens.map(|(edge, count)| (edge.name(), count));
    let times = match &device.timing {
        Some(_) => InsnTimes {
            device: Arc::clone(device),
            batch: Arc::clone(batch),
        }
        .into_pyobject(py)?
        .into_any(),
        None => result(py, "_Counted")?.call1((&device.name, py.None()))?,
    };
    result(py, "RunReport")?.call1((
        counted.cycles,
        counted.wall.as_secs_f64() * 1e3,
        traffic.insns,
        traffic.gemm_steps,
        traffic.reset_steps,
        traffic.alu_steps,
        bytes.into_py_dict(py)?,
        tokens.into_py_dict(py)?,
        times,
    ))
}
