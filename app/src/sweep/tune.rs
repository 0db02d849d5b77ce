//! Tiles chosen by counting cycles: `vta-compiler` proposes them, a machine's cycle model measures.

use std::sync::Arc;

use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::QGraph;
use vta_compiler::tune::{self, Cache, Job, Subject};
use vta_driver::{Program, QueueLimits, Session};
use vta_sim::{CycleLog, Execution};

use crate::device::machine::Machine;
use crate::error::{Error, Result, ensure};
use crate::options::names::{CANDIDATES, said};
use crate::watch::Watch;

/// What tuning has gained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Shapes that the cache didn't know and that were measured now.
    pub measured: usize,
    /// Cycles of a pass with the tiles of the search alone.
    pub untuned_cycles: u64,
    /// Cycles of a pass with those of the cache.
    pub cycles: u64,
}

/// Measures the `candidates` cheapest tiles, at least 1, of every distinct convolution that the
/// cache doesn't know for a machine, and adds the fastest.
///
/// # Errors
/// What can't be lowered or measured; [`Error::Cancelled`] when `watch` says so. What was measured
/// before stays in the cache.
pub fn tune(
    graph: &QGraph,
    machine: &Machine,
    candidates: usize,
    cache: &mut Cache,
    watch: &dyn Watch,
) -> Result<Tuned> {
    let options = LowerOptions::default();
    let job = job(graph, machine, candidates, &options);
    let untuned_cycles = total(graph, machine, &Cache::new())?;
    let measure = |program: &Program| {
        if watch.cancelled() {
            return Err(Error::Cancelled.to_string());
        }
        cycles(program, machine).map_err(|e| e.to_string())
    };
    let mut observe = |done, all| watch.progress(done, all);
    let measured = tune::tune(&job, cache, &measure, &mut observe);
    if watch.cancelled() {
        return Err(Error::Cancelled);
    }
    Ok(Tuned {
        measured: measured?,
        untuned_cycles,
        cycles: total(graph, machine, cache)?,
    })
}

fn job<'a>(
    graph: &'a QGraph,
    machine: &'a Machine,
    candidates: usize,
    options: &'a LowerOptions,
) -> Job<'a> {
    Job {
        graph,
        config: &machine.config,
        options,
        timing: &machine.name,
        candidates,
    }
}

/// Cycles of a pass with a cache's tiles; with those of the search alone for an empty one.
fn total(graph: &QGraph, machine: &Machine, cache: &Cache) -> Result<u64> {
    let options = LowerOptions::default();
    let (config, name) = (&machine.config, &machine.name);
    let tiles = tune::tiles(cache, graph, config, &options, name)?;
    cycles(
        &lower::compile_with(graph, config, &options, &tiles)?,
        machine,
    )
}

/// The same in pieces, which may be measured side by side and anywhere: one for each distinct
/// convolution.
pub struct Tuner {
    graph: QGraph,
    machine: Machine,
    candidates: usize,
    subjects: Vec<Subject>,
}

impl Tuner {
    /// Lowers the network once. `candidates` is at least 1.
    ///
    /// # Errors
    /// What can't be lowered.
    pub fn new(graph: QGraph, machine: Machine, candidates: usize) -> Result<Self> {
        ensure!(candidates > 0, "{} must be at least 1"; CANDIDATES);
        let mut tuner = Self {
            graph,
            machine,
            candidates,
            subjects: Vec::new(),
        };
        tuner.subjects = tune::subjects(&tuner.job(&LowerOptions::default()))?;
        Ok(tuner)
    }

    fn job<'a>(&'a self, options: &'a LowerOptions) -> Job<'a> {
        job(&self.graph, &self.machine, self.candidates, options)
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.subjects.len()
    }

    /// Measures a piece: a cache that knows it alone.
    ///
    /// # Errors
    /// [`Error::Usage`] for a piece that there isn't, what can't be measured.
    pub fn measure(&self, piece: usize) -> Result<Cache> {
        let pieces = self.pieces();
        let subject = self.subjects.get(piece);
        let subject = subject
            .ok_or_else(|| Error::Usage(said!("there is no piece {piece} among {pieces}")))?;
        let measure = |program: &Program| cycles(program, &self.machine).map_err(|e| e.to_string());
        let mut cache = Cache::new();
        let options = LowerOptions::default();
        tune::add(&self.job(&options), subject, &mut cache, &measure)?;
        Ok(cache)
    }

    /// Cycles of a pass with a cache's tiles; with those of the search alone for an empty one.
    ///
    /// # Errors
    /// What can't be lowered or measured.
    pub fn total(&self, cache: &Cache) -> Result<u64> {
        total(&self.graph, &self.machine, cache)
    }
}

/// Cycles of one pass over a program on a machine; nothing is computed.
///
/// # Errors
/// A program that the machine can't run.
pub fn cycles(program: &Program, machine: &Machine) -> Result<u64> {
    let log = CycleLog::default();
    let only = Execution::TimingOnly;
    let device = machine.cycle(machine.config.clone(), only, log.clone())?;
    let program = Arc::new(program.clone());
    let mut session = Session::new(
        Arc::clone(&program),
        Arc::new(device),
        QueueLimits::default(),
    )?;
    session.run(&[&vec![0; program.input_len()?]])?;
    Ok(log.runs().iter().map(|run| run.report.cycles).sum())
}
