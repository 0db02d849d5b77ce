//! Batches that came before: whether they are planned, and when.

use std::sync::Arc;

use vta_driver::{Batch, DeviceMemory};
use vta_isa::Insn;

use super::background::Shared;
use super::plan::Plan;

/// What planning a batch takes that waits for its plan, when it comes again: about a millisecond.
const MOST_PLANNED_AT_ONCE: u64 = 1 << 14;
/// Steps of a GEMM or of the ALU that take as long to plan as any instruction does beside them.
const STEPS_OF_AN_INSN: u64 = 64;

/// Whether a batch doesn't wait for its plan.
pub(super) fn is_long(batch: &Batch) -> bool {
    let cost = |insn: &Insn| match insn {
        Insn::Gemm(gemm) => gemm.steps(),
        Insn::Alu(alu) => alu.steps(),
        Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => 0,
    };
    let costs = batch
        .insns
        .iter()
        .map(|i| cost(i).saturating_add(STEPS_OF_AN_INSN));
    costs.fold(0, u64::saturating_add) > MOST_PLANNED_AT_ONCE
}

/// A batch that came before. It is kept, so that no other can have its address.
pub(super) struct Known {
    pub batch: Arc<Batch>,
    pub course: Course,
}

impl Known {
    /// Memory of its plan, if it has one.
    pub fn plan_bytes(&self) -> usize {
        match &self.course {
            Course::Planned(planned) => planned.plan.bytes,
            Course::Seen { .. } | Course::Awaited(_) | Course::Direct => 0,
        }
    }
}

/// How a known batch runs.
pub(super) enum Course {
    /// Not planned yet.
    Seen {
        /// Whether inputs that it doesn't store may be taken as constants.
        fixed_inputs: bool,
    },
    /// Without a plan until that is made.
    Awaited(Arc<Shared>),
    Planned(Planned),
    /// No plan is good for it, or only for one run.
    Direct,
}

/// A plan in a memory.
pub(super) struct Planned {
    pub plan: Arc<Plan>,
    pub layout: u64,
    /// Those at which its constants were last known to be there.
    versions: Vec<u64>,
    /// So that others find it.
    shared: Option<Arc<Shared>>,
}

impl Planned {
    pub fn new(plan: Arc<Plan>, memory: &DeviceMemory, shared: Option<Arc<Shared>>) -> Self {
        Self {
            versions: plan.versions(memory),
            layout: memory.layout(),
            plan,
            shared,
        }
    }

    /// Whether the plan means the same now.
    pub fn holds(&mut self, memory: &DeviceMemory) -> bool {
        let same = self.layout == memory.layout() && self.plan.holds(memory, &mut self.versions);
        same || self.shared.as_ref().is_some_and(|shared| {
            let same = shared.holds(&self.plan, memory);
            self.layout = if same { memory.layout() } else { self.layout };
            self.versions = self.plan.versions(memory);
            same
        })
    }
}
