//! The hot paths whose instructions `scripts/instructions` counts, one after the other. Callgrind starts a new count
//! at each call of [`path_begins`] and [`path_ends`], for all threads together. The name of each path is printed when
//! it ends.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use vta_app::{Model, Target, images};
use vta_compiler::onnx::{self, ReadOptions};
use vta_compiler::qgraph::QGraph;
use vta_compiler::{lower, passes, quantize};
use vta_driver::{DeviceMemory, LayerMark, Program, QueueLimits, RunReport, Session};
use vta_isa::{Config, Insn};
use vta_sim::cycle::{Silent, TimingConfig, simulate};
use vta_sim::{Executor, Functional, Planning, SimDevice, SimError};

type Done = Result<(), Box<dyn Error>>;

/// Runs of a planned batch.
const RUNS: usize = 4;

/// Keeps the instructions of the batches that it is given.
struct Keep(Arc<Mutex<Vec<Insn>>>);

impl Executor for Keep {
    fn run(
        &mut self,
        insns: &[Insn],
        _: &[LayerMark],
        _: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        self.0.lock().unwrap().extend_from_slice(insns);
        Ok(RunReport::default())
    }
}

// Their constants differ, so that the compiler doesn't make one function of two that are equal.
#[inline(never)]
fn path_begins() {
    black_box(1);
}

#[inline(never)]
fn path_ends() {
    black_box(2);
}

/// Does what is counted under a name.
fn path<R>(name: &str, work: impl FnOnce() -> R) -> R {
    path_begins();
    let result = black_box(work());
    path_ends();
    println!("{name}");
    result
}

fn demo(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../models/demo")
        .join(file)
}

fn main() -> Done {
    let net = compiler()?;
    let options = lower::LowerOptions::default();
    let program = path("compile", || {
        lower::compile(&net, &Config::default(), &options)
    })?;
    let program = Arc::new(program);
    let bytes = path("write a bundle", || program.to_bytes())?;
    path("read a bundle", || Program::from_bytes(&bytes))?;
    instructions(&program)?;
    functional(&program)?;
    picture()?;
    report()
}

/// Reading and quantising.
fn compiler() -> Result<QGraph, Box<dyn Error>> {
    let read = |file| {
        onnx::load_part(std::fs::read(demo(file)).unwrap(), &ReadOptions::default())?.whole()
    };
    let net = path("read a network", || {
        read("resnet20.onnx").map(|graph| passes::quantized(&graph))
    })??;
    let float = read("resnet20_f32.onnx")?;
    let mut state = 1u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as f32 / 32_768.0 - 1.0
    };
    let images: Vec<Vec<f32>> = (0..2)
        .map(|_| (0..3 * 32 * 32).map(|_| draw()).collect())
        .collect();
    let options = quantize::Options::new(quantize::Mode::Multiply);
    path("quantize", || {
        quantize::quantize_network(&float, &images.as_slice(), &options)
            .map(|quantized| onnx::save(&quantized.graph))
    })?;
    Ok(net)
}

fn session(program: &Arc<Program>, executor: impl Executor + Send + 'static) -> Session {
    let device = SimDevice::with_executor("counted", program.config.clone(), executor);
    Session::new(
        Arc::clone(program),
        Arc::new(device),
        QueueLimits::default(),
    )
    .unwrap()
}

fn image(program: &Program) -> Vec<i16> {
    let len = program.tensor(program.inputs[0]).unwrap().image_len();
    (0..len)
        .map(|k| i16::from((k * 37 % 251) as u8 as i8))
        .collect()
}

/// What is done with instructions, without their data.
fn instructions(program: &Arc<Program>) -> Done {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let mut session = session(program, Keep(Arc::clone(&kept)));
    let image = image(program);
    path("queue a network", || session.run(&[&image]))?;
    let insns = kept.lock().unwrap().clone();
    path("encode and decode", || -> Done {
        for insn in &insns {
            black_box(Insn::decode(insn.encode()?)?);
        }
        Ok(())
    })?;
    let config = &program.config;
    path("resolve", || vta_isa::check::check(config, &insns));
    let pynq = TimingConfig::pynq();
    path("count cycles", || {
        simulate(&pynq, config, &insns, 0x1000, &mut Silent)
    })?;
    Ok(())
}

fn functional(program: &Arc<Program>) -> Done {
    let image = image(program);
    let functional = |planning| -> Result<Session, Box<dyn Error>> {
        let kernel = SimDevice::kernel_from_env()?;
        let executor = Functional::with_kernel(program.config.clone(), kernel);
        Ok(session(program, executor.with_planning(planning)))
    };
    let mut direct = functional(Planning::Never)?;
    path("run unplanned", || direct.run(&[&image]))?;
    let mut planned = functional(Planning::AtOnce)?;
    path("plan", || planned.run(&[&image]))?;
    path("run", || {
        (0..RUNS).try_for_each(|_| planned.run(&[&image]).map(drop))
    })?;
    Ok(())
}

fn picture() -> Done {
    let file = demo("cat.png");
    path("decode an image", || -> Done {
        let picture = images::open(&file)?;
        black_box(images::fit(picture, [3, 32, 32])?);
        Ok(())
    })
}

fn report() -> Done {
    let mut target = Target::named("cycle");
    target.timing_only = true;
    let mut session = vta_app::Session::open(Model::open("demo")?, &target, &())?;
    let input = session.inputs()[0].clone();
    let feed = vta_app::Feed {
        name: &input.name,
        values: vta_app::Values::Real(vec![0.0; input.len()].into()),
    };
    session.run(&[feed], &())?;
    path("report", || session.report().map(|report| report.html()))
        .map(drop)
        .ok_or_else(|| "the session has no report".into())
}
