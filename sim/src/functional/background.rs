//! Plans that threads of their own make, while batches run without them, and that all executors of the process find by
//! what they are of.
//!
//! Such a plan is made of an [excerpt](DeviceMemory::excerpt) of the memory alone, which is kept with it: an executor whose
//! batch, machine and constants are the same has the same plan. It lives as long as an executor has it, and a thread
//! gives up when nobody waits for its plan. Beside each run it works for a part of what that takes, and then sleeps.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use web_time::Instant;

use vta_driver::packing::Threads;
use vta_driver::{Batch, DeviceMemory, Span};
use vta_isa::resolve::merge;
use vta_isa::{Config, Insn};

use super::plan::build::span;
use super::plan::{Limits, Plan, Subject};
use super::run::scratchpads::Scratchpads;
use super::threads::schedule::Schedule;
use crate::kernels::GemmKernel;

/// WebAssembly has none: batches wait for their plans.
const HAS_THREADS: bool = !cfg!(target_family = "wasm");
/// After which a thread that sleeps looks whether anybody waits for its plan.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What a run and the thread take together beyond what they take alone, or are allowed.
const BEYOND: Duration = Duration::from_micros(400);

/// What a plan depends on, beside memory.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub config: Config,
    pub kernel: GemmKernel,
    pub limits: Limits,
    pub threads: usize,
    pub least_cost_ns: u64,
    pub staged_inputs: bool,
}

/// What the thread may take.
#[derive(Default)]
struct Allowance {
    left: Duration,
    /// What the shortest run took, or nothing before the first; those beside the thread take longer.
    run: Duration,
}

/// A plan that is made, or was.
pub(super) struct Shared {
    machine: Machine,
    batch: Arc<Batch>,
    /// Whether inputs are taken as constants.
    pub fixed_inputs: bool,
    /// What the batch loads, as it was.
    pub memory: DeviceMemory,
    allowance: Mutex<Allowance>,
    /// Whether there is more of it now.
    allowed: Condvar,
    /// Whether there is a thread, or was, since it was started.
    thread: OnceLock<bool>,
    /// Once the thread has ended; inside, `None` if there is no plan that is good for more than one run.
    made: OnceLock<Option<Arc<Plan>>>,
}

/// All that anybody has.
static ALL: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Whether two batches are the same program.
pub(super) fn same(a: &Batch, b: &Batch) -> bool {
    a.insns == b.insns && a.marks == b.marks
}

