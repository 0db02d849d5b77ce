//! A network on images: loaded, placed, compiled, run on devices side by side, compared.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use vta_compiler::qgraph::QGraph;
use vta_compiler::{passes, quantize, reference};
use vta_driver::{
    Counters, Device, DeviceCounters, MultiProgram, MultiSession, Part, Place, Program,
    QueueLimits, RunOutput, RunReport, Session, Step,
};

use crate::check;
use crate::cycle::Setup;
use crate::images::{self, Picture};
use crate::model::{self, Model, Plan};
use crate::options::RunOptions;
use crate::outcome::Outcome;
use crate::preprocess::{Preprocess, to_int8};
use crate::watch::Watch;

/// Everything that a worker needs to run images.
struct Job<'a> {
    program: &'a Arc<Program>,
    graph: Option<&'a QGraph>,
    /// The network over several devices.
    split: Option<Arc<MultiProgram>>,
    args: &'a RunOptions,
    setup: &'a Setup,
    images: &'a [Vec<i8>],
    next: AtomicUsize,
    done: AtomicUsize,
    watch: &'a dyn Watch,
}

/// What one worker found.
struct Share {
    /// First image and outputs of each run.
    outputs: Vec<(usize, Vec<Vec<i8>>)>,
    reports: Vec<RunReport>,
    counters: Counters,
    /// By the devices' names, of those that count.
    devices: BTreeMap<String, DeviceCounters>,
    mismatches: Vec<String>,
}

