//! Networks over several devices and with several runs in flight: the bits of one device and one
//! run at a time.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::placement::{self, Rules, Target};
use vta_compiler::qgraph::{QConv, QGraph, QNode, QOp, QTensor, TensorId, Window};
use vta_compiler::{layer, onnx, passes, reference};
use vta_driver::{
    Batch, Device, DeviceInfo, DeviceMemory, DriverError, FlushReason, MultiSession, Place,
    QueueLimits, Session, WorkerDevice,
};
use vta_isa::Config;
use vta_sim::{Executor, Functional, SimDevice};

fn demo() -> QGraph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20.onnx");
    passes::quantized(&onnx::load(&std::fs::read(path).unwrap()).unwrap()).unwrap()
}

fn image(n: usize) -> Vec<i16> {
    (0..3072)
        .map(|i| i16::from(((i * (37 + n) + n) % 255) as i8))
        .collect()
}

fn targets(config: &Config) -> [Target; 2] {
    ["sim", "oracle"].map(|name| Target::new(name, config.clone()))
}

fn simulators(configs: [&Config; 2]) -> [Arc<dyn Device>; 2] {
    [
        Arc::new(SimDevice::functional(configs[0].clone())),
        Arc::new(SimDevice::oracle(configs[1].clone())),
    ]
}

/// The devices of a program's parts, from those of its targets.
fn of_parts(program: &vta_driver::MultiProgram, all: &[Arc<dyn Device>]) -> Vec<Arc<dyn Device>> {
    let parts = program.parts.iter();
    parts.map(|p| Arc::clone(&all[p.target])).collect()
}

/// Runs two images; every tensor of every part is the reference's. The copies.
fn check(graph: &QGraph, targets: &[Target; 2], rules: &Rules) -> usize {
    let placed = placement::place(graph, targets, rules).unwrap();
    let program = placement::compile(graph, targets, &placed, &LowerOptions::default()).unwrap();
    program.validate().unwrap();
    assert_eq!(program.copies(), placed.copies.len());
    let devices = simulators([&targets[0].config, &targets[1].config]);
    let devices = of_parts(&program, &devices);
    let program = Arc::new(program);
    let limits = QueueLimits::default();
    let mut session = MultiSession::new(Arc::clone(&program), &devices, limits).unwrap();
    let runs = program.steps.iter();
    let runs = runs
        .filter(|s| matches!(s, vta_driver::Step::Run { .. }))
        .count() as u64;
    for run in 1..=2u64 {
        let image = image(run as usize);
        let out = session.run(&[&image]).unwrap();
        let expected = reference::run(graph, &image).unwrap();
        assert_eq!(out.outputs[0][0], expected[graph.outputs[0].0]);
        for (index, part) in program.parts.iter().enumerate() {
            for layer in &part.program.layers {
                let place = Place {
                    part: index,
                    tensor: layer.output,
                };
                let network = part.network_tensors[layer.output as usize] as usize;
                let found = session.read_tensor(place).unwrap();
                assert_eq!(found[0], expected[network], "{}", layer.name);
            }
        }
        let counters = session.counters();
        assert_eq!(counters.submissions, run * runs);
        assert_eq!(counters.flushed(FlushReason::HostRead), run);
        let elsewhere = counters.flushed(FlushReason::NextLayerElsewhere);
        assert_eq!(elsewhere, run * (runs - 1));
        assert_eq!(counters.encoded_batches, runs);
    }
    placed.copies.len()
}

#[test]
fn the_demo_on_two_simulators_is_the_demo_on_one() {
    let graph = demo();
    let config = Config::default();
    assert_eq!(check(&graph, &targets(&config), &Rules::default()), 0);
    let n = graph.nodes.len();
    let name = |i: usize| graph.nodes[i].name.clone();
    let rule = |i: usize| format!("\"{}\" = \"oracle\"\n", name(i));
    // The first, the last, and every second layer elsewhere.
    for some in [vec![0], vec![n - 1], (0..n).step_by(2).collect()] {
        let rules: String = some.into_iter().map(rule).collect();
        let copies = check(
            &graph,
            &targets(&config),
            &Rules::from_toml(&rules).unwrap(),
        );
        assert!(copies > 0);
    }
}