impl Shared {
    /// One that somebody has, of the same program in a memory with the same allocations.
    pub fn find(machine: &Machine, batch: &Batch, memory: &DeviceMemory) -> Option<Arc<Self>> {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|shared| shared.strong_count() > 0);
        Self::among(&all, machine, batch, memory).next()
    }

    fn among<'a>(
        all: &'a [Weak<Self>],
        machine: &'a Machine,
        batch: &'a Batch,
        memory: &'a DeviceMemory,
    ) -> impl Iterator<Item = Arc<Self>> + 'a {
        let all = all.iter().filter_map(Weak::upgrade);
        let all = all.filter(|shared| shared.machine == *machine);
        all.filter(|shared| same(&shared.batch, batch) && shared.memory.has_regions_of(memory))
    }

    /// One that somebody has, with inputs taken likewise, or else one that nobody makes yet, of what the batch loads from
    /// that memory; `None` if there is no room for it.
    pub fn of(
        machine: Machine,
        batch: &Arc<Batch>,
        memory: &DeviceMemory,
        fixed_inputs: bool,
    ) -> Option<Arc<Self>> {
        if !HAS_THREADS {
            return None;
        }
        // Others that want the same wait for the copy of memory, and needn't make their own.
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = Self::among(&all, &machine, batch, memory);
        if let Some(known) = known.find(|shared| shared.fixed_inputs == fixed_inputs) {
            return Some(known);
        }
        drop(known);
        let loaded = batch.insns.iter().filter_map(|insn| match insn {
            Insn::Load(load) => span(memory, &load.dram_rows(&machine.config)?).ok(),
            Insn::Store(_)
            | Insn::Gemm(_)
            | Insn::Alu(_)
            | Insn::Depthwise(_)
            | Insn::Finish(_) => None,
        });
        let mut loaded: Vec<Span> = loaded.collect();
        merge(&mut loaded);
        let shared = Arc::new(Self {
            machine,
            batch: Arc::clone(batch),
            fixed_inputs,
            memory: memory.excerpt(&loaded)?,
            allowance: Mutex::default(),
            allowed: Condvar::new(),
            thread: OnceLock::new(),
            made: OnceLock::new(),
        });
        all.push(Arc::downgrade(&shared));
        Some(shared)
    }

    /// Starts the thread, if nobody did, and lets it take two thirds of what a run takes, or a quarter where runs
    /// are short: the next costs less than twice as much. Whether there is a thread.
    pub fn go_on(self: &Arc<Self>, pads: &Scratchpads, threads: &Arc<Threads>) -> bool {
        if !HAS_THREADS {
            return false;
        }
        let mut starts = false;
        let is_there = *self.thread.get_or_init(|| {
            starts = true;
            let (pads, making) = (pads.own_tiles(), Arc::clone(self));
            let threads = Arc::clone(threads);
            let thread = std::thread::Builder::new().name("vta-plan".to_owned());
            thread.spawn(move || making.make(&pads, &threads)).is_ok()
        });
        let mut allowance = self.allowance();
        let least = if starts {
            Duration::ZERO
        } else {
            allowance.run / 4
        };
        allowance.left = least.max(allowance.run.saturating_sub(BEYOND) * 2 / 3);
        self.allowed.notify_one();
        is_there
    }

    fn make(self: &Arc<Self>, pads: &Scratchpads, threads: &Threads) {
        let wanted = Cell::new(self.wait(Duration::ZERO));
        let began = Cell::new(Instant::now());
        let machine = &self.machine;
        let subject = Subject {
            config: &machine.config,
            pads,
            limits: machine.limits,
            insns: &self.batch.insns,
            marks: &self.batch.marks,
            memory: &self.memory,
            fixed_inputs: self.fixed_inputs,
            once: false,
            kept: true,
        };
        let go_on = || {
            wanted.set(wanted.get() && self.wait(began.get().elapsed()));
            began.set(Instant::now());
            wanted.get()
        };
        let unwinding = std::panic::AssertUnwindSafe(|| {
            let plan = subject.plan(&go_on).ok()?;
            if machine.threads > 1 {
                let (count, cost) = (machine.threads, machine.least_cost_ns);
                let make = || Schedule::new(&plan.ops, pads, count, cost, &go_on);
                if plan.schedule.get_or_init(make).is_some() {
                    // Started here, so that no run waits for it.
                    threads.others();
                }
            }
            // The thread ends in a run of its own.
            go_on();
            Some(Arc::new(plan))
        });
        // A fault of the planner has been printed; batches run without a plan, as they did.
        let plan = std::panic::catch_unwind(unwinding).unwrap_or(None);
        // Nobody else sets it.
        let _ = self.made.set(plan);
    }

    /// Takes from the allowance, and waits until there is some or nobody waits for the plan; whether somebody does.
    fn wait(self: &Arc<Self>, taken: Duration) -> bool {
        // The thread's own is one.
        let wanted = || Arc::strong_count(self) > 1;
        let mut allowance = self.allowance();
        allowance.left = allowance.left.saturating_sub(taken);
        while allowance.left.is_zero() && wanted() {
            let woken = self.allowed.wait_timeout(allowance, LONGEST_SLEEP);
            allowance = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        wanted()
    }

    /// Notes what a run took.
    pub fn ran(&self, run: Duration) {
        let mut allowance = self.allowance();
        let first = allowance.run.is_zero();
        allowance.run = if first { run } else { run.min(allowance.run) };
    }

    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        self.allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan, once it is made; inside, `None` if there is none.
    pub fn made(&self) -> Option<Option<&Arc<Plan>>> {
        self.made.get().map(Option::as_ref)
    }
}
