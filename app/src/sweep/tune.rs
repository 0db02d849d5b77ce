//! Tiles chosen by counting cycles: `vta-compiler` proposes them, a machine's cycle model measures.

use std::sync::Arc;

use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::QGraph;
use vta_compiler::tune::{self, Cache, Job, Subject};
use vta_driver::{Program, QueueLimits, Session};
use vta_sim::{CycleLog, Execution, TimedRun};

use crate::device::machine::Machine;
use crate::error::{Error, Result, ensure};
use crate::options::names::CANDIDATES;
use crate::watch::Watch;

/// Chooses tiles for a network's distinct convolutions: for all at once, or for each by itself, side by side and
/// anywhere.
pub struct Tuner {
    graph: QGraph,
    machine: Machine,
    candidates: usize,
    options: LowerOptions,
}

impl Tuner {
    /// Measures the `candidates` cheapest tiles, at least 1, of each convolution.
    ///
    /// # Errors
    /// [`Error::Usage`] for no candidates.
    pub fn new(graph: QGraph, machine: Machine, candidates: usize) -> Result<Self> {
        ensure!(candidates > 0, "{} must be at least 1"; CANDIDATES);
        Ok(Self {
            graph,
            machine,
            candidates,
            options: LowerOptions::default(),
        })
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The network and the machine for [`vta_compiler::tune`].
    pub fn job(&self) -> Job<'_> {
        Job {
            graph: &self.graph,
            config: &self.machine.config,
            options: &self.options,
            timing: &self.machine.name,
            candidates: self.candidates,
        }
    }

    /// Cycles of a pass over a program, for [`vta_compiler::tune`].
    ///
    /// # Errors
    /// In words, a program that the machine can't run.
    pub fn cycles(&self, program: &Program) -> Result<u64, String> {
        cycles(program, &self.machine).map_err(|e| e.to_string())
    }

    /// Measures what the cache doesn't know for the machine, adds the fastest tiles, and gives the number of
    /// shapes that were measured now.
    ///
    /// # Errors
    /// What can't be lowered or measured; [`Error::Cancelled`] when `watch` says so. What was measured
    /// before stays in the cache.
    pub fn tune(&self, cache: &mut Cache, watch: &dyn Watch) -> Result<usize> {
        let measure = |program: &Program| {
            if watch.cancelled() {
                return Err(Error::Cancelled.to_string());
            }
            self.cycles(program)
        };
        let mut observe = |done, all| watch.progress(done, all);
        let measured = tune::tune(&self.job(), cache, &measure, &mut observe);
        // Why a measurement failed is text by now.
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(measured?)
    }

    /// The distinct convolutions.
    ///
    /// # Errors
    /// What can't be lowered.
    pub fn subjects(&self) -> Result<Vec<Subject>> {
        Ok(tune::subjects(&self.job())?)
    }

    /// Measures one: a cache that knows it alone.
    ///
    /// # Errors
    /// What can't be measured.
    pub fn measure(&self, subject: &Subject) -> Result<Cache> {
        let mut cache = Cache::new();
        tune::add(&self.job(), subject, &mut cache, &|program: &Program| {
            self.cycles(program)
        })?;
        Ok(cache)
    }

    /// Cycles of a pass with a cache's tiles; with those of the search alone for an empty one.
    ///
    /// # Errors
    /// What can't be lowered or measured.
    pub fn total(&self, cache: &Cache) -> Result<u64> {
        let (graph, config, options) = (&self.graph, &self.machine.config, &self.options);
        let tiles = tune::tiles(cache, graph, config, options, &self.machine.name)?;
        let program = lower::compile_with(graph, config, options, &tiles)?;
        cycles(&program, &self.machine)
    }
}

/// Cycles of one pass over a program on a machine; nothing is computed.
fn cycles(program: &Program, machine: &Machine) -> Result<u64> {
    let runs = pass(&Arc::new(program.clone()), machine)?;
    Ok(runs.iter().map(|run| run.report.cycles).sum())
}

/// The batches of one pass over a program on a machine, as timed; nothing is computed.
///
/// # Errors
/// A program that the machine can't run.
pub fn pass(program: &Arc<Program>, machine: &Machine) -> Result<Vec<Arc<TimedRun>>> {
    let log = CycleLog::default();
    let only = Execution::TimingOnly;
    let device = machine.cycle(program.config.clone(), only, log.clone())?;
    let limits = QueueLimits::default();
    let mut session = Session::new(Arc::clone(program), Arc::new(device), limits)?;
    session.run(&[&vec![0; program.input_len()?]])?;
    Ok(log.runs())
}
