//! Whole networks from model to device, every layer compared with the reference interpreter.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use vta_compiler::qgraph::QGraph;
use vta_compiler::{lower, onnx, passes, reference, zoo};
use vta_driver::{Command, FlushReason, Layer, Program, QueueLimits, Session, Symbol};
use vta_isa::Config;
use vta_sim::SimDevice;

fn compile(graph: &QGraph, config: &Config) -> Arc<Program> {
    Arc::new(lower::compile(graph, config, &lower::LowerOptions::default()).unwrap())
}

fn session(program: &Arc<Program>, limits: QueueLimits) -> Session {
    let device = SimDevice::functional_from_env(program.config.clone()).unwrap();
    Session::keeping_tensors(Arc::clone(program), Arc::new(device), limits).unwrap()
}

/// Every layer's output on the device is the reference's; the network's first output.
fn check_layers(graph: &QGraph, session: &mut Session, image: &[i16]) -> Vec<i16> {
    let out = session.run(&[image]).unwrap();
    let expected = reference::run(graph, image).unwrap();
    let program = Arc::clone(session.program());
    // A pool that joins its convolution shares the layer.
    let joined = program.layers.iter().filter(|l| l.name.contains('+'));
    assert_eq!(
        program.layers.len() + joined.count(),
        graph.nodes.len(),
        "every node runs on the device"
    );
    for layer in &program.layers {
        let got = session.read_tensor(layer.output).unwrap();
        assert_eq!(got[0], expected[layer.output as usize], "{}", layer.name);
    }
    assert_eq!(out.outputs[0][0], expected[graph.outputs[0].0]);
    out.outputs[0][0].clone()
}

fn zoo_image(graph: &QGraph) -> Vec<i16> {
    let [_, h, w] = graph.tensors[graph.inputs[0].0].chw;
    assert_eq!(h, w);
    zoo::sample_image(h, 1)
        .iter()
        .map(|&x| (i16::from(x) - 118) * 2 / 3)
        .collect()
}

fn check_zoo(name: &str) {
    let graph = passes::quantized(&zoo::graph(name).unwrap()).unwrap();
    let program = compile(&graph, &Config::default());
    let mut session = session(&program, QueueLimits::default());
    let image = zoo_image(&graph);
    for run in 1..=2 {
        check_layers(&graph, &mut session, &image);
        let counters = session.counters();
        assert_eq!(counters.submissions, run, "one submission for each image");
        assert_eq!(counters.flushed(FlushReason::HostRead), run);
        assert_eq!(
            (counters.encoded_batches, counters.replayed_batches),
            (1, run - 1)
        );
    }
}

#[test]
fn zoo_resnet18_is_one_submission_and_the_reference() {
    check_zoo("resnet18");
}

#[test]
fn zoo_resnet50_is_one_submission_and_the_reference() {
    check_zoo("resnet50");
}

#[test]
fn zoo_mobilenet_is_one_submission_and_the_reference() {
    check_zoo("mobilenet-v1");
}

#[test]
fn grouped_and_depthwise_networks_run_on_every_configuration() {
    let configs = [
        r#"{"LOG_BLOCK": 5}"#,
        r#"{"LOG_BATCH": 1, "LOG_ACC_BUFF_SIZE": 16}"#,
    ];
    for (name, text) in ["mobilenet-v1", "resnext50"].into_iter().zip(configs) {
        let graph = passes::quantized(&zoo::graph(name).unwrap()).unwrap();
        let program = compile(&graph, &Config::from_json(text).unwrap());
        let mut session = session(&program, QueueLimits::default());
        check_layers(&graph, &mut session, &zoo_image(&graph));
    }
}

#[test]
fn zoo_activations_neither_vanish_nor_saturate() {
    // Channels of small groups differ more.
    let networks = [
        ("resnet18", 8.0),
        ("resnet34", 8.0),
        ("resnet50", 8.0),
        ("resnext50", 6.0),
    ];
    for (name, least) in networks {
        let graph = passes::quantized(&zoo::graph(name).unwrap()).unwrap();
        let image = zoo_image(&graph);
        let values = reference::run(&graph, &image).unwrap();
        for node in &graph.nodes {
            let v = &values[node.output.0];
            let saturated = v.iter().filter(|x| **x == 127 || **x == -128).count();
            let square: f64 = v.iter().map(|&x| f64::from(x).powi(2)).sum();
            let rms = (square / v.len() as f64).sqrt();
            let share = saturated as f64 / v.len() as f64;
            assert!(
                share < 0.05 && rms > least,
                "{name} {}: {share:.3} saturated, rms {rms:.1}",
                node.name
            );
        }
    }
}

fn demo() -> QGraph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20.onnx");
    passes::quantized(&onnx::load(&std::fs::read(path).unwrap()).unwrap()).unwrap()
}

