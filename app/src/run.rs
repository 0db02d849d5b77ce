//! A network on images: loaded, placed, compiled, run on devices side by side, compared.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vta_compiler::quantize;
use vta_driver::{Counters, DeviceCounters, Program, TensorSpec};

use crate::compile::Compiled;
use crate::cycle::Setup;
use crate::dump::Plans;
use crate::error::{Context, Error, Result, bail, ensure};
use crate::images::{self, Item, Reader, Source};
use crate::model::{self, Form, Model, Tensor};
use crate::options::RunOptions;
use crate::outcome::{ImageOutcome, Marks, Outcome, ends_in_softmax, rank};
use crate::pool::{Checks, Images, Share};
use crate::preprocess::{Preprocess, to_int8};
use crate::session::Session;
use crate::watch::{Part, Watch};
use crate::{check, device, dump};

/// Runs a network. An `output` that the caller wants needs computed values.
///
/// # Errors
/// Options that don't fit each other or the model, files that can't be read, compiled or written,
/// a failure of a device.
pub fn run(args: &RunOptions, output: Wanted, watch: &dyn Watch) -> Result<Outcome> {
    ensure!(args.top > 0, "`top` must be at least 1");
    ensure!(
        args.target.threads != Some(0),
        "`threads` must be at least 1"
    );
    ensure!(args.target.batch > 0, "`batch` must be at least 1");
    let title = &args.model;
    let setup = Setup::new(&args.target.device, &args.target.views, title)?;
    let compared = args.verify || output != Wanted::Labels || args.reference.is_some();
    ensure!(
        !(compared && setup.timing_only()),
        "`timing_only` computes no outputs for `verify`, `output` or `reference`"
    );
    let given = match args.input.is_empty() {
        true => None,
        false => Some(Source::open(&args.input, args.limit)?),
    };
    let started = Instant::now();
    let (compiled, preprocess) = prepare(args, given.as_ref(), watch)?;
    let prepared = started.elapsed();
    let program = Arc::clone(&compiled.program);
    if let Some(text) = setup.machine().misfit(&program) {
        watch.note(&text);
    }
    let spec = program.tensor(*program.inputs.first().context("the program has no input")?)?;
    let chw = spec.chw.map(|d| d as usize);
    let labels = model::labels(&program.metadata)?;
    let result = program.outputs.first();
    let result = program.tensor(*result.context("the program has no output")?)?;
    if output == Wanted::File && program.outputs.len() > 1 {
        let tensors = program.outputs.iter().map(|&index| program.tensor(index));
        let names = tensors
            .map(|t| Ok(&t?.name[..]))
            .collect::<Result<Vec<&str>>>()?;
        bail!(
            "{} has {} outputs ({}): an `output` whose name ends in .npz holds them",
            args.model,
            names.len(),
            names.join(", ")
        );
    }
    let source = images_of(args, given, chw, &labels, result.image_len())?;
    let reference = args.reference.as_deref().map(images::best_classes);
    let reference = reference.transpose()?;
    if let Some(reference) = &reference {
        let (n, m) = (source.len(), reference.len());
        ensure!(m >= n, "{m} rows of reference logits for {n} images");
    }
    let hazards = args.hazards.then(|| hazards(&compiled)).transpose()?;
    let (host_ops, host_segments) = (compiled.host_ops(), compiled.host_segments());
    let checks = match args.verify {
        true => Checks::Layers,
        false => Checks::None,
    };
    let mut session = Session::load(compiled, setup, &args.target, checks, title);
    let started = Instant::now();
    let inputs = Inputs {
        count: source.len(),
        preprocess: &preprocess,
        chw,
        scale: spec.scale,
        zero: spec.zero,
        reading: Mutex::new(Reading {
            reader: source.reader(),
            ahead: BTreeMap::new(),
            facts: BTreeMap::new(),
            fault: None,
        }),
    };
    let shares = session.shares(&inputs, watch);
    let wall = started.elapsed();
    let reading = inputs.reading.into_inner();
    let reading = reading.unwrap_or_else(PoisonError::into_inner);
    // The first image's error, whichever thread had one first.
    if let Some((_, error)) = reading.fault {
        return Err(error);
    }
    let (mut outcome, found) = outcome(args, &program, shares?, [prepared, wall]);
    outcome.images = image_outcomes(&program, found, reading.facts, args.top, output)?;
    let tensors = program.outputs.iter();
    let tensors = tensors.map(|&index| Tensor::of_program(&program, index));
    outcome.outputs = tensors.collect::<Result<_>>()?;
    outcome.labels = labels;
    outcome.reference = reference;
    outcome.hazards = hazards;
    (outcome.host_ops, outcome.host_segments) = (host_ops, host_segments);
    outcome.timing_only = session.timing_only();
    outcome.timed = session.finish()?;
    Ok(outcome)
}

