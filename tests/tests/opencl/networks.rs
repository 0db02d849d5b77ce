//! Networks, layer by layer.

use std::path::Path;
use std::sync::Arc;

use vta_compiler::qgraph::QGraph;
use vta_compiler::{onnx, passes, reference, zoo};
use vta_driver::{Device, QueueLimits, Session};
use vta_isa::Config;
use vta_tests::opencl::backends;

use crate::kit::compile;

fn check_layers(graph: &QGraph, image: &[i16]) {
    let program = compile(graph, &Config::default());
    let expected = reference::run(graph, image).unwrap();
    for backend in backends("networks") {
        let device = Arc::new(backend.open(&program.config));
        let shared: Arc<dyn Device> = device.clone();
        let mut session =
            Session::keeping_tensors(Arc::clone(&program), shared, QueueLimits::default()).unwrap();
        for _ in 0..2 {
            let out = session.run(&[image]).unwrap();
            assert_eq!(out.outputs[0][0], expected[graph.outputs[0].0]);
            for layer in &program.layers {
                let got = session.read_tensor(layer.output).unwrap();
                let right = got[0] == expected[layer.output as usize];
                assert!(right, "{}: {}", backend.name(), layer.name);
            }
        }
        let stats = device.counters().unwrap();
        assert_eq!(session.counters().submissions, 2);
        assert_eq!((stats.batches, stats.plans, stats.stalls), (2, 1, 0));
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
    let image: Vec<i16> = (0..3072).map(|i| i16::from((i * 37 % 255) as i8)).collect();
    check_layers(&graph, &image);
}

#[test]
fn zoo_resnet18_is_the_reference_layer_by_layer() {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let image = zoo::sample_image(224, 1);
    let image: Vec<i16> = image
        .iter()
        .map(|&x| (i16::from(x) - 118) * 2 / 3)
        .collect();
    check_layers(&graph, &image);
}
