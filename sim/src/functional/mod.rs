//! The fast functional executor: the oracle's results at the speed of the CPU.
//!
//! A batch is decoded once into a [`Plan`]: its tokens are resolved into one order, GEMM
//! instructions become blocked matrix products whose weights are laid out for the kernel, and
//! resets, residuals, ALU steps and stores are fused into the products that they belong to.
//! Running a plan reads no instruction and no micro-op. Plans are kept for batches that are
//! submitted again, as long as their micro-ops and weights in DRAM haven't been written to.
//!
//! Parts of a plan that need nothing of each other may run on several threads: [`threads`].
//!
//! Planning takes longer than running, so a batch runs one instruction at a time ([`run::direct`]), with the same
//! bits, or as it did before ([`run::script`]), until it came so often that a plan is worth it ([`Planning`]): networks
//! once. What can't be planned always runs so; faulty programs among it, so that everything before the fault has its
//! effect.
//!
//! Machines whose numbers aren't int8 run as the [oracle](crate::Oracle) does.

mod background;
mod known;
mod plan;
mod planner;
mod run;
mod threads;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

use vta_driver::packing::Threads;
use vta_driver::{Batch, Budget, DeviceMemory, LayerMark, RunReport};
use vta_isa::{Config, Insn};

use self::background::Shared;
use self::known::{Course, Known, Outlook, Planned};
pub use self::plan::listing::{PlanLine, PlanListing};
use self::plan::unplanned::Unplanned;
use self::plan::{Limits, Plan, Subject};
pub use self::planner::{PlanLog, Planner};
use self::run::direct::Direct;
use self::run::scratchpads::Scratchpads;
use self::run::script::{Script, Stage};
use self::threads::crew::Crew;
use self::threads::schedule::{self, Schedule};
use crate::error::SimError;
use crate::kernels::GemmKernel;
use crate::{Executor, Oracle};

/// Batches that are known, with their plans: those of a few recordings.
const MOST_KNOWN: usize = 32;
/// Steps of GEMMs that take less than a core stops for when it has multiplied longer vectors.
const FEW_PRODUCTS: u64 = 512;
/// Memory of the plans of an executor.
const MOST_PLAN_BYTES: usize = 2 << 30;

/// When a batch is planned. Its results are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planning {
    /// When it comes again, so often that a plan is expected to gain what making it takes: until then it runs one
    /// instruction at a time. Long batches are planned on a thread of their own, and run so until that is done; the
    /// plan is there for all executors of the process.
    #[default]
    Again,
    /// The first time.
    AtOnce,
    /// Never: each batch runs one instruction at a time.
    Never,
}

/// The fast executor. Scratchpads keep their contents between runs.
pub struct Functional {
    config: Config,
    pads: Scratchpads,
    limits: Limits,
    planning: Planning,
    direct: Direct,
    /// Most recently used last.
    known: VecDeque<Box<Known>>,
    /// The plan whose micro-ops and weights the scratchpads should hold but don't yet.
    pending: Option<Arc<Plan>>,
    /// Threads that a batch may use.
    threads: Arc<Threads>,
    /// What they work with, since they were first needed. Inside, `None` if there are none to be had.
    crew: Option<Option<Crew>>,
    /// The least that a batch must take, in nanoseconds, to be run by more than one thread.
    least_cost_ns: u64,
    /// Who runs everything where numbers aren't int8.
    wide: Option<Oracle>,
    timed: bool,
}

impl Functional {
    /// An executor with zeroed scratchpads and the best kernel of this CPU.
    pub fn new(config: Config) -> Self {
        let kernel = GemmKernel::detect();
        Self::with_kernel(config, kernel)
    }

    /// An executor with a kernel of choice. A kernel that this CPU lacks, or that doesn't cover
    /// the configuration's block, is replaced by the scalar one.
    pub fn with_kernel(config: Config, kernel: GemmKernel) -> Self {
        let kernel = kernel.usable(config.block());
        Self {
            pads: Scratchpads::new(&config, kernel),
            direct: Direct::new(&config),
            wide: config
                .int8("the plan")
                .is_err()
                .then(|| Oracle::new(config.clone())),
            config,
            limits: Limits {
                steps: Budget::default().steps,
                plan_bytes: MOST_PLAN_BYTES,
            },
            planning: Planning::default(),
            known: VecDeque::with_capacity(MOST_KNOWN),
            pending: None,
            threads: Arc::new(Threads::new(1)),
            crew: None,
            least_cost_ns: schedule::LEAST_COST_NS,
            timed: true,
        }
    }