/// The plans of one pass over a network, which isn't run: see [`dump::plans`]. A float model is
/// quantised on the way.
///
/// # Errors
/// As for [`run`] before it runs, and for [`dump::plans`].
pub fn plans(args: &RunOptions, watch: &dyn Watch) -> Result<Plans> {
    let given = match args.input.is_empty() {
        true => None,
        false => Some(Source::open(&args.input, args.limit)?),
    };
    let (compiled, _) = prepare(args, given.as_ref(), watch)?;
    dump::plans(&compiled, &device::device_names(&args.target.device.device))
}

/// The images that are given, or those that come with the model; class folders have its classes.
fn images_of(
    args: &RunOptions,
    given: Option<Source>,
    chw: [usize; 3],
    labels: &[String],
    classes: usize,
) -> Result<Source> {
    let Some(mut source) = given else {
        let mut pictures = model::default_images(&args.model, chw)?;
        pictures.truncate(args.limit.unwrap_or(usize::MAX));
        ensure!(!pictures.is_empty(), "there is no image to run");
        return Ok(Source::of_pictures(pictures));
    };
    source.name_classes(labels, classes)?;
    Ok(source)
}

/// The images of a run, decoded by the threads that run them.
struct Inputs<'a> {
    count: usize,
    preprocess: &'a Preprocess,
    chw: [usize; 3],
    /// Of the input's values.
    scale: f32,
    zero: i8,
    reading: Mutex<Reading<'a>>,
}

/// How far images are read.
struct Reading<'a> {
    reader: Reader<'a>,
    /// Those that were passed over, because a thread asked for a later one first: at most one run
    /// for each thread.
    ahead: BTreeMap<usize, Item>,
    /// Names and true classes of the images that were asked for.
    facts: BTreeMap<usize, (String, Option<usize>)>,
    /// The first image that can't be read, and why.
    fault: Option<(usize, Error)>,
}

impl Reading<'_> {
    fn item(&mut self, index: usize) -> Result<Item> {
        let item = loop {
            if let Some(item) = self.ahead.remove(&index) {
                break item;
            }
            let next = self.reader.next_item()?;
            let item = next.context("there is no such image")?;
            self.ahead.insert(item.index, item);
        };
        self.facts.insert(index, (item.name.clone(), item.label));
        Ok(item)
    }
}

impl Inputs<'_> {
    /// Keeps the error of the first image, and says that there is one.
    fn fail(&self, index: usize, error: Error) -> Error {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let first = reading
            .fault
            .as_ref()
            .is_none_or(|(first, _)| index < *first);
        if first {
            reading.fault = Some((index, error));
        }
        Error::Cancelled
    }
}

impl Images for Inputs<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn image(&self, _: &str, index: usize) -> Result<Cow<'_, [i8]>> {
        let item = {
            let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            // Images before the first one with an error are read nevertheless, so that it doesn't
            // depend on threads which one is told.
            let fault = reading.fault.as_ref();
            match fault.is_some_and(|(first, _)| *first < index) {
                true => Err(Error::Cancelled),
                false => reading.item(index),
            }
        };
        let decoded = item.and_then(|item| self.preprocess.apply(&item.decode()?, self.chw));
        let values = decoded.map_err(|error| self.fail(index, error))?;
        Ok(to_int8(&values, self.scale, self.zero).into())
    }
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

