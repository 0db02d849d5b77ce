//! The cycle model as a device: results from the functional executor, time from [`cycle`].
//!
//! [`cycle`]: crate::cycle

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use web_time::Instant;

use vta_driver::{
    Batch, Budget, DeviceInfo, DeviceMemory, LayerMark, PhysAddr, RunReport, Runner, WorkerDevice,
};
use vta_isa::Config;

use crate::cycle::{CycleError, CycleReport, Run, TimingConfig, simulate_within};
use crate::hazards::{self, UopSource};
use crate::views::{Buckets, LayerCycles, LayerTotals, Timeline, TraceWriter};
use crate::{Core, Executor, Functional, SimDevice};

/// Buckets of a [`TimedRun`]'s timeline.
const TIMELINE_BUCKETS: usize = 2048;
/// Distinct batches whose timing is kept; later ones are timed anew at every run.
const MAX_KEPT: usize = 256;

/// Whether a cycle device computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// Memory holds what the instructions compute.
    #[default]
    Full,
    /// Only time passes; memory stays as it is.
    TimingOnly,
}

/// A batch with its timing.
#[derive(Clone, Debug)]
pub struct TimedRun {
    words: Vec<u128>,
    insn_addr: PhysAddr,
    marks: Vec<LayerMark>,
    /// Totals of the run.
    pub report: CycleReport,
    /// Layer by layer.
    pub layers: Vec<LayerCycles>,
    /// Over time.
    pub timeline: Buckets,
}

impl TimedRun {
    fn is_of(&self, batch: &Batch) -> bool {
        self.insn_addr == batch.insn_addr && self.words == batch.words && self.marks == batch.marks
    }
}

type Output = Box<dyn Write + Send>;

#[derive(Default)]
struct State {
    runs: Vec<Arc<TimedRun>>,
    trace: Option<TraceWriter<Output>>,
}

/// What cycle devices measured: one entry for each distinct batch, in the order of their first
/// runs. Clones share the entries, and several devices can share one log.
///
/// No timing depends on data, so that a batch that runs again takes the same cycles and isn't
/// simulated again.
#[derive(Clone, Default)]
pub struct CycleLog(Arc<Mutex<State>>);

impl CycleLog {
    /// A log that also writes a trace of every distinct batch, one behind the other.
    pub fn with_trace(trace: TraceWriter<Output>) -> Self {
        let trace = Some(trace);
        Self(Arc::new(Mutex::new(State {
            trace,
            ..State::default()
        })))
    }

    /// The distinct batches so far.
    pub fn runs(&self) -> Vec<Arc<TimedRun>> {
        self.lock().runs.clone()
    }