/// Runs a network. An `output` that the caller wants needs computed values.
///
/// # Errors
/// Options that don't fit each other or the model, files that can't be read, compiled or written,
/// a failure of a device.
pub fn run(args: &RunOptions, output: Wanted, watch: &dyn Watch) -> Result<Outcome> {
    ensure!(args.top > 0, "--top must be at least 1");
    ensure!(args.threads != Some(0), "--threads must be at least 1");
    ensure!(args.batch > 0, "--batch must be at least 1");
    let setup = Setup::new(&args.device, &args.views, &args.model)?;
    let compared = args.verify || output == Wanted::File || args.reference.is_some();
    ensure!(
        !(compared && setup.timing_only()),
        "--timing-only computes no outputs for --verify, --output or --reference"
    );
    let device_config = setup.machine().config.clone();
    let mut pictures = match args.input.is_empty() {
        true => Vec::new(),
        false => images::load_all(&args.input, args.limit)?,
    };
    let started = Instant::now();
    let Prepared {
        graph,
        plan,
        preprocess,
    } = prepare(args, &device_config, &mut pictures, watch)?;
    let (program, split) = (Arc::new(plan.program), plan.split.map(Arc::new));
    let prepared = started.elapsed();
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
    let hazards = args.hazards.then(|| hazards(&program, split.as_deref()));
    let hazards = hazards.transpose()?;
    let host_ops = split.as_ref().map_or(0, |split| split.host_ops());
    let job = Job {
        program: &program,
        graph: graph.as_ref(),
        split,
        args,
        setup: &setup,
        images: &inputs,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        watch,
    };
    watch.progress(0, inputs.len());
    let started = Instant::now();
    let shares = work(&job)?;
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
    outcome.timing_only = setup.timing_only();
    outcome.timed = setup.finish(&program, &args.model)?;
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

/// What is known before anything runs.
struct Prepared {
    graph: Option<QGraph>,
    plan: Plan,
    preprocess: Preprocess,
}

/// The hazards of a program, or of those of all devices that it runs on.
fn hazards(program: &Arc<Program>, split: Option<&MultiProgram>) -> Result<Vec<String>> {
    let Some(split) = split else {
        return check::hazards_of_program(program);
    };
    let parts = split
        .parts
        .iter()
        .map(|part| check::hazards_of_program(&part.program));
    let all: Vec<Vec<String>> = parts.collect::<Result<_>>()?;
    Ok(all.concat())
}

/// Loads and compiles; a float model is quantised on the way.
fn prepare(
    args: &RunOptions,
    config: &vta_isa::Config,
    pictures: &mut [Picture],
    watch: &dyn Watch,
) -> Result<Prepared> {
    let mut graph = match model::load(&args.model)? {
        Model::Program(program) => {
            ensure!(
                !args.allow_host,
                "--allow-host needs the model, not a compiled bundle"
            );
            let plan = Plan {
                program: *program,
                split: None,
            };
            return compiled(args, config, plan, watch);
        }
        Model::Hosted(network) => {
            let part = network.parts.first().context("the bundle has no program")?;
            let plan = Plan {
                program: model::overview(&network, &part.program.config),
                split: Some(*network),
            };
            return compiled(args, config, plan, watch);
        }
        Model::Graph(graph) => *graph,
    };
    let preprocess = Preprocess::choose(&args.preprocess, graph.metadata.get("preprocess"), watch)?;
    let quantised = model::is_quantised(&graph);
    ensure!(
        !quantised || args.calibration.is_none(),
        "--calibration is for float models, but {} is int8 already",
        args.model
    );
    if !quantised {
        let given = match &args.calibration {
            Some(path) => Some(images::load_all(std::slice::from_ref(path), None)?),
            None => None,
        };
        let calibration = given.as_deref().unwrap_or(pictures);
        if calibration.is_empty() {
            bail!(
                "{} is a float model: give --calibration DIR|.npz or run `vta quantize`",
                args.model
            );
        }
        if given.is_none() {
            watch.note("quantising the float model with the input images");
        }
        graph = model::quantise(&graph, calibration, &preprocess, quantize::Mode::Multiply)
            .with_context(|| args.model.clone())?;
    }
    model::choose_requant(&mut graph, args.requant);
    let name = || args.model.clone();
    let integer = passes::quantized(&graph).with_context(name)?;
    let plan = model::plan(args, &integer, config).with_context(name)?;
    Ok(Prepared {
        graph: Some(integer),
        plan,
        preprocess,
    })
}

/// What a bundle says of itself; what needs its model is refused.
fn compiled(
    args: &RunOptions,
    config: &vta_isa::Config,
    plan: Plan,
    watch: &dyn Watch,
) -> Result<Prepared> {
    if args.device.config.is_some() {
        model::same_config(&plan.program, config)?;
    }
    ensure!(
        args.calibration.is_none() && args.tiles.cache.is_none(),
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
    ensure!(
        args.placement.is_none() && model::device_names(&args.device.device).len() == 1,
        "several devices need the model, not a compiled bundle"
    );
    let stated = plan.program.metadata.get("preprocess");
    Ok(Prepared {
        preprocess: Preprocess::choose(&args.preprocess, stated, watch)?,
        graph: None,
        plan,
    })
}

/// Runs all images, each on a device with one thread or more; results don't depend on how many.
fn work(job: &Job<'_>) -> Result<Vec<Share>> {
    // An OpenCL device uses all its cores by itself.
    let names = model::device_names(&job.args.device.device);
    let cores = match names.into_iter().any(model::is_opencl) {
        true => 1,
        false => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let runs = job.images.len().div_ceil(job.program.config.batch());
    let threads = shares(job.args.threads.unwrap_or(cores), runs);
    std::thread::scope(|scope| {
        let workers = threads.into_iter();
        let workers: Vec<_> = workers
            .map(|n| scope.spawn(move || worker(job, n)))
            .collect();
        let join = |w: std::thread::ScopedJoinHandle<'_, Result<Share>>| {
            w.join().unwrap_or_else(|_| bail!("a worker thread failed"))
        };
        workers.into_iter().map(join).collect()
    })
}

/// Threads of each device: independent runs come first, and what is left over goes to parts of
/// them.
fn shares(threads: usize, runs: usize) -> Vec<usize> {
    let devices = threads.min(runs).max(1);
    let share = |device: usize| threads / devices + usize::from(device < threads % devices);
    (0..devices).map(|device| share(device).max(1)).collect()
}

/// Runs images on a device, or on several, that may use so many threads for each run.
fn worker(job: &Job<'_>, threads: usize) -> Result<Share> {
    let config = &job.program.config;
    let limits = QueueLimits::default();
    let names = model::device_names(&job.args.device.device);
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    let mut engine = match &job.split {
        None => {
            let device = job.setup.device(config, threads)?;
            devices.push(Arc::clone(&device));
            let program = Arc::clone(job.program);
            Engine::One(match job.args.verify {
                true => Session::keeping_tensors(program, device, limits)?,
                false => Session::new(program, device, limits)?,
            })
        }
        Some(split) => {
            // All are made, also those without a layer: a wrong name is an error.
            for name in &names {
                devices.push(match names.len() {
                    1 => job.setup.device(config, threads)?,
                    _ => job.setup.device_named(name, config, threads)?,
                });
            }
            let device = |part: &Part| Arc::clone(&devices[part.target]);
            let targets: Vec<_> = split.parts.iter().map(device).collect();
            let runs = job.images.len().div_ceil(config.batch()).max(1);
            let sessions = (0..job.args.batch.min(runs))
                .map(|_| MultiSession::new(Arc::clone(split), &targets, limits));
            Engine::Several(sessions.collect::<Result<_, _>>()?)
        }
    };
    let mut share = Share {
        outputs: Vec::new(),
        reports: Vec::new(),
        counters: Counters::default(),
        devices: BTreeMap::new(),
        mismatches: Vec::new(),
    };
    match &mut engine {
        // Layers are compared before the next run overwrites them.
        engine if job.args.verify || job.args.batch == 1 => {
            while let Some((first, refs)) = job.take() {
                let out = engine.run(&refs)?;
                share.add(job, first, out)?;
                if job.args.verify {
                    verify(job, engine, first, &refs, &mut share.mismatches)?;
                }
            }
        }
        Engine::One(session) => in_flight(job, session, &mut share)?,
        Engine::Several(sessions) => in_turns(job, sessions, &mut share)?,
    }
    share.counters = engine.counters();
    for device in devices {
        if let Some(counted) = device.counters() {
            let name = device.info().name.clone();
            share.devices.entry(name).or_default().add(&counted);
        }
    }
    Ok(share)
}

/// Several runs in flight on one device.
fn in_flight(job: &Job<'_>, session: &mut Session, share: &mut Share) -> Result<()> {
    let mut flying = VecDeque::new();
    let mut pipeline = session.pipeline(job.args.batch)?;
    while let Some((first, refs)) = job.take() {
        flying.push_back(first);
        if let Some(out) = pipeline.push(&refs)? {
            share.add(job, flying.pop_front().unwrap_or(first), out)?;
        }
    }
    for first in flying {
        let out = pipeline.pop().context("a run has no result")??;
        share.add(job, first, out)?;
    }
    Ok(())
}

/// Several runs in flight over several devices: each session has one.
fn in_turns(job: &Job<'_>, sessions: &mut [MultiSession], share: &mut Share) -> Result<()> {
    let mut flying: Vec<Option<usize>> = vec![None; sessions.len()];
    let mut land = |session: &mut MultiSession, flying: &mut Option<usize>| -> Result<()> {
        if let Some(first) = flying.take() {
            let out = session.finish().context("a run has no result")??;
            share.add(job, first, out)?;
        }
        Ok(())
    };
    let mut turn = 0;
    while let Some((first, refs)) = job.take() {
        land(&mut sessions[turn], &mut flying[turn])?;
        sessions[turn].start(&refs)?;
        flying[turn] = Some(first);
        turn = (turn + 1) % sessions.len();
    }
    for (session, flying) in sessions.iter_mut().zip(&mut flying) {
        land(session, flying)?;
    }
    Ok(())
}

/// Name, number in the network, and contents of a layer's output.
type LayerOutput = (String, usize, Vec<Vec<i8>>);

/// A network loaded on one device, or on several.
enum Engine {
    One(Session),
    /// One session for each run in flight.
    Several(Vec<MultiSession>),
}

impl Engine {
    fn run(&mut self, images: &[&[i8]]) -> Result<RunOutput> {
        Ok(match self {
            Self::One(session) => session.run(images)?,
            Self::Several(sessions) => {
                let session = sessions.first_mut();
                session.context("no run is in flight")?.run(images)?
            }
        })
    }

    fn counters(&self) -> Counters {
        match self {
            Self::One(session) => session.counters(),
            Self::Several(sessions) => {
                let mut total = Counters::default();
                for session in sessions {
                    total.add(&session.counters());
                }
                total
            }
        }
    }

    /// Every layer's output as the last run left it.
    fn outputs(&mut self) -> Result<Vec<LayerOutput>> {
        let mut all = Vec::new();
        match self {
            Self::One(session) => {
                for layer in &Arc::clone(session.program()).layers {
                    let found = session.read_tensor(layer.output)?;
                    all.push((layer.name.clone(), layer.output as usize, found));
                }
            }
            Self::Several(sessions) => {
                let session = sessions.first().context("no run is in flight")?;
                let program = Arc::clone(session.program());
                for (index, part) in program.parts.iter().enumerate() {
                    for layer in &part.program.layers {
                        let tensor = layer.output;
                        let found = session.read_tensor(Place {
                            part: index,
                            tensor,
                        })?;
                        let number = part.network_tensors[tensor as usize] as usize;
                        all.push((layer.name.clone(), number, found));
                    }
                }
                for step in &program.steps {
                    if let Step::Host(step) = step
                        && let Some(place) = step.outputs.first()
                    {
                        let found = session.read_tensor(*place)?;
                        all.push((step.name.clone(), step.network_tensor as usize, found));
                    }
                }
            }
        }
        Ok(all)
    }
}

impl Job<'_> {
    /// The next images that make a run, and the index of the first; `None` when all are taken.
    fn take(&self) -> Option<(usize, Vec<&[i8]>)> {
        let batch = self.program.config.batch();
        let first = self.next.fetch_add(batch, Ordering::Relaxed);
        let end = (first + batch).min(self.images.len());
        let images = self.images.get(first..end).filter(|i| !i.is_empty())?;
        Some((first, images.iter().map(Vec::as_slice).collect()))
    }
}

impl Share {
    fn add(&mut self, job: &Job<'_>, first: usize, out: RunOutput) -> Result<()> {
        let outputs = out.outputs.into_iter().next();
        let outputs = outputs.context("the program has no output")?;
        let before = job.done.fetch_add(outputs.len(), Ordering::Relaxed);
        job.watch.progress(before + outputs.len(), job.images.len());
        self.outputs.push((first, outputs));
        self.reports.extend(out.reports);
        Ok(())
    }
}

/// Compares every layer's output with the reference interpreter.
fn verify(
    job: &Job<'_>,
    engine: &mut Engine,
    first: usize,
    images: &[&[i8]],
    mismatches: &mut Vec<String>,
) -> Result<()> {
    let Some(graph) = job.graph else {
        return Ok(());
    };
    let expected: Vec<_> = images
        .iter()
        .map(|x| reference::run(graph, x))
        .collect::<Result<_, _>>()?;
    for (name, tensor, got) in engine.outputs()? {
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let expected = &expected[tensor];
            if let Some(at) = got.iter().zip(expected).position(|(a, b)| a != b) {
                let image = first + i;
                let (a, b) = (got[at], expected[at]);
                mismatches.push(format!(
                    "image {image}, layer {name}, value {at}: {a}, not {b}"
                ));
            }
        }
    }
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
            for (i, values) in outputs.into_iter().enumerate() {
                logits[first + i] = values.iter().map(|&v| f32::from(v) * spec.scale).collect();
            }
        }
        reports.extend(share.reports);
        counters.push(share.counters);
        mismatches.extend(share.mismatches);
    }
    let labels = match program.metadata.get("labels") {
        Some(json) => serde_json::from_str(json).context("the model's labels")?,
        None => Vec::new(),
    };
    Ok(Outcome {
        device: args.device.device.clone(),
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

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn threads_that_images_leave_over_share_images() {
        let cases: [(usize, usize, &[usize]); 7] = [
            (1, 1, &[1]),
            (2, 1, &[2]),
            (2, 2, &[1, 1]),
            (2, 200, &[1, 1]),
            (8, 3, &[3, 3, 2]),
            (3, 2, &[2, 1]),
            (4, 0, &[4]),
        ];
        for (threads, runs, expected) in cases {
            assert_eq!(shares(threads, runs), expected, "{threads} {runs}");
        }
    }
}
