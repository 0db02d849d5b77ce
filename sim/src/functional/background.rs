//! Plans that threads of their own make, while batches run without them, and that all executors of the process find by
//! what they are of.
//!
//! Such a plan is made of an [excerpt](DeviceMemory::excerpt) of the memory alone, which is kept with it: an executor whose
//! batch, machine and constants are the same has the same plan. It lives as long as an executor has it, and a thread
//! gives up when nobody waits for its plan. It works about as long as a run of the batch took, and sleeps until the next.

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

/// A plan that is made, or was.
pub(super) struct Shared {
    machine: Machine,
    batch: Arc<Batch>,
    /// Whether inputs are taken as constants.
    pub fixed_inputs: bool,
    /// What the batch loads, as it was.
    memory: DeviceMemory,
    /// What the thread may still take, and whether there is more of it now.
    allowance: Mutex<Duration>,
    allowed: Condvar,
    /// Whether there is a thread, or was, since it was started.
    begun: OnceLock<bool>,
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
            begun: OnceLock::new(),
            made: OnceLock::new(),
        });
        all.push(Arc::downgrade(&shared));
        Some(shared)
    }

    /// Starts the thread, if nobody did; whether there is one. Not in the run that copies what it needs, which takes half
    /// as long again.
    pub fn begin(self: &Arc<Self>, pads: &Scratchpads) -> bool {
        *self.begun.get_or_init(|| {
            self.set_allowance(Duration::ZERO);
            let (pads, making) = (pads.zeroed(), Arc::clone(self));
            let thread = std::thread::Builder::new().name("vta-plan".to_owned());
            thread.spawn(move || making.make(&pads)).is_ok()
        })
    }

    fn make(self: &Arc<Self>, pads: &Scratchpads) {
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
        };
        let go_on = || {
            wanted.set(wanted.get() && self.wait(began.get().elapsed()));
            began.set(Instant::now());
            wanted.get()
        };
        let unwinding = std::panic::AssertUnwindSafe(|| {
            let plan = subject.plan(&go_on).ok()?;
            if machine.threads > 1 {
                let (threads, cost) = (machine.threads, machine.least_cost_ns);
                let make = || Schedule::new(&plan.ops, pads, threads, cost, &go_on);
                plan.schedule.get_or_init(make);
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

    /// Lets the thread take as long as a run took, or half as long where runs are short: they cost at most about twice as
    /// much. Beside longer ones the thread starts now.
    pub fn allow(self: &Arc<Self>, run: Duration, pads: &Scratchpads) {
        if run > BEYOND {
            self.begin(pads);
        }
        self.set_allowance(run.saturating_sub(BEYOND).max(run / 2));
        self.allowed.notify_one();
    }

    fn set_allowance(&self, to: Duration) {
        *self
            .allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = to;
    }

    /// The plan, once it is made; inside, `None` if there is none.
    pub fn made(&self) -> Option<Option<&Arc<Plan>>> {
        self.made.get().map(Option::as_ref)
    }

    /// Whether the plan's constants are in that memory, which has the same allocations.
    pub fn holds(&self, plan: &Plan, memory: &DeviceMemory) -> bool {
        self.memory.has_regions_of(memory) && plan.same_constants(&self.memory, memory)
    }
}
