//! What a run has found, as JSON.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use vta_driver::{DeviceCounters, DramPlan, FlushReason, NodeInfo, Traffic};
use vta_isa::MemType;

use crate::open::model::Tensor;
use crate::report::timed::add_keys;
use crate::run::marks::Start;
use crate::run::outcome::{ImageOutcome, LayerRow, Outcome};

/// Bytes by memory type.
pub(super) fn bytes_json(traffic: &Traffic) -> Value {
    let entry = |m: MemType| (m.name().to_owned(), json!(traffic.bytes[m.index()]));
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
#[derive(Serialize)]
struct Json<'a> {
    /// All but the images.
    #[serde(flatten)]
    facts: Value,
    outputs: Images<'a>,
}

impl Outcome {
    /// Writes the run as one JSON object over many lines.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        let json = Json {
            facts: facts(self),
            outputs: Images(self),
        };
        serde_json::to_writer_pretty(&mut out, &json)?;
        writeln!(out)
    }
}

/// The images of a run as JSON.
struct Images<'a>(&'a Outcome);

impl Serialize for Images<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Where nothing was computed, labels would be those of zeros.
        let shown = if self.0.timing_only {
            &[][..]
        } else {
            &self.0.images
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

/// Each layer, over all runs.
fn layers_json(outcome: &Outcome, rows: &[LayerRow]) -> Vec<Value> {
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
            "utilization": r.utilization(&outcome.program, passes.max(1)),
        });
        if let Some(nodes) = nodes.get(&r.name[..]) {
            object["nodes"] = json!(nodes);
        }
        if let Some(host) = outcome.host.layer(&r.name) {
            object["host"] = host.json(speed);
        }
        if let Some(timed) = &outcome.timed {
            add_keys(
                &mut object,
                timed.layer_json(&r.name, r.macs * images, passes),
            );
        }
        object
    };
    rows.iter().map(layer).collect()
}

/// All but the images.
fn facts(outcome: &Outcome) -> Value {
    let (total, rows) = (&outcome.found.counters, outcome.layers());
    let (images, passes) = (outcome.images.len() as u64, outcome.passes());
    let speed = outcome.timed.as_ref().map(|timed| &timed.speed);
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
        "layers": layers_json(outcome, &rows),
    });
    if !outcome.host.layers.is_empty() {
        object["host"] = outcome.host.json(speed);
        if let Some([took, _]) = speed.and_then(|speed| outcome.host_measured(speed)) {
            object["host"]["measured_ms"] = json!(took);
        }
    }
    if !outcome.found.devices.is_empty() {
        let counted = |(name, c): (&String, &DeviceCounters)| (name.clone(), counters_json(c));
        let all: Map<_, _> = outcome.found.devices.iter().map(counted).collect();
        object["device_counters"] = Value::Object(all);
    }
    match &outcome.timed {
        Some(timed) => {
            object["timing_only"] = json!(outcome.timing_only);
            add_keys(&mut object, timed.keys(macs * images, passes));
        }
        None => {
            if let Some(cycles) = outcome.found.marks.cycles() {
                object["device_cycles"] = json!(cycles);
            }
        }
    }
    if let Some(design) = &outcome.design {
        object["rtl"] = design.json();
    }
    add_accuracy(outcome, &mut object);
    if outcome.verified {
        object["mismatches"] = json!(outcome.found.mismatches);
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
    } = outcome.found.start;
    let mut object = json!({
        "opening_ms": ms(opening),
        "loading_ms": ms(loading),
        "first_results_ms": ms(first),
    });
    if !outcome.found.devices.is_empty() {
        let ns = outcome
            .found
            .devices
            .values()
            .map(|counted| counted.plan_ns);
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
