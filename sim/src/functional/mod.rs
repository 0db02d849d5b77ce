//! The fast functional executor: the oracle's results at the speed of the CPU.
//!
//! A batch is decoded once into a [`plan::Plan`]: its tokens are resolved into one order, GEMM
//! instructions become blocked matrix products whose weights are laid out for the kernel, and
//! resets, residuals, ALU steps and stores are fused into the products that they belong to.
//! Running a plan reads no instruction and no micro-op. Plans are kept for batches that are
//! submitted again, as long as their micro-ops and weights in DRAM haven't been written to.
//!
//! What can't be planned is run one instruction at a time, with the same bits; faulty programs
//! among it, so that everything before the fault has its effect.

mod build;
mod columns;
mod draft;
mod emit;
mod fuse;
mod interpret;
mod matmul;
mod plan;
mod run;
mod scratchpads;

use std::sync::Arc;
use std::time::{Duration, Instant};

use vta_driver::{Batch, DeviceMemory, LayerMark, RunReport, Traffic};
use vta_isa::tokens::{self, At};
use vta_isa::{Config, Insn, Module};

use self::build::Unplanned;
use self::plan::Plan;
use self::scratchpads::Scratchpads;
use crate::error::SimError;
use crate::kernels::GemmKernel;
use crate::{Executor, StepBudget};

/// Plans that are kept: the batches of a few recordings.
const MOST_PLANS: usize = 32;

/// The fast executor. Scratchpads keep their contents between runs.
pub struct Functional {
    config: Config,
    pads: Scratchpads,
    max_steps: u64,
    /// Most recently used last. A plan keeps its batch, so that no other can have its address.
    plans: Vec<(Arc<Batch>, Arc<Plan>)>,
    /// The plan whose micro-ops and weights the scratchpads should hold but don't yet.
    pending: Option<Arc<Plan>>,
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
            max_steps: crate::DEFAULT_MAX_STEPS,
            plans: Vec::new(),
            pending: None,
        }
    }

    /// Limits the GEMM and ALU steps of one run.
    #[must_use]
    pub fn with_max_steps(mut self, max_steps: u64) -> Self {
        self.max_steps = max_steps;
        self.plans.clear();
        self
    }

    /// The kernel in use.
    pub fn kernel(&self) -> GemmKernel {
        self.pads.kernel
    }

    /// Makes the plan of a batch.
    fn plan(
        &self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &DeviceMemory,
    ) -> Result<Plan, Unplanned> {
        let mut trace = build::trace(insns, marks, &self.config, memory, self.max_steps)?;
        let drafts = std::mem::take(&mut trace.drafts);
        let columns = self.pads.kernel.columns();
        let drafts = fuse::fuse(drafts, self.pads.lanes, columns);
        let mut emitter = emit::Emitter::new(memory, &self.pads);
        let ops = emitter.ops(drafts)?;
        let mut regions = std::mem::take(&mut emitter.constants);
        regions.extend(trace.constants.iter().map(|span| span.region));
        let constants = regions.into_iter().map(|r| (r, memory.version(r)));
        let constants = constants.collect();
        let uops = trace.uops.iter().enumerate();
        let weights = trace.weights.iter().enumerate();
        Ok(Plan {
            ops,
            layout: memory.layout(),
            constants,
            uops: uops
                .filter_map(|(i, uop)| Some((i as u16, (*uop)?)))
                .collect(),
            weights: weights
                .filter_map(|(i, w)| Some((i as u16, emitter.tile(w.as_ref()?).into())))
                .collect(),
            traffic: Traffic::of(insns, &self.config),
            marks: crate::mark_reports(insns, marks, &self.config, &[]),
            leftover_tokens: trace.leftover_tokens,
        })
    }

    /// Runs a plan. Its micro-ops and weights reach the scratchpads when somebody needs them.
    fn run_plan(&mut self, plan: Arc<Plan>, memory: &mut DeviceMemory) -> RunReport {
        let start = Instant::now();
        if self
            .pending
            .as_ref()
            .is_some_and(|p| !Arc::ptr_eq(p, &plan))
        {
            self.settle();
        }
        let walls = run::run(&plan, &mut self.pads, memory);
        let mut marks = plan.marks.clone();
        for (mark, wall) in marks.iter_mut().zip(walls) {
            mark.wall = wall;
        }
        let report = RunReport {
            traffic: plan.traffic,
            wall: start.elapsed(),
            cycles: None,
            marks,
            leftover_tokens: plan.leftover_tokens,
        };
        self.pending = Some(plan);
        report
    }

    /// Writes micro-ops and weights of the last plan into the scratchpads.
    fn settle(&mut self) {
        let Some(plan) = self.pending.take() else {
            return;
        };
        for &(index, uop) in &plan.uops {
            self.pads.uop[usize::from(index)] = uop;
        }
        let size = self.pads.weight_tile_bytes();
        for (tile, bytes) in &plan.weights {
            let at = usize::from(*tile) * size;
            self.pads.wgt[at..at + size].copy_from_slice(bytes);
        }
    }

    /// One instruction at a time.
    fn interpret(
        &mut self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        self.settle();
        let start = Instant::now();
        let mut steps = StepBudget::new(self.max_steps);
        let mut laps = run::Laps::default();
        let mut next = 0;
        let leftover_tokens = tokens::run_in_token_order(insns, |index, insn| {
            let at = At { index, insn: *insn };
            steps.spend(&at)?;
            if insn.module() == Module::Compute {
                while marks.get(next).is_some_and(|m| m.first_insn <= index) {
                    laps.begin(next);
                    next += 1;
                }
            }
            interpret::execute(&mut self.pads, &self.config, &at, memory)
        })?;
        let walls: Vec<Duration> = laps.finish();
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
        match self.plan(insns, marks, memory) {
            Ok(plan) => Ok(self.run_plan(Arc::new(plan), memory)),
            Err(Unplanned::Fault | Unplanned::Pattern) => self.interpret(insns, marks, memory),
        }
    }

    fn run_batch(
        &mut self,
        batch: &Arc<Batch>,
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        let known = self.plans.iter().position(|(b, _)| Arc::ptr_eq(b, batch));
        if let Some(index) = known {
            let entry = self.plans.remove(index);
            if entry.1.holds(memory) {
                let plan = Arc::clone(&entry.1);
                self.plans.push(entry);
                return Ok(self.run_plan(plan, memory));
            }
        }
        let Ok(plan) = self.plan(&batch.insns, &batch.marks, memory) else {
            return self.interpret(&batch.insns, &batch.marks, memory);
        };
        let plan = Arc::new(plan);
        if self.plans.len() == MOST_PLANS {
            self.plans.remove(0);
        }
        self.plans.push((Arc::clone(batch), Arc::clone(&plan)));
        Ok(self.run_plan(plan, memory))
    }
}