#[test]
fn full_queues_submit_more_often_and_change_no_bit() {
    let graph = demo();
    let image: Vec<i16> = (0..3072).map(|i| i16::from((i * 37 % 255) as i8)).collect();
    let program = compile(&graph, &Config::default());
    let mut whole = session(&program, QueueLimits::default());
    let expected = whole.run(&[&image]).unwrap().outputs;
    // The smallest queues that hold every layer, each GEMM and ALU with a load of micro-ops, and
    // the tokens around a batch.
    let seams = 4 * program.seam_tokens as usize;
    let kernels = |layer: &Layer| -> Vec<usize> {
        let id = |c: &Command| match c.symbol {
            Symbol::Kernel(id) => Some(id.0 as usize),
            Symbol::Buffer(_) | Symbol::None => None,
        };
        layer.commands.iter().filter_map(id).collect()
    };
    let insns = program
        .layers
        .iter()
        .map(|l| l.commands.len() + kernels(l).len() + seams + 1);
    let uops = program.layers.iter().map(|l| {
        let distinct: BTreeSet<usize> = kernels(l).into_iter().collect();
        distinct
            .into_iter()
            .map(|k| program.kernels[k].uops.len())
            .sum::<usize>()
    });
    let (insns, uops) = (insns.max().unwrap(), uops.max().unwrap());
    let limits = [
        (
            QueueLimits {
                insns,
                uops: 1 << 20,
            },
            FlushReason::InsnOverflow,
        ),
        (
            QueueLimits {
                insns: 1 << 18,
                uops,
            },
            FlushReason::UopOverflow,
        ),
    ];
    for (limits, reason) in limits {
        let mut split = session(&program, limits);
        for _ in 0..2 {
            assert_eq!(split.run(&[&image]).unwrap().outputs, expected);
        }
        let counters = split.counters();
        assert!(counters.flushed(reason) >= 2, "{counters:?}");
        assert_eq!(counters.submissions, counters.flushes.iter().sum::<u64>());
        assert_eq!(counters.flushed(FlushReason::HostRead), 2);
    }
    let tiny = QueueLimits {
        insns: 16,
        uops: 1 << 20,
    };
    let error = session(&program, tiny)
        .run(&[&image])
        .unwrap_err()
        .to_string();
    assert!(error.contains("the queue holds 16"), "{error}");
}

#[test]
fn the_demo_runs_on_every_configuration() {
    let graph = demo();
    let image: Vec<i16> = (0..3072).map(|i| i16::from((i * 91 % 251) as i8)).collect();
    for text in [
        r#"{"LOG_BLOCK": 5}"#,
        r#"{"LOG_BLOCK": 6}"#,
        r#"{"LOG_BATCH": 1}"#,
        r#"{"LOG_INP_BUFF_SIZE": 12, "LOG_WGT_BUFF_SIZE": 15, "LOG_ACC_BUFF_SIZE": 13}"#,
    ] {
        let program = compile(&graph, &Config::from_json(text).unwrap());
        check_layers(
            &graph,
            &mut session(&program, QueueLimits::default()),
            &image,
        );
    }
}

#[test]
fn a_bundle_computes_what_its_program_does() {
    let graph = demo();
    let program = compile(&graph, &Config::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo.vta");
    program.save(&path).unwrap();
    let loaded = Arc::new(Program::load(&path).unwrap());
    assert_eq!(*loaded, *program);
    assert_eq!(loaded.to_bytes().unwrap(), std::fs::read(&path).unwrap());
    let image = vec![17i16; 3072];
    let both = [&program, &loaded].map(|p| {
        session(p, QueueLimits::default())
            .run(&[&image])
            .unwrap()
            .outputs
    });
    assert_eq!(both[0], both[1]);
}

fn array<T: npyz::Deserialize>(path: &Path, name: &str) -> Vec<T> {
    let file = std::fs::File::open(path).unwrap();
    let mut archive = npyz::npz::NpzArchive::new(std::io::BufReader::new(file)).unwrap();
    archive.by_name(name).unwrap().unwrap().into_vec().unwrap()
}

/// All 200 test images through the demo's network on the device: every layer of each.
#[test]
fn the_demo_keeps_its_accuracy_on_all_test_images() {
    let graph = demo();
    let program = compile(&graph, &Config::default());
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/cifar10_test200.npz");
    let images: Vec<u8> = array(&data, "images");
    let labels: Vec<u8> = array(&data, "labels");
    let (mean, std) = ([0.4914f32, 0.4822, 0.4465], [0.2470f32, 0.2435, 0.2616]);
    let scale = graph.tensors[graph.inputs[0].0].scale;
    let predict = |(image, label): (&[u8], &u8)| {
        let quantize = |(i, &x): (usize, &u8)| {
            let value = (f32::from(x) / 255.0 - mean[i / 1024]) / std[i / 1024] / scale;
            value.round_ties_even().clamp(-128.0, 127.0) as i16
        };
        let image: Vec<i16> = image.iter().enumerate().map(quantize).collect();
        let mut session = session(&program, QueueLimits::default());
        let logits = check_layers(&graph, &mut session, &image);
        let best = (0..10).fold(0, |b, i| if logits[i] > logits[b] { i } else { b });
        usize::from(best == usize::from(*label))
    };
    let right: usize = images
        .par_chunks(3072)
        .zip(labels.par_iter())
        .map(predict)
        .sum();
    println!("{right} of {} right", labels.len());
    assert!(
        right >= 184,
        "{right} of 200 right; the float network has 186"
    );
}
