//! `RunReport`: what a program by hand took.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use vta_app::exec::insn_times;
use vta_driver::{Batch, RunReport as Counted};
use vta_isa::MemType;
use vta_isa::tokens::Edge;
use vta_sim::cycle;

use crate::error::usage;
use crate::opened::Opened;
use crate::watch::aside;

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RunReport>()
}

/// What a device says of a run.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct RunReport {
    /// Where.
    pub device: Arc<Opened>,
    /// What ran.
    pub batch: Arc<Batch>,
    /// What was counted.
    pub counted: Counted,
}

#[pymethods]
impl RunReport {
    /// Cycles from the first instruction's fetch to FINISH; None on devices that don't count them.
    #[getter]
    fn cycles(&self) -> Option<u64> {
        self.counted.cycles
    }

    /// What the device took, in milliseconds of this machine's time.
    #[getter]
    fn wall_ms(&self) -> f64 {
        self.counted.wall.as_secs_f64() * 1e3
    }

    /// Instructions.
    #[getter]
    fn insns(&self) -> u64 {
        self.counted.traffic.insns
    }

    /// Products of an input tile with a weight tile.
    #[getter]
    fn gemm_steps(&self) -> u64 {
        self.counted.traffic.gemm_steps
    }

    /// Accumulator tiles that GEMMs cleared.
    #[getter]
    fn reset_steps(&self) -> u64 {
        self.counted.traffic.reset_steps
    }

    /// Vector operations on an accumulator tile.
    #[getter]
    fn alu_steps(&self) -> u64 {
        self.counted.traffic.alu_steps
    }

    /// DRAM bytes loaded and stored, by memory type.
    #[getter]
    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let bytes = PyDict::new(py);
        for mem in MemType::ALL {
            let moved = self.counted.traffic.bytes[usize::from(mem.code())];
            bytes.set_item(mem.name(), moved)?;
        }
        Ok(bytes)
    }

    /// Tokens that nobody took, by queue, `"load->compute"` and so on.
    #[getter]
    fn leftover_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tokens = PyDict::new(py);
        for (edge, count) in Edge::ALL.into_iter().zip(self.counted.leftover_tokens) {
            tokens.set_item(edge.name(), count)?;
        }
        Ok(tokens)
    }

    /// The cycles of each instruction: pairs of the first and the one behind the last, which FINISH, the
    /// end of the run, doesn't have. Counted anew at each call.
    ///
    /// Raises `UsageError` on devices that don't count cycles.
    fn insn_cycles(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<u64>)>> {
        let Opened { name, config, .. } = &*self.device;
        let Some((timing, budget)) = &self.device.timing else {
            let text = format!("device {name} counts no cycles: \"cycle\" does");
            return Err(usage(text));
        };
        let times = aside(py, None, |_| {
            let run = cycle::Run {
                insns: &self.batch.insns,
                insn_addr: self.batch.insn_addr.0,
            };
            insn_times(budget, timing, config, run)
        })?;
        let cycles = times.into_iter().map(|time| (time.start, time.done));
        Ok(cycles.collect())
    }

    /// All of it but the cycles of instructions.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        all.set_item("cycles", self.cycles())?;
        all.set_item("wall_ms", self.wall_ms())?;
        all.set_item("insns", self.insns())?;
        all.set_item("gemm_steps", self.gemm_steps())?;
        all.set_item("reset_steps", self.reset_steps())?;
        all.set_item("alu_steps", self.alu_steps())?;
        all.set_item("bytes", self.bytes(py)?)?;
        all.set_item("leftover_tokens", self.leftover_tokens(py)?)?;
        Ok(all)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("RunReport({})", self.to_dict(py)?))
    }
}