    /// Runs each batch on up to that many threads, the caller's among them; 1 to begin with, and
    /// 0 counts as 1. Results are the same for every number.
    ///
    /// What runs at the same time are parts of a batch that need nothing of each other: output
    /// tiles of a layer, mostly. Batches that take less than about 0.1 ms, or that have no such
    /// parts, run on the caller's thread alone. The other threads start with the first batch that
    /// needs them, sleep when none follows at once, and end with the executor. Each has input and
    /// accumulator scratchpads of its own, and plans keep a second copy of their input offsets.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Arc::new(Threads::new(threads));
        self.crew = None;
        self.known.clear();
        self
    }

    /// Batches that take less, by a rough estimate in nanoseconds, run on the caller's thread
    /// alone; 100 000 to begin with. With less, work is also cut finer.
    #[must_use]
    pub fn with_least_cost_ns(mut self, least_cost_ns: u64) -> Self {
        self.least_cost_ns = least_cost_ns;
        self.known.clear();
        self
    }

    /// When batches are planned; [`Planning::Again`] to begin with.
    #[must_use]
    pub fn with_planning(mut self, planning: Planning) -> Self {
        self.planning = planning;
        self.known.clear();
        self
    }

    /// Whether plans have kernels that can read copies of inputs, whatever this CPU gains by it.
    #[cfg(test)]
    fn with_staged_inputs(mut self, staged_inputs: bool) -> Self {
        self.pads.staged_inputs = staged_inputs;
        self.known.clear();
        self
    }

    /// Threads that a batch may use.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// The threads themselves, for other work between batches.
    pub fn helpers(&self) -> Arc<Threads> {
        Arc::clone(&self.threads)
    }

    /// Whether reports of runs have the time that they took; they have to begin with. To read the clock takes a tenth of
    /// the time of short runs.
    #[must_use]
    pub fn with_times(self, timed: bool) -> Self {
        Self { timed, ..self }
    }

    /// The machine.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Limits the GEMM and ALU steps of one run; [`Budget::steps`] of the default to begin with.
    #[must_use]
    pub fn with_max_steps(mut self, max_steps: u64) -> Self {
        self.limits.steps = max_steps;
        self.wide = self.wide.map(|oracle| oracle.with_max_steps(max_steps));
        self.known.clear();
        self
    }

    /// Limits the memory of plans, in bytes, without what several threads need beside; 2 GiB to begin with. A batch
    /// whose plan takes more runs one instruction at a time, always, with the same results; plans that take more
    /// together are forgotten, those first that were used the longest time ago.
    #[must_use]
    pub fn with_most_plan_bytes(mut self, most_plan_bytes: usize) -> Self {
        self.limits.plan_bytes = most_plan_bytes;
        self.known.clear();
        self
    }

    /// Memory of the plans that are kept, in bytes, without what several threads need beside. Those that executors
    /// share count for each of them.
    pub fn plan_bytes(&self) -> usize {
        let plans = self.known.iter().filter_map(|known| known.plan());
        plans.map(|plan| plan.bytes).sum()
    }

    /// The kernel in use.
    pub fn kernel(&self) -> GemmKernel {
        self.pads.kernel
    }

    /// Makes the plan of a batch.
    fn plan(
        &mut self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &DeviceMemory,
        fixed_inputs: bool,
    ) -> Result<Plan, Unplanned> {
        self.settle();
        let subject = Subject {
            config: &self.config,
            pads: &self.pads,
            limits: self.limits,
            insns,
            marks,
            memory,
            fixed_inputs,
            once: self.planning == Planning::AtOnce,
            kept: false,
        };
        subject.plan(&|| true)
    }

    /// Runs a plan. Its micro-ops and weights reach the scratchpads when somebody needs them.
    fn run_plan(&mut self, plan: Arc<Plan>, memory: &mut DeviceMemory) -> RunReport {
        let schedule = self.schedule(&plan);
        let start = self.timed.then(Instant::now);
        if self
            .pending
            .as_ref()
            .is_some_and(|p| !Arc::ptr_eq(p, &plan))
        {
            self.settle();
        }
        let walls = match (schedule, &mut self.crew) {
            (Some(schedule), Some(Some(crew))) => crew.run(&plan, schedule, &mut self.pads, memory),
            _ => run::run(&plan, &mut self.pads, memory),
        };
        let wall = start.map_or(Duration::ZERO, |start| start.elapsed());
        let mut marks = plan.marks.clone();
        for (mark, wall) in marks.iter_mut().zip(walls) {
            mark.wall = wall;
        }
        let report = RunReport {
            traffic: plan.traffic,
            wall,
            cycles: None,
            marks,
            leftover_tokens: plan.leftover_tokens,
        };
        self.pending = Some(plan);
        report
    }

    /// How several threads run a plan; `None` if one does it. Then there is a crew, unless the
    /// system has no more threads.
    fn schedule<'a>(&mut self, plan: &'a Plan) -> Option<&'a Schedule> {
        let threads = self.threads();
        if threads < 2 {
            return None;
        }
        let cost = self.least_cost_ns;
        let make = || Schedule::new(&plan.ops, &self.pads, threads, cost, &|| true);
        let schedule = plan.schedule.get_or_init(make).as_ref()?;
        self.crew
            .get_or_insert_with(|| Crew::new(&self.threads, &self.pads));
        Some(schedule)
    }

    /// Writes micro-ops and weights of the last plan into the scratchpads.
    fn settle(&mut self) {
        if let Some(plan) = self.pending.take() {
            plan.settle(&mut self.pads);
        }
    }

    /// Runs instructions without a plan, as `work` does, which gives the tokens that are left; `report` is what the
    /// instructions say.
    fn run_unplanned(
        &mut self,
        (insns, marks): (&[Insn], &[LayerMark]),
        report: RunReport,
        memory: &mut DeviceMemory,
        work: impl FnOnce(&mut Stage<'_>) -> Result<[u32; 4], SimError>,
    ) -> Result<RunReport, SimError> {
        self.settle();
        self.direct.few_products = report.traffic.gemm_steps <= FEW_PRODUCTS;
        let start = self.timed.then(Instant::now);
        let mut stage = Stage {
            direct: &mut self.direct,
            pads: &mut self.pads,
            config: &self.config,
            insns,
            marks,
            memory,
            laps: run::Laps::default(),
        };
        let leftover_tokens = work(&mut stage)?;
        let mut report = report;
        for (mark, wall) in report.marks.iter_mut().zip(stage.laps.finish(Instant::now)) {
            mark.wall = wall;
        }
        Ok(RunReport {
            wall: start.map_or(Duration::ZERO, |start| start.elapsed()),
            leftover_tokens,
            ..report
        })
    }
}

