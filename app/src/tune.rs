//! Tiles chosen by counting cycles: `vta-compiler` proposes them, a machine's cycle model measures.

use std::sync::Arc;

use vta_compiler::lower::{self, LowerOptions, Tiles};
use vta_compiler::qgraph::QGraph;
use vta_compiler::tune::{self, Cache, Job};
use vta_driver::{Program, QueueLimits, Session};
use vta_sim::{CycleLog, Execution};

use crate::error::{Error, Result};
use crate::machine::Machine;
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
    let job = Job {
        graph,
        config: &machine.config,
        options: &options,
        timing: &machine.name,
        candidates,
    };
    let total = |tiles: &Tiles| {
        let program = lower::compile_with(graph, &machine.config, &options, tiles)?;
        cycles(&program, machine)
    };
    let untuned_cycles = total(&Tiles::default())?;
    let measure = |program: &Program| match watch.cancelled() {
        true => Err(Error::Cancelled.to_string()),
        false => cycles(program, machine).map_err(|e| e.to_string()),
    };
    let mut observe = |done, all| watch.progress(done, all);
    let measured = tune::tune(&job, cache, &measure, &mut observe);
    if watch.cancelled() {
        return Err(Error::Cancelled);
    }
    let measured = measured?;
    let tiles = tune::tiles(cache, graph, &machine.config, &options, &machine.name)?;
    Ok(Tuned {
        measured,
        untuned_cycles,
        cycles: total(&tiles)?,
    })
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
