//! One point of a sweep at a time: what is measured, machines, and the programs that points share.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use vta_compiler::layer;
use vta_compiler::lower;
use vta_compiler::qgraph::{QConv, QGraph, QOp};
use vta_driver::{
    Batch, Device, DeviceInfo, Layer, QueueLimits, RunReport, Runner, Session, WorkerDevice,
};
use vta_isa::Config;
use vta_sim::cycle::{CycleError, TimingConfig, simulate};
use vta_sim::views::{Costs, LayerCycles, LayerTotals};

use super::grid::{Grid, LAYER, MAX_POINTS, MODEL};
use super::row::{Measured, Row};
use crate::device::machine::Machine;
use crate::device::views;
use crate::error::{Context, Error, Result, ensure, message};
use crate::files;
use crate::open::model;
use crate::options::Target;
use crate::options::names::{BOARD, CONFIG, Front, THREADS, TIMING, VARY};
use crate::report::timed::{leave_out_additions, merge, utilization};
use crate::room;
use crate::sweep::topology::{Shape, Workload};
use crate::watch::Watch;

/// Compiled programs that are kept, for each thread: that of its points, and one that it comes back to.
const KEPT_A_THREAD: usize = 2;

/// Measures the points of a grid, in any order and from several threads; which thread measures what and
/// when changes no figure. [`sweep`](super::sweep) is this with a table.
pub struct Sweeper {
    subject: Subject,
    grid: Grid,
    costs: Costs,
    threads: usize,
    programs: Programs,
}

impl Sweeper {
    /// Reads what is measured and the machine. `vary` has an axis each, `KEY=V1,V2,..`. The target says what
    /// isn't varied: its configuration, board or timing, and how many threads measure points side by side, for
    /// which there must be memory for as many programs, and some more stay compiled for points of the same
    /// configuration, and what parts and operations cost.
    ///
    /// # Errors
    /// A grid, model or file that can't be read, no memory to compile the model.
    pub fn open(
        work: &Workload,
        vary: &[String],
        target: &Target,
        watch: &dyn Watch,
    ) -> Result<Self> {
        Self::within(work, vary, target, watch, MAX_POINTS)
    }

    /// As [`open`](Self::open), with a grid of at most so many points.
    pub(super) fn within(
        work: &Workload,
        vary: &[String],
        target: &Target,
        watch: &dyn Watch,
        most: usize,
    ) -> Result<Self> {
        ensure!(target.threads != Some(0), "{} must be at least 1"; THREADS);
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = target.threads.unwrap_or_else(cores);
        let machine = Machine::read(target)?;
        if let Some(text) = machine.misfit_of_config() {
            watch.note(&text);
        }
        let costs = views::costs(target.costs.as_deref())?;
        let grid = Grid::new(vary, &machine.config, &machine.timing)?;
        ensure!(
            !grid.has_boards() || (target.config.is_none() && target.board.is_none() && target.timing.is_none()),
            "{} board: each has a configuration, a time and limits of its own, beside which there is no {}, {} or {}";
            VARY, CONFIG, BOARD, TIMING
        );
        let mut grid = grid.on(machine.board);
        if costs != Costs::default() {
            grid = grid.of_file(costs.to_toml().as_bytes());
        }
        let subject = match &work.layers {
            None => {
                let mut graphs = Vec::with_capacity(work.models.len());
                for (at, name) in work.models.iter().enumerate() {
                    ensure!(!work.models[..at].contains(name), "{name} is given twice");
                    let graph = model::layer_or_network(name)?;
                    let bytes = compiling(&graph).saturating_mul(threads as u64);
                    room::ask(bytes, || name.clone())?;
                    let path = Path::new(name);
                    if path.is_file() {
                        grid = grid.of_file(&files::read_file(path)?);
                    }
                    graphs.push(graph);
                }
                if graphs.len() > 1 {
                    grid = grid.of_layers(MODEL, work.models.iter().map(String::as_str));
                }
                Subject::Networks(graphs)
            }
            Some(layers) => {
                grid = grid.of_file(format!("{layers:?}").as_bytes());
                grid = grid.of_layers(LAYER, layers.iter().map(|(name, _)| name.as_str()));
                Subject::Layers(layers.clone())
            }
        };
        Ok(Self {
            subject,
            grid: grid.of_at_most(most)?,
            costs,
            threads,
            programs: Programs::new(threads.saturating_mul(KEPT_A_THREAD)),
        })
    }

