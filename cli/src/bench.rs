//! `vta bench`: how fast the functional simulator is, as a share of what this CPU can do.

mod cores;
mod figures;
mod kinds;
mod onnxruntime;
pub mod spread;
pub mod subject;
mod tiny;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use vta_app::device;
use vta_compiler::{layer, lower};
use vta_driver::{Program, QueueLimits, RunReport, Session};
use vta_isa::Config;
use vta_sim::{GemmKernel, SimDevice};

pub use self::cores::on_core;
use self::figures::{Figures, LayerRow, NetworkRow, Samples, Speedup};
use self::spread::median;
use self::subject::{image, program, simulator};
use crate::args::BenchArgs;
use crate::terminal::{print_json, print_text, say};

/// Layers whose share is reported: ResNet-18's convolutions but the first.
const LAYERS: std::ops::RangeInclusive<usize> = 2..=11;
/// Networks of the zoo, all of whose multiply-adds count.
const NETWORKS: [&str; 2] = ["resnet18", "resnet50"];
/// Samples of one turn when layers take turns.
const LAYER_TURN: usize = 8;
/// Runs of a layer before the samples of a turn.
const WARM_UPS: usize = 4;
/// Images of one turn when one thread and two take turns.
const TURN: usize = 4;
/// Turns at least: a median of fewer would be one of what else the machine does.
const MIN_TURNS: usize = 21;

/// Measures and prints.
pub fn bench(args: &BenchArgs) -> Result<bool> {
    ensure!(args.samples > 0, "--samples must be at least 1");
    ensure!(args.threads > 0, "--threads must be at least 1");
    if let Some(network) = &args.onnx {
        return kinds::bench(args, network);
    }
    let config = device::config(args.config.as_ref())?;
    let kernel = SimDevice::kernel_from_env()?;
    let mut figures = Figures {
        kernel,
        layers: Vec::new(),
        networks: Vec::new(),
        threads: Vec::new(),
        ns_per_insn: on_core(0, || tiny::tiny(&config, args.samples))?,
        onnxruntime: None,
    };
    figures.layers = on_core(0, || layers(&config, kernel, args.samples))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for name in NETWORKS {
        let samples = args.samples.div_ceil(4);
        let program = program(&format!("zoo:{name}"), &config)?;
        let measured = on_core(0, || one_network(name, &program, kernel, samples));
        figures.networks.push(measured?);
        if figures.threads.is_empty() {
            let most = cores.min(args.threads);
            let counts = std::iter::successors(Some(2), |n| Some(2 * n));
            let measured = counts.take_while(|n| *n <= most).map(|threads| {
                Ok(Speedup {
                    threads,
                    images: side_by_side(&program, threads, samples)?,
                    one_image: one_image(&program, kernel, threads, samples)?,
                })
            });
            figures.threads = measured.collect::<Result<_>>()?;
        }
    }
    if let Some(python) = &args.onnxruntime {
        let program = program(&format!("zoo:{}", onnxruntime::NETWORK), &config)?;
        let mut ours = session(&program)?;
        let image = image(&program, 0)?;
        let compared = onnxruntime::compare(python, args.samples.div_ceil(4), || {
            timed(&mut ours, &image)
        });
        match compared {
            Ok(comparison) => figures.onnxruntime = Some(comparison),
            // Everything else is measured all the same.
            Err(error) => say(&format!(
                "vta bench: no comparison with onnxruntime: {error:#}"
            )),
        }
    }
    if args.json {
        print_json(&figures.json())?;
    } else {
        print_text(&figures.text())?;
    }
    Ok(true)
}

/// A layer that is measured.
struct LayerRun {
    name: String,
    macs: u64,
    session: Session,
    image: Vec<i16>,
    samples: Samples,
}

impl LayerRun {
    fn new(name: &str, config: &Config) -> Result<Self> {
        let spec = layer::parse(name)?;
        let graph = layer::build(&spec, 1)?;
        let options = lower::LowerOptions::default();
        let program = Arc::new(lower::compile(&graph, config, &options)?);
        Ok(Self {
            session: session(&program)?,
            image: layer::input(&spec, 1, 0),
            macs: program.layers.iter().map(|l| l.macs).sum(),
            name: spec.name,
            samples: Samples::default(),
        })
    }

    /// The device's wall time of a run.
    fn run(&mut self) -> Result<f64> {
        let out = self.session.run(&[&self.image])?;
        let wall: Duration = out.reports.iter().map(|r| r.wall).sum();
        Ok(wall.as_secs_f64())
    }
}

/// The layers, each on one thread. They take turns of a few samples, so that what else the machine
/// does for a moment hits few samples of any; runs before these bring data, plan and thread back
/// to one core.
fn layers(config: &Config, kernel: GemmKernel, samples: usize) -> Result<Vec<LayerRow>> {
    let names = LAYERS.map(|index| format!("resnet18.C{index}"));
    let runs = names.map(|name| LayerRun::new(&name, config));
    let mut runs = runs.collect::<Result<Vec<_>>>()?;
    for first in (0..samples).step_by(LAYER_TURN) {
        for layer in &mut runs {
            for _ in 0..WARM_UPS {
                layer.run()?;
            }
            let mut taken = std::mem::take(&mut layer.samples);
            for _ in first..samples.min(first + LAYER_TURN) {
                taken.push(kernel, || Ok((layer.run()?, ())))?;
            }
            layer.samples = taken;
        }
    }
    let row = |layer: LayerRun| LayerRow {
        name: layer.name,
        macs: layer.macs,
        run: layer.samples.medians(),
    };
    Ok(runs.into_iter().map(row).collect())
}

