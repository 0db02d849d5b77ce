//! Cycles over a grid of configurations and boards.

mod area;
pub mod grid;
pub mod picture;
pub mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use vta_compiler::lower;
use vta_compiler::qgraph::{QGraph, QOp};
use vta_driver::output;
use vta_driver::{
    Batch, Device, DeviceInfo, Program, QueueLimits, RunReport, Runner, Session, WorkerDevice,
};
use vta_isa::Config;
use vta_sim::cycle::{TimingConfig, simulate};
use vta_sim::views::{EnergyTable, LayerCycles, LayerTotals};

use crate::error::{Result, ensure};
use crate::machine::{ConfigSource, Machine, Wanted};
use crate::timed::{leave_out_additions, merge, utilization};
use crate::watch::Watch;
use crate::{files, model, room};
use grid::{Grid, Point};
use table::{Measured, Row, Table};

/// A compiled program as its device gets it, or why it can't be compiled.
type Compiled = Result<Arc<Lowered>, String>;

/// One pass over a program.
struct Lowered {
    program: Arc<Program>,
    batches: Vec<Arc<Batch>>,
    /// Useful multiply-adds of all BATCH images.
    macs: u64,
}

/// What is swept, and where the results go.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// A network or a layer.
    pub model: String,
    /// `KEY=V1,V2,..`, an axis each.
    pub vary: Vec<String>,
    /// Configuration of all that isn't varied; `None` is the default instance.
    pub config: Option<ConfigSource>,
    /// The board, whose limits hold for all points; `None` is a machine of one's own.
    pub board: Option<String>,
    /// Timing of all that isn't varied; `None` is the board's, or `pynq`.
    pub timing: Option<String>,
    /// The table; rows that are there already are not computed again.
    pub output: PathBuf,
    /// A picture of cycles against area to write.
    pub picture: Option<PathBuf>,
    /// Points to compute side by side, at least 1; `None` is one for each core.
    pub threads: Option<usize>,
}

/// A finished sweep.
pub struct Swept {
    /// The axes.
    pub grid: Grid,
    /// A row for each point, in the grid's order.
    pub rows: Vec<Row>,
    /// Points that were in the table already.
    pub resumed: usize,
    /// Points that were computed now.
    pub computed: usize,
}

/// Runs the sweep. A point that can't be computed has its reason in its row.
///
/// # Errors
/// A grid, model or file that can't be read, a table or picture that can't be written.
pub fn sweep(args: &SweepOptions, watch: &dyn Watch) -> Result<Swept> {
    ensure!(args.threads != Some(0), "`threads` must be at least 1");
    let machine = Machine::read(Wanted {
        config: args.config.as_ref(),
        board: args.board.as_deref(),
        timing: args.timing.as_deref(),
    })?;
    if let Some(text) = machine.misfit_of_config() {
        watch.note(&text);
    }
    let mut grid = Grid::new(&args.vary, &machine.config, &machine.timing)?.on(machine.board);
    let graph = model::layer_or_network(&args.model)?;
    room::ask(compiling(&graph, args.threads), || args.model.clone())?;
    let file = Path::new(&args.model);
    if file.is_file() {
        grid = grid.of_file(&files::read_file(file)?);
    }
    let table = Table::open(&args.output, &args.model, &grid)?;
    let missing: Vec<Point> = grid
        .points()
        .filter(|point| !table.has(&point.values))
        .collect();
    let (resumed, computed) = (grid.size() - missing.len(), missing.len());
    watch.progress(0, computed);
    let done = AtomicUsize::new(0);
    let table = Mutex::new(table);
    let compiled = Mutex::new(BTreeMap::new());
    let measure = |point: &Point| -> Result<()> {
        let row = Row {
            values: point.values.clone(),
            outcome: outcome(&graph, point, &compiled),
        };
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        table.append(row)?;
        let before = done.fetch_add(1, Ordering::Relaxed);
        watch.progress(before + 1, computed);
        Ok(())
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.threads.unwrap_or(0))
        .build()?;
    pool.install(|| missing.par_iter().try_for_each(measure))?;
    let table = table.into_inner().unwrap_or_else(PoisonError::into_inner);
    let rows = table.finish(&grid)?;
    if let Some(path) = &args.picture {
        let picture = picture::pareto(&args.model, &grid, &rows);
        output::write(path, picture)?;
    }
    Ok(Swept {
        grid,
        rows,
        resumed,
        computed,
    })
}

