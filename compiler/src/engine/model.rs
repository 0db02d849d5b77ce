//! The bytes of a graph that an engine loads.

use std::borrow::Cow;

use super::composed;
use super::parts::{onnx, push, value};

use crate::graph::{Data, Element, Graph, Node, OnnxAttribute, Op, ValueId};
use crate::onnx::save_with_outputs;

/// The ONNX model of a graph, or of the part of one that gives some of its values, in operators that
/// the library has. Values have their names, but where two have the same.
pub fn model(graph: &Graph, outputs: &[ValueId]) -> Vec<u8> {
    save_with_outputs(&without_missing(graph), outputs)
}

/// The graph without operators that the library lacks, and with a QuantizeLinear that divides, as ONNX
/// has it: the library multiplies by the reciprocal of the scale.
fn without_missing(graph: &Graph) -> Cow<'_, Graph> {
    let missing = |node: &Node| match &node.op {
        Op::SpaceToDepth { .. } | Op::QuantizeLinear { .. } => true,
        Op::Onnx(op) => composed::is_composed(op),
        // The library's windows have no gaps.
        Op::MaxPool { window } => window.dilation != [1, 1],
        _ => false,
    };
    if !graph.nodes.iter().any(missing) {
        return Cow::Borrowed(graph);
    }
    let mut made = Graph {
        nodes: Vec::with_capacity(graph.nodes.len()),
        ..graph.clone()
    };
    for node in &graph.nodes {
        let replaced = match &node.op {
            Op::SpaceToDepth { block } => blocks_to_channels(&mut made, node, *block),
            Op::QuantizeLinear { axis } => divided(&mut made, node, *axis),
            Op::MaxPool { window } if window.dilation != [1, 1] => {
                composed::dilated(&mut made, node, window)
            }
            Op::Onnx(op) if composed::is_composed(op) => composed::compose(&mut made, node, op),
            _ => None,
        };
        // What can't be replaced is left to the engine to say so.
        if replaced.is_none() {
            made.nodes.push(node.clone());
        }
    }
    Cow::Owned(made)
}

/// `clamp(round(x / scale) + zero)`, for constant scales and zero points of bytes.
fn divided(graph: &mut Graph, node: &Node, axis: usize) -> Option<()> {
    let shape = graph.values[node.output.0].shape.clone();
    let constant = |index: usize| graph.values[node.inputs.get(index)?.0].data.clone();
    let Some(Data::F32(scales)) = constant(1) else {
        return None;
    };
    // Without a zero point the output is uint8.
    let zeros = match node.inputs.len() {
        2 => Data::U8(vec![0; scales.len()]),
        _ => constant(2)?,
    };
    let (low, high, number) = match zeros.element() {
        Element::I8 => (-128.0, 127.0, 3),
        Element::U8 => (0.0, 255.0, 2),
        Element::F32 | Element::I32 | Element::I64 | Element::Bool => return None,
    };
    let zeros = zeros.integers()?;
    if zeros.len() != scales.len() || (scales.len() != 1 && shape.get(axis) != Some(&scales.len()))
    {
        return None;
    }
    // Along their axis. One scale is repeated along some axis, or behind the values if there is only
    // one: a single divisor would be the library's reciprocal again.
    let at = match scales.len() {
        1 => shape.iter().position(|&size| size > 1),
        _ => Some(axis),
    };
    let mut x = node.inputs[0];
    let mut sizes = vec![1; shape.len()];
    match at.and_then(|at| Some((sizes.get_mut(at)?, shape.get(at)?))) {
        Some((size, &count)) => *size = count,
        None => {
            let last = sizes.last_mut()?;
            *last = 2;
            let zeros = Some(Data::F32(vec![0.0; 2]));
            let zeros = value(graph, node, "twice.zeros", vec![2], zeros);
            let twice = value(graph, node, "twice", sizes.clone(), None);
            push(graph, node, Op::Add, vec![x, zeros], twice);
            x = twice;
        }
    }
    let repeated = |all: Vec<f32>| match all[..] {
        [one] => vec![one; sizes.iter().product()],
        _ => all,
    };
    let zeros = zeros.iter().map(|&zero| zero as f32).collect();
    let (scales, zeros) = (repeated(scales), repeated(zeros));
    let scale = value(graph, node, "step", sizes.clone(), Some(Data::F32(scales)));
    let steps = value(graph, node, "steps", shape.clone(), None);
    let mut rounded = value(graph, node, "rounded", shape.clone(), None);
    push(graph, node, Op::Div, vec![x, scale], steps);
    push(graph, node, onnx("Round", 1, vec![]), vec![steps], rounded);
    if zeros.iter().any(|&zero| zero != 0.0) {
        let zeros = value(graph, node, "zeros", sizes, Some(Data::F32(zeros)));
        let moved = value(graph, node, "moved", shape.clone(), None);
        push(graph, node, Op::Add, vec![rounded, zeros], moved);
        rounded = moved;
    }
    if x != node.inputs[0] {
        let first = Op::Slice {
            axis: shape.len().checked_sub(1)?,
            start: 0,
            len: 1,
            step: 1,
        };
        let single = value(graph, node, "single", shape.clone(), None);
        push(graph, node, first, vec![rounded], single);
        rounded = single;
    }
    let clamped = value(graph, node, "clamped", shape, None);
    let (min, max) = (low, high);
    push(graph, node, Op::Clip { min, max }, vec![rounded], clamped);
    let to = vec![("to".to_owned(), OnnxAttribute::Int(number))];
    push(graph, node, onnx("Cast", 1, to), vec![clamped], node.output);
    Some(())
}

/// `[1, C, H*B, W*B]` to `[1, B, B, C, H, W]`, of which the channels are one dimension.
fn blocks_to_channels(graph: &mut Graph, node: &Node, block: usize) -> Option<()> {
    let [_, channels, height, width] = graph.values[node.inputs[0].0].shape[..] else {
        return None;
    };
    let (rows, columns) = (height / block.max(1), width / block.max(1));
    let sizes = |shape: &[usize]| Some(Data::I64(shape.iter().map(|&d| d as i64).collect()));
    let cut = vec![1, channels, rows, block, columns, block];
    let turned = vec![1, block, block, channels, rows, columns];
    let whole = [1, channels * block * block, rows, columns];
    let cut_sizes = value(graph, node, "cut.shape", vec![6], sizes(&cut));
    let whole_sizes = value(graph, node, "whole.shape", vec![4], sizes(&whole));
    let cut = value(graph, node, "cut", cut, None);
    let turned = value(graph, node, "turned", turned, None);
    let order = OnnxAttribute::Ints(vec![0, 3, 5, 1, 2, 4]);
    let order = vec![("perm".to_owned(), order)];
    let reshape = || onnx("Reshape", 2, vec![]);
    push(graph, node, reshape(), vec![node.inputs[0], cut_sizes], cut);
    push(graph, node, onnx("Transpose", 1, order), vec![cut], turned);
    push(
        graph,
        node,
        reshape(),
        vec![turned, whole_sizes],
        node.output,
    );
    Some(())
}