    /// Ends the trace, if there is one and it isn't ended yet.
    ///
    /// # Errors
    /// The first fault of its output.
    pub fn close_trace(&self) -> io::Result<()> {
        let trace = self.lock().trace.take();
        trace.map_or(Ok(()), |trace| trace.close().map(|_| ()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Entries are added whole, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, batch: &Batch) -> Option<Arc<TimedRun>> {
        let state = self.lock();
        state.runs.iter().find(|run| run.is_of(batch)).cloned()
    }

    fn time(
        &self,
        batch: &Batch,
        config: &Config,
        timing: &TimingConfig,
        budget: &Budget,
    ) -> Result<Arc<TimedRun>, CycleError> {
        let mut state = self.lock();
        if let Some(run) = state.runs.iter().find(|run| run.is_of(batch)) {
            return Ok(Arc::clone(run));
        }
        let insns = &batch.insns;
        let views = (
            LayerTotals::new(insns, &batch.marks, config, timing),
            Timeline::new(insns, TIMELINE_BUCKETS),
        );
        let trace = state.trace.as_mut();
        let mut listener = (views, trace.map(|t| t.run(insns, &batch.marks)));
        let run = Run {
            insns,
            insn_addr: batch.insn_addr.0,
        };
        let report = simulate_within(budget, timing, config, run, &mut listener)?;
        if !report.stuck.is_empty() {
            let stuck = report.stuck;
            return Err(CycleError::StuckBehindFinish { stuck });
        }
        let ((layers, timeline), trace) = listener;
        if let Some(trace) = trace {
            trace.finish(&report);
        }
        let run = Arc::new(TimedRun {
            words: batch.words.clone(),
            insn_addr: batch.insn_addr,
            marks: batch.marks.clone(),
            layers: layers.finish(&report),
            timeline: timeline.finish(&report),
            report,
        });
        if state.runs.len() < MAX_KEPT {
            state.runs.push(Arc::clone(&run));
        }
        Ok(run)
    }
}

impl SimDevice {
    /// The cycle-level simulator: [`RunReport::cycles`] is set, and `log` keeps the views. A
    /// batch with an ALU hazard, on which the RTL aborts, is refused.
    pub fn cycle(
        config: Config,
        timing: TimingConfig,
        execution: Execution,
        log: CycleLog,
    ) -> WorkerDevice {
        let machine = CycleMachine {
            config,
            timing,
            core: Core::Own,
            budget: Budget::default(),
        };
        machine.device(execution, log)
    }
}

/// What a cycle device simulates.
#[derive(Clone, Debug)]
pub struct CycleMachine {
    /// What programs are for.
    pub config: Config,
    /// How long they take.
    pub timing: TimingConfig,
    /// Whose core it is: on that of the original RTL a program that does something else there is refused.
    pub core: Core,
    /// What a batch may ask for.
    pub budget: Budget,
}

impl CycleMachine {
    /// The cycle-level simulator as a device, as [`SimDevice::cycle`]. On a board with the original RTL a batch that
    /// does something else there ([`hazards::deviations`]) is refused, too. Whether the board has what the
    /// configuration asks for is the caller's to find out ([`Board::admit`](crate::Board::admit)).
    pub fn device(self, execution: Execution, log: CycleLog) -> WorkerDevice {
        let config = self.config.clone();
        let name = "cycle".to_owned();
        WorkerDevice::new(DeviceInfo { name, config }, self.runner(execution, log))
    }

    /// What such a device runs batches with, for who compares another device with it.
    pub fn runner(self, execution: Execution, log: CycleLog) -> Runner {
        let functional = Functional::new(self.config.clone());
        let mut functional = functional.with_max_steps(self.budget.steps);
        Box::new(move |batch, memory| {
            let executor = match execution {
                Execution::Full => Some(&mut functional),
                Execution::TimingOnly => None,
            };
            self.run(batch, memory, executor, &log)
        })
    }

    fn run(
        &self,
        batch: &Arc<Batch>,
        memory: &mut DeviceMemory,
        executor: Option<&mut Functional>,
        log: &CycleLog,
    ) -> Result<RunReport, String> {
        let started = Instant::now();
        let config = &self.config;
        let uops = UopSource::Memory(memory);
        let edges = match self.core {
            Core::Rtl => hazards::deviations(config, &batch.insns, uops),
            Core::Own => Vec::new(),
        };
        if let Some(edge) = edges.first() {
            return Err(edge.to_string());
        }
        if let Some(hazard) = hazards::first_alu_hazard(config, &batch.insns, uops) {
            return Err(format!("the RTL aborts: {hazard}"));
        }
        let compute = || executor.map(|e| e.run_batch(batch, memory));
        let time = || log.time(batch, config, &self.timing, &self.budget);
        let (computed, timed) = match log.known(batch) {
            Some(timed) => (compute(), Ok(timed)),
            None => both(compute, time)?,
        };
        let computed = computed.transpose().map_err(|e| e.to_string())?;
        let timed = timed.map_err(|e| e.to_string())?;
        let report = computed.unwrap_or_else(|| RunReport {
            leftover_tokens: timed.report.leftover_tokens,
            ..RunReport::of(&batch.insns, &batch.marks, config)
        });
        Ok(RunReport {
            cycles: Some(timed.report.cycles),
            wall: started.elapsed(),
            ..report
        })
    }
}

/// Time doesn't depend on data, so both go side by side; one after the other where the system has
/// no thread.
fn both<C, T: Send>(
    compute: impl FnOnce() -> C,
    time: impl Fn() -> T + Sync,
) -> Result<(C, T), String> {
    thread::scope(|scope| {
        let timing = thread::Builder::new().spawn_scoped(scope, &time);
        let computed = compute();
        match timing {
            Ok(timing) => match timing.join() {
                Ok(timed) => Ok((computed, timed)),
                Err(_) => Err("the cycle model panicked".to_owned()),
            },
            Err(_) => Ok((computed, time())),
        }
    })
}

#[cfg(test)]
mod tests;
