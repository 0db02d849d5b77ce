//! What a cycle device measured: figures by layer, as text and JSON show them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use vta_driver::{Budget, GemmSteps, Layer, Program};
use vta_isa::{Config, Module};
use vta_sim::TimedRun;
use vta_sim::cycle::{Client, Listener, Run, StallReason, TimingConfig, Unit, simulate_within};
use vta_sim::views::{Costs, LayerCycles, Spend, Verdict};

use crate::error::Result;
use crate::report::host_share::{HostShare, HostSpeed};

/// What a cycle device measured in one pass over a program, of BATCH images.
pub struct Report {
    /// The model's name, or what else ran.
    pub title: String,
    /// What ran.
    pub program: Arc<Program>,
    /// The parameters.
    pub timing: TimingConfig,
    /// The preset's name or the file.
    pub board: String,
    /// Prices for estimates.
    pub costs: Costs,
    /// What the host takes of the pass.
    pub host: HostShare,
    /// How fast it is assumed to be.
    pub speed: HostSpeed,
    /// The program's layers, each with all its parts, in program order.
    pub layers: Vec<LayerCycles>,
    /// What each layer's GEMM steps are for.
    pub steps: HashMap<String, GemmSteps>,
    /// Batch by batch.
    pub runs: Vec<Arc<TimedRun>>,
}

/// Bounds without the steps that add biases and residuals, which another schedule could do
/// otherwise: only products have to be done by the matrix unit.
pub fn leave_out_additions(layers: &mut [LayerCycles], program: &[Layer]) {
    let mut known: HashMap<&str, &Layer> = HashMap::new();
    for layer in program {
        known.entry(&layer.name).or_insert(layer);
    }
    for layer in layers {
        let of_program = known.get(&layer.name[..]);
        if let Some(steps) = of_program.map(|l| l.steps).filter(|s| s.dense > 0) {
            layer.bound.gemm_cycles = steps.products;
        }
    }
}

/// Joins the parts of layers that lie in several batches.
pub fn merge<'a>(parts: impl Iterator<Item = &'a LayerCycles>) -> Vec<LayerCycles> {
    let mut layers: Vec<LayerCycles> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for part in parts {
        match known.get(&part.name[..]) {
            Some(&index) => layers[index].add(part),
            None => {
                known.insert(&part.name, layers.len());
                layers.push(part.clone());
            }
        }
    }
    layers
}

impl Report {
    /// All layers together.
    pub fn total(&self) -> LayerCycles {
        let mut total = LayerCycles {
            first_start: u64::MAX,
            ..LayerCycles::default()
        };
        self.layers.iter().for_each(|layer| total.add(layer));
        total
    }

    /// A layer by name.
    pub fn layer(&self, name: &str) -> Option<&LayerCycles> {
        self.layers.iter().find(|layer| layer.name == name)
    }

    /// What a layer's GEMM steps are for.
    pub fn steps_of(&self, name: &str) -> GemmSteps {
        self.steps.get(name).copied().unwrap_or_default()
    }

    /// What all layers' GEMM steps are for.
    pub fn total_steps(&self) -> GemmSteps {
        let mut total = GemmSteps::default();
        for layer in &self.layers {
            total.add(&self.steps_of(&layer.name));
        }
        total
    }

    /// What the device takes of a pass, in milliseconds.
    pub fn device_ms(&self) -> f64 {
        self.total().cycles as f64 / (self.timing.clock_mhz * 1e3)
    }

    /// What a pass takes, in milliseconds, with an estimate of the host's share, which is not at the
    /// same time as the device's.
    pub fn pass_ms(&self) -> f64 {
        self.device_ms() + self.host.time(&self.speed).total_ms()
    }

    /// The sum of the layers' bounds: layers run one after the other.
    pub fn bound_cycles(&self) -> u64 {
        self.layers.iter().map(|l| l.bound.cycles()).sum()
    }

    /// The keys that cycles add to the JSON of a layer; none for one that took none.
    pub(crate) fn layer_json(&self, name: &str, macs: u64, passes: u64) -> Map<String, Value> {
        let keys = |cycles| cycles_json(cycles, &self.steps_of(name), macs, passes, &self.costs);
        self.layer(name).map(keys).unwrap_or_default()
    }

