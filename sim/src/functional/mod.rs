//! The fast functional executor: the oracle's results at the speed of the CPU.
//!
//! A batch is decoded once into a [`plan::Plan`]: its tokens are resolved into one order, GEMM
//! instructions become blocked matrix products whose weights are laid out for the kernel, and
//! resets, residuals, ALU steps and stores are fused into the products that they belong to.
//! Running a plan reads no instruction and no micro-op. Plans are kept for batches that are
//! submitted again, as long as their micro-ops and weights in DRAM haven't been written to.
//!
//! Parts of a plan that need nothing of each other may run on several threads: [`schedule`].
//!
//! Planning takes longer than running, so a batch that comes for the first time runs one instruction
//! at a time ([`direct`]), with the same bits, and is planned when it comes again ([`Planning`]). What can't be
//! planned always runs so; faulty programs among it, so that everything before the fault has its
//! effect.

mod build;
mod cells;
mod clusters;
mod crew;
mod cut;
mod direct;
mod draft;
mod elementwise;
mod emit;
mod flow;
mod interpret;
mod listing;
mod matmul;
mod ops;
mod origin;
mod passes;
mod pieces;
mod plan;
mod planner;
mod run;
mod schedule;
mod scratchpads;
mod shape;
mod table;
mod tasks;
mod threads;
mod unit;
mod unplanned;
#[cfg(debug_assertions)]
mod verify;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use vta_driver::{Batch, Budget, DeviceMemory, LayerMark, RunReport, Traffic};
use vta_isa::resolve::merge;
use vta_isa::tokens::{self, At};
use vta_isa::{Config, Insn, Module};

use self::crew::Crew;
use self::direct::Direct;
use self::emit::{Emitted, Products};
pub use self::listing::{PlanLine, PlanListing};
use self::passes::{Context, List};
use self::plan::{Constant, Plan};
pub use self::planner::{PlanLog, Planner};
use self::schedule::Schedule;
use self::scratchpads::Scratchpads;
use self::unplanned::Unplanned;
use crate::error::SimError;
use crate::kernels::GemmKernel;
use crate::{Executor, StepBudget};

/// Batches that are known, with their plans: those of a few recordings.
const MOST_KNOWN: usize = 32;

/// When a batch is planned. Its results are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planning {
    /// When it comes again: the first time it runs one instruction at a time.
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
    max_steps: u64,
    planning: Planning,
    direct: Direct,
    /// Most recently used last.
    known: Vec<Known>,
    /// The plan whose micro-ops and weights the scratchpads should hold but don't yet.
    pending: Option<Arc<Plan>>,
    /// Threads that a batch may use.
    threads: usize,
    /// The threads, since they were first needed. Inside, `None` if there are none to be had.
    crew: Option<Option<Crew>>,
    /// The least that a batch must take, in nanoseconds, to be run by more than one thread.
    least_cost_ns: u64,
}

/// A batch that came before. It is kept, so that no other can have its address.
struct Known {
    batch: Arc<Batch>,
    form: Form,
}

