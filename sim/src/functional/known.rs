//! Batches that came before: whether they are planned, and when.

use std::sync::Arc;

use vta_driver::{Batch, DeviceMemory};
use vta_isa::Insn;

use super::background::{Machine, Shared, same};
use super::plan::Plan;
use super::{Functional, Planning};

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
    pub form: Form,
}

/// How a known batch runs.
pub(super) enum Form {
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
    layout: u64,
    /// Those at which its constants were last known to be there.
    versions: Vec<u64>,
    /// So that others find it.
    shared: Option<Arc<Shared>>,
}

impl Planned {
    fn new(plan: Arc<Plan>, memory: &DeviceMemory, shared: Option<Arc<Shared>>) -> Self {
        Self {
            versions: plan.versions(memory),
            layout: memory.layout(),
            plan,
            shared,
        }
    }

    /// Whether the plan means the same now.
    fn holds(&mut self, memory: &DeviceMemory) -> bool {
        let same = self.layout == memory.layout() && self.plan.holds(memory, &mut self.versions);
        same || self.shared.as_ref().is_some_and(|shared| {
            let same = shared.holds(&self.plan, memory);
            self.layout = if same { memory.layout() } else { self.layout };
            self.versions = self.plan.versions(memory);
            same
        })
    }
}

impl Functional {
    /// Where a batch that came before is known, or one that is the same program.
    pub(super) fn find(&self, batch: &Arc<Batch>) -> Option<usize> {
        let same_one = |k: &Known| Arc::ptr_eq(&k.batch, batch);
        let known = self.known.iter().rposition(same_one);
        known.or_else(|| self.known.iter().rposition(|k| same(&k.batch, batch)))
    }

    /// How a batch runs the next time, and the plan with which it runs now, if it does.
    pub(super) fn next_form(
        &mut self,
        form: Option<Form>,
        batch: &Arc<Batch>,
        memory: &DeviceMemory,
    ) -> (Form, Option<Arc<Plan>>) {
        match (self.planning, form) {
            (Planning::Never, _) | (_, Some(Form::Direct)) => (Form::Direct, None),
            (_, Some(Form::Planned(mut planned))) => {
                if planned.holds(memory) {
                    let plan = Arc::clone(&planned.plan);
                    return (Form::Planned(planned), Some(plan));
                }
                // Inputs that were taken as constants and have changed are data after all.
                let fixed_inputs = planned.layout != memory.layout();
                match self.planning {
                    Planning::AtOnce => self.plan_now(batch, memory, fixed_inputs),
                    Planning::Again | Planning::Never => (Form::Seen { fixed_inputs }, None),
                }
            }
            (_, Some(Form::Awaited(shared))) => Self::adopt(shared, memory),
            (Planning::AtOnce, None) => self.plan_now(batch, memory, true),
            (Planning::AtOnce, Some(Form::Seen { fixed_inputs })) => {
                self.plan_now(batch, memory, fixed_inputs)
            }
            (Planning::Again, None) => match self.find_shared(batch, memory) {
                Some(shared) => Self::adopt(shared, memory),
                None => (Form::Seen { fixed_inputs: true }, None),
            },
            (Planning::Again, Some(Form::Seen { fixed_inputs })) => {
                if !is_long(batch) {
                    return self.plan_now(batch, memory, fixed_inputs);
                }
                self.settle();
                let shared = self.find_shared(batch, memory);
                let shared = shared.filter(|shared| shared.fixed_inputs() == fixed_inputs);
                let start =
                    || Shared::start(self.machine(), batch, memory, fixed_inputs, &self.pads);
                match shared.or_else(start) {
                    Some(shared) => Self::adopt(shared, memory),
                    None => self.plan_now(batch, memory, fixed_inputs),
                }
            }
        }
    }

    /// Plans before running.
    fn plan_now(
        &mut self,
        batch: &Batch,
        memory: &DeviceMemory,
        fixed_inputs: bool,
    ) -> (Form, Option<Arc<Plan>>) {
        let Ok(plan) = self.plan(&batch.insns, &batch.marks, memory, fixed_inputs) else {
            return (Form::Direct, None);
        };
        let plan = Arc::new(plan);
        let form = match (plan.once, self.planning) {
            (false, _) => Form::Planned(Planned::new(Arc::clone(&plan), memory, None)),
            (true, Planning::AtOnce) => Form::Seen { fixed_inputs },
            (true, Planning::Again | Planning::Never) => Form::Direct,
        };
        (form, Some(plan))
    }

    /// Takes a plan that others make, once it is made.
    fn adopt(shared: Arc<Shared>, memory: &DeviceMemory) -> (Form, Option<Arc<Plan>>) {
        let Some(made) = shared.made() else {
            return (Form::Awaited(shared), None);
        };
        let Some(plan) = made.cloned() else {
            return (Form::Direct, None);
        };
        if !shared.holds(&plan, memory) {
            // Inputs that have changed are data.
            let fixed_inputs = false;
            return (Form::Seen { fixed_inputs }, None);
        }
        let planned = Planned::new(Arc::clone(&plan), memory, Some(shared));
        (Form::Planned(planned), Some(plan))
    }

    pub(super) fn machine(&self) -> Machine {
        Machine {
            config: self.config.clone(),
            kernel: self.pads.kernel,
            max_steps: self.max_steps,
            threads: self.threads,
            least_cost_ns: self.least_cost_ns,
        }
    }

    /// A plan of the same program, made or being made for somebody.
    fn find_shared(&self, batch: &Batch, memory: &DeviceMemory) -> Option<Arc<Shared>> {
        is_long(batch).then(|| Shared::find(&self.machine(), batch, memory))?
    }
}
