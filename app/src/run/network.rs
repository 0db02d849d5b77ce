//! A network on images: loaded, placed, compiled, run on devices side by side, compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vta_compiler::graph::Data;
use vta_compiler::host::{EndOutput, Ends};
use vta_compiler::quantize;
use vta_driver::{Counters, DeviceCounters, Program, TensorSpec};

use crate::check;
use crate::compile::Compiled;
use crate::compile::dump;
use crate::compile::dump::Plans;
use crate::device;
use crate::device::setup::Setup;
use crate::error::{Context, Error, Result, bail, ensure};
use crate::images::{self, Source};
use crate::open::model::{self, Form, Model, Ports, Tensor};
use crate::open::preprocess::Preprocess;
use crate::options::RunOptions;
use crate::options::names::{
    ALLOW_HOST, BATCH, CALIBRATION, INPUT, OUTPUT, REFERENCE, REQUANT, THREADS, TILES, TIMING_ONLY,
    TOP, VERIFY,
};
use crate::report::host_share::HostShare;
use crate::run::feeds::{self, Facts, Feeds};
use crate::run::outcome::{ImageOutcome, Marks, Outcome, Start, ends_in_softmax, rank};
use crate::run::pool::{Checks, Share};
use crate::run::session::Session;
use crate::watch::{Part, Watch};

/// Runs a network. An `output` that the caller wants needs computed values.
///
/// # Errors
/// Options that don't fit each other or the model, files that can't be read, compiled or written,
/// a failure of a device.
pub fn run(args: &RunOptions, output: Wanted, watch: &dyn Watch) -> Result<Outcome> {
    ensure!(args.top > 0, "{} must be at least 1"; TOP);
    ensure!(args.target.threads != Some(0), "{} must be at least 1"; THREADS);
    ensure!(args.target.batch != Some(0), "{} must be at least 1"; BATCH);
    let title = &args.model;
    let setup = Setup::new(&args.target.device, &args.target.views, title)?;
    let compared = args.verify || output != Wanted::Labels || args.reference.is_some();
    ensure!(
        !(compared && setup.timing_only()),
        "{} computes no outputs for {}, {} or {}";
        TIMING_ONLY, VERIFY, OUTPUT, REFERENCE
    );
    let started = Instant::now();
    if !is_bundle(&args.model) {
        setup.open_ahead();
    }
    let Prepared {
        compiled,
        preprocess,
        given,
    } = prepare(args, watch)?;
    let prepared = started.elapsed();
    let program = Arc::clone(&compiled.program);
    if let Some(text) = setup.machine().misfit(&program) {
        watch.note(&text);
    }
    let (inputs, mut outputs) = (compiled.inputs()?, compiled.outputs()?);
    // Tensors of the device may stand for several outputs, in another form.
    let ports = Ports::of_metadata(&program.metadata, &inputs, &outputs).outputs;
    for (output, port) in outputs.iter_mut().zip(ports) {
        (output.shape, output.element) = (port.image().to_vec(), port.element);
        output.name = port.name;
    }
    let labels = model::labels(&program.metadata)?;
    let result = outputs.first().context("the program has no output")?;
    if output == Wanted::File && outputs.len() > 1 {
        let names: Vec<&str> = outputs.iter().map(|output| &*output.name).collect();
        bail!(
            "{} has {} outputs ({}): an {} whose name ends in .npz holds them";
            args.model, names.len(), names.join(", "), OUTPUT
        );
    }
    // No timing depends on values: one pass without any is timed.
    let blank = setup.timing_only() && given.is_none() && !model::has_images(&args.model);
    let sources = match blank {
        true => Vec::new(),
        false => images_of(args, given, &inputs, &labels, result.len())?,
    };
    let count = sources.first().map_or(usize::from(blank), Source::len);
    let reference = args.reference.as_deref().map(images::best_classes);
    let reference = reference.transpose()?;
    if let Some(reference) = &reference {
        let (n, m) = (count, reference.len());
        ensure!(m >= n, "{m} rows of reference logits for {n} images");
    }
    let hazards = args.hazards.then(|| hazards(&compiled)).transpose()?;
    let checks = match args.verify {
        true => Checks::Layers,
        false => Checks::None,
    };
    let ends = compiled.ends.clone();
    let mut session = Session::load(compiled, setup, &args.target, checks, title)?;
    let started = Instant::now();
    let feeds = Feeds::new(&sources, &inputs, &preprocess, ends.clone());
    let shares = match blank {
        true => session.shares(&vec![dump::zeros(&program)?], watch),
        false => session.shares(&feeds, watch),
    };
    let facts = feeds.facts()?;
    let (mut outcome, found) = outcome(args, &program, shares?, prepared);
    outcome.start = session.start();
    let reals = match session.timing_only() {
        true => vec![Vec::new(); count],
        false => reals(&program, ends.as_deref(), &feeds, &in_order(found))?,
    };
    outcome.wall = started.elapsed();
    outcome.images = image_outcomes(&program, reals, facts, args.top, output);
    outcome.outputs = outputs;
    outcome.labels = labels;
    outcome.reference = reference;
    outcome.hazards = hazards;
    outcome.host = session.host.clone();
    outcome.timing_only = session.timing_only();
    outcome.design = session.design();
    outcome.timed = session.finish()?;
    Ok(outcome)
}