    /// The keys that cycles add to the JSON of a whole run: `pass_ms` is the device's share, and
    /// `pass_with_host_ms` adds an estimate of the host's. The run is of `passes` passes, `macs` useful
    /// multiply-adds in all.
    pub(crate) fn keys(&self, macs: u64, passes: u64) -> Map<String, Value> {
        let total = self.total();
        let bound = self.bound_cycles() * passes;
        let compute: u64 = self.layers.iter().map(|l| l.bound.of_compute()).sum();
        let steps = self.total_steps();
        let mut object = cycles_json(&total, &steps, macs, passes, &self.costs);
        object.insert("bound_cycles".into(), json!(bound));
        object.insert("compute_bound_cycles".into(), json!(compute * passes));
        // A network is limited by other things from layer to layer.
        object.remove("limited_by");
        object.remove("why");
        object.insert("timing".into(), json!(self.board));
        object.insert("pass_ms".into(), json!(self.device_ms()));
        object.insert("pass_with_host_ms".into(), json!(self.pass_ms()));
        object
    }
}

/// Notes when instructions start and end.
struct Times(Vec<(u64, Option<u64>)>);

impl Listener for Times {
    fn insn_start(&mut self, _: Module, insn: usize, cycle: u64) {
        self.0[insn].0 = cycle;
    }

    fn insn_done(&mut self, _: Module, insn: usize, cycle: u64) {
        self.0[insn].1 = Some(cycle);
    }
}

/// When each instruction of a run starts and ends: the first cycle, and the one behind the last; `None` for
/// FINISH, with which the run ends.
///
/// # Errors
/// A run over its budget, or one that the model can't count.
pub fn insn_times(
    budget: &Budget,
    timing: &TimingConfig,
    config: &Config,
    run: Run<'_>,
) -> Result<Vec<(u64, Option<u64>)>> {
    let mut times = Times(vec![(0, None); run.insns.len()]);
    simulate_within(budget, timing, config, run, &mut times)?;
    Ok(times.0)
}

/// The keys that cycles add to the JSON of a layer: totals over `passes` passes. `gemm_uops` are
/// those of the mathematics, `product_uops` those that don't fall on padding, which are issued.
pub fn cycles_json(
    layer: &LayerCycles,
    steps: &GemmSteps,
    macs: u64,
    passes: u64,
    costs: &Costs,
) -> Map<String, Value> {
    let spend = |s: Spend| (s.name().to_owned(), json!(layer.spent(s) * passes));
    let beats = |c: Client| {
        let beats = layer.read_beats[c as usize] * passes;
        (c.name().to_owned(), json!(beats))
    };
    let stall = |(unit, reason): (Unit, StallReason)| {
        let cycles = layer.stalled(unit, reason) * passes;
        (cycles > 0).then(|| json!({"unit": unit, "reason": reason, "cycles": cycles}))
    };
    let pairs = Unit::ALL
        .into_iter()
        .flat_map(|unit| StallReason::ALL.map(|reason| (unit, reason)));
    let verdict = verdict(layer, macs);
    let object = json!({
        "cycles": layer.cycles * passes,
        "bound_cycles": layer.bound.cycles() * passes,
        "compute_bound_cycles": layer.bound.of_compute() * passes,
        "gemm_uops": steps.dense * passes,
        "product_uops": steps.products * passes,
        "bias_uops": steps.bias * passes,
        "residual_uops": steps.residual * passes,
        "reset_uops": layer.reset_uops * passes,
        "alu_uops": layer.alu_uops * passes,
        "read_beats": Client::READERS.map(beats).into_iter().collect::<Map<_, _>>(),
        "write_beats": layer.write_beats * passes,
        "utilization": utilization(layer, macs, passes),
        "spend": Spend::ALL.map(spend).into_iter().collect::<Map<_, _>>(),
        "stalls": pairs.filter_map(stall).collect::<Vec<_>>(),
        "energy_uj": layer.energy(costs).total_pj() * passes as f64 / 1e6,
        "limited_by": verdict.resource,
        "why": verdict.words,
    });
    match object {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The verdict on a layer of so many useful multiply-adds. Layers without any take the matrix unit, too: large average
/// pools add tiles up there, and others move channels.
pub fn verdict(layer: &LayerCycles, macs: u64) -> Verdict {
    let mut verdict = Verdict::of(layer);
    if macs == 0 && verdict.spend == Spend::Gemm {
        verdict.resource = "matrix unit as adder";
        verdict.words.push_str(
            " It adds tiles to sums, each times a constant weight tile that takes lanes as they are, \
             which counts as no multiply-add.",
        );
    }
    verdict
}

/// Adds keys to an object, in place of those of the same name.
pub fn add_keys(object: &mut Value, keys: Map<String, Value>) {
    if let Value::Object(object) = object {
        object.extend(keys);
    }
}

/// `macs` as a share of what the matrix unit can do in the layer's cycles.
pub fn utilization(layer: &LayerCycles, macs: u64, passes: u64) -> f64 {
    let possible = layer.cycles as f64 * passes as f64 * layer.macs_per_step as f64;
    macs as f64 / possible.max(1.0)
}
