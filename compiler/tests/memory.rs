//! What a compilation holds at once is at most 2.5 times the weights in int8: they are there as the model or the
//! graph has them, and packed. Bytes that this thread allocates are counted, which no other work on the machine
//! changes; what threads that help take for themselves are a few kilobytes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io;

use vta_compiler::graph::{Data, Graph, Node, Op, Value, ValueId};
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::onnx::{self, ReadOptions};
use vta_compiler::quantize::{self, Mode, Options};
use vta_compiler::{passes, zoo};
use vta_isa::Config;

/// The most bytes at a time that compiling takes, from what makes the graph to the bundle's last byte.
fn peak(graph: impl FnOnce() -> Graph) -> f64 {
    let info = allocation_counter::measure(|| {
        let graph = graph();
        let network = passes::quantized(&graph).unwrap();
        drop(graph);
        let program =
            lower::compile(&network, &Config::default(), &LowerOptions::default()).unwrap();
        program.image().unwrap().write_to(&mut io::sink()).unwrap();
    });
    info.bytes_max as f64
}

/// That most of it is weights shows that they are counted.
fn assert_bounded(network: &str, weights: u64, peak: f64) {
    let ratio = peak / weights as f64;
    println!("{network}: {ratio:.2} times the {weights} bytes of weights");
    assert!((1.9..2.5).contains(&ratio), "{network}: {ratio:.2} times");
}

#[test]
fn networks_of_the_zoo_take_two_and_a_half_times_their_weights() {
    for name in ["resnet18", "resnet50"] {
        let weights = zoo::outline(name).unwrap().weights;
        assert_bounded(name, weights, peak(|| zoo::graph(name).unwrap()));
    }
}

/// Inputs and outputs of two dense layers. One has nearly all weights, so that copies of a layer count in full.
const SIZES: [usize; 3] = [2048, 4096, 16];

/// Those layers, in floats.
fn dense() -> Graph {
    let mut graph = Graph::default();
    let mut value = |name: &str, shape: &[usize], data: Option<Data>| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let mut x = value("x", &[1, SIZES[0]], None);
    let (input, mut nodes) = (x, Vec::new());
    for (layer, size) in SIZES.windows(2).enumerate() {
        let data = (0..size[0] * size[1]).map(|i| (i % 255) as f32 / 127.0 - 1.0);
        let data = Some(Data::F32(data.collect()));
        let weights = value(&format!("w{layer}"), &[size[1], size[0]], data);
        let output = value(&format!("y{layer}"), &[1, size[1]], None);
        nodes.push(Node {
            name: format!("dense{layer}"),
            op: Op::Gemm { trans_b: true },
            inputs: vec![x, weights],
            output,
        });
        x = output;
    }
    (graph.inputs, graph.outputs, graph.nodes) = (vec![input], vec![x], nodes);
    graph
}

#[test]
fn a_large_layer_takes_two_and_a_half_times_its_weights() {
    let graph = dense();
    let weights = graph.weights();
    let scales = quantize::equal_scales(&graph, 1.0);
    let graph = quantize::apply(&graph, &scales, Mode::Multiply).unwrap();
    let file = onnx::save(&graph);
    let read = || {
        onnx::load_part(file.clone(), &ReadOptions::default())
            .unwrap()
            .whole()
            .unwrap()
    };
    assert_bounded("dense", weights, peak(read));
}

/// Floats of weights are there as the graph and as the layers that are equalised have them.
#[test]
fn quantizing_takes_two_and_a_half_times_the_floats() {
    let images = [vec![0.5; SIZES[0]], vec![-0.25; SIZES[0]]];
    let graph = dense();
    let bytes = 4 * graph.weights();
    let mut equalized = 0;
    let info = allocation_counter::measure(|| {
        let graph = graph.clone();
        let options = Options::new(Mode::Multiply);
        let made = quantize::quantize_network(graph, &&images[..], &options).unwrap();
        equalized = made.equalized;
        onnx::save(&made.graph);
    });
    assert_eq!(equalized, 1);
    assert_bounded("dense, in floats", bytes, info.bytes_max as f64);
}
