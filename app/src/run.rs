//! A network on images: loaded, placed, compiled, run on devices side by side, compared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vta_compiler::quantize;
use vta_compiler::reflect::Network;
use vta_driver::{Counters, DeviceCounters, Program};

use crate::check;
use crate::compile::Compiled;
use crate::cycle::Setup;
use crate::error::{Context, Result, ensure};
use crate::images::{self, Picture};
use crate::model::{self, Form, Model};
use crate::options::RunOptions;
use crate::outcome::Outcome;
use crate::pool::{Checks, Share};
use crate::preprocess::{Preprocess, to_int8};
use crate::session::Session;
use crate::watch::Watch;

/// Runs a network. An `output` that the caller wants needs computed values.
///
/// # Errors
/// Options that don't fit each other or the model, files that can't be read, compiled or written,
/// a failure of a device.
pub fn run(args: &RunOptions, output: Wanted, watch: &dyn Watch) -> Result<Outcome> {
    ensure!(args.top > 0, "--top must be at least 1");
    ensure!(
        args.target.threads != Some(0),
        "--threads must be at least 1"
    );
    ensure!(args.target.batch > 0, "--batch must be at least 1");
    let title = &args.model;
    let setup = Setup::new(&args.target.device, &args.target.views, title)?;
    let compared = args.verify || output == Wanted::File || args.reference.is_some();
    ensure!(
        !(compared && setup.timing_only()),
        "--timing-only computes no outputs for --verify, --output or --reference"
    );
    let mut pictures = match args.input.is_empty() {
        true => Vec::new(),
        false => images::load_all(&args.input, args.limit)?,
    };
    let started = Instant::now();
    let (compiled, preprocess) = prepare(args, &mut pictures, watch)?;
    let prepared = started.elapsed();
    let program = Arc::clone(&compiled.program);
    if let Some(text) = setup.machine().misfit(&program) {
        watch.note(&text);
    }
    let spec = program.tensor(*program.inputs.first().context("the program has no input")?)?;
    let chw = spec.chw.map(|d| d as usize);
    if pictures.is_empty() {
        pictures = model::default_images(&args.model, chw)?;
        pictures.truncate(args.limit.unwrap_or(usize::MAX));
        ensure!(!pictures.is_empty(), "there is no image to run");
    }
    let int8 = |p: &Picture| Ok(to_int8(&preprocess.apply(p, chw)?, spec.scale));
    let inputs: Vec<Vec<i8>> = pictures.iter().map(int8).collect::<Result<_>>()?;
    let reference = args.reference.as_deref().map(images::logits).transpose()?;
    if let Some(reference) = &reference {
        let (n, m) = (pictures.len(), reference.len());
        ensure!(m >= n, "{m} rows of reference logits for {n} images");
    }
    let hazards = args.hazards.then(|| hazards(&compiled)).transpose()?;
    let host_ops = compiled.host_ops();
    let described = compiled.graph.as_ref().map(|graph| graph.describe());
    let attributes = described.unwrap_or_default().into_iter();
    let attributes = attributes
        .map(|node| (node.name, node.attributes))
        .collect();
    let checks = match args.verify {
        true => Checks::Layers,
        false => Checks::None,
    };
    let mut session = Session::load(compiled, setup, &args.target, checks, title);
    let started = Instant::now();
    let shares = session.shares(&inputs, watch)?;
    let wall = started.elapsed();
    let mut outcome = outcome(
        args,
        &program,
        pictures,
        shares,
        reference,
        [prepared, wall],
    )?;
    outcome.hazards = hazards;
    outcome.host_ops = host_ops;
    outcome.attributes = attributes;
    outcome.timing_only = session.timing_only();
    outcome.timed = session.finish()?;
    Ok(outcome)
}

/// What the caller does with the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Labels at most, so that a device that only counts cycles will do.
    Labels,
    /// Values to keep.
    File,
}

/// The hazards of a program, or of those of all devices that it runs on.
fn hazards(compiled: &Compiled) -> Result<Vec<String>> {
    let programs = compiled.programs().into_iter();
    let all: Vec<Vec<String>> = programs
        .map(check::hazards_of_program)
        .collect::<Result<_>>()?;
    Ok(all.concat())
}

