//! Networks that the host computes in part, in floats between int8 tensors.

use std::sync::Arc;

use crate::builder::Builder;
use vta_compiler::graph::{Data, DepthMode, Graph, OnnxAttribute, Op};
use vta_compiler::host::Segment;
use vta_compiler::qgraph::{QConv, QGraph, QOp, Window};
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{float, onnx, passes, reference};

fn images() -> Vec<Vec<f32>> {
    let image = |seed: usize| {
        (0..48)
            .map(|i| ((i * 7 + seed * 29) % 31) as f32 / 15.0 - 1.0)
            .collect()
    };
    (0..4).map(image).collect()
}

/// The distinct segments of a network, each with the kinds of its nodes.
fn segments(network: &QGraph) -> Vec<Vec<&str>> {
    let mut found: Vec<&Arc<Segment>> = Vec::new();
    for node in &network.nodes {
        if let QOp::Host { segment, .. } = &node.op
            && !found.iter().any(|known| Arc::ptr_eq(known, segment))
        {
            found.push(segment);
        }
    }
    let mut all = Vec::new();
    for segment in found {
        all.push(segment.nodes().iter().map(|(_, kind)| &kind[..]).collect());
    }
    all
}

/// The quantised network of a float one, read back from its file, and its distance from the floats in
/// steps of each output.
fn compared(float: &Graph) -> (QGraph, Vec<f32>) {
    let quantized = quantize::quantize(float, &images(), Mode::Multiply).unwrap();
    let graph = onnx::load(&onnx::save(&quantized)).unwrap();
    let network = passes::quantized(&graph).unwrap();
    let input = &network.tensors[network.inputs[0].0];
    let mut far = vec![0f32; network.outputs.len()];
    for image in images() {
        let int8: Vec<i16> = image
            .iter()
            .map(|v| ((v / input.scale).round_ties_even() as i32 + input.zero) as i16)
            .collect();
        let all = reference::run(&network, &int8).unwrap();
        let expected = float::run(float, &image).unwrap();
        for (far, (id, expected)) in far.iter_mut().zip(network.outputs.iter().zip(expected)) {
            let out = &network.tensors[id.0];
            for (q, real) in all[id.0].iter().zip(expected) {
                *far = far.max(((i32::from(*q) - out.zero) as f32 - real / out.scale).abs());
            }
        }
    }
    (network, far)
}

#[test]
fn floats_between_kept_operators_are_not_rounded() {
    let mut b = Builder::default();
    let x = b.input(&[1, 3, 4, 4]);
    let sum = b.conv(x, [3, 8], 4);
    let gate = b.kept("Erf", &[sum], &[1, 8, 4, 4], &[]);
    let cubed = b.kept("Pow", &[gate, gate], &[1, 8, 4, 4], &[]);
    let rows = b.kept(
        "Softmax",
        &[gate],
        &[1, 8, 4, 4],
        &[("axis", OnnxAttribute::Int(-1))],
    );
    let both = b.kept("Mul", &[rows, sum], &[1, 8, 4, 4], &[]);
    let y = b.conv(both, [8, 4], 4);
    let float = b.finish(&[y]);
    let (network, far) = compared(&float);
    // What leads to no output is in no segment, and the convolutions are the device's.
    assert_eq!(segments(&network), [["Erf", "Softmax", "Mul"]]);
    assert!(cubed.0 > 0 && far[0] < 4.0, "{far:?}");
}

#[test]
fn what_two_outputs_share_is_computed_once() {
    let mut b = Builder::default();
    let x = b.input(&[1, 3, 4, 4]);
    let gate = b.kept("Erf", &[x], &[1, 3, 4, 4], &[]);
    let left = b.kept("Exp", &[gate], &[1, 3, 4, 4], &[]);
    let right = b.kept("Tan", &[gate], &[1, 3, 4, 4], &[]);
    let (a, c) = (b.conv(left, [3, 4], 4), b.conv(right, [3, 4], 4));
    let float = b.finish(&[a, c]);
    let (network, far) = compared(&float);
    let mut kinds = segments(&network);
    kinds.iter_mut().for_each(|kinds| kinds.sort_unstable());
    assert_eq!(kinds, [["Erf", "Exp", "Tan"]]);
    assert!(far.iter().all(|far| *far < 4.0), "{far:?}");
}

#[test]
fn a_float_that_is_read_after_a_device_is_computed_again() {
    // The first value is read on both sides of a convolution: one segment for both would wait for
    // itself.
    let mut b = Builder::default();
    let x = b.input(&[1, 3, 4, 4]);
    let early = b.kept("Erf", &[x], &[1, 3, 4, 4], &[]);
    let sum = b.conv(early, [3, 3], 4);
    let joined = b.kept("Atan", &[sum], &[1, 3, 4, 4], &[]);
    let late = b.kept("Max", &[early, joined], &[1, 3, 4, 4], &[]);
    let y = b.conv(late, [3, 4], 4);
    let float = b.finish(&[y]);
    let (network, far) = compared(&float);
    assert_eq!(segments(&network).len(), 2);
    assert!(far[0] < 4.0, "{far:?}");
}