/// Whether a name is that of a bundle, whose device is known when it is read.
fn is_bundle(model: &str) -> bool {
    Path::new(model).extension().is_some_and(|e| e == "vta")
}

/// The plans of one pass over a network, which isn't run: see [`dump::plans`]. A float model is
/// quantised on the way.
///
/// # Errors
/// As for [`run`] before it runs, and for [`dump::plans`].
pub fn plans(args: &RunOptions, watch: &dyn Watch) -> Result<Plans> {
    let compiled = prepare(args, watch)?.compiled;
    dump::plans(&compiled, &device::device_names(&args.target.device.device))
}

/// The images that are given, or those that come with the model; class folders have its classes.
fn images_of(
    args: &RunOptions,
    given: Option<Vec<Source>>,
    inputs: &[Tensor],
    labels: &[String],
    classes: usize,
) -> Result<Vec<Source>> {
    let Some(mut sources) = given else {
        let [input] = inputs else {
            let names: Vec<&str> = inputs.iter().map(|input| &*input.name).collect();
            bail!(
                "{} has {} inputs ({}): give each with {} NAME=FILE";
                args.model, names.len(), names.join(", "), INPUT
            );
        };
        let mut pictures = model::default_images(&args.model, input.chw)?;
        pictures.truncate(args.limit.unwrap_or(usize::MAX));
        ensure!(!pictures.is_empty(), "there is no image to run");
        return Ok(vec![Source::of_pictures(pictures)]);
    };
    for source in &mut sources {
        source.name_classes(labels, classes)?;
    }
    Ok(sources)
}

/// What the caller does with the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Labels at most, so that a device that only counts cycles will do.
    Labels,
    /// The values of the only output.
    File,
    /// The values of all outputs.
    Archive,
}

/// The hazards of a program, or of those of all devices that it runs on.
fn hazards(compiled: &Compiled) -> Result<Vec<String>> {
    let programs = compiled.programs().into_iter();
    let all: Vec<Vec<String>> = programs
        .map(check::hazards_of_program)
        .collect::<Result<_>>()?;
    Ok(all.concat())
}

/// A network that is compiled, and its images.
struct Prepared {
    compiled: Compiled,
    preprocess: Preprocess,
    /// Of each input, where they are given.
    given: Option<Vec<Source>>,
}

/// Loads and compiles; a float model is quantised on the way.
fn prepare(args: &RunOptions, watch: &dyn Watch) -> Result<Prepared> {
    let mut model = Model::open_with(&args.model, &args.input_shape)?;
    let stated = model.metadata().get("preprocess").cloned();
    let choose = || Preprocess::choose(&args.preprocess, stated.as_ref(), watch);
    let open = |inputs: &[Tensor]| match args.input.is_empty() {
        true => Ok(None),
        false => feeds::open(&args.input, args.limit, inputs).map(Some),
    };
    if model.is_compiled() {
        refuse(args, &model)?;
        let compiled = model.compile(&args.target, &Part(watch))?;
        return Ok(Prepared {
            given: open(&compiled.inputs()?)?,
            preprocess: choose()?,
            compiled,
        });
    }
    let given = open(&model.inputs())?;
    let preprocess = choose()?;
    if model.is_float() {
        model = quantized(args, &model, given.as_deref(), &preprocess, watch)?;
    } else {
        ensure!(
            args.calibration.is_empty(),
            "{} is for float models, but {} is int8 already";
            CALIBRATION, args.model
        );
    }
    if let Some(requant) = args.requant {
        model.set_requant(requant);
    }
    let compiled = match args.verify {
        true => model.compile_to_compare(&args.target, &Part(watch))?,
        false => model.compile(&args.target, &Part(watch))?,
    };
    Ok(Prepared {
        compiled,
        preprocess,
        given,
    })
}

/// A float model as int8, with the calibration images or else those of the run.
fn quantized(
    args: &RunOptions,
    model: &Model,
    images: Option<&[Source]>,
    preprocess: &Preprocess,
    watch: &dyn Watch,
) -> Result<Model> {
    let given = match args.calibration.is_empty() {
        true => None,
        false => Some(feeds::open(&args.calibration, None, &model.inputs())?),
    };
    let Some(calibration) = given.as_deref().or(images) else {
        return Err(Error::Float(args.model.clone()));
    };
    if given.is_none() {
        watch.note(&"quantising the float model with the input images".into());
    }
    let options = quantize::Options::new(quantize::Mode::Multiply);
    model.quantize(calibration, preprocess, &options, &Part(watch))
}