/// How a known batch runs.
enum Form {
    /// Not planned yet.
    Seen {
        /// Whether inputs that it doesn't store may be taken as constants.
        fixed_inputs: bool,
    },
    /// With the versions at which the plan's constants were last known.
    Planned(Arc<Plan>, Vec<u64>),
    /// No plan is good for it, or only for one run.
    Direct,
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
            config,
            max_steps: Budget::default().steps,
            planning: Planning::default(),
            direct: Direct::default(),
            known: Vec::new(),
            pending: None,
            threads: 1,
            crew: None,
            least_cost_ns: schedule::LEAST_COST_NS,
        }
    }

    /// Runs each batch on up to that many threads, the caller's among them; 1 to begin with, and
    /// 0 counts as 1. Results are the same for every number.
    ///
    /// What runs at the same time are parts of a batch that need nothing of each other: output
    /// tiles of a layer, mostly. Batches that take less than about 0.1 ms, or that have no such
    /// parts, run on the caller's thread alone. The other threads start with the first batch that
    /// needs them, sleep between batches and end with the executor. Each has input and
    /// accumulator scratchpads of its own, and plans keep a second copy of their input offsets.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
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

    /// Threads that a batch may use.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Limits the GEMM and ALU steps of one run; [`Budget::steps`] of the default to begin with.
    #[must_use]
    pub fn with_max_steps(mut self, max_steps: u64) -> Self {
        self.max_steps = max_steps;
        self.known.clear();
        self
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
        let held = &self.pads.uop;
        let mut trace = build::trace(insns, marks, &self.config, memory, held, self.max_steps)?;
        let context = Context {
            config: &self.config,
            memory,
            stored: &trace.stored,
            fixed_inputs,
            columns: self.pads.kernel.columns(),
        };
        let mut list = passes::run(List::new(std::mem::take(&mut trace.drafts)), &context);
        let mut spans = std::mem::take(&mut list.constants);
        let drafts = list.into_drafts();
        let mut products = Products::new(memory, &self.pads);
        let Emitted { ops, origins, .. } = emit::emit(drafts, &mut products)?;
        spans.append(&mut products.constants);
        spans.append(&mut trace.constants);
        merge(&mut spans);
        let constants = Constant::new(&spans, memory);
        let weights = trace.weights.iter().enumerate();
        let loaded = weights.filter(|(_, weight)| !weight.is_held());
        let plan = Plan {
            ops,
            origins,
            layout: memory.layout(),
            constants,
            once: trace.once,
            uops: trace.uops,
            weights: loaded.map(|(i, w)| (i, products.tile(w).into())).collect(),
            traffic: Traffic::of(insns, &self.config),
            marks: crate::mark_reports(insns, marks, &self.config, &[]),
            leftover_tokens: trace.leftover_tokens,
            schedule: OnceLock::new(),
        };
        #[cfg(debug_assertions)]
        if self.pads.kernel.supported() {
            verify::Subject {
                insns,
                config: &self.config,
                memory,
                constants: &spans,
                pads: &self.pads,
            }
            .check(&plan);
        }
        Ok(plan)
    }

    /// Runs a plan. Its micro-ops and weights reach the scratchpads when somebody needs them.
    fn run_plan(&mut self, plan: Arc<Plan>, memory: &mut DeviceMemory) -> RunReport {
        let schedule = self.schedule(&plan);
        let start = Instant::now();
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
        let wall = start.elapsed();
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
        if self.threads < 2 {
            return None;
        }
        let make = || Schedule::new(&plan.ops, &self.pads, self.threads, self.least_cost_ns);
        let schedule = plan.schedule.get_or_init(make).as_ref()?;
        self.crew
            .get_or_insert_with(|| Crew::new(self.threads, &self.pads));
        Some(schedule)
    }

    /// Writes micro-ops and weights of the last plan into the scratchpads.
    fn settle(&mut self) {
        if let Some(plan) = self.pending.take() {
            plan.settle(&mut self.pads);
        }
    }

    /// One instruction at a time.
    fn run_direct(
        &mut self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        self.settle();
        let start = Instant::now();
        let mut steps = StepBudget::new(self.max_steps);
        let mut laps = run::Laps::default();
        let mut next = (0..).zip(marks).peekable();
        let (direct, pads) = (&mut self.direct, &mut self.pads);
        let leftover_tokens = tokens::run_in_token_order(insns, |index, insn| {
            let at = At { index, insn: *insn };
            steps.spend(&at)?;
            if insn.module() == Module::Compute {
                while let Some((mark, _)) = next.next_if(|m| m.1.first_insn <= index) {
                    laps.begin(mark, Instant::now());
                }
            }
            direct.execute(pads, &self.config, &at, memory)
        })?;
        let walls: Vec<Duration> = laps.finish(Instant::now());
        Ok(RunReport {
            traffic: Traffic::of(insns, &self.config),
            wall: start.elapsed(),
            cycles: None,
            marks: crate::mark_reports(insns, marks, &self.config, &walls),
            leftover_tokens,
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
        if self.planning == Planning::AtOnce
            && let Ok(plan) = self.plan(insns, marks, memory, true)
        {
            return Ok(self.run_plan(Arc::new(plan), memory));
        }
        self.run_direct(insns, marks, memory)
    }

    fn run_batch(
        &mut self,
        batch: &Arc<Batch>,
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        let known = self.known.iter().position(|k| Arc::ptr_eq(&k.batch, batch));
        let form = known.map(|index| self.known.remove(index).form);
        let (form, plan) = self.next_form(form, batch, memory);
        if self.known.len() == MOST_KNOWN {
            self.known.remove(0);
        }
        self.known.push(Known {
            batch: Arc::clone(batch),
            form,
        });
        match plan {
            Some(plan) => Ok(self.run_plan(plan, memory)),
            None => self.run_direct(&batch.insns, &batch.marks, memory),
        }
    }
}

impl Functional {
    /// How a batch runs the next time, and the plan with which it runs now, if it does.
    fn next_form(
        &mut self,
        form: Option<Form>,
        batch: &Batch,
        memory: &DeviceMemory,
    ) -> (Form, Option<Arc<Plan>>) {
        let came_before = form.is_some();
        let fixed_inputs = match form {
            None => true,
            Some(Form::Direct) => return (Form::Direct, None),
            Some(Form::Planned(plan, mut versions)) => {
                if plan.holds(memory, &mut versions) {
                    return (Form::Planned(Arc::clone(&plan), versions), Some(plan));
                }
                // Inputs that were taken as constants and have changed are data after all.
                let fixed_inputs = plan.layout != memory.layout();
                if self.planning != Planning::AtOnce {
                    return (Form::Seen { fixed_inputs }, None);
                }
                fixed_inputs
            }
            Some(Form::Seen { fixed_inputs }) => fixed_inputs,
        };
        let now = match self.planning {
            Planning::Again => came_before,
            Planning::AtOnce => true,
            Planning::Never => false,
        };
        if !now {
            return (Form::Seen { fixed_inputs }, None);
        }
        match self.plan(&batch.insns, &batch.marks, memory, fixed_inputs) {
            Err(Unplanned::Fault | Unplanned::Pattern) => (Form::Direct, None),
            Ok(plan) if plan.once && self.planning == Planning::Again => {
                (Form::Direct, Some(Arc::new(plan)))
            }
            Ok(plan) if plan.once => (Form::Seen { fixed_inputs }, Some(Arc::new(plan))),
            Ok(plan) => {
                let (versions, plan) = (plan.versions(memory), Arc::new(plan));
                (Form::Planned(Arc::clone(&plan), versions), Some(plan))
            }
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_fusions;
#[cfg(test)]
mod tests_threads;