fn session(program: &Arc<Program>) -> Result<Session> {
    threaded_session(program, SimDevice::kernel_from_env()?, 1)
}

/// A session whose device runs each image on so many threads.
fn threaded_session(program: &Arc<Program>, kernel: GemmKernel, threads: usize) -> Result<Session> {
    Ok(Session::new(
        Arc::clone(program),
        simulator(&program.config, kernel, threads),
        QueueLimits::default(),
    )?)
}

/// Seconds of a run, everything from the packed image to the unpacked output included.
fn timed(session: &mut Session, image: &[i16]) -> Result<f64> {
    let started = Instant::now();
    session.run(&[image])?;
    Ok(started.elapsed().as_secs_f64())
}

/// One network on one thread.
fn one_network(
    name: &'static str,
    program: &Arc<Program>,
    kernel: GemmKernel,
    samples: usize,
) -> Result<NetworkRow> {
    let image = image(program, 0)?;
    let mut session = session(program)?;
    let mut walls = vec![Vec::with_capacity(samples); program.layers.len()];
    let mut timed = || {
        let started = Instant::now();
        let out = session.run(&[&image])?;
        Ok((started.elapsed().as_secs_f64(), out.reports))
    };
    // These plan, and touch memory for the first time.
    timed()?;
    timed()?;
    let mut taken = Samples::default();
    for _ in 0..samples {
        let reports: Vec<RunReport> = taken.push(kernel, &mut timed)?;
        let marks = reports.iter().flat_map(|report| &report.marks);
        for (walls, mark) in walls.iter_mut().zip(marks) {
            walls.push(mark.wall.as_secs_f64());
        }
    }
    let layers = program.layers.iter().zip(walls);
    let layers = layers.map(|(layer, walls)| (layer.name.clone(), layer.macs, median(walls)));
    let layers: Vec<(String, u64, f64)> = layers.collect();
    Ok(NetworkRow {
        name,
        macs: layers.iter().map(|l| l.1).sum(),
        device_seconds: layers.iter().map(|l| l.2).sum(),
        layers,
        run: taken.medians(),
    })
}

/// How much faster threads are, each with a device and a core of its own: what their runs take one after the
/// other, by those of the first and the last, over what they take at the same time. All take turns, so that
/// what else the machine does hits them alike, and the median of the turns counts.
fn side_by_side(program: &Arc<Program>, threads: usize, samples: usize) -> Result<f64> {
    let image = image(program, 0)?;
    let session = |core| on_core(core, || session(program));
    let mut sessions = (0..threads).map(session).collect::<Result<Vec<_>>>()?;
    let turn = |core: usize, session: &mut Session| -> Result<f64> {
        on_core(core, || {
            let started = Instant::now();
            for _ in 0..TURN {
                session.run(&[&image])?;
            }
            Ok(started.elapsed().as_secs_f64())
        })
    };
    // The first runs plan and touch memory for the first time.
    for (core, session) in sessions.iter_mut().enumerate() {
        turn(core, session)?;
    }
    let mut ratios = Vec::with_capacity(samples);
    for _ in 0..samples.max(MIN_TURNS) {
        let before = turn(0, &mut sessions[0])?;
        let started = Instant::now();
        std::thread::scope(|scope| {
            let turn = &turn;
            let workers = sessions.iter_mut().enumerate();
            let workers = workers.map(|(core, s)| scope.spawn(move || turn(core, s)));
            let workers: Vec<_> = workers.collect();
            workers.into_iter().try_for_each(|worker| {
                let done = worker.join();
                done.unwrap_or_else(|_| bail!("a worker thread failed"))
                    .map(drop)
            })
        })?;
        let all = started.elapsed().as_secs_f64();
        let alone = (before + turn(threads - 1, &mut sessions[threads - 1])?) / 2.0;
        ratios.push(threads as f64 * alone / all);
    }
    Ok(median(ratios))
}

/// How much sooner an image is done, from the values that are packed to those that are unpacked,
/// when its device has so many threads: one and they take turns, and the median of the turns counts.
fn one_image(
    program: &Arc<Program>,
    kernel: GemmKernel,
    threads: usize,
    samples: usize,
) -> Result<f64> {
    let image = image(program, 0)?;
    let session = |threads| threaded_session(program, kernel, threads);
    let mut sessions = [session(1)?, session(threads)?];
    let turn = |session: &mut Session| -> Result<f64> {
        let mut seconds = 0.0;
        for _ in 0..TURN {
            seconds += timed(session, &image)?;
        }
        Ok(seconds)
    };
    // The first runs plan and touch memory for the first time.
    for session in &mut sessions {
        turn(session)?;
    }
    let [one, all] = &mut sessions;
    let mut ratios = Vec::with_capacity(samples);
    for _ in 0..samples.max(MIN_TURNS) {
        let before = turn(one)?;
        let all = turn(all)?;
        ratios.push((before + turn(one)?) / (2.0 * all));
    }
    Ok(median(ratios))
}
