//! Graphs built a node at a time, random parts of them, and the check of their programs.

mod check;

use proptest::prelude::*;
use vta_compiler::qgraph::{LaneOp, QGraph, QNode, QOp, QTensor, TensorId, Window};

pub use check::{Rng, check, config};

/// Windows with kernels up to a size; not all fit their input.
pub fn window(kernel: usize) -> impl Strategy<Value = Window> {
    let kernel = [1..=kernel, 1..=kernel];
    let pads = prop::array::uniform4(0usize..3);
    (kernel, [1usize..4, 1usize..4], [1usize..3, 1usize..3], pads).prop_map(
        |(kernel, stride, dilation, pads)| Window {
            kernel,
            stride,
            dilation,
            pads: pads.into(),
        },
    )
}

/// Zero points: none, any, and the farthest.
pub fn zero() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), -128..=127i32, Just(-128), Just(127)]
}

pub fn tensor(graph: &mut QGraph, chw: [usize; 3]) -> TensorId {
    let name = format!("t{}", graph.tensors.len());
    graph.tensors.push(QTensor {
        name,
        chw,
        scale: 1.0,
        zero: 0,
        range: (-128, 127),
    });
    TensorId(graph.tensors.len() - 1)
}

pub fn push(graph: &mut QGraph, op: QOp, chw: [usize; 3]) -> TensorId {
    let output = tensor(graph, chw);
    let name = format!("n{}", graph.nodes.len());
    graph.nodes.push(QNode {
        name,
        op,
        output,
        saturate: false,
    });
    output
}

pub fn clamp() -> Vec<LaneOp> {
    vec![LaneOp::min(127), LaneOp::max(-128)]
}
