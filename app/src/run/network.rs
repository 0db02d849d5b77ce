//! A network on images: loaded, placed, compiled, run on devices side by side, compared.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

use crate::check;
use crate::compile::{Compiled, Plans, dump};
use crate::device::Setup;
use crate::error::{Context, Error, Result, bail, ensure};
use crate::files;
use crate::images::{self, Source};
use crate::open::{Model, Network, Preprocess, Tensor, model};
use crate::options::RunOptions;
use crate::options::names::{
    ALLOW_HOST, CALIBRATION, INPUT, INT4, KEEP_FLOAT, OUTPUT, REFERENCE, REQUANT, TILES,
    TIMING_ONLY, TOP, VERIFY,
};
use crate::quantize;
use crate::run::feeds::{Facts, Feeds};
use crate::run::outcome::{ImageOutcome, ends_in_softmax, rank};
use crate::run::{Images, Outcome, Output, Session, Values, feeds, outputs};
use crate::watch::{Part, Watch};

/// Runs a network, and writes its outputs if a file is named for them.
///
/// # Errors
/// Options that don't fit each other or the model, files that can't be read, compiled or written,
/// a failure of a device.
pub fn run(args: &RunOptions, watch: &dyn Watch) -> Result<Outcome> {
    ensure!(args.top > 0, "{} must be at least 1"; TOP);
    let Prepared {
        mut session,
        preprocess,
        given,
        prepared,
    } = prepare(args, watch)?;
    let program = Arc::clone(session.program());
    let inputs = session.inputs().to_vec();
    let outputs: Vec<Tensor> = session
        .outputs()
        .iter()
        .cloned()
        .map(Tensor::modelled)
        .collect();
    let labels = model::labels(&program.metadata)?;
    let result = outputs.first().context("the program has no output")?;
    fits(args, &outputs)?;
    // No timing depends on values: one pass without any is timed.
    let timing_only = session.timing_only();
    let blank = timing_only && given.is_none() && !images::has_images(&args.model);
    let sources = if blank {
        Vec::new()
    } else {
        images_of(args, given, &inputs, &labels, result.len())?
    };
    let count = sources.first().map_or(usize::from(blank), Source::len);
    let reference = reference(args, count)?;
    let network = &session.pool.network;
    let hazards = args.hazards.then(|| hazards(network)).transpose()?;
    let feeds = Feeds::new(&sources, &inputs, &preprocess, network.ends.clone());
    let started = Instant::now();
    let found = if timing_only {
        let zeros = vec![dump::zeros(&program)?];
        let images: &dyn Images = if blank { &zeros } else { &feeds };
        session
            .pool
            .run_steps(images, watch)
            .map(|(_, found)| found)
    } else {
        session.pool.run_inputs(&feeds, &session.outputs, watch)
    };
    // Where an image was at fault, it is that error.
    let facts = feeds.facts()?;
    let mut found = found?;
    let wall = started.elapsed();
    let images = image_outcomes(&session.pool.network, &found.outputs, facts, count, args)?;
    found.outputs.clear();
    if let Some(path) = &args.output {
        outputs::save(path, &outputs, &images)?;
    }
    Ok(Outcome {
        device: args.target.device.clone(),
        images,
        outputs,
        labels,
        reference,
        found,
        verified: args.verify,
        timing_only,
        timed: session.finish()?,
        design: session.design(),
        hazards,
        host: session.host,
        prepared,
        wall,
        program,
    })
}

/// Whether the file for the outputs holds them all.
fn fits(args: &RunOptions, outputs: &[Tensor]) -> Result<()> {
    let names: Vec<&str> = outputs.iter().map(|output| &*output.name).collect();
    let holds_one = |path: &PathBuf| !files::is(path, &["npz"]);
    ensure!(
        names.len() <= 1 || !args.output.as_ref().is_some_and(holds_one),
        "{} has {} outputs ({}): an {} whose name ends in .npz holds them";
        args.model, names.len(), names.join(", "), OUTPUT
    );
    Ok(())
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

/// The plans of one pass over a network, which isn't run: see [`Session::plans`]. A float model is
/// quantised on the way.
///
/// # Errors
/// As for [`run`] before it runs, and for [`Session::plans`].
pub fn plans(args: &RunOptions, watch: &dyn Watch) -> Result<Plans> {
    prepare(args, watch)?.session.plans()
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
        let mut pictures = images::default_images(&args.model, input.chw)?;
        pictures.truncate(args.limit.unwrap_or(usize::MAX));
        ensure!(!pictures.is_empty(), "there is no image to run");
        return Ok(vec![Source::of_pictures(pictures)]);
    };
    for source in &mut sources {
        source.name_classes(labels, classes)?;
    }
    Ok(sources)
}

/// The hazards of a program, or of those of all devices that it runs on.
fn hazards(compiled: &Compiled) -> Result<Vec<String>> {
    let programs = compiled.programs().into_iter();
    let all: Vec<Vec<String>> = programs
        .map(check::hazards_of_program)
        .collect::<Result<_>>()?;
    Ok(all.concat())
}

/// A network on its devices, and its images.
struct Prepared {
    session: Session,
    preprocess: Preprocess,
    /// Of each input, where they are given.
    given: Option<Vec<Source>>,
    /// How long loading and compiling took.
    prepared: Duration,
}