/// What needs the model of a bundle.
fn refuse(args: &RunOptions, model: &Model) -> Result<()> {
    let hosted = matches!(model.form(), Form::Hosted(_));
    ensure!(
        hosted || !args.target.allow_host,
        "{} needs the model, not a compiled bundle";
        ALLOW_HOST
    );
    ensure!(
        args.calibration.is_empty() && args.target.tiles.cache.is_none(),
        "{} and {} need the model, not a compiled bundle";
        CALIBRATION, TILES
    );
    ensure!(!args.verify, "{} needs the model, not a compiled bundle"; VERIFY);
    ensure!(args.requant.is_none(), "{} needs the model, not a compiled bundle"; REQUANT);
    Ok(())
}

/// What all devices found, but for the images.
fn outcome(
    args: &RunOptions,
    program: &Arc<Program>,
    shares: Vec<Share>,
    prepared: Duration,
) -> (Outcome, Vec<RunImages>) {
    let mut found = Vec::new();
    let mut marks = Marks::default();
    let mut counters: Vec<Counters> = Vec::new();
    let mut devices: BTreeMap<String, DeviceCounters> = BTreeMap::new();
    let mut mismatches = Vec::new();
    for share in shares {
        for (name, counted) in share.devices {
            devices.entry(name).or_default().add(&counted);
        }
        found.extend(share.outputs);
        marks.add_all(&share.marks);
        counters.push(share.counters);
        mismatches.extend(share.mismatches);
    }
    let outcome = Outcome {
        device: args.target.device.device.clone(),
        program: Arc::clone(program),
        images: Vec::new(),
        outputs: Vec::new(),
        labels: Vec::new(),
        reference: None,
        marks,
        counters,
        devices,
        verified: args.verify,
        timing_only: false,
        timed: None,
        design: None,
        mismatches,
        hazards: None,
        host: HostShare::default(),
        prepared,
        start: Start::default(),
        wall: Duration::ZERO,
    };
    (outcome, found)
}

/// The number of a run's first image, and by output the values of each image.
type RunImages = (usize, Vec<Vec<Vec<i8>>>);

/// What the program gave of each image, in their order: by output.
fn in_order(mut found: Vec<RunImages>) -> Vec<Vec<Vec<i8>>> {
    found.sort_unstable_by_key(|(first, _)| *first);
    let mut images = Vec::new();
    for (_, outputs) in found {
        let count = outputs.first().map_or(0, Vec::len);
        let mut of_run: Vec<Vec<Vec<i8>>> = vec![Vec::with_capacity(outputs.len()); count];
        for output in outputs {
            for (image, values) in of_run.iter_mut().zip(output) {
                image.push(values);
            }
        }
        images.extend(of_run);
    }
    images
}

/// The real values of the model's outputs: by image, by output.
fn reals(
    program: &Program,
    ends: Option<&Ends>,
    feeds: &Feeds<'_>,
    found: &[Vec<Vec<i8>>],
) -> Result<Vec<Vec<Vec<f32>>>> {
    let tensors = program.outputs.iter().map(|&index| program.tensor(index));
    let tensors: Vec<&TensorSpec> = tensors.collect::<Result<_, _>>()?;
    let real = |values: &[i8], tensor: &TensorSpec| -> Vec<f32> {
        let real = |&v: &i8| (f32::from(v) - f32::from(tensor.zero)) * tensor.scale;
        values.iter().map(real).collect()
    };
    let Some(ends) = ends else {
        let image = |outputs: &Vec<Vec<i8>>| {
            let with = outputs.iter().zip(&tensors);
            with.map(|(values, tensor)| real(values, tensor)).collect()
        };
        return Ok(found.iter().map(image).collect());
    };
    let views = found.iter().map(|image| image.iter().map(Vec::as_slice));
    let views: Vec<Vec<&[i8]>> = views.map(Iterator::collect).collect();
    let left = feeds.leave(ends, &views)?;
    let image = |(outputs, left): (&Vec<&[i8]>, Vec<Data>)| {
        let output = |output: &EndOutput| match *output {
            EndOutput::Tensor(at) => Ok(real(outputs[at], tensors[at])),
            EndOutput::Value { index, .. } => feeds::real(&left[index]),
        };
        ends.outputs().iter().map(output).collect()
    };
    views.iter().zip(left).map(image).collect()
}

/// What is kept of each image, in their order.
fn image_outcomes(
    program: &Program,
    found: Vec<Vec<Vec<f32>>>,
    mut facts: Facts,
    top: usize,
    wanted: Wanted,
) -> Vec<ImageOutcome> {
    let are_confidences = ends_in_softmax(program);
    let outcome = |(index, mut outputs): (usize, Vec<Vec<f32>>)| {
        let logits = outputs.first().map_or(&[][..], Vec::as_slice);
        let (name, truth) = facts.remove(&index).unwrap_or_default();
        let (best, ranking) = (
            images::first_largest(logits),
            rank(logits, are_confidences, top),
        );
        if wanted == Wanted::Labels {
            outputs.clear();
        }
        ImageOutcome {
            name,
            truth,
            best,
            ranking,
            outputs,
        }
    };
    found.into_iter().enumerate().map(outcome).collect()
}