#[test]
fn devices_with_other_blocks_get_their_tensors_packed_again() {
    let graph = demo();
    let mut both = targets(&Config::default());
    both[1].config = Config::from_json(r#"{"LOG_BLOCK": 5}"#).unwrap();
    let n = graph.nodes.len();
    let rule = |i: usize| format!("\"{}\" = \"oracle\"\n", graph.nodes[i].name);
    let rules: String = (n / 3..n / 2).map(rule).collect();
    assert!(check(&graph, &both, &Rules::from_toml(&rules).unwrap()) >= 2);
}

#[test]
fn a_pool_that_joins_its_convolution_is_one_layer_of_a_part() {
    // conv, pool, conv: on one device the first two are one layer.
    let mut graph = layer::build(&layer::parse("conv:1,16,8,8,32,3,1,1").unwrap(), 1).unwrap();
    let next = layer::build(&layer::parse("conv:1,32,4,4,16,1,1,0").unwrap(), 2).unwrap();
    let mut last = next.nodes[0].clone();
    let QOp::Conv(QConv { input, .. }) = &mut last.op else {
        panic!("a convolution");
    };
    (*input, last.output) = (TensorId(2), TensorId(3));
    for (name, chw) in [("pooled", [32, 4, 4]), ("last", [16, 4, 4])] {
        let tensor = graph.tensors[0].clone();
        let name = name.to_owned();
        graph.tensors.push(QTensor {
            name,
            chw,
            ..tensor
        });
    }
    let window = Window {
        kernel: [2, 2],
        stride: [2, 2],
        dilation: [1, 1],
        pads: [0; 4].into(),
    };
    let (input, ops) = (TensorId(1), vec![]);
    graph.nodes.push(QNode {
        name: "pool".to_owned(),
        op: QOp::MaxPool { input, window, ops },
        output: TensorId(2),
        saturate: false,
    });
    graph.nodes.push(last);
    graph.outputs = vec![TensorId(3)];
    let [conv, next] = [0, 2].map(|i| graph.nodes[i].name.clone());
    for (rules, layers) in [
        (String::new(), vec![2]),
        (format!("\"{next}\" = \"oracle\""), vec![1, 1]),
        (
            format!("pool = \"oracle\"\n\"{next}\" = \"oracle\""),
            vec![1, 2],
        ),
        (format!("\"{conv}\" = \"oracle\""), vec![1, 1]),
    ] {
        let (rules, config) = (Rules::from_toml(&rules).unwrap(), Config::default());
        let targets = targets(&config);
        let placed = placement::place(&graph, &targets, &rules).unwrap();
        let program = placement::compile(&graph, &targets, &placed, &LowerOptions::default());
        let parts = program.unwrap().parts;
        let found: Vec<_> = parts.iter().map(|p| p.program.layers.len()).collect();
        assert_eq!(found, layers);
        let devices = simulators([&config, &config]);
        let program = placement::compile(&graph, &targets, &placed, &LowerOptions::default());
        let program = Arc::new(program.unwrap());
        let devices = of_parts(&program, &devices);
        let limits = QueueLimits::default();
        let mut session = MultiSession::new(program, &devices, limits).unwrap();
        let image = layer::input(&layer::parse("conv:1,16,8,8,32,3,1,1").unwrap(), 1, 0);
        let expected = reference::run(&graph, &image).unwrap();
        assert_eq!(session.run(&[&image]).unwrap().outputs[0][0], expected[3]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn any_placement_of_the_demo_gives_the_same_bits(on_oracle in prop::collection::vec(any::<bool>(), 64)) {
        let graph = demo();
        let rules: String = graph.nodes.iter().zip(on_oracle)
            .map(|(node, oracle)| format!("\"{}\" = \"{}\"\n", node.name, if oracle { "oracle" } else { "sim" }))
            .collect();
        check(&graph, &targets(&Config::default()), &Rules::from_toml(&rules).unwrap());
    }
}

/// A functional simulator that fails, or panics, in its `n`th batch.
fn failing(config: &Config, n: usize, panics: bool) -> WorkerDevice {
    let mut executor = Functional::new(config.clone());
    let mut runs = 0;
    let runner = move |batch: &Arc<Batch>, memory: &mut DeviceMemory| {
        runs += 1;
        if runs == n {
            assert!(!panics, "the device is gone");
            return Err("on demand".to_owned());
        }
        let ran = executor.run(&batch.insns, &batch.marks, memory);
        ran.map_err(|e| e.to_string())
    };
    let info = DeviceInfo {
        name: "weak".into(),
        config: config.clone(),
    };
    WorkerDevice::new(info, Box::new(runner))
}

#[test]
fn when_a_device_fails_midway_the_other_goes_on() {
    let graph = demo();
    let config = Config::default();
    let targets = targets(&config);
    let n = graph.nodes.len();
    let rule = |i: usize| format!("\"{}\" = \"oracle\"\n", graph.nodes[i].name);
    let rules: String = (n / 2..n).step_by(3).map(rule).collect();
    let placed = placement::place(&graph, &targets, &Rules::from_toml(&rules).unwrap()).unwrap();
    let program = placement::compile(&graph, &targets, &placed, &LowerOptions::default()).unwrap();
    let program = Arc::new(program);
    let image = image(3);
    let expected = reference::run(&graph, &image).unwrap()[graph.outputs[0].0].clone();
    let whole = Arc::new(lower::compile(&graph, &config, &LowerOptions::default()).unwrap());
    for panics in [false, true] {
        let good: Arc<dyn Device> = Arc::new(SimDevice::functional(config.clone()));
        let weak: Arc<dyn Device> = Arc::new(failing(&config, 2, panics));
        let devices = of_parts(&program, &[Arc::clone(&good), weak]);
        let limits = QueueLimits::default();
        let mut session = MultiSession::new(Arc::clone(&program), &devices, limits).unwrap();
        let error = session.run(&[&image]).unwrap_err();
        match panics {
            true => assert!(matches!(&error, DriverError::Lost { device } if device == "weak")),
            false => assert_eq!(error.to_string(), "device weak: on demand"),
        }
        // The same session where the device answers again, another on the good one in any case.
        let again = session.run(&[&image]);
        match panics {
            true => assert!(
                again
                    .unwrap_err()
                    .to_string()
                    .ends_with("device weak has stopped")
            ),
            false => assert_eq!(again.unwrap().outputs[0][0], expected),
        }
        let mut alone = Session::new(Arc::clone(&whole), good, limits).unwrap();
        assert_eq!(alone.run(&[&image]).unwrap().outputs[0][0], expected);
    }
}

#[test]
fn runs_in_flight_give_the_bits_of_one_at_a_time() {
    let graph = demo();
    let config = Config::default();
    let program = Arc::new(lower::compile(&graph, &config, &LowerOptions::default()).unwrap());
    let images: Vec<_> = (0..7).map(image).collect();
    let groups: Vec<Vec<&[i16]>> = images.iter().map(|x| vec![&x[..]]).collect();
    for device in simulators([&config, &config]) {
        let limits = QueueLimits::default();
        let mut session = Session::new(Arc::clone(&program), device, limits).unwrap();
        let one = groups.iter().map(|g| session.run(g).unwrap().outputs);
        let one: Vec<_> = one.collect();
        for in_flight in 1..=4 {
            let many = session.run_many(&groups, in_flight).unwrap();
            let many: Vec<_> = many.into_iter().map(|r| r.outputs).collect();
            assert_eq!(one, many, "{in_flight} in flight");
        }
        assert_eq!(session.counters().flushed(FlushReason::HostRead), 5 * 7);
        assert_eq!(session.counters().encoded_batches, 2);
    }
}