    /// The axes and points.
    pub(super) fn grid(&self) -> &Grid {
        &self.grid
    }

    /// How many points there are.
    pub fn points(&self) -> usize {
        self.grid.size()
    }

    /// A point's keys with their values.
    ///
    /// # Errors
    /// An index that no point has.
    pub fn point(&self, index: usize) -> Result<Vec<(&str, String)>> {
        let values = self.grid.point(index)?.values;
        Ok(self.grid.keys().zip(values).collect())
    }

    /// Points that are measured side by side.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Measures a point, which is its index in the grid. A point that can't be built or compiled has the
    /// reason in its row. Points of the same configuration share what is compiled; they wait for the
    /// first one, so that this is nothing for the threads that compiling itself uses, rayon's.
    ///
    /// # Errors
    /// An index that no point has.
    pub fn measure(&self, index: usize) -> Result<Row> {
        let point = self.grid.point(index)?;
        let outcome = point.machine.and_then(|(config, timing)| {
            let (cycles, macs) = self.cycles(point.layer, &config, &timing)?;
            Ok(measured(&cycles, macs, &config, &timing, &self.costs))
        });
        Ok(Row {
            values: point.values,
            outcome,
        })
    }

    /// Why a point takes so long: all its layers together.
    ///
    /// # Errors
    /// An index that no point has; a point without a result.
    pub(super) fn total(&self, index: usize) -> Result<LayerCycles> {
        let point = self.grid.point(index)?;
        let cycles = point.machine.and_then(|(config, timing)| {
            let (cycles, _) = self.cycles(point.layer, &config, &timing)?;
            Ok(total(&cycles))
        });
        cycles.map_err(Error::input)
    }

    /// What parts and operations cost.
    pub(super) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// A pass's layers, and its useful multiply-adds.
    fn cycles(
        &self,
        layer: usize,
        config: &Config,
        timing: &TimingConfig,
    ) -> Result<(Vec<LayerCycles>, u64), String> {
        let slot = self.programs.slot((layer, config.to_json()));
        let compile = || {
            let graph = self.subject.graph(layer, self.threads);
            let recorded = graph.and_then(|graph| Recorded::new(&graph, config));
            recorded
                .map(Arc::new)
                .map_err(|error| message(&error, Front::Library))
        };
        let recorded = slot.get_or_init(compile).clone()?;
        let cycles = recorded.cycles(config, timing).map_err(|e| e.to_string())?;
        Ok((cycles, recorded.macs))
    }
}

/// What is compiled.
enum Subject {
    /// By the index of the first axis, if there are several.
    Networks(Vec<QGraph>),
    /// Layers, whose weights are made when they are compiled.
    Layers(Vec<(String, Shape)>),
}

impl Subject {
    /// The network, or the layer of an index, for which there must be room on so many threads.
    fn graph(&self, layer: usize, threads: usize) -> Result<Cow<'_, QGraph>> {
        match self {
            Self::Networks(graphs) => graphs
                .get(layer)
                .map(Cow::Borrowed)
                .with_context(|| format!("there is no network {layer}")),
            Self::Layers(layers) => {
                let (name, shape) = layers
                    .get(layer)
                    .with_context(|| format!("there is no layer {layer}"))?;
                let spec = shape.layer(name)?;
                let bytes = crate::run::layer::bytes(&spec).saturating_mul(threads as u64);
                room::ask(bytes, || format!("'{name}'"))?;
                Ok(Cow::Owned(layer::build(&spec, 1)?))
            }
        }
    }
}