/// Loads and compiles; a float model is quantised on the way.
fn prepare(
    args: &RunOptions,
    pictures: &mut [Picture],
    watch: &dyn Watch,
) -> Result<(Compiled, Preprocess)> {
    let mut model = Model::open(&args.model)?;
    let stated = model.metadata().get("preprocess").cloned();
    let choose = || Preprocess::choose(&args.preprocess, stated.as_ref(), watch);
    if model.is_compiled() {
        refuse(args, &model)?;
        return Ok((model.compile(&args.target)?, choose()?));
    }
    let preprocess = choose()?;
    if model.is_float() {
        model = quantised(args, &model, pictures, &preprocess, watch)?;
    } else {
        ensure!(
            args.calibration.is_none(),
            "--calibration is for float models, but {} is int8 already",
            args.model
        );
    }
    if let Some(requant) = args.requant {
        model.set_requant(requant);
    }
    Ok((model.compile(&args.target)?, preprocess))
}

/// A float model as int8, with the calibration images or else those of the run.
fn quantised(
    args: &RunOptions,
    model: &Model,
    pictures: &[Picture],
    preprocess: &Preprocess,
    watch: &dyn Watch,
) -> Result<Model> {
    let given = match &args.calibration {
        Some(path) => Some(images::load_all(std::slice::from_ref(path), None)?),
        None => None,
    };
    let calibration = given.as_deref().unwrap_or(pictures);
    ensure!(
        !calibration.is_empty(),
        "{} is a float model: give --calibration DIR|.npz or run `vta quantize`",
        args.model
    );
    if given.is_none() {
        watch.note("quantising the float model with the input images");
    }
    model.quantise(calibration, preprocess, quantize::Mode::Multiply)
}

/// What needs the model of a bundle.
fn refuse(args: &RunOptions, model: &Model) -> Result<()> {
    let hosted = matches!(model.form(), Form::Hosted(_));
    ensure!(
        hosted || !args.target.allow_host,
        "--allow-host needs the model, not a compiled bundle"
    );
    ensure!(
        args.calibration.is_none() && args.target.tiles.cache.is_none(),
        "--calibration and --tiles need the model, not a compiled bundle"
    );
    ensure!(
        !args.verify,
        "--verify needs the model, not a compiled bundle"
    );
    ensure!(
        args.requant.is_none(),
        "--requant needs the model, not a compiled bundle"
    );
    Ok(())
}

fn outcome(
    args: &RunOptions,
    program: &Arc<Program>,
    pictures: Vec<Picture>,
    shares: Vec<Share>,
    reference: Option<Vec<Vec<f32>>>,
    [prepared, wall]: [Duration; 2],
) -> Result<Outcome> {
    let spec = program.tensor(
        *program
            .outputs
            .first()
            .context("the program has no output")?,
    )?;
    let mut logits = vec![Vec::new(); pictures.len()];
    let mut reports = Vec::new();
    let mut counters: Vec<Counters> = Vec::new();
    let mut devices: BTreeMap<String, DeviceCounters> = BTreeMap::new();
    let mut mismatches = Vec::new();
    for share in shares {
        for (name, counted) in share.devices {
            devices.entry(name).or_default().add(&counted);
        }
        for (first, outputs) in share.outputs {
            let outputs = outputs.into_iter().next().unwrap_or_default();
            for (i, values) in outputs.into_iter().enumerate() {
                logits[first + i] = values.iter().map(|&v| f32::from(v) * spec.scale).collect();
            }
        }
        reports.extend(share.reports);
        counters.push(share.counters);
        mismatches.extend(share.mismatches);
    }
    let labels = model::labels(&program.metadata)?;
    Ok(Outcome {
        attributes: BTreeMap::new(),
        device: args.target.device.device.clone(),
        program: Arc::clone(program),
        names: pictures.iter().map(|p| p.name.clone()).collect(),
        truth: pictures.iter().map(|p| p.label).collect(),
        labels,
        logits,
        reference,
        reports,
        counters,
        devices,
        verified: args.verify,
        timing_only: false,
        timed: None,
        mismatches,
        hazards: None,
        host_ops: 0,
        top: args.top,
        prepared,
        wall,
    })
}
