//! A network on images: loaded, placed, compiled, run on devices side by side, compared.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use vta_compiler::quantize;
use vta_driver::Program;

use crate::check;
use crate::compile::{Compiled, Plans, dump};
use crate::device;
use crate::device::setup::Setup;
use crate::error::{Context, Error, Result, bail, ensure};
use crate::images::{self, Source};
use crate::open::{Form, Model, Ports, Preprocess, Tensor, model};
use crate::options::RunOptions;
use crate::options::names::{
    ALLOW_HOST, BATCH, CALIBRATION, INPUT, OUTPUT, REFERENCE, REQUANT, THREADS, TILES, TIMING_ONLY,
    TOP, VERIFY,
};
use crate::run::feeds::{Facts, Feeds};
use crate::run::outcome::{ImageOutcome, ends_in_softmax, rank};
use crate::run::{Images, Outcome, Output, Session, Values, feeds};
use crate::watch::{Part, Watch};

/// Runs a network. An `output` that the caller wants needs computed values.
///
/// # Errors
/// Options that don't fit each other or the model, files that can't be read, compiled or written,
/// a failure of a device.
pub fn run(args: &RunOptions, output: Wanted, watch: &dyn Watch) -> Result<Outcome> {
    let setup = setup(args, output)?;
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
    let inputs = compiled.inputs()?;
    let outputs = as_modelled(&program, &inputs, compiled.outputs()?);
    let labels = model::labels(&program.metadata)?;
    let result = outputs.first().context("the program has no output")?;
    fits(args, output, &outputs)?;
    // No timing depends on values: one pass without any is timed.
    let blank = setup.timing_only() && given.is_none() && !model::has_images(&args.model);
    let sources = if blank {
        Vec::new()
    } else {
        images_of(args, given, &inputs, &labels, result.len())?
    };
    let count = sources.first().map_or(usize::from(blank), Source::len);
    let reference = reference(args, count)?;
    let hazards = args.hazards.then(|| hazards(&compiled)).transpose()?;
    let feeds = Feeds::new(&sources, &inputs, &preprocess, compiled.ends.clone());
    let mut session = Session::load(compiled, setup, &args.target, &args.model)?;
    let started = Instant::now();
    let found = if session.timing_only() {
        let zeros = vec![dump::zeros(&program)?];
        let images: &dyn Images = if blank { &zeros } else { &feeds };
        let ran = session.run_int8(images, watch);
        ran.map(|(_, share)| (Vec::new(), share))
    } else {
        session.run_inputs(&feeds, watch)
    };
    // Where an image was at fault, it is that error.
    let facts = feeds.facts()?;
    let (found, share) = found?;
    let wall = started.elapsed();
    let images = image_outcomes(&program, &found, facts, count, args.top, output)?;
    Ok(Outcome {
        device: args.target.device.device.clone(),
        images,
        outputs,
        labels,
        reference,
        marks: share.marks,
        counters: share.counters,
        devices: share.devices,
        verified: args.verify,
        timing_only: session.timing_only(),
        timed: session.finish()?,
        design: session.design(),
        mismatches: share.mismatches,
        hazards,
        host: session.host.clone(),
        prepared,
        start: session.start(),
        wall,
        program,
    })
}

/// The device of a run whose options fit each other.
fn setup(args: &RunOptions, output: Wanted) -> Result<Setup> {
    ensure!(args.top > 0, "{} must be at least 1"; TOP);
    ensure!(args.target.threads != Some(0), "{} must be at least 1"; THREADS);
    ensure!(args.target.batch != Some(0), "{} must be at least 1"; BATCH);
    let setup = Setup::new(&args.target.device, &args.target.views, &args.model)?;
    let compared = args.verify || output != Wanted::Labels || args.reference.is_some();
    ensure!(
        !(compared && setup.timing_only()),
        "{} computes no outputs for {}, {} or {}";
        TIMING_ONLY, VERIFY, OUTPUT, REFERENCE
    );
    Ok(setup)
}

/// Whether a file of this kind holds all outputs.
fn fits(args: &RunOptions, wanted: Wanted, outputs: &[Tensor]) -> Result<()> {
    let names: Vec<&str> = outputs.iter().map(|output| &*output.name).collect();
    ensure!(
        wanted != Wanted::File || names.len() <= 1,
        "{} has {} outputs ({}): an {} whose name ends in .npz holds them";
        args.model, names.len(), names.join(", "), OUTPUT
    );
    Ok(())
}

/// Outputs as the model says them: tensors of the device may stand for several, in another form.
fn as_modelled(program: &Program, inputs: &[Tensor], mut outputs: Vec<Tensor>) -> Vec<Tensor> {
    let ports = Ports::of_metadata(&program.metadata, inputs, &outputs).outputs;
    for (output, port) in outputs.iter_mut().zip(ports) {
        (output.shape, output.element) = (port.image().to_vec(), port.element);
        output.name = port.name;
    }
    outputs
}

/// Another runtime's best classes, of so many images at least.
fn reference(args: &RunOptions, images: usize) -> Result<Option<Vec<usize>>> {
    let reference = args.reference.as_deref().map(images::best_classes);
    let reference = reference.transpose()?;
    if let Some(reference) = &reference {
        let rows = reference.len();
        ensure!(
            rows >= images,
            "{rows} rows of reference logits for {images} images"
        );
    }
    Ok(reference)
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
    let open = |inputs: &[Tensor]| {
        let given = (!args.input.is_empty()).then(|| feeds::open(&args.input, args.limit, inputs));
        given.transpose()
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
    if given.is_some() && args.model.starts_with("zoo:") {
        watch
            .note(&"networks of the zoo have made-up weights: what they find means nothing".into());
    }
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
    let compiled = if args.verify {
        model.compile_to_compare(&args.target, &Part(watch))?
    } else {
        model.compile(&args.target, &Part(watch))?
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
    let open = || feeds::open(&args.calibration, None, &model.inputs());
    let given = (!args.calibration.is_empty()).then(open).transpose()?;
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

/// What is kept of each image, in their order, of what all outputs are.
fn image_outcomes(
    program: &Program,
    found: &[Output],
    mut facts: Facts,
    count: usize,
    top: usize,
    wanted: Wanted,
) -> Result<Vec<ImageOutcome>> {
    let real = |output: &Output| match &output.values {
        Values::Whole(values) => feeds::reals(values),
        Values::Real(_) | Values::Int8(_) => Ok(output.real()),
    };
    let all: Vec<Vec<f32>> = found.iter().map(real).collect::<Result<_>>()?;
    let are_confidences = ends_in_softmax(program);
    let outcome = |index: usize| {
        let of_image = |values: &'_ Vec<f32>| {
            let len = values.len() / count;
            index * len..(index + 1) * len
        };
        let logits = all
            .first()
            .map_or(&[][..], |values| &values[of_image(values)]);
        let (name, truth) = facts.remove(&index).unwrap_or_default();
        let outputs = if wanted == Wanted::Labels {
            Vec::new()
        } else {
            all.iter().map(|v| v[of_image(v)].to_vec()).collect()
        };
        ImageOutcome {
            name,
            truth,
            best: images::first_largest(logits),
            ranking: rank(logits, are_confidences, top),
            outputs,
        }
    };
    Ok((0..count).map(outcome).collect())
}
