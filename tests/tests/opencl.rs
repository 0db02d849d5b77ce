//! Every OpenCL device of this machine, with every structure, is the oracle bit for bit.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;

use vta_compiler::qgraph::QGraph;
use vta_compiler::{lower, onnx, passes, reference, zoo};
use vta_driver::{
    Batch, Device, DriverError, PhysAddr, Program, QueueLimits, RunReport, Session, Work, WorkDone,
    replay,
};
use vta_hw_opencl::{Math, OpenClDevice, Options, Structure};
use vta_isa::{Config, Insn};
use vta_sim::{Executor, Oracle};
use vta_tests::opencl::{Backend, backends};
use vta_tests::programs::{RandomProgram, generate};

/// A batch of instructions that lies nowhere in device memory.
fn batch(insns: &[Insn]) -> Arc<Batch> {
    Arc::new(Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns: insns.to_vec(),
        insn_addr: PhysAddr(0),
        marks: vec![],
    })
}

fn write(device: &dyn Device, addr: u32, bytes: &[u8]) {
    let work = Work::Write {
        addr: PhysAddr(addr),
        data: bytes.into(),
    };
    device.submit(work).unwrap().wait().unwrap();
}

fn read(device: &dyn Device, addr: u32, size_bytes: usize) -> Vec<u8> {
    let work = Work::Read {
        addr: PhysAddr(addr),
        size_bytes: size_bytes as u64,
    };
    match device.submit(work).unwrap().wait().unwrap() {
        WorkDone::Data(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

fn run(device: &dyn Device, batch: &Arc<Batch>) -> Result<RunReport, DriverError> {
    match device.submit(Work::Run(Arc::clone(batch)))?.wait()? {
        WorkDone::Ran(report) => Ok(report),
        other => panic!("{other:?}"),
    }
}

/// Runs a program on fresh memory of the device; all bytes of its regions afterwards.
fn contents(device: &dyn Device, program: &RandomProgram) -> Vec<u8> {
    for (addr, bytes) in program.regions() {
        device
            .alloc_at(PhysAddr(*addr), bytes.len() as u64)
            .unwrap();
        write(device, *addr, bytes);
    }
    let report = run(device, &batch(&program.insns)).unwrap();
    assert_eq!(report.leftover_tokens, [0; 4]);
    let mut all = Vec::new();
    for (addr, bytes) in program.regions() {
        all.extend(read(device, *addr, bytes.len()));
        device.free(PhysAddr(*addr)).unwrap();
    }
    all
}

fn expected(oracle: &mut Oracle, program: &RandomProgram) -> Vec<u8> {
    let mut memory = program.memory();
    oracle.run(&program.insns, &[], &mut memory).unwrap();
    program.contents(&memory)
}

fn check_recorded(folder: &str, least: usize) {
    let Some(shared) = vta_tests::shared(folder) else {
        return;
    };
    let entries = std::fs::read_dir(shared.join(folder)).unwrap();
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.is_dir() || p.extension().is_some_and(|e| e == "gz"));
    paths.sort();
    let cases: Vec<_> = paths
        .iter()
        .flat_map(|p| replay::load(p).unwrap())
        .collect();
    assert!(cases.len() >= least, "only {} runs", cases.len());
    for backend in backends(folder) {
        let mut wrong = Vec::new();
        let mut open: Option<OpenClDevice> = None;
        for case in &cases {
            if open.as_ref().is_none_or(|d| d.info().config != case.config) {
                open = Some(backend.open(&case.config));
            }
            let device = open.as_ref().unwrap();
            let report = replay::run_case(case, device).unwrap();
            assert!(report.bytes_compared > 0, "{}: nothing compared", case.name);
            if report.bytes_different > 0 {
                wrong.push((&case.name, report.bytes_different, report.mismatches[0]));
            }
        }
        let (right, all) = (cases.len() - wrong.len(), cases.len());
        println!(
            "{folder} on {}: {right} of {all} runs match",
            backend.name()
        );
        assert!(wrong.is_empty(), "{}: {wrong:?}", backend.name());
    }
}

#[test]
fn runs_of_the_original_runtime() {
    check_recorded("conformance/tvm", 26);
}

#[test]
fn binaries_of_the_standalone_toolchain() {
    check_recorded("conformance/standalone-vta", 8);
}

const CONFIGS: [&str; 4] = [
    "{}",
    r#"{"LOG_BLOCK": 5, "LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_BLOCK": 0, "LOG_INP_BUFF_SIZE": 9, "LOG_WGT_BUFF_SIZE": 9, "LOG_ACC_BUFF_SIZE": 11}"#,
];

fn check_random(backend: &Backend, config: &str, seeds: std::ops::Range<u64>) {
    let config = Config::from_json(config).unwrap();
    let device = backend.open(&config);
    let mut oracle = Oracle::new(config.clone());
    for seed in seeds {
        let program = generate(&config, seed, 1 + seed as usize % 6);
        if !device.keeps_scratchpads() {
            // What a program finds in scratchpads that it hasn't loaded is the same on both sides.
            oracle = Oracle::new(config.clone());
        }
        let (got, expected) = (contents(&device, &program), expected(&mut oracle, &program));
        let differs = got.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{} seed {seed}, {config:?}", backend.name());
    }
    println!("{}: {config:?}", backend.name());
}

#[test]
fn random_programs_are_the_oracles() {
    for backend in backends("random programs") {
        for config in CONFIGS {
            check_random(&backend, config, 0..60);
        }
    }
}

fn compile(graph: &QGraph, config: &Config) -> Arc<Program> {
    Arc::new(lower::compile(graph, config, &lower::LowerOptions::default()).unwrap())
}

fn check_layers(graph: &QGraph, image: &[i8]) {
    let program = compile(graph, &Config::default());
    let expected = reference::run(graph, image).unwrap();
    for backend in backends("networks") {
        let device = Arc::new(backend.open(&program.config));
        let shared: Arc<dyn Device> = device.clone();
        let mut session =
            Session::new(Arc::clone(&program), shared, QueueLimits::default()).unwrap();
        for _ in 0..2 {
            let out = session.run(&[image]).unwrap();
            assert_eq!(out.outputs[0][0], expected[graph.outputs[0].0]);
            for layer in &program.layers {
                let got = session.read_tensor(layer.output).unwrap();
                let right = got[0] == expected[layer.output as usize];
                assert!(right, "{}: {}", backend.name(), layer.name);
            }
        }
        let stats = device.stats();
        assert_eq!(session.counters().submissions, 2);
        assert_eq!((stats.batches, stats.planned, stats.waits), (2, 1, 0));
        println!(
            "{}: {} launches for two images",
            backend.name(),
            stats.launches
        );
    }
}

#[test]
fn the_demo_is_the_reference_layer_by_layer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20.onnx");
    let graph = passes::quantized(&onnx::load(&std::fs::read(path).unwrap()).unwrap()).unwrap();
    let image: Vec<i8> = (0..3072).map(|i| (i * 37 % 255) as i8).collect();
    check_layers(&graph, &image);
}

#[test]
fn zoo_resnet18_is_the_reference_layer_by_layer() {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let image = zoo::sample_image(224, 1);
    let image: Vec<i8> = image
        .iter()
        .map(|&x| ((i32::from(x) - 118) * 2 / 3) as i8)
        .collect();
    check_layers(&graph, &image);
}

/// GMAC/s of a network's images on every backend, after a first one that compiles and plans.
#[test]
#[ignore = "measures"]
fn speed() {
    let name = std::env::var("VTA_SPEED_NET").unwrap_or_else(|_| "resnet18".into());
    let graph = passes::quantized(&zoo::graph(&name).unwrap()).unwrap();
    let program = compile(&graph, &Config::default());
    let image = zoo::sample_image(224, 1);
    let image: Vec<i8> = image
        .iter()
        .map(|&x| ((i32::from(x) - 118) * 2 / 3) as i8)
        .collect();
    let macs: u64 = program.layers.iter().map(|l| l.macs).sum();
    for backend in backends("speed") {
        for math in [
            None,
            Some(Math::Int),
            Some(Math::Pairs),
            Some(Math::Float),
            Some(Math::Fours),
        ] {
            if math.is_some() && backend.structure != Structure::Throughput {
                continue;
            }
            let options = Options {
                math,
                ..Options::from_env()
            };
            let device = Arc::new(backend.open_with(&program.config, options).unwrap());
            let shared: Arc<dyn Device> = device.clone();
            let mut session =
                Session::new(Arc::clone(&program), shared, QueueLimits::default()).unwrap();
            let first = std::time::Instant::now();
            session.run(&[&image]).unwrap();
            let first = first.elapsed().as_secs_f64() * 1e3;
            let mut best = f64::MAX;
            for _ in 0..5 {
                let start = std::time::Instant::now();
                session.run(&[&image]).unwrap();
                best = best.min(start.elapsed().as_secs_f64());
            }
            let stats = device.stats();
            println!(
                "{:36} {math:?}: {:.1} ms, {:.2} GMAC/s (first {first:.0} ms), {} launches, plan {} bytes",
                backend.name(),
                best * 1e3,
                macs as f64 / best / 1e9,
                stats.launches / stats.batches,
                stats.plan_bytes,
            );
        }
    }
}
