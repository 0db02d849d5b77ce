//! Plans that threads of their own make, while batches run without them, and that all executors of the process find by
//! what they are of.
//!
//! Such a plan is made of an [excerpt](DeviceMemory::excerpt) of the memory, which is kept with it: an executor whose
//! batch, machine and constants are the same has the same plan. It lives as long as an executor has it, and a thread
//! gives up when nobody waits for its plan. It works as long as runs of the batch took, and sleeps until the next.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use web_time::Instant;

use vta_driver::{Batch, DeviceMemory, Span};
use vta_isa::resolve::merge;
use vta_isa::{Config, Insn};

use super::plan::build::span;
use super::plan::{Limits, Plan, Subject};
use super::run::scratchpads::Scratchpads;
use super::threads::schedule::Schedule;
use crate::kernels::GemmKernel;

/// After which a thread that sleeps looks whether anybody waits for its plan.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

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

/// A plan that is made, or was.
pub(super) struct Shared {
    machine: Machine,
    batch: Arc<Batch>,
    fixed_inputs: bool,
    /// What the batch loads, as it was.
    memory: DeviceMemory,
    /// What the thread may still take, and whether there is more of it now.
    allowance: Mutex<Duration>,
    allowed: Condvar,
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
        let found = all.iter().filter_map(Weak::upgrade);
        let mut found = found.filter(|shared| shared.machine == *machine);
        found.find(|shared| same(&shared.batch, batch) && shared.memory.has_regions_of(memory))
    }

    /// Starts making a plan; `None` if there is no thread or no room for it. What the batch reads and doesn't store is
    /// taken from `memory`, micro-ops and weights that it doesn't load from `pads`.
    pub fn start(
        machine: Machine,
        batch: &Arc<Batch>,
        memory: &DeviceMemory,
        fixed_inputs: bool,
        pads: &Scratchpads,
    ) -> Option<Arc<Self>> {
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
            made: OnceLock::new(),
        });
        let (pads, making) = (pads.own_constants(), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("vta-plan".to_owned());
        thread.spawn(move || making.make(&pads)).ok()?;
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::downgrade(&shared));
        Some(shared)
    }

    fn make(self: &Arc<Self>, pads: &Scratchpads) {
        let machine = &self.machine;
        let subject = Subject {
            config: &machine.config,
            pads,
            limits: machine.limits,
            insns: &self.batch.insns,
            marks: &self.batch.marks,
            memory: &self.memory,
            fixed_inputs: self.fixed_inputs,
        };
        // The run that starts it copies what it is made of, which is enough for one.
        let wanted = Cell::new(self.wait(Duration::ZERO));
        let began = Cell::new(Instant::now());
        let go_on = || {
            wanted.set(wanted.get() && self.wait(began.get().elapsed()));
            began.set(Instant::now());
            wanted.get()
        };
        let unwinding = std::panic::AssertUnwindSafe(|| {
            let plan = subject.plan(&go_on).ok().filter(|plan| !plan.once)?;
            if machine.threads > 1 {
                let (threads, cost) = (machine.threads, machine.least_cost_ns);
                let make = || Schedule::new(&plan.ops, pads, threads, cost);
                plan.schedule.get_or_init(make);
            }
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
        let mut left = self
            .allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(taken);
        while left.is_zero() && wanted() {
            let woken = self.allowed.wait_timeout(left, LONGEST_SLEEP);
            left = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        wanted()
    }

    /// Lets the thread take as long as a run took: runs that wait for a plan cost at most about twice as much.
    pub fn allow(&self, run: Duration) {
        let mut left = self
            .allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *left = run;
        self.allowed.notify_one();
    }

    /// The plan, once it is made; inside, `None` if there is none.
    pub fn made(&self) -> Option<Option<&Arc<Plan>>> {
        self.made.get().map(Option::as_ref)
    }

    /// Whether the plan's constants are in that memory, which has the same allocations.
    pub fn holds(&self, plan: &Plan, memory: &DeviceMemory) -> bool {
        self.memory.has_regions_of(memory) && plan.same_constants(&self.memory, memory)
    }

    /// Whether inputs were taken as constants.
    pub fn fixed_inputs(&self) -> bool {
        self.fixed_inputs
    }
}
