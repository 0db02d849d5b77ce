//! One layer on seeded data, compared with the reference interpreter.

use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

use serde_json::{Value, json};
use vta_compiler::layer::{self, LayerSpec};
use vta_compiler::lower;
use vta_compiler::qgraph::QGraph;
use vta_compiler::reference;
use vta_driver::{Program, QueueLimits, Session, Traffic};
use vta_isa::Config;

use crate::compile::{Compiled, Plans, dump, tiles};
use crate::device::{Machine, Setup, Totals};
use crate::error::{Error, Result};
use crate::options::Target;
use crate::report::host_share::HostShare;
use crate::report::timed::{Report, add_keys, cycles_json, utilization};
use crate::room;
use crate::run::json::bytes_json;
use crate::watch::Watch;

/// A layer that has run.
pub struct LayerOutcome {
    /// As it was named.
    pub layer: String,
    /// As it was named.
    pub device: String,
    /// Useful multiply-adds of all images.
    pub macs: u64,
    /// Runs of BATCH images.
    pub passes: u64,
    /// Useful multiply-adds as a share of what the matrix unit can do in its steps, or in the
    /// cycles where the device counts those.
    pub utilization: f64,
    /// The largest difference from the reference; `None` when nothing was computed.
    pub max_abs_error: Option<i32>,
    /// Of all passes.
    pub traffic: Traffic,
    /// Batches that were submitted.
    pub submissions: u64,
    /// Of all passes, from the values that are packed to those that are unpacked.
    pub wall: Duration,
    /// Cycles of one pass, from a device that counts them.
    pub timed: Option<Report>,
    /// What a design took, of all passes.
    pub design: Option<Totals>,
}

impl LayerOutcome {
    /// Whether what was computed, if anything was, is the reference's.
    pub fn is_right(&self) -> bool {
        self.max_abs_error.is_none_or(|error| error == 0)
    }

    /// The object of `vta layer --json`.
    pub fn json(&self) -> Value {
        let mut object = json!({
            "layer": self.layer, "device": self.device, "macs": self.macs,
            "insns": self.traffic.insns, "gemm_uops": self.traffic.gemm_steps, "bytes": bytes_json(&self.traffic),
            "submissions": self.submissions, "wall_ms": self.wall.as_secs_f64() * 1e3,
            "utilization": self.utilization, "max_abs_error": self.max_abs_error,
        });
        if let Some(timed) = &self.timed {
            let (total, steps) = (timed.total(), timed.total_steps());
            let mut keys = cycles_json(&total, &steps, self.macs, self.passes, &timed.costs);
            keys.insert("timing".into(), json!(timed.board));
            keys.insert("timing_only".into(), json!(self.max_abs_error.is_none()));
            add_keys(&mut object, keys);
        }
        if let Some(design) = &self.design {
            object["rtl"] = design.json();
        }
        object
    }
}

/// A layer that is compiled for a machine.
struct Lowered {
    spec: LayerSpec,
    /// Of weights and inputs.
    seed: u64,
    graph: QGraph,
    program: Arc<Program>,
}

/// Runs a layer on data of a seed, and compares every image with the reference interpreter. Layers are
/// `resnet18.C2`, `conv:..`, `dw:..` or `gemm:..`: see [`vta_compiler::layer`].
///
/// # Errors
/// [`Error::Model`] for a name that is no layer or one that can't be lowered, [`Error::Usage`] for
/// options that don't fit each other, [`Error::Run`] for a device that fails, [`Error::Cancelled`]
/// when `watch` says so between two passes.
pub fn run(name: &str, seed: u64, target: &Target, watch: &dyn Watch) -> Result<LayerOutcome> {
    let setup = Setup::new(target, name)?;
    let lowered = lowered(name, seed, target, &setup.machine.config)?;
    let program = &lowered.program;
    if let Some(text) = setup.machine.misfit(program) {
        watch.note(&text);
    }
    let device = setup.device(&program.config, 1)?;
    let mut session = Session::new(Arc::clone(program), device, QueueLimits::default())?;
    let ran = passes(&lowered, &setup, &mut session, watch)?;
    let timed = setup.finish(program, HostShare::default(), name)?;
    let images = lowered.spec.images;
    let macs = program.layers.iter().map(|l| l.macs).sum::<u64>() * images as u64;
    let passes = images.div_ceil(program.config.batch()) as u64;
    let done = ran.traffic.gemm_steps * program.config.macs_per_step();
    Ok(LayerOutcome {
        layer: name.to_owned(),
        device: target.device.clone(),
        macs,
        passes,
        utilization: match timed.as_ref() {
            Some(timed) => utilization(&timed.total(), macs, passes),
            None => macs as f64 / done.max(1) as f64,
        },
        max_abs_error: (!setup.timing_only()).then_some(ran.error),
        traffic: ran.traffic,
        submissions: session.counters().submissions,
        wall: ran.wall,
        timed,
        design: setup.design(),
    })
}

