//! What a run has found, and its JSON.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use vta_driver::{
    Counters, DeviceCounters, DramPlan, FlushReason, NodeInfo, Program, RunReport, Traffic,
};
use vta_isa::MemType;

use crate::device::rtl::Totals;
use crate::open::model::Tensor;
use crate::report::host_share::HostShare;
use crate::report::timed::{Timed, cycles_json};
use vta_compiler::graph::Element;

/// A finished run of some images.
pub struct Outcome {
    /// As it was named.
    pub device: String,
    /// What ran; only its tensors and layers when it ran over several places.
    pub program: Arc<Program>,
    /// What was found of each image, in their order.
    pub images: Vec<ImageOutcome>,
    /// The network's outputs, in its order.
    pub outputs: Vec<Tensor>,
    /// Of the classes; empty when the model has none.
    pub labels: Vec<String>,
    /// Another runtime's best class of each image.
    pub reference: Option<Vec<usize>>,
    /// What layers took over all runs and devices, by name.
    pub marks: Marks,
    /// One for each device that ran side by side.
    pub counters: Vec<Counters>,
    /// By the names of the devices that launch kernels.
    pub devices: BTreeMap<String, DeviceCounters>,
    /// Whether layers were compared with the reference interpreter.
    pub verified: bool,
    /// The device computed nothing, so that outputs mean nothing.
    pub timing_only: bool,
    /// Cycles of one pass over the program, from a device that counts them.
    pub timed: Option<Timed>,
    /// What a design took, and how that compares with the cycle model.
    pub design: Option<Totals>,
    /// Layers' outputs that are not the reference interpreter's, a line each.
    pub mismatches: Vec<String>,
    /// What the host takes of each pass.
    pub host: HostShare,
    /// What the hazard checker found, if it was asked.
    pub hazards: Option<Vec<String>>,
    /// Loading and compiling.
    pub prepared: Duration,
    /// Where the time before the first results went.
    pub start: Start,
    /// Running.
    pub wall: Duration,
}

/// Where the time before a run's first results went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Opening the devices, also while the network was compiled.
    pub opening: Duration,
    /// From the run's beginning until the network lay on all its devices: what was left of
    /// opening, and writing constants.
    pub loading: Duration,
    /// From the run's beginning to its first results.
    pub first: Duration,
}

/// What is kept of an image.
pub struct ImageOutcome {
    /// Of the image, for listings.
    pub name: String,
    /// Its true class, where that is known.
    pub truth: Option<usize>,
    /// The class of the largest output, the first of equal ones.
    pub best: usize,
    /// The best classes with their softmax confidence (that of the network, if it ends so), best
    /// first, the lower class first among equals; as many as were asked for.
    pub ranking: Vec<(usize, f32)>,
    /// The real values of each of the network's outputs, if they were wanted.
    pub outputs: Vec<Vec<f32>>,
}

/// What layers took, by name.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    layers: BTreeMap<String, (Traffic, Duration)>,
    cycles: Option<u64>,
}

impl Marks {
    /// Adds the layers of a batch.
    pub fn add_report(&mut self, report: &RunReport) {
        for mark in &report.marks {
            self.add(&mark.name, &mark.traffic, mark.wall);
        }
        self.count(report.cycles);
    }

    /// What the devices' own counters said of all runs, where they have one.
    pub fn cycles(&self) -> Option<u64> {
        self.cycles
    }

    fn count(&mut self, cycles: Option<u64>) {
        if let Some(more) = cycles {
            self.cycles = Some(self.cycles.unwrap_or(0).saturating_add(more));
        }
    }

    /// Adds those of another device.
    pub fn add_all(&mut self, other: &Self) {
        for (name, (traffic, wall)) in &other.layers {
            self.add(name, traffic, *wall);
        }
        self.count(other.cycles);
    }

    fn add(&mut self, name: &str, traffic: &Traffic, wall: Duration) {
        if !self.layers.contains_key(name) {
            self.layers.insert(name.to_owned(), Default::default());
        }
        if let Some((all, time)) = self.layers.get_mut(name) {
            all.add(traffic);
            *time += wall;
        }
    }
}