impl Executor for Functional {
    fn run(
        &mut self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        if let Some(oracle) = &mut self.wide {
            return oracle.run(insns, marks, memory);
        }
        if self.planning == Planning::AtOnce
            && let Ok(plan) = self.plan(insns, marks, memory, true)
        {
            return Ok(self.run_plan(Arc::new(plan), memory));
        }
        let report = RunReport::of(insns, marks, &self.config);
        let steps = self.limits.steps;
        self.run_unplanned((insns, marks), report, memory, |stage| {
            stage.run(steps, None)
        })
    }

    fn run_batch(
        &mut self,
        batch: &Arc<Batch>,
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        if let Some(oracle) = &mut self.wide {
            return oracle.run_batch(batch, memory);
        }
        let Batch { insns, marks, .. } = &**batch;
        let found = self.find(batch).and_then(|index| self.known.remove(index));
        let mut known = found.unwrap_or_else(|| self.unknown(batch));
        let outlook = Outlook::of(&known.report.traffic);
        let (course, plan) = self.next_course(known.course.take(), batch, outlook, memory);
        let is_noted = known.is_noted();
        known.course = Some(course);
        known.keep(batch);
        let script = &mut known.script;
        if script
            .as_ref()
            .is_some_and(|script| plan.is_some() || !script.holds(memory))
        {
            *script = None;
        }
        let began = Instant::now;
        let began = matches!(known.course, Some(Course::Awaited(_))).then(began);
        let (parts, steps) = ((&insns[..], &marks[..]), self.limits.steps);
        let report = || known.report.clone();
        let ran = match (plan, &*script) {
            (Some(plan), _) => Ok(self.run_plan(plan, memory)),
            (None, Some(script)) => {
                self.run_unplanned(parts, report(), memory, |stage| script.run(stage))
            }
            (None, None) => {
                let mut new = is_noted.then(|| Script::new(insns.len(), memory));
                let work = |stage: &mut Stage<'_>| stage.run(steps, new.as_mut());
                let ran = self.run_unplanned(parts, report(), memory, work);
                *script = new.filter(|_| ran.is_ok());
                ran
            }
        };
        if let (Some(Course::Awaited(shared)), Some(began)) = (&known.course, began)
            && ran.is_ok()
        {
            shared.ran(began.elapsed());
        }
        known.runs = known.runs.saturating_add(1);
        if self.known.len() == MOST_KNOWN {
            self.known.pop_front();
        }
        let planned = known.plan().is_some();
        self.known.push_back(known);
        while planned && self.known.len() > 1 && self.plan_bytes() > self.limits.plan_bytes {
            self.known.pop_front();
        }
        ran
    }
}