/// The plan of the layer's batch: see [`Session::plans`](crate::Session::plans).
///
/// # Errors
/// As for [`run`] and [`Session::plans`](crate::Session::plans).
pub fn plans(name: &str, seed: u64, target: &Target) -> Result<Plans> {
    let lowered = lowered(name, seed, target, &Machine::read(target)?.config)?;
    dump::plans(&Compiled::from(lowered.program), &target.devices())
}

fn lowered(name: &str, seed: u64, target: &Target, config: &Config) -> Result<Lowered> {
    let spec = layer::parse(name)?;
    room::ask(bytes(&spec), || name.to_owned())?;
    let graph = lower::for_machine(&layer::build(&spec, seed)?, config).into_owned();
    let program = tiles::lower(&graph, config, target)?;
    Ok(Lowered {
        spec,
        seed,
        graph,
        program: Arc::new(program),
    })
}

/// About what an image of a layer takes, compiled, run and compared.
pub(crate) fn bytes(spec: &LayerSpec) -> u64 {
    /// Of each value: as the reference and the session have it, packed, and on the device.
    const PER_VALUE: u64 = 8;
    let [c, h, w] = spec.chw.map(|d| d as u64);
    let (co, window) = (spec.co as u64, &spec.window);
    let [k, l] = window.kernel.map(|d| d as u64);
    let [down, right] = window.stride.map(|d| d.max(1) as u64);
    let weights = co * (c / spec.group.max(1) as u64) * k * l;
    // Pads are smaller than the kernel.
    let values = c * h * w + co * ((h + k) / down + 1) * ((w + l) / right + 1);
    let values = values.saturating_mul(PER_VALUE);
    values.saturating_add(weights.saturating_mul(room::PER_WEIGHT))
}

/// What all passes gave.
struct Ran {
    error: i32,
    traffic: Traffic,
    wall: Duration,
}

fn passes(
    lowered: &Lowered,
    setup: &Setup,
    session: &mut Session,
    watch: &dyn Watch,
) -> Result<Ran> {
    let (images, batch) = (lowered.spec.images, lowered.program.config.batch());
    let output = lowered.program.outputs.first();
    let output = output.map_or(0, |output| *output as usize);
    let mut ran = Ran {
        error: 0,
        traffic: Traffic::default(),
        wall: Duration::ZERO,
    };
    for first in (0..images).step_by(batch) {
        watch.progress(first, images);
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let last = images.min(first + batch);
        let inputs: Vec<Vec<i16>> = (first..last)
            .map(|image| layer::input(&lowered.spec, lowered.seed, image))
            .collect();
        let refs: Vec<&[i16]> = inputs.iter().map(Vec::as_slice).collect();
        let started = Instant::now();
        let out = session.run(&refs)?;
        ran.wall += started.elapsed();
        out.reports.iter().for_each(|r| ran.traffic.add(&r.traffic));
        if setup.timing_only() {
            continue;
        }
        for (image, got) in inputs.iter().zip(out.outputs.iter().flatten()) {
            let values = reference::run(&lowered.graph, image)?;
            ran.error = ran.error.max(difference(got, &values[output]));
        }
    }
    watch.progress(images, images);
    Ok(ran)
}

/// The largest difference of two values.
fn difference(a: &[i16], b: &[i16]) -> i32 {
    let pairs = a.iter().zip(b);
    let each = pairs.map(|(a, b)| (i32::from(*a) - i32::from(*b)).abs());
    each.max().unwrap_or(0)
}