/// Bytes while a network is compiled.
fn compiling(graph: &QGraph) -> u64 {
    let weights = graph.nodes.iter().filter_map(|node| match &node.op {
        QOp::Conv(QConv { weights, .. }) => Some(weights.len() as u64),
        _ => None,
    });
    weights.sum::<u64>().saturating_mul(room::PER_WEIGHT)
}

fn total(layers: &[LayerCycles]) -> LayerCycles {
    let mut total = LayerCycles::default();
    layers.iter().for_each(|layer| total.add(layer));
    total
}

fn measured(
    layers: &[LayerCycles],
    macs: u64,
    config: &Config,
    timing: &TimingConfig,
    costs: &Costs,
) -> Measured {
    let total = total(layers);
    Measured {
        cycles: total.cycles,
        pass_ms: total.cycles as f64 / (timing.clock_mhz * 1e3),
        images: config.batch() as u64,
        bound_cycles: layers.iter().map(|l| l.bound.cycles()).sum(),
        macs,
        utilization: utilization(&total, macs, 1),
        dram_bytes: total.dram_bytes(),
        energy_uj: total.energy(costs).total_pj() / 1e6,
        area_mm2: costs.area_mm2(config, timing),
    }
}

/// What is compiled for a configuration, or why it can't be; empty until it is.
type Slot = Arc<OnceLock<Result<Arc<Recorded>, String>>>;

/// The programs that were used last.
struct Programs {
    most: usize,
    /// By layer and configuration; the last one was used last.
    slots: Mutex<Vec<(Key, Slot)>>,
}

/// A layer's index and a configuration.
type Key = (usize, String);

impl Programs {
    /// Keeps at most so many.
    fn new(most: usize) -> Self {
        Self {
            most,
            slots: Mutex::default(),
        }
    }

    /// The slot of a layer and a configuration, in place of the one that wasn't used for longest.
    fn slot(&self, wanted: Key) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = slots.iter().position(|(known, _)| *known == wanted) {
            // Behind all that were used before it.
            slots[at..].rotate_left(1);
        } else {
            let first = (slots.len() + 1).saturating_sub(self.most);
            slots.drain(..first);
            slots.push((wanted, Slot::default()));
        }
        slots
            .last()
            .map(|(_, slot)| Arc::clone(slot))
            .unwrap_or_default()
    }
}

/// What one pass over a program submits.
struct Recorded {
    batches: Vec<Arc<Batch>>,
    /// Without their commands, which the batches have.
    layers: Vec<Layer>,
    /// Useful multiply-adds of all BATCH images.
    macs: u64,
}

impl Recorded {
    /// Compiles for a configuration and runs a pass on a device that only keeps what it gets.
    fn new(graph: &QGraph, config: &Config) -> Result<Self> {
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
        let image = vec![0i16; program.input_len()?];
        session.run(&[&image])?;
        let batches = std::mem::take(&mut *recorded.lock().unwrap_or_else(PoisonError::into_inner));
        let macs = program.layers.iter().map(|l| l.macs).sum::<u64>() * config.batch() as u64;
        Ok(Self {
            batches,
            layers: program.layers.iter().map(figures).collect(),
            macs,
        })
    }

    /// The pass's layers with their cycles.
    fn cycles(
        &self,
        config: &Config,
        timing: &TimingConfig,
    ) -> Result<Vec<LayerCycles>, CycleError> {
        let mut parts: Vec<LayerCycles> = Vec::new();
        for batch in &self.batches {
            let insns = &batch.insns;
            let mut totals = LayerTotals::new(insns, &batch.marks, config, timing);
            let report = simulate(timing, config, insns, batch.insn_addr.0, &mut totals)?;
            parts.extend(totals.finish(&report));
        }
        let mut layers = merge(parts.iter());
        leave_out_additions(&mut layers, &self.layers);
        Ok(layers)
    }
}

/// What figures need of a layer.
fn figures(layer: &Layer) -> Layer {
    Layer {
        name: layer.name.clone(),
        steps: layer.steps,
        ..Layer::default()
    }
}

#[cfg(test)]
mod tests;