/// Classes with softmax confidence, or with the outputs themselves if these are confidences
/// already: the `top` best, the lower class first among equals.
pub fn rank(logits: &[f32], are_confidences: bool, top: usize) -> Vec<(usize, f32)> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|l| (l - largest).exp()).sum();
    let confidence = |l: f32| match are_confidences {
        true => l,
        false => (l - largest).exp() / sum,
    };
    let all = logits.iter().enumerate();
    let mut ranking: Vec<_> = all.map(|(c, &l)| (c, confidence(l))).collect();
    ranking.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranking.truncate(top);
    ranking.shrink_to_fit();
    ranking
}

/// Whether the outputs of a program are confidences already.
pub fn ends_in_softmax(program: &Program) -> bool {
    let output = program.outputs.first();
    let mut layers = program.layers.iter();
    // The last of a segment's operators gives its output.
    layers.any(|l| {
        let softmax = l.kind.starts_with("host ") && l.kind.ends_with("Softmax");
        Some(&l.output) == output && softmax
    })
}

/// One layer over all runs.
pub struct LayerRow {
    /// As in the program.
    pub name: String,
    /// As in the program.
    pub kind: String,
    /// Useful multiply-adds of one image.
    pub macs: u64,
    /// Of all runs.
    pub traffic: Traffic,
    /// Of all runs.
    pub wall: Duration,
}

impl LayerRow {
    /// Multiply-adds that count, of those that the matrix unit did; `None` without GEMM steps.
    pub fn utilization(&self, program: &Program, runs: u64) -> Option<f64> {
        let done = self.traffic.gemm_steps * program.config.macs_per_step();
        let useful = self.macs * program.config.batch() as u64 * runs;
        (done > 0).then(|| useful as f64 / done as f64)
    }
}

impl Outcome {
    /// Whether the network gives one vector, whose largest value may name a class.
    pub fn is_classifier(&self) -> bool {
        let floats =
            |output: &Tensor| matches!(output.element, Element::F32 | Element::I8 | Element::U8);
        matches!(&self.outputs[..], [only] if only.chw[1..] == [1, 1] && floats(only))
    }

    /// A class's name, or its number in words.
    pub fn label(&self, class: usize) -> String {
        self.labels
            .get(class)
            .cloned()
            .unwrap_or_else(|| format!("class {class}"))
    }

    /// Passes over the program: each takes BATCH images.
    pub fn passes(&self) -> u64 {
        self.images.len().div_ceil(self.program.config.batch()) as u64
    }

    /// How many images of those whose class is known have it as the best label; `None` when none is
    /// known or nothing was computed.
    pub fn correct(&self) -> Option<(usize, usize)> {
        if self.timing_only {
            return None;
        }
        let known = self.images.iter().filter(|image| image.truth.is_some());
        let known: Vec<&ImageOutcome> = known.collect();
        let right = known.iter().filter(|image| image.truth == Some(image.best));
        let right = right.count();
        (!known.is_empty()).then_some((right, known.len()))
    }

    /// Counters of all devices together, and each layer over all runs in program order.
    pub fn totals(&self) -> (Counters, Vec<LayerRow>) {
        let mut total = Counters::default();
        for c in &self.counters {
            total.add(c);
        }
        let row = |l: &vta_driver::Layer| LayerRow {
            name: l.name.clone(),
            kind: l.kind.clone(),
            macs: l.macs,
            traffic: Traffic::default(),
            wall: Duration::ZERO,
        };
        let mut rows: Vec<LayerRow> = self.program.layers.iter().map(row).collect();
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (index, layer) in self.program.layers.iter().enumerate() {
            known.entry(&layer.name).or_insert(index);
        }
        for (name, (traffic, wall)) in &self.marks.layers {
            if let Some(&index) = known.get(&name[..]) {
                let row = &mut rows[index];
                row.traffic.add(traffic);
                row.wall += *wall;
            }
        }
        (total, rows)
    }