/// Loads and compiles; a float model is quantised on the way.
fn prepare(
    args: &RunOptions,
    images: Option<&Source>,
    watch: &dyn Watch,
) -> Result<(Compiled, Preprocess)> {
    let mut model = Model::open_with(&args.model, &args.input_shape)?;
    let stated = model.metadata().get("preprocess").cloned();
    let choose = || Preprocess::choose(&args.preprocess, stated.as_ref(), watch);
    if model.is_compiled() {
        refuse(args, &model)?;
        return Ok((model.compile(&args.target, &Part(watch))?, choose()?));
    }
    let preprocess = choose()?;
    if model.is_float() {
        model = quantized(args, &model, images, &preprocess, watch)?;
    } else {
        ensure!(
            args.calibration.is_none(),
            "`calibration` is for float models, but {} is int8 already",
            args.model
        );
    }
    if let Some(requant) = args.requant {
        model.set_requant(requant);
    }
    Ok((model.compile(&args.target, &Part(watch))?, preprocess))
}

/// A float model as int8, with the calibration images or else those of the run.
fn quantized(
    args: &RunOptions,
    model: &Model,
    images: Option<&Source>,
    preprocess: &Preprocess,
    watch: &dyn Watch,
) -> Result<Model> {
    let given = match &args.calibration {
        Some(path) => Some(Source::open(std::slice::from_ref(path), None)?),
        None => None,
    };
    let Some(calibration) = given.as_ref().or(images) else {
        return Err(Error::Float(args.model.clone()));
    };
    if given.is_none() {
        watch.note("quantising the float model with the input images");
    }
    let mode = quantize::Mode::Multiply;
    model.quantize(calibration, preprocess, mode, &Part(watch))
}

/// What needs the model of a bundle.
fn refuse(args: &RunOptions, model: &Model) -> Result<()> {
    let hosted = matches!(model.form(), Form::Hosted(_));
    ensure!(
        hosted || !args.target.allow_host,
        "`allow_host` needs the model, not a compiled bundle"
    );
    ensure!(
        args.calibration.is_none() && args.target.tiles.cache.is_none(),
        "`calibration` and `tiles` need the model, not a compiled bundle"
    );
    ensure!(
        !args.verify,
        "`verify` needs the model, not a compiled bundle"
    );
    ensure!(
        args.requant.is_none(),
        "`requant` needs the model, not a compiled bundle"
    );
    Ok(())
}

/// What all devices found, but for the images.
fn outcome(
    args: &RunOptions,
    program: &Arc<Program>,
    shares: Vec<Share>,
    [prepared, wall]: [Duration; 2],
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
        mismatches,
        hazards: None,
        host_ops: 0,
        host_segments: 0,
        prepared,
        wall,
    };
    (outcome, found)
}

/// The number of a run's first image, and by output the values of each image.
type RunImages = (usize, Vec<Vec<Vec<i8>>>);

/// What is kept of each image, in their order.
fn image_outcomes(
    program: &Program,
    mut found: Vec<RunImages>,
    mut facts: BTreeMap<usize, (String, Option<usize>)>,
    top: usize,
    wanted: Wanted,
) -> Result<Vec<ImageOutcome>> {
    let tensors = program.outputs.iter().map(|&index| program.tensor(index));
    let tensors: Vec<&TensorSpec> = tensors.collect::<Result<_, _>>()?;
    let real = |(values, tensor): (&Vec<i8>, &&TensorSpec)| -> Vec<f32> {
        let real = |&v: &i8| (f32::from(v) - f32::from(tensor.zero)) * tensor.scale;
        values.iter().map(real).collect()
    };
    let are_confidences = ends_in_softmax(program);
    found.sort_unstable_by_key(|(first, _)| *first);
    let mut outcomes = Vec::with_capacity(facts.len());
    for (first, outputs) in found {
        let count = outputs.first().map_or(0, Vec::len);
        for at in 0..count {
            let of_image = outputs.iter().map(|images| &images[at]).zip(&tensors);
            let told = if wanted == Wanted::Labels {
                1
            } else {
                tensors.len()
            };
            let mut outputs: Vec<Vec<f32>> = of_image.take(told).map(real).collect();
            let logits = outputs.first().map_or(&[][..], Vec::as_slice);
            let (name, truth) = facts.remove(&(first + at)).unwrap_or_default();
            let (best, ranking) = (
                images::first_largest(logits),
                rank(logits, are_confidences, top),
            );
            if wanted == Wanted::Labels {
                outputs.clear();
            }
            outcomes.push(ImageOutcome {
                name,
                truth,
                best,
                ranking,
                outputs,
            });
        }
    }
    Ok(outcomes)
}
