//! The check that programs compute what the reference interpreter does.

use std::sync::Arc;

use proptest::prelude::*;
use vta_compiler::lower::{self, LowerOptions, Tiles};
use vta_compiler::qgraph::{Numbers, QGraph};
use vta_compiler::reference;
use vta_driver::{Device, Layer, Program, QueueLimits, Session};
use vta_isa::{Config, Extension, Extensions};
use vta_program::coverage::{FaultKind, coverage};
use vta_program::listing::{Geometry, Listing};
use vta_sim::cycle::TimingConfig;
use vta_sim::{CycleLog, Execution, SimDevice, hazards};

/// A generator of test data (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Values of a tensor.
    pub fn values(&mut self, n: usize, numbers: Numbers) -> Vec<i16> {
        match numbers {
            Numbers::Int8 => self.int8(n),
            Numbers::Int16 => (0..n).map(|_| self.next() as i16).collect(),
        }
    }

    /// int8, as weights or as values of a tensor.
    pub fn int8<T: From<i8>>(&mut self, n: usize) -> Vec<T> {
        (0..n).map(|_| (self.next() as i8).into()).collect()
    }
}

pub fn config(index: usize) -> Config {
    let text = [
        "{}",
        r#"{"LOG_BLOCK": 5}"#,
        r#"{"LOG_BLOCK": 6}"#,
        r#"{"LOG_BATCH": 1, "LOG_ACC_BUFF_SIZE": 16}"#,
        r#"{"LOG_INP_BUFF_SIZE": 11, "LOG_WGT_BUFF_SIZE": 15, "LOG_ACC_BUFF_SIZE": 12, "LOG_UOP_BUFF_SIZE": 10}"#,
        r#"{"LOG_BLOCK": 3, "LOG_INP_BUFF_SIZE": 11, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 13}"#,
    ];
    Config::from_json(text[index % text.len()]).unwrap()
}

/// A machine as it comes with some of the extensions that it may have besides, by the bits of a number; any other
/// as it is.
fn extended(config: &Config, number: u64) -> Config {
    let others = Extension::ALL.into_iter().filter(|e| !e.is_default());
    let some = (0..).zip(others).filter(|(bit, _)| number >> bit & 1 == 1);
    let has = some.fold(config.extensions(), |has, (_, one)| has.with(one));
    match config.extensions() {
        Extensions::DEFAULT => config.clone().with_extensions(has),
        _ => config.clone(),
    }
}