/// Bytes while each thread compiles the network.
fn compiling(graph: &QGraph, threads: Option<usize>) -> u64 {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or_else(cores) as u64;
    let weights = graph.nodes.iter().filter_map(|node| match &node.op {
        QOp::Conv { weights, .. } => Some(weights.len() as u64),
        _ => None,
    });
    let each = weights.sum::<u64>().saturating_mul(room::PER_WEIGHT);
    each.saturating_mul(threads)
}

/// What a point takes. Programs are compiled once for each configuration.
fn outcome(
    graph: &QGraph,
    point: &Point,
    compiled: &Mutex<BTreeMap<String, Arc<Mutex<Option<Compiled>>>>>,
) -> Result<Measured, String> {
    let (config, timing) = point.machine.as_ref().map_err(Clone::clone)?;
    let slot = {
        let mut compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(compiled.entry(config.to_json()).or_default())
    };
    // Points of the same configuration wait here for the first one to compile.
    let lowered = slot
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_with(|| {
            lower_for(graph, config)
                .map(Arc::new)
                .map_err(|e| format!("{e:#}"))
        })
        .clone()?;
    measure(&lowered, config, timing).map_err(|e| e.to_string())
}

/// Compiles for a configuration and records what one pass submits.
fn lower_for(graph: &QGraph, config: &Config) -> Result<Lowered> {
    let program = Arc::new(lower::compile(
        graph,
        config,
        &lower::LowerOptions::default(),
    )?);
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&recorded);
    let runner: Runner = Box::new(move |batch, _| {
        let mut batches = sink.lock().unwrap_or_else(PoisonError::into_inner);
        batches.push(Arc::clone(batch));
        Ok(RunReport::default())
    });
    let info = DeviceInfo {
        name: "recorder".to_owned(),
        config: config.clone(),
    };
    let device: Arc<dyn Device> = Arc::new(WorkerDevice::new(info, runner));
    let mut session = Session::new(Arc::clone(&program), device, QueueLimits::default())?;
    let image = vec![0i8; program.input_len()?];
    session.run(&[&image])?;
    let batches = std::mem::take(&mut *recorded.lock().unwrap_or_else(PoisonError::into_inner));
    let macs = program.layers.iter().map(|l| l.macs).sum::<u64>() * config.batch() as u64;
    Ok(Lowered {
        program,
        batches,
        macs,
    })
}

fn measure(
    lowered: &Lowered,
    config: &Config,
    timing: &TimingConfig,
) -> Result<Measured, vta_sim::cycle::CycleError> {
    let mut parts: Vec<LayerCycles> = Vec::new();
    for batch in &lowered.batches {
        let insns = &batch.insns;
        let mut totals = LayerTotals::new(insns, &batch.marks, config, timing);
        let report = simulate(timing, config, insns, batch.insn_addr.0, &mut totals)?;
        parts.extend(totals.finish(&report));
    }
    let mut layers = merge(parts.iter());
    leave_out_additions(&mut layers, &lowered.program);
    let mut total = LayerCycles::default();
    layers.iter().for_each(|layer| total.add(layer));
    Ok(Measured {
        cycles: total.cycles,
        images: config.batch() as u64,
        bound_cycles: layers.iter().map(|l| l.bound.cycles()).sum(),
        macs: lowered.macs,
        utilization: utilization(&total, lowered.macs, 1),
        dram_bytes: total.dram_bytes(),
        energy_uj: total.energy(&EnergyTable::default()).total_pj() / 1e6,
        area_mm2: area::estimate(config, timing).total_mm2(),
    })
}
