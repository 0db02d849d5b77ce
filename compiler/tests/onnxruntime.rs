//! Files that onnxruntime has quantised give what onnxruntime computes (see the folder's README).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/check.rs"]
mod common;

use common::{check, config};
use vta_compiler::qgraph::{Numbers, QConv, QGraph, QOp, QTensor};
use vta_compiler::{onnx, passes, reference};

/// Values of an image, and of its result.
const LENGTHS: [usize; 2] = [3 * 12 * 12, 10];

fn file(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/onnxruntime");
    std::fs::read(format!("{folder}/{name}")).unwrap()
}

/// The float32 rows of a `.npy` file.
fn rows(name: &str, length: usize) -> Vec<Vec<f32>> {
    let bytes = file(name);
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let values = bytes[10 + header..].chunks_exact(4);
    let values: Vec<f32> = values
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    values.chunks_exact(length).map(<[f32]>::to_vec).collect()
}

fn quantized(numbers: Numbers, tensor: &QTensor, values: &[f32]) -> Vec<i16> {
    let (least, most) = numbers.bounds();
    let step = |x: &f32| (x / tensor.scale).round_ties_even() + tensor.zero as f32;
    values
        .iter()
        .map(|x| step(x).clamp(least.into(), most.into()) as i16)
        .collect()
}

/// How many results differ, none by more than a step, or 16 of int16's.
fn differences(name: &str, graph: &QGraph) -> usize {
    let most = match graph.numbers {
        Numbers::Int8 => 1,
        Numbers::Int16 => 16,
    };
    let [input, output] = [graph.inputs[0], graph.outputs[0]];
    let images = rows("inputs.npy", LENGTHS[0]);
    let expected = rows(&format!("{name}.npy"), LENGTHS[1]);
    assert_eq!((images.len(), expected.len()), (6, 6));
    let mut differences = 0;
    for (image, expected) in images.iter().zip(&expected) {
        let image = quantized(graph.numbers, &graph.tensors[input.0], image);
        let values = reference::run(graph, &image).unwrap();
        let tensor = &graph.tensors[output.0];
        let expected = quantized(graph.numbers, tensor, expected);
        for (&got, &expected) in values[output.0].iter().zip(&expected) {
            let steps = (i32::from(got) - i32::from(expected)).abs();
            assert!(steps <= most, "{name}: {got} for {expected}");
            differences += usize::from(steps > 0);
        }
    }
    differences
}

/// Zero points of a graph's tensors that aren't 0.
fn asymmetric(graph: &QGraph) -> usize {
    graph.tensors.iter().filter(|t| t.zero != 0).count()
}

#[test]
fn files_give_what_onnxruntime_computes() {
    for name in [
        "uint8-int8",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "operators",
        "operators-uint8",
        "integers",
    ] {
        let graph =
            passes::quantized(&onnx::load(&file(&format!("{name}.onnx"))).unwrap()).unwrap();
        assert!(asymmetric(&graph) >= 4, "{name}");
        // Of 60 results: those beside a tie.
        let differences = differences(name, &graph);
        assert!(
            differences <= 2 || graph.numbers == Numbers::Int16,
            "{name}"
        );
        for index in [0, 4] {
            check(&graph, &config(index), 1).unwrap();
        }
    }
}

#[test]
fn weights_beyond_int8_have_two_parts() {
    let graph = passes::quantized(&onnx::load(&file("uint8.onnx")).unwrap()).unwrap();
    let further = graph.nodes.iter().filter(|node| match &node.op {
        QOp::Conv(QConv {
            store: None,
            window,
            weights,
            group,
            input,
            ..
        }) => {
            let channels = graph.tensors[input.0].chw[0] / group;
            weights.len() > channels * window.area() * graph.tensors[node.output.0].chw[0]
        }
        _ => false,
    });
    assert!(further.count() > 0);
}