impl Functional {
    /// Where a batch that came before is known, or one that is the same program.
    fn find(&self, batch: &Arc<Batch>) -> Option<usize> {
        let kept = || self.known.iter().map(|known| known.batch.as_ref());
        let same_one = kept().rposition(|kept| kept.is_some_and(|k| Arc::ptr_eq(k, batch)));
        same_one
            .or_else(|| kept().rposition(|kept| kept.is_some_and(|k| background::same(k, batch))))
    }

    /// What is known of a batch that hasn't run, or of one that took as much and wasn't kept.
    fn unknown(&mut self, batch: &Batch) -> Box<Known> {
        let report = RunReport::of(&batch.insns, &batch.marks, &self.config);
        let like = |k: &Known| k.batch.is_none() && k.report.traffic == report.traffic;
        let like = match Known::is_kept_at_once(batch) {
            true => None,
            false => self.known.iter().rposition(|known| like(known)),
        };
        let Some(mut known) = like.and_then(|at| self.known.remove(at)) else {
            return Box::new(Known::new(report));
        };
        known.report = report;
        known
    }

    /// How a batch runs the next time, and the plan with which it runs now, if it does.
    fn next_course(
        &mut self,
        course: Option<Course>,
        batch: &Arc<Batch>,
        outlook: Outlook,
        memory: &DeviceMemory,
    ) -> (Course, Option<Arc<Plan>>) {
        let fixed_inputs = match course {
            _ if self.planning == Planning::Never => return (Course::Direct, None),
            Some(Course::Direct) => return (Course::Direct, None),
            Some(Course::Awaited(shared)) => {
                return if shared.go_on(&self.pads, &self.threads) {
                    Self::adopt(shared, outlook, memory)
                } else {
                    self.plan_now(batch, outlook, memory, shared.fixed_inputs)
                };
            }
            Some(Course::Planned(mut planned)) => {
                if planned.holds(memory) {
                    let plan = Arc::clone(&planned.plan);
                    return (Course::Planned(planned), Some(plan));
                }
                // Inputs that were taken as constants and have changed are data after all.
                let fixed_inputs = planned.layout != memory.layout();
                if self.planning == Planning::Again {
                    return (Course::seen(fixed_inputs, outlook), None);
                }
                fixed_inputs
            }
            Some(Course::Seen { fixed_inputs, runs }) => {
                if let (Planning::Again, Some(runs)) = (self.planning, runs.checked_sub(1)) {
                    return (Course::Seen { fixed_inputs, runs }, None);
                }
                fixed_inputs
            }
            None if self.planning == Planning::Again => {
                let shared = || Shared::find(&self.machine(), batch, memory);
                return match outlook.long.then(shared).flatten() {
                    Some(shared) => Self::adopt(shared, outlook, memory),
                    None => (Course::seen(true, outlook), None),
                };
            }
            None => true,
        };
        if self.planning == Planning::Again
            && outlook.long
            && let Some(shared) = Shared::of(self.machine(), batch, memory, fixed_inputs)
        {
            return Self::adopt(shared, outlook, memory);
        }
        self.plan_now(batch, outlook, memory, fixed_inputs)
    }

    /// Plans before running.
    fn plan_now(
        &mut self,
        batch: &Batch,
        outlook: Outlook,
        memory: &DeviceMemory,
        fixed_inputs: bool,
    ) -> (Course, Option<Arc<Plan>>) {
        let Ok(plan) = self.plan(&batch.insns, &batch.marks, memory, fixed_inputs) else {
            return (Course::Direct, None);
        };
        let plan = Arc::new(plan);
        let course = if plan.once {
            Course::seen(fixed_inputs, outlook)
        } else {
            Course::Planned(Planned::new(Arc::clone(&plan), memory, None))
        };
        (course, Some(plan))
    }

    /// Takes a plan that others make, once it is made.
    fn adopt(
        shared: Arc<Shared>,
        outlook: Outlook,
        memory: &DeviceMemory,
    ) -> (Course, Option<Arc<Plan>>) {
        let Some(made) = shared.made() else {
            return (Course::Awaited(shared), None);
        };
        let Some(plan) = made.cloned() else {
            return (Course::Direct, None);
        };
        let kept = Some(Arc::clone(&shared));
        let mut planned = Planned::new(Arc::clone(&plan), &shared.memory, kept);
        if !planned.holds(memory) {
            // Inputs that have changed are data.
            return (Course::seen(false, outlook), None);
        }
        (Course::Planned(planned), Some(plan))
    }

    fn machine(&self) -> background::Machine {
        background::Machine {
            config: self.config.clone(),
            kernel: self.pads.kernel,
            limits: self.limits,
            threads: self.threads(),
            least_cost_ns: self.least_cost_ns,
            staged_inputs: self.pads.staged_inputs,
        }
    }
}

#[cfg(test)]
mod tests;
