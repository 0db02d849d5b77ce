//! What a run has found.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use vta_compiler::graph::Element;
use vta_compiler::host::{EndOutput, Ends};
use vta_driver::{Program, Traffic};

use crate::device::totals::Totals;
use crate::open::model::Tensor;
use crate::report::host_share::{HostShare, HostSpeed};
use crate::report::timed::Report;
use crate::run::values::Outputs;

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
    /// What the run told beside its outputs, of which each image has its own.
    pub found: Outputs,
    /// Whether layers were compared with the reference interpreter.
    pub verified: bool,
    /// The device computed nothing, so that outputs mean nothing.
    pub timing_only: bool,
    /// Cycles of one pass over the program, from a device that counts them.
    pub timed: Option<Report>,
    /// What a design took, and how that compares with the cycle model.
    pub design: Option<Totals>,
    /// What the host takes of each pass.
    pub host: HostShare,
    /// What the hazard checker found, if it was asked.
    pub hazards: Option<Vec<String>>,
    /// Loading and compiling.
    pub prepared: Duration,
    /// Running.
    pub wall: Duration,
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

/// Classes with softmax confidence, or with the outputs themselves if these are confidences
/// already: the `top` best, the lower class first among equals.
pub fn rank(logits: &[f32], are_confidences: bool, top: usize) -> Vec<(usize, f32)> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|l| (l - largest).exp()).sum();
    let confidence = |l: f32| {
        if are_confidences {
            l
        } else {
            (l - largest).exp() / sum
        }
    };
    let all = logits.iter().enumerate();
    let mut ranking: Vec<_> = all.map(|(c, &l)| (c, confidence(l))).collect();
    ranking.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranking.truncate(top);
    ranking.shrink_to_fit();
    ranking
}

/// Whether the output of a network is confidences already: what its program gives, or the host behind it.
pub fn ends_in_softmax(program: &Program, ends: Option<&Ends>) -> bool {
    if let Some(ends) = ends
        && let [EndOutput::Value { .. }] = ends.outputs()
    {
        // Of the nodes behind the program the last one gives the only output.
        let mut parts = ends.parts().filter(|(part, ..)| *part == "exit");
        return parts.any(|(_, nodes, _)| nodes.last().is_some_and(|(_, kind)| kind == "Softmax"));
    }
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

    /// What the devices' own counters said of the run, where they have one.
    pub fn device_cycles(&self) -> Option<u64> {
        self.found.marks.cycles()
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

    /// Each layer over all runs and devices, in program order.
    pub fn layers(&self) -> Vec<LayerRow> {
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
        for (name, (traffic, wall)) in &self.found.marks.layers {
            if let Some(&index) = known.get(&name[..]) {
                let row = &mut rows[index];
                row.traffic.add(traffic);
                row.wall += *wall;
            }
        }
        rows
    }

    /// Milliseconds of a pass that the host's layers between devices took on this machine, and their estimate for a speed
    /// of the host, both without moving tensors; `None` where the run computed none.
    pub fn host_measured(&self, speed: &HostSpeed) -> Option<[f64; 2]> {
        let rows = self.layers();
        let own = rows
            .iter()
            .filter_map(|row| Some((row, self.host.layer(&row.name)?)));
        let (mut took, mut estimate) = (0.0, 0.0);
        for (row, layer) in own {
            took += row.wall.as_secs_f64() * 1e3 / self.passes().max(1) as f64;
            estimate += layer.time(speed).compute_ms;
        }
        (took > 0.0).then_some([took, estimate])
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