/// Runs the graph on all simulators and compares every tensor with the reference; the program must
/// be free of hazards.
pub fn check(graph: &QGraph, config: &Config, seed: u64) -> Result<(), TestCaseError> {
    let config = &extended(config, seed >> 3).with_tensors_of(graph.numbers.bits());
    let apart = lower::stored(graph, config);
    let graph = &*lower::for_machine(graph, config);
    let mut options = LowerOptions {
        im2col: seed.is_multiple_of(2),
        ..LowerOptions::default()
    };
    // A cut after every tile, after some, or as programs have it.
    if seed % 4 < 2 {
        options.part = seed as usize / 4 % 40;
    }
    let compiled = lower::compile_traced(graph, config, &options, &Tiles::default());
    let (program, geometries) = match compiled {
        Ok((program, geometries)) => (Arc::new(program), geometries),
        Err(error) => {
            prop_assert!(
                error.to_string().contains("no tile fits")
                    || error.to_string().contains("more than"),
                "{}",
                error
            );
            return Ok(());
        }
    };
    let mut rng = Rng(seed);
    let len = graph.tensors[graph.inputs[0].0].chw.iter().product();
    let image = |_| rng.values(len, graph.numbers);
    let images: Vec<_> = (0..config.batch()).map(image).collect();
    let refs: Vec<&[i16]> = images.iter().map(Vec::as_slice).collect();
    let expected: Vec<_> = images
        .iter()
        .map(|x| reference::run(graph, x).unwrap())
        .collect();
    // What STOREs join is what its nodes are, each for itself.
    let apart = reference::run(&apart, refs[0]).unwrap();
    for node in &graph.nodes {
        let tensor = node.output.0;
        prop_assert_eq!(&expected[0][tensor], &apart[tensor], "{}", node.name);
    }
    check_coverage(&program, &geometries, &expected)?;
    let (timing, log) = (TimingConfig::default(), CycleLog::default());
    let cycle = SimDevice::cycle(config.clone(), timing, Execution::Full, log);
    let devices: [Arc<dyn Device>; 3] = [
        Arc::new(SimDevice::functional_from_env(config.clone()).unwrap()),
        Arc::new(SimDevice::oracle(config.clone())),
        Arc::new(cycle),
    ];
    // Outputs that lie in inputs need no commands.
    let submissions = usize::from(program.layers.iter().any(|l| !l.commands.is_empty()));
    for device in devices {
        let name = device.info().name.clone();
        let mut session =
            Session::keeping_tensors(Arc::clone(&program), device, QueueLimits::default()).unwrap();
        for _ in 0..2 {
            let out = session.run(&refs);
            prop_assert!(out.is_ok(), "{}: {}", name, out.unwrap_err());
            let out = out.unwrap();
            prop_assert_eq!(out.reports.len(), submissions);
            prop_assert!(out.reports.iter().all(|r| r.leftover_tokens == [0; 4]));
        }
        prop_assert_eq!(session.counters().submissions, 2 * submissions as u64);
        for layer in &program.layers {
            let got = session.read_tensor(layer.output).unwrap();
            for (image, values) in got.iter().zip(&expected) {
                prop_assert_eq!(
                    image,
                    &values[layer.output as usize],
                    "{} {}",
                    name,
                    layer.name
                );
            }
        }
    }
    check_seams(&program, &refs, &expected[0], config)
}

/// What is written down of a program is read again, and proves that nothing is left out. A layer whose clamp leaves one
/// value computes its sums for nothing: the proof then misses them, as docs/traceability.md says.
fn check_coverage(
    program: &Program,
    geometries: &[Geometry],
    expected: &[Vec<Vec<i16>>],
) -> Result<(), TestCaseError> {
    let listing = Listing::of(program, geometries).unwrap();
    let mut text = Vec::new();
    listing.write(&mut text).unwrap();
    let read = Listing::read(&String::from_utf8(text).unwrap());
    prop_assert_eq!(read.as_ref(), Ok(&listing));
    let found = coverage(&listing).unwrap();
    let varies = |layer: usize| {
        let output = program.layers[layer].output as usize;
        let mut values = expected.iter().flat_map(|image| &image[output]);
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let mut faults = found.faults.iter();
    let fault = faults.find(|fault| fault.kind != FaultKind::Missing || varies(fault.layer));
    prop_assert!(fault.is_none(), "{:?}", fault);
    Ok(())
}

/// Layers race neither with each other nor with themselves, in one batch and in many, with
/// tensors that share device memory.
fn check_seams(
    program: &Arc<Program>,
    images: &[&[i16]],
    expected: &[Vec<i16>],
    config: &Config,
) -> Result<(), TestCaseError> {
    let parts = |layer: &Layer| {
        let ends = [0].into_iter().chain(layer.cuts.iter().copied());
        let ends: Vec<u32> = ends.chain([layer.commands.len() as u32]).collect();
        ends.windows(2).map(|ends| ends[1] - ends[0]).max()
    };
    let longest = program.layers.iter().filter_map(parts).max();
    let cut = QueueLimits {
        insns: 2 * longest.unwrap_or(0) as usize + 16,
        ..QueueLimits::default()
    };
    for limits in [QueueLimits::default(), cut] {
        for batch in hazards::check_program(program, limits).unwrap() {
            let found = &batch.report.hazards;
            prop_assert!(batch.report.is_clean(), "{:?}", found.first());
        }
        let device = Arc::new(SimDevice::functional(config.clone()));
        let mut session = Session::new(Arc::clone(program), device, limits).unwrap();
        let out = session.run(images).unwrap();
        let last = program.outputs[0] as usize;
        prop_assert_eq!(&out.outputs[0][0], &expected[last]);
    }
    Ok(())
}
