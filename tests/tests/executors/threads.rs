//! Threads within one batch change nothing but the time.

use std::sync::Arc;

use proptest::prelude::*;
use vta_compiler::{layer, lower, passes, zoo};
use vta_driver::{Device, Program, QueueLimits, RunReport, Session};
use vta_isa::Config;
use vta_sim::{Executor, Functional, GemmKernel, Oracle, Planning, SimDevice};
use vta_tests::extended;
use vta_tests::programs::generate;

const THREADS: [usize; 3] = [2, 3, 8];

/// An executor that cuts as finely as it can, however small the batch is.
fn executor(config: &Config, kernel: GemmKernel, threads: usize) -> Functional {
    let executor = Functional::with_kernel(config.clone(), kernel).with_threads(threads);
    executor
        .with_least_cost_ns(0)
        .with_planning(Planning::AtOnce)
}

fn session(program: &Arc<Program>, executor: Functional) -> Session {
    let config = program.config.clone();
    let device: Arc<dyn Device> = Arc::new(SimDevice::with_executor("sim", config, executor));
    Session::keeping_tensors(Arc::clone(program), device, QueueLimits::default()).unwrap()
}

/// What reports say but times.
fn said(reports: &[RunReport]) -> Vec<String> {
    let one = |r: &RunReport| {
        let marks: Vec<_> = r.marks.iter().map(|m| (&m.name, m.traffic)).collect();
        format!("{:?} {:?} {:?}", r.traffic, marks, r.leftover_tokens)
    };
    reports.iter().map(one).collect()
}

/// All tensors and reports of two images are those of one thread.
fn compare(program: &Arc<Program>, images: [&[i16]; 2], kernel: GemmKernel) {
    let run = |mut session: Session| {
        let mut found = Vec::new();
        for image in images.into_iter().cycle().take(4) {
            let out = session.run(&[image]).unwrap();
            let layers = program.layers.iter();
            let tensors: Vec<_> = layers
                .map(|l| session.read_tensor(l.output).unwrap())
                .collect();
            found.push((out.outputs, said(&out.reports), tensors));
        }
        found
    };
    let expected = run(session(program, executor(&program.config, kernel, 1)));
    for threads in THREADS {
        let found = run(session(program, executor(&program.config, kernel, threads)));
        assert!(found == expected, "{threads} threads, {kernel:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn random_programs_are_the_oracles(seed in any::<u64>(), rounds in 1usize..9) {
        for json in ["{}", r#"{"LOG_BLOCK": 5, "LOG_BATCH": 1}"#] {
            let config = extended(json, seed);
            let program = generate(&config, seed, rounds);
            let mut memory = program.memory();
            Oracle::new(config.clone()).run(&program.insns, &[], &mut memory).unwrap();
            let expected = program.contents(&memory);
            for threads in THREADS {
                let mut memory = program.memory();
                let mut executor = executor(&config, GemmKernel::detect(), threads);
                let run = executor.run(&program.insns, &[], &mut memory);
                prop_assert_eq!(run.map(|r| r.leftover_tokens), Ok([0; 4]));
                prop_assert!(program.contents(&memory) == expected, "{} threads", threads);
            }
        }
    }
}

#[test]
fn layers_are_those_of_one_thread() {
    let configs = ["{}", r#"{"LOG_BATCH": 1}"#];
    for name in [
        "resnet18.C5",
        "resnet18.C11",
        "conv:1,24,13,17,40,3,2,1",
        "dw:1,32,9,9,3,1,1",
    ] {
        let spec = layer::parse(name).unwrap();
        let graph = layer::build(&spec, 1).unwrap();
        for json in configs {
            let config = Config::from_json(json).unwrap();
            let options = lower::LowerOptions::default();
            let program = Arc::new(lower::compile(&graph, &config, &options).unwrap());
            let images = [layer::input(&spec, 1, 0), layer::input(&spec, 1, 1)];
            compare(&program, [&images[0], &images[1]], GemmKernel::detect());
            if !name.starts_with("resnet") {
                compare(&program, [&images[0], &images[1]], GemmKernel::Scalar);
            }
        }
    }
}

#[test]
fn a_network_is_that_of_one_thread() {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let options = lower::LowerOptions::default();
    let program = Arc::new(lower::compile(&graph, &Config::default(), &options).unwrap());
    let image = |seed| -> Vec<i16> {
        let values = zoo::sample_image(224, seed).into_iter();
        values
            .map(|v| i16::from((i16::from(v) - 128) as i8))
            .collect()
    };
    compare(&program, [&image(0), &image(1)], GemmKernel::detect());
}

/// Many short runs, in which threads have hardly begun when the batch ends.
#[test]
fn short_runs_end() {
    let spec = layer::parse("conv:1,16,6,6,32,3,1,1").unwrap();
    let graph = layer::build(&spec, 1).unwrap();
    let config = Config::default();
    let options = lower::LowerOptions::default();
    let program = Arc::new(lower::compile(&graph, &config, &options).unwrap());
    let image = layer::input(&spec, 1, 0);
    let mut one = session(&program, executor(&config, GemmKernel::detect(), 1));
    let expected = one.run(&[&image]).unwrap().outputs;
    let kernel = GemmKernel::detect();
    let mut sessions: Vec<Session> = [2, 8]
        .map(|n| session(&program, executor(&config, kernel, n)))
        .into();
    for round in 0..1500 {
        for session in &mut sessions {
            assert!(
                session.run(&[&image]).unwrap().outputs == expected,
                "round {round}"
            );
        }
    }
    // Devices that come and go take their threads along.
    for _ in 0..20 {
        let mut session = session(&program, executor(&config, kernel, 4));
        assert!(session.run(&[&image]).unwrap().outputs == expected);
    }
}
