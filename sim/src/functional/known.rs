//! Batches that came before: whether they are planned, and when.

use std::sync::Arc;

use vta_driver::{Batch, DeviceMemory, RunReport, Traffic};

use super::background::Shared;
use super::plan::Plan;
use super::run::script::{MOST_OF_AN_ORDER, Script};

/// Nanoseconds of a batch, of an instruction, and of a step of a GEMM or of the ALU beside it.
struct Cost {
    batch: u64,
    insn: u64,
    step: u64,
}

/// Planning: rough, as no batch is like another.
const PLAN: Cost = Cost {
    batch: 50_000,
    insn: 3000,
    step: 1,
};
/// A run of one instruction at a time.
const DIRECT: Cost = Cost {
    batch: 0,
    insn: 15,
    step: 4,
};
/// What planning a batch takes that waits for its plan.
const MOST_PLANNED_AT_ONCE_NS: u64 = 250_000;
/// A batch that ran some times is expected to run so many times as often again.
const EXPECTED_RUNS: u64 = 2;

/// Instructions at most of a batch that is kept at once. Of longer ones it is kept at first what they take alone: to keep
/// them is to keep their memory from the next, and the first run may be the only one.
const KEPT_AT_ONCE: usize = 4096;
/// Runs after which it is noted what a batch does: that takes time and memory, as the first ones do.
const RUNS_BEFORE_SCRIPT: u32 = 2;

/// What is expected of planning a batch. It depends on its instructions alone, so that equal runs have equal courses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outlook {
    /// Runs that the batch must have had, so that a plan gains more than making it takes.
    pub runs: u64,
    /// Whether it doesn't wait for its plan.
    pub long: bool,
}

impl Outlook {
    pub fn of(traffic: &Traffic) -> Self {
        let [plan, direct] = [PLAN, DIRECT].map(|cost| {
            let insns = cost.insn.saturating_mul(traffic.insns);
            let steps = cost.step.saturating_mul(traffic.steps());
            cost.batch.saturating_add(insns).saturating_add(steps)
        });
        Self {
            runs: plan.div_ceil(direct.saturating_mul(EXPECTED_RUNS).max(1)),
            long: plan > MOST_PLANNED_AT_ONCE_NS,
        }
    }
}

/// A batch that came before.
pub(super) struct Known {
    /// It is kept, so that no other can have its address; a long one that may be planned later from its second run on.
    pub batch: Option<Arc<Batch>>,
    /// What its instructions say of a run.
    pub report: RunReport,
    /// Runs so far.
    pub runs: u32,
    /// What its instructions do, once that was noted.
    pub script: Option<Script>,
    /// Once it began to run.
    pub course: Option<Course>,
}

impl Known {
    /// A batch that hasn't run.
    pub fn new(report: RunReport) -> Self {
        Self {
            batch: None,
            report,
            runs: 0,
            script: None,
            course: None,
        }
    }

    /// Whether a batch is kept before it has run.
    pub fn is_kept_at_once(batch: &Batch) -> bool {
        batch.insns.len() <= KEPT_AT_ONCE
    }

    /// Keeps the batch, if it seems to come again.
    pub fn keep(&mut self, batch: &Arc<Batch>) {
        let decided = !matches!(self.course, Some(Course::Seen { .. }));
        let keeps = self.runs > 0 || decided || Self::is_kept_at_once(batch);
        if keeps && self.batch.as_ref().is_none_or(|b| !Arc::ptr_eq(b, batch)) {
            self.batch = Some(Arc::clone(batch));
        }
    }

    /// Whether it is noted what it does when it runs the next time; an order alone is noted at once.
    pub fn is_noted(&self) -> bool {
        let insns = self.report.traffic.insns;
        self.runs >= RUNS_BEFORE_SCRIPT || insns <= MOST_OF_AN_ORDER as u64
    }

    /// Its plan, if it has one.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        match self.course.as_ref()? {
            Course::Planned(planned) => Some(&planned.plan),
            Course::Seen { .. } | Course::Awaited(_) | Course::Direct => None,
        }
    }
}

/// How a known batch runs.
pub(super) enum Course {
    /// Not planned yet.
    Seen {
        /// Whether inputs that it doesn't store may be taken as constants.
        fixed_inputs: bool,
        /// Runs that it has yet to have before it is planned.
        runs: u64,
    },
    /// Without a plan until that is made.
    Awaited(Arc<Shared>),
    Planned(Planned),
    /// No plan is good for it, or only for one run.
    Direct,
}

impl Course {
    /// Of a batch that runs one instruction at a time now.
    pub fn seen(fixed_inputs: bool, outlook: Outlook) -> Self {
        let runs = outlook.runs.saturating_sub(1);
        Self::Seen { fixed_inputs, runs }
    }
}

/// A plan in a memory.
pub(super) struct Planned {
    pub plan: Arc<Plan>,
    pub layout: u64,
    /// Those at which its constants were last known to be there.
    versions: Vec<u64>,
    /// What it was made of, if that is kept: others find the plan by it.
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
        let kept = self.shared.as_ref().map(|shared| &shared.memory);
        if self.layout != memory.layout() {
            if !kept.is_some_and(|kept| kept.has_regions_of(memory)) {
                return false;
            }
            // Versions are those of another memory.
            self.versions.fill(u64::MAX);
        }
        let same = self.plan.holds(memory, &mut self.versions, kept);
        if same {
            self.layout = memory.layout();
        }
        same
    }
}
