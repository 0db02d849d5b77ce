//! `cargo bench -p vta-tests --bench cycle`: simulated cycles a second of the timing engine, and
//! a whole image on the cycle device beside the functional one. Batches are timed anew in every
//! iteration.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark may panic; criterion's macros make public items"
)]

use std::hint::black_box;
use std::sync::{Arc, Mutex};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vta_compiler::{lower, passes, zoo};
use vta_driver::{Device, DeviceMemory, LayerMark, Program, QueueLimits, RunReport, Session};
use vta_isa::{Config, Insn};
use vta_sim::cycle::{Silent, TimingConfig, simulate};
use vta_sim::{CycleLog, Execution, Executor, SimDevice, SimError};

/// Keeps the instructions that it is given.
struct Keep(Arc<Mutex<Vec<Insn>>>);

impl Executor for Keep {
    fn run(
        &mut self,
        insns: &[Insn],
        _: &[LayerMark],
        _: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        *self.0.lock().unwrap() = insns.to_vec();
        Ok(RunReport::default())
    }
}

fn program() -> Arc<Program> {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let options = lower::LowerOptions::default();
    Arc::new(lower::compile(&graph, &Config::default(), &options).unwrap())
}

fn session(program: &Arc<Program>, device: impl Device + 'static) -> Session {
    Session::new(
        Arc::clone(program),
        Arc::new(device),
        QueueLimits::default(),
    )
    .unwrap()
}

fn cycle(c: &mut Criterion) {
    let program = program();
    let image = vec![1i16; program.tensor(program.inputs[0]).unwrap().image_len()];
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = SimDevice::with_executor("keep", Config::default(), Keep(Arc::clone(&kept)));
    session(&program, keep).run(&[&image]).unwrap();
    let insns = kept.lock().unwrap().clone();
    let (config, mut group) = (Config::default(), c.benchmark_group("cycle/resnet18"));
    group.sample_size(20);
    for (name, timing) in [
        ("pynq", TimingConfig::pynq()),
        ("de10", TimingConfig::de10()),
    ] {
        let run = || simulate(&timing, &config, &insns, 0x1000, &mut Silent).unwrap();
        group.throughput(Throughput::Elements(run().cycles));
        group.bench_function(format!("timing only, {name}, elements are cycles"), |b| {
            b.iter(|| black_box(run()));
        });
    }
    group.throughput(Throughput::Elements(1));
    let mut functional = session(&program, SimDevice::functional(config.clone()));
    functional.run(&[&image]).unwrap();
    group.bench_function("image on functional", |b| {
        b.iter(|| functional.run(&[&image]).unwrap());
    });
    group.bench_function("image on cycle, pynq, first run", |b| {
        b.iter_batched(
            || {
                let log = CycleLog::default();
                let timing = TimingConfig::pynq();
                let full = SimDevice::cycle(config.clone(), timing, Execution::Full, log);
                session(&program, full)
            },
            |mut session| session.run(&[&image]).unwrap(),
            criterion::BatchSize::PerIteration,
        );
    });
    group.bench_function("image on functional, first run", |b| {
        b.iter_batched(
            || session(&program, SimDevice::functional(config.clone())),
            |mut session| session.run(&[&image]).unwrap(),
            criterion::BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, cycle);
criterion_main!(benches);
