//! `vta sweep`: cycles over a grid of configurations and boards.

mod area;
mod grid;
mod picture;
mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde_json::json;
use vta_compiler::qgraph::QGraph;
use vta_compiler::{layer, lower, passes};
use vta_driver::{
    Batch, Device, DeviceInfo, Program, QueueLimits, RunReport, Runner, Session, WorkerDevice,
};
use vta_isa::Config;
use vta_sim::cycle::{TimingConfig, simulate};
use vta_sim::views::{EnergyTable, LayerCycles, LayerTotals};

use crate::args::SweepArgs;
use crate::cycle;
use crate::model::{self, Model};
use crate::report::print_line;
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

/// Runs the sweep; whether every point of the grid has a result.
pub fn sweep(args: &SweepArgs) -> Result<bool> {
    ensure!(args.threads != Some(0), "--threads must be at least 1");
    let config = model::config(args.config.as_ref())?;
    let (_, timing) = cycle::timing(&args.timing)?;
    let mut grid = Grid::new(&args.vary, &config, &timing)?;
    let graph = graph(&args.model)?;
    let file = Path::new(&args.model);
    if file.is_file() {
        grid = grid.of_file(&model::read_file(file)?);
    }
    let table = Table::open(&args.output, &args.model, &grid)?;
    let missing: Vec<Point> = grid
        .points()
        .filter(|point| !table.has(&point.values))
        .collect();
    let (resumed, computed) = (grid.len() - missing.len(), missing.len());
    let bar = progress(missing.len(), args.json);
    let table = Mutex::new(table);
    let compiled = Mutex::new(BTreeMap::new());
    let measure = |point: &Point| -> Result<()> {
        let row = Row {
            values: point.values.clone(),
            outcome: outcome(&graph, point, &compiled),
        };
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        table.append(row)?;
        bar.inc(1);
        Ok(())
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.threads.unwrap_or(0))
        .build()?;
    pool.install(|| missing.par_iter().try_for_each(measure))?;
    bar.finish_and_clear();
    let table = table.into_inner().unwrap_or_else(PoisonError::into_inner);
    let rows = table.finish(&grid)?;
    if let Some(path) = &args.picture {
        let picture = picture::pareto(&args.model, &grid, &rows);
        std::fs::write(path, picture).with_context(|| path.display().to_string())?;
    }
    summary(args, &grid, &rows, [resumed, computed])
}

/// The network, or the layer as a network.
///
/// # Errors
/// A compiled program, a float model, a file that can't be read.
pub fn graph(name: &str) -> Result<QGraph> {
    let is_layer = ["conv:", "dw:", "gemm:", "resnet18."];
    let looks_like_one = is_layer.iter().any(|start| name.starts_with(start));
    match layer::parse(name) {
        Ok(spec) => return Ok(layer::build(&spec, 1)?),
        Err(error) if looks_like_one && !Path::new(name).exists() => {
            return Err(error.into());
        }
        Err(_) => {}
    }
    match model::load(name)? {
        Model::Program(_) | Model::Hosted(_) => {
            bail!("{name} is compiled already, so that it can't be varied")
        }
        Model::Graph(graph) => {
            ensure!(
                model::is_quantised(&graph),
                "{name} is a float model: run `vta quantize` first"
            );
            Ok(passes::quantized(&graph)?)
        }
    }
}

fn progress(points: usize, quiet: bool) -> ProgressBar {
    if quiet || points < 2 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} points, {eta} left");
    ProgressBar::new(points as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
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
    let input = program.inputs.first().context("the program has no input")?;
    let image = vec![0i8; program.tensor(*input)?.image_len() as usize];
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
    let mut layers = cycle::merge(parts.iter());
    cycle::leave_out_additions(&mut layers, &lowered.program);
    let mut total = LayerCycles::default();
    layers.iter().for_each(|layer| total.add(layer));
    Ok(Measured {
        cycles: total.cycles,
        images: config.batch() as u64,
        bound_cycles: layers.iter().map(|l| l.bound.cycles()).sum(),
        macs: lowered.macs,
        utilization: cycle::utilization(&total, lowered.macs, 1),
        dram_bytes: total.dram_bytes(),
        energy_uj: total.energy(&EnergyTable::default()).total_pj() / 1e6,
        area_mm2: area::estimate(config, timing).total_mm2(),
    })
}

fn summary(
    args: &SweepArgs,
    grid: &Grid,
    rows: &[Row],
    [resumed, computed]: [usize; 2],
) -> Result<bool> {
    let front = picture::front(rows);
    let failed = rows.iter().filter(|r| r.outcome.is_err()).count();
    let describe = |row: &Row| {
        let pairs = grid
            .keys()
            .zip(&row.values)
            .map(|(k, v)| format!("{k}={v}"));
        pairs.collect::<Vec<_>>().join(" ")
    };
    if args.json {
        let point = |&i: &usize| {
            let row = &rows[i];
            let measured = row.outcome.as_ref().ok();
            json!({
                "point": describe(row),
                "cycles": measured.map(|m| m.cycles),
                "area_mm2": measured.map(|m| m.area_mm2),
            })
        };
        let object = json!({
            "model": args.model, "points": rows.len(), "resumed": resumed, "computed": computed,
            "failed": failed, "pareto": front.iter().map(point).collect::<Vec<_>>(),
        });
        print_line(&serde_json::to_string_pretty(&object)?)?;
        return Ok(failed == 0);
    }
    print_line(&format!(
        "{}: {} points, {computed} computed, {resumed} found in {}",
        args.model,
        rows.len(),
        args.output.display()
    ))?;
    print_line("best cycles an image for their area:")?;
    for &i in &front {
        if let Ok(m) = &rows[i].outcome {
            print_line(&format!(
                "  {:>12.0} cycles  {:>6.2} mm2  {}",
                m.cycles_per_image(),
                m.area_mm2,
                describe(&rows[i])
            ))?;
        }
    }
    for row in rows {
        if let Err(error) = &row.outcome {
            print_line(&format!("failed: {}: {error}", describe(row)))?;
        }
    }
    Ok(failed == 0)
}