/// Loads and compiles; a float model is quantised on the way.
fn prepare(args: &RunOptions, watch: &dyn Watch) -> Result<Prepared> {
    let target = &args.target;
    let setup = Setup::new(target, &args.model)?;
    let compared = args.verify || args.output.is_some() || args.reference.is_some();
    ensure!(
        !(compared && setup.timing_only()),
        "{} computes no outputs for {}, {} or {}";
        TIMING_ONLY, VERIFY, OUTPUT, REFERENCE
    );
    let started = Instant::now();
    // A bundle's configuration is known when it is read.
    if !files::is(Path::new(&args.model), &["vta"]) {
        setup.open_ahead();
    }
    let mut model = target.open(&args.model, None)?;
    if model.is_compiled() {
        refuse(args, &model)?;
    }
    let given = (!args.input.is_empty())
        .then(|| feeds::open(&args.input, args.limit, &model.inputs()?))
        .transpose()?;
    if given.is_some() && args.model.starts_with("zoo:") {
        watch
            .note(&"networks of the zoo have made-up weights: what they find means nothing".into());
    }
    let stated = model.metadata().get("preprocess");
    let preprocess = Preprocess::choose(&target.preprocess, stated, watch)?;
    if model.is_float() {
        model = quantized(args, model, given.as_deref(), &preprocess, watch)?;
    } else {
        ensure!(
            args.calibration.is_empty(),
            "{} is for float models, but {} is int8 already";
            CALIBRATION, args.model
        );
        let how = &args.quantize;
        for (layers, name) in [(&how.keep_float, KEEP_FLOAT), (&how.int4, INT4)] {
            ensure!(
                layers.is_empty(),
                "{} is for float models, but {} is int8 already";
                name, args.model
            );
        }
    }
    let compile = if args.verify {
        Model::compile_to_compare
    } else {
        Model::compile
    };
    Ok(Prepared {
        session: Session::on(setup, model, &Part(watch), compile)?,
        preprocess,
        given,
        prepared: started.elapsed(),
    })
}

/// A float model as int8, with the calibration images or else those of the run.
fn quantized(
    args: &RunOptions,
    model: Model,
    images: Option<&[Source]>,
    preprocess: &Preprocess,
    watch: &dyn Watch,
) -> Result<Model> {
    let inputs = model.inputs()?;
    let open = || feeds::open(&args.calibration, None, &inputs);
    let given = (!args.calibration.is_empty()).then(open).transpose()?;
    let (Some(calibration), Network::Graph(graph)) =
        (given.as_deref().or(images), model.into_network())
    else {
        return Err(Error::Float(args.model.clone()));
    };
    if given.is_none() {
        watch.note(&"quantising the float model with the input images".into());
    }
    let images = Feeds::new(calibration, &inputs, preprocess, None);
    let given = quantize::Given {
        images: &images,
        others: None,
    };
    let made = quantize::calibrated(&args.model, *graph, &given, &args.quantize, &Part(watch))?;
    for warning in made.fidelity.warnings() {
        watch.note(&warning);
    }
    Ok(Model::of_graph(&args.model, made.into_graph()))
}

/// What needs the model of a bundle.
fn refuse(args: &RunOptions, model: &Model) -> Result<()> {
    let target = &args.target;
    ensure!(
        model.is_hosted() || !target.allow_host,
        "{} needs the model, not a compiled bundle";
        ALLOW_HOST
    );
    ensure!(
        args.calibration.is_empty() && target.tiles.is_none(),
        "{} and {} need the model, not a compiled bundle";
        CALIBRATION, TILES
    );
    ensure!(!args.verify, "{} needs the model, not a compiled bundle"; VERIFY);
    let how = &args.quantize;
    for (layers, name) in [(&how.keep_float, KEEP_FLOAT), (&how.int4, INT4)] {
        ensure!(
            layers.is_empty(),
            "{} needs the float model, not a compiled bundle";
            name
        );
    }
    ensure!(target.requant.is_none(), "{} needs the model, not a compiled bundle"; REQUANT);
    Ok(())
}

/// What is kept of each image, in their order, of what all outputs are.
fn image_outcomes(
    network: &Compiled,
    found: &[Output],
    mut facts: Facts,
    count: usize,
    args: &RunOptions,
) -> Result<Vec<ImageOutcome>> {
    let real = |output: &Output| match &output.values {
        Values::Whole(values) => feeds::reals(values),
        Values::Real(_) | Values::Steps(_) => Ok(output.real()),
    };
    let all: Vec<Vec<f32>> = found.iter().map(real).collect::<Result<_>>()?;
    let are_confidences = ends_in_softmax(&network.program, network.ends.as_deref());
    let outcome = |index: usize| {
        let of_image = |values: &'_ Vec<f32>| {
            let len = values.len() / count;
            index * len..(index + 1) * len
        };
        let logits = all
            .first()
            .map_or(&[][..], |values| &values[of_image(values)]);
        let (name, truth) = facts.remove(&index).unwrap_or_default();
        let outputs = if args.output.is_some() {
            all.iter().map(|v| v[of_image(v)].to_vec()).collect()
        } else {
            Vec::new()
        };
        ImageOutcome {
            name,
            truth,
            best: images::first_largest(logits),
            ranking: rank(logits, are_confidences, args.top),
            outputs,
        }
    };
    Ok((0..count).map(outcome).collect())
}