    /// Images whose label is the reference's, and the reference's right answers.
    pub fn agreement(&self) -> Option<(usize, Option<usize>)> {
        let reference = self.reference.as_ref()?;
        let pairs = || self.images.iter().zip(reference);
        let same = pairs().filter(|(a, b)| a.best == **b).count();
        let known = self.images.iter().all(|image| image.truth.is_some());
        let right = pairs().filter(|(a, b)| a.truth == Some(**b)).count();
        Some((same, known.then_some(right)))
    }
}

fn bytes_json(traffic: &Traffic) -> Value {
    let entry = |m: MemType| (m.name().to_owned(), json!(traffic.bytes[m.code() as usize]));
    Value::Object(MemType::ALL.into_iter().map(entry).collect::<Map<_, _>>())
}

/// Device memory that a session takes, but for instructions and micro-ops.
fn memory_json(plan: &DramPlan) -> Value {
    json!({
        "peak_bytes": plan.total_bytes(),
        "scratch_bytes": plan.scratch_bytes,
        "unshared_scratch_bytes": plan.unshared_bytes,
        "constant_bytes": plan.constant_bytes,
        "io_bytes": plan.io_bytes,
    })
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// The run as one JSON object, in which images are made as they are written: there may be many.
pub struct Json<'a> {
    outcome: &'a Outcome,
    /// All but the images.
    object: Map<String, Value>,
}

/// The key of the images.
const IMAGES: &str = "outputs";

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.object.len()))?;
        for (key, value) in &self.object {
            match key.as_str() {
                IMAGES => map.serialize_entry(key, &Images(self.outcome))?,
                _ => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

impl Json<'_> {
    /// Writes it over many lines.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_pretty(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut out, self)?;
        writeln!(out)
    }
}

/// The images of a run as JSON.
struct Images<'a>(&'a Outcome);

impl Serialize for Images<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = match self.0.timing_only {
            true => &[][..],
            false => &self.0.images,
        };
        let image = |image: &ImageOutcome| {
            let top = image.ranking.iter().map(|&(class, confidence)| {
                json!({"class": class, "label": self.0.label(class), "confidence": confidence})
            });
            let top: Vec<_> = top.collect();
            json!({"image": image.name, "true_class": image.truth, "top": top})
        };
        serializer.collect_seq(shown.iter().map(image))
    }
}

/// The run as one JSON object.
pub fn json(outcome: &Outcome) -> Json<'_> {
    let object = match facts(outcome) {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    Json { outcome, object }
}

/// An output: its name, dimensions of one image, and what a step means.
fn output_json(tensor: &Tensor) -> Value {
    let mut output = json!({
        "name": tensor.name,
        "shape": tensor.shape,
        "element": tensor.element.name(),
    });
    if let Some(scale) = tensor.scale {
        output["scale"] = json!(scale);
        output["zero_point"] = json!(tensor.zero);
    }
    output
}

