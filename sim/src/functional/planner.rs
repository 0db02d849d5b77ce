//! Plans alone, for listings.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vta_driver::{DeviceMemory, LayerMark, RunReport, Traffic};
use vta_isa::{Config, Insn};

use super::{Functional, PlanListing, Planning};
use crate::Executor;
use crate::error::SimError;
use crate::kernels::{COLUMN, GemmKernel};

/// Listings of a [`Planner`]'s batches. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PlanLog(Arc<Mutex<Vec<Option<PlanListing>>>>);

impl PlanLog {
    /// Takes the listings since the last call, in order; `None` stands for a batch that is run one
    /// instruction at a time: a faulty one, or one that no plan has a form for.
    pub fn take(&self) -> Vec<Option<PlanListing>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An executor that plans every batch as [`Functional`] does, logs the plan and runs nothing:
/// DRAM stays as it is. The CPU needn't have the kernel.
pub struct Planner {
    executor: Functional,
    log: PlanLog,
}

impl Planner {
    /// Plans for a kernel, which is replaced by the scalar one if it doesn't cover the
    /// configuration's block.
    pub fn new(config: Config, kernel: GemmKernel, log: PlanLog) -> Self {
        let covered = config.block() >= COLUMN;
        let mut executor =
            Functional::with_kernel(config, GemmKernel::Scalar).with_planning(Planning::AtOnce);
        if covered {
            executor.pads.kernel = kernel;
        }
        Self { executor, log }
    }
}

impl Executor for Planner {
    fn run(
        &mut self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        let plan = self.executor.plan(insns, marks, memory, true).ok();
        let list = |plan| PlanListing::new(plan, insns, marks, &self.executor.pads);
        let listing = plan.as_ref().map(list);
        let mut log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(listing);
        // The next batch finds its micro-ops and weights in the scratchpads.
        self.executor.pending = plan.map(Arc::new);
        Ok(RunReport {
            traffic: Traffic::of(insns, &self.executor.config),
            wall: Duration::ZERO,
            cycles: None,
            marks: Vec::new(),
            leftover_tokens: [0; 4],
        })
    }
}