#[test]
fn tensors_of_other_ranks_go_through_the_host() {
    // Tokens: positions by channels, normalised and multiplied, and back to a picture.
    let mut b = Builder::default();
    let x = b.input(&[1, 3, 4, 4]);
    let sum = b.conv(x, [3, 8], 4);
    let to = b.value("tokens", &[3], Some(Data::I64(vec![1, 8, 16])));
    let flat = b.kept("Reshape", &[sum, to], &[1, 8, 16], &[]);
    let perm = OnnxAttribute::Ints(vec![0, 2, 1]);
    let tokens = b.kept("Transpose", &[flat], &[1, 16, 8], &[("perm", perm.clone())]);
    let w = (0..64)
        .map(|i| ((i * 5) % 11) as f32 / 11.0 - 0.4)
        .collect();
    let w = b.value("m", &[8, 8], Some(Data::F32(w)));
    let mixed = b.kept("MatMul", &[tokens, w], &[1, 16, 8], &[]);
    let back = b.kept("Transpose", &[mixed], &[1, 8, 16], &[("perm", perm)]);
    let picture = b.value("picture", &[4], Some(Data::I64(vec![1, 8, 4, 4])));
    let back = b.kept("Reshape", &[back, picture], &[1, 8, 4, 4], &[]);
    let y = b.conv(back, [8, 4], 4);
    let float = b.finish(&[y]);
    let (network, far) = compared(&float);
    assert_eq!(segments(&network).len(), 1);
    assert!(far[0] < 4.0, "{far:?}");
}

#[test]
fn a_network_without_scales_is_refused_for_that() {
    let mut b = Builder::default();
    let x = b.input(&[1, 3, 4, 4]);
    let sum = b.conv(x, [3, 8], 4);
    let y = b.kept("Erf", &[sum], &[1, 8, 4, 4], &[]);
    let error = passes::quantized(&b.finish(&[y])).unwrap_err().to_string();
    assert!(error.contains("quantise the float model"), "{error}");
}

#[test]
fn an_output_that_only_moves_int8_values_needs_no_rounding() {
    let output = |op: Op, shape: &[usize], zero: i8| {
        let mut b = Builder::default();
        let x = b.input(&[1, 4, 2, 2]);
        let scale = b.value("scale", &[], Some(Data::F32(vec![0.25])));
        let zero = b.value("zero", &[], Some(Data::I8(vec![zero])));
        let q = b.push(
            Op::QuantizeLinear { axis: 1 },
            &[x, scale, zero],
            &[1, 4, 2, 2],
        );
        let real = b.push(
            Op::DequantizeLinear { axis: 1 },
            &[q, scale, zero],
            &[1, 4, 2, 2],
        );
        let y = b.push(op, &[real], shape);
        passes::quantized(&b.finish(&[y]))
    };
    let mode = DepthMode::Dcr;
    let block = Op::DepthToSpace { block: 2, mode };
    let int8: Vec<i16> = (0..16i32).map(|i| (i * 9 - 70) as i16).collect();
    for zero in [0, 5] {
        let network = output(block.clone(), &[1, 1, 4, 4], zero).unwrap();
        let y = network.outputs[0];
        let all = reference::run(&network, &int8).unwrap();
        let at = |row: usize, col: usize| (row % 2 * 2 + col % 2) * 4 + row / 2 * 2 + col / 2;
        let expected = (0..16).map(|i| int8[at(i / 4, i % 4)]);
        assert_eq!(all[y.0], expected.collect::<Vec<_>>());
        assert_eq!(
            (network.tensors[y.0].scale, network.tensors[y.0].zero),
            (0.25, zero.into())
        );
        let window = Window::whole([2, 2]);
        let network = output(Op::MaxPool { window }, &[1, 4, 1, 1], zero).unwrap();
        let all = reference::run(&network, &int8).unwrap();
        assert_eq!(
            all[network.outputs[0].0],
            [int8[3], int8[7], int8[11], int8[15]]
        );
    }
    // A value that lies between two steps is the host's, behind the network.
    let (alpha, beta) = (0.2, 0.5);
    let network = output(Op::HardSigmoid { alpha, beta }, &[1, 4, 2, 2], 0).unwrap();
    let ends = network.ends.unwrap();
    let kinds: Vec<&str> = ends.nodes().map(|(_, kind)| &kind[..]).collect();
    assert_eq!(kinds, ["HardSigmoid"]);
}

#[test]
fn a_constant_that_is_rounded_again_keeps_the_last_steps() {
    // As a file has it in which two nodes share a constant by an Identity, and both ends are rounded.
    let mut b = Builder::default();
    let x = b.input(&[1, 2, 2, 2]);
    let x = b.rounded(x, 0.25);
    let int8 = b.value("w", &[2, 2, 1, 1], Some(Data::I8(vec![8, -3, 5, 127])));
    let scale = b.value("fine", &[], Some(Data::F32(vec![0.125])));
    let zero = b.value("none", &[], Some(Data::I8(vec![0])));
    let w = b.push(
        Op::DequantizeLinear { axis: 0 },
        &[int8, scale, zero],
        &[2, 2, 1, 1],
    );
    let w = b.push(Op::Identity, &[w], &[2, 2, 1, 1]);
    let w = b.rounded(w, 0.25);
    let window = Window::whole([1, 1]);
    let y = b.push(Op::Conv { window, group: 1 }, &[x, w], &[1, 2, 2, 2]);
    let y = b.rounded(y, 0.25);
    let network = passes::quantized(&b.finish(&[y])).unwrap();
    let QOp::Conv(QConv { weights, .. }) = &network.nodes[0].op else {
        panic!("{network}");
    };
    // 1, -0.375, 0.625 and 15.875 in steps of a quarter, ties to even.
    assert_eq!(weights[..], [4, -2, 2, 64]);
}