/// All but the images.
fn facts(outcome: &Outcome) -> Value {
    let (total, rows) = outcome.totals();
    let runs = outcome.passes().max(1);
    let (images, passes) = (outcome.images.len() as u64, outcome.passes());
    let layers = outcome.program.layers.iter();
    let nodes: HashMap<&str, &[NodeInfo]> = layers
        .filter(|l| !l.nodes.is_empty())
        .map(|l| (&l.name[..], &l.nodes[..]))
        .collect();
    let speed = outcome.timed.as_ref().map(|timed| &timed.speed);
    let layer = |r: &LayerRow| {
        let mut object = json!({
            "name": r.name,
            "kind": r.kind,
            "macs": r.macs,
            "insns": r.traffic.insns,
            "bytes": bytes_json(&r.traffic),
            "wall_ms": ms(r.wall),
            "utilization": r.utilization(&outcome.program, runs),
        });
        if let Some(nodes) = nodes.get(&r.name[..]) {
            object["nodes"] = json!(nodes);
        }
        if let Some(host) = outcome.host.layer(&r.name) {
            object["host"] = host.json(speed);
        }
        if let Some(timed) = &outcome.timed
            && let Some(cycles) = timed.layer(&r.name)
        {
            let steps = timed.steps_of(&r.name);
            let keys = cycles_json(cycles, &steps, r.macs * images, passes, &timed.energy);
            merge(&mut object, keys);
        }
        object
    };
    let flush = |r: FlushReason| (r.name().to_owned(), json!(total.flushed(r)));
    let macs = outcome.program.layers.iter().map(|l| l.macs).sum::<u64>();
    let mut object = json!({
        "device": outcome.device,
        "images": outcome.images.len(),
        "macs": macs,
        "insns": total.traffic.insns,
        "submissions": total.submissions,
        "flush_reasons": FlushReason::ALL.into_iter().map(flush).collect::<Map<_, _>>(),
        "encoded_batches": total.encoded_batches,
        "replayed_batches": total.replayed_batches,
        "host_ops": outcome.host.ops(),
        "output_tensors": outcome.outputs.iter().map(output_json).collect::<Vec<_>>(),
        "host_segments": outcome.host.layers.len(),
        "bytes": bytes_json(&total.traffic),
        "memory": memory_json(&DramPlan::of(&outcome.program)),
        "compile_ms": ms(outcome.prepared),
        "wall_ms": ms(outcome.wall),
        "start": start_json(outcome),
        IMAGES: [],
        "layers": rows.iter().map(layer).collect::<Vec<_>>(),
    });
    if !outcome.host.layers.is_empty() {
        object["host"] = outcome.host.json(speed);
    }
    if !outcome.devices.is_empty() {
        let counted = |(name, c): (&String, &DeviceCounters)| (name.clone(), counters_json(c));
        let all: Map<_, _> = outcome.devices.iter().map(counted).collect();
        object["device_counters"] = Value::Object(all);
    }
    match &outcome.timed {
        Some(timed) => {
            object["timing_only"] = json!(outcome.timing_only);
            merge(&mut object, timed.json(macs * images, passes));
        }
        None => {
            if let Some(cycles) = outcome.marks.cycles() {
                object["device_cycles"] = json!(cycles);
            }
        }
    }
    if let Some(design) = &outcome.design {
        object["rtl"] = design.json();
    }
    add_accuracy(outcome, &mut object);
    if outcome.verified {
        object["mismatches"] = json!(outcome.mismatches);
    }
    if let Some(hazards) = &outcome.hazards {
        object["hazards"] = json!(hazards);
    }
    object
}

/// Where the first second of a run goes.
fn start_json(outcome: &Outcome) -> Value {
    let Start {
        opening,
        loading,
        first,
    } = outcome.start;
    let mut object = json!({
        "opening_ms": ms(opening),
        "loading_ms": ms(loading),
        "first_results_ms": ms(first),
    });
    if !outcome.devices.is_empty() {
        let ns = outcome.devices.values().map(|counted| counted.plan_ns);
        object["planning_ms"] = json!(ms(Duration::from_nanos(ns.sum())));
    }
    object
}

/// A device's counters by name.
pub fn counters_json(counted: &DeviceCounters) -> Value {
    let mut object = json!({
        "batches": counted.batches,
        "launches": counted.launches,
        "waits": counted.waits,
        "stalls": counted.stalls,
        "copies": counted.copies,
        "scope_copies": counted.scope_copies,
        "bytes_to_device": counted.bytes_to_device,
        "bytes_from_device": counted.bytes_from_device,
        "plans": counted.plans,
        "plan_ns": counted.plan_ns,
    });
    if let Some(ns) = counted.kernel_ns {
        object["kernel_ns"] = json!(ns);
    }
    object
}

/// Shares of right labels and of those that agree with the reference.
fn add_accuracy(outcome: &Outcome, object: &mut Value) {
    let images = outcome.images.len() as f64;
    if let Some((right, of)) = outcome.correct() {
        object["top1"] = json!(right as f64 / of as f64);
    }
    if let Some((same, right)) = outcome.agreement() {
        object["agreement"] = json!(same as f64 / images);
        object["reference_top1"] = json!(right.map(|r| r as f64 / images));
    }
}

/// Adds keys to an object, in place of those of the same name.
fn merge(object: &mut Value, keys: Map<String, Value>) {
    if let Value::Object(object) = object {
        object.extend(keys);
    }
}
