//! The bytes of a graph that an engine loads.

use std::borrow::Cow;

use super::composed;
use super::exact::saturated;
use super::gaps::{self, Taken};
use super::parts::{Parts, onnx};
use crate::graph::{
    Data, Element, Entries, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId,
};
use crate::onnx::save_with_outputs;

/// The ONNX model of a graph, or of the part of one that gives some of its values, in operators that
/// the library has. Values have their names, but where two have the same.
pub fn model(graph: &Graph, outputs: &[ValueId]) -> Vec<u8> {
    save_with_outputs(&without_16_bits(without_missing(graph)), outputs)
}

/// The graph with integers of 32 bits where it has some of 16, which the library lacks: what may compute with these
/// moves or compares them.
fn without_16_bits(graph: Cow<'_, Graph>) -> Cow<'_, Graph> {
    let is_one = |value: &Value| value.element.has_16_bits();
    if !graph.values.iter().any(is_one) {
        return graph;
    }
    let mut graph = graph.into_owned();
    for value in graph.values.iter_mut().filter(|value| is_one(value)) {
        value.element = Element::I32;
        value.data = value.data.take().map(Data::without_16_bits);
    }
    Cow::Owned(graph)
}

/// The graph without operators that the library lacks, and with a QuantizeLinear that divides, as ONNX
/// has it: the library multiplies by the reciprocal of the scale.
fn without_missing(graph: &Graph) -> Cow<'_, Graph> {
    let missing = |node: &Node| match &node.op {
        Op::SpaceToDepth { .. } | Op::QuantizeLinear { .. } => true,
        Op::Onnx(op) => quantizes(graph, node, op) || composed::is_composed(graph, node, op),
        // The library's windows have no gaps.
        Op::MaxPool { window } | Op::AveragePool { window, .. } => window.dilation != [1, 1],
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
            Op::SpaceToDepth { block } => composed::blocks_to_channels(&mut made, node, *block),
            Op::QuantizeLinear { axis } => divided(&mut made, node, *axis),
            Op::MaxPool { window } if window.dilation != [1, 1] => {
                gaps::plane(&mut made, node, window, Taken::Most)
            }
            Op::AveragePool {
                window,
                count_include_pad: counted,
            } if window.dilation != [1, 1] => {
                let count_include_pad = *counted;
                gaps::plane(&mut made, node, window, Taken::Mean { count_include_pad })
            }
            Op::Onnx(op) if quantizes(graph, node, op) => {
                divided(&mut made, node, op.int("axis", 1).max(0) as usize)
            }
            Op::Onnx(op) if composed::is_composed(graph, node, op) => {
                composed::compose(&mut made, node, op)
            }
            _ => None,
        };
        // What can't be replaced is left to the engine to say so.
        if replaced.is_none() {
            made.nodes.push(node.clone());
        }
    }
    Cow::Owned(made)
}

/// Whether an operator as its file has it makes integers of 16 bits, of which the library has none.
fn quantizes(graph: &Graph, node: &Node, op: &OnnxOp) -> bool {
    let zero = node.inputs.get(2).map(|id| &graph.values[id.0]);
    op.kind == "QuantizeLinear" && zero.is_some_and(|zero| zero.element.has_16_bits())
}

/// `clamp(round(x / scale) + zero)`, for constant scales and zero points of 8 or 16 bits.
fn divided(graph: &mut Graph, node: &Node, axis: usize) -> Option<()> {
    let shape = graph.values[node.inputs.first()?.0].shape.clone();
    let constant = |index: usize| graph.values[node.inputs.get(index)?.0].data.clone();
    let Some(Data::F32(scales)) = constant(1) else {
        let (mut parts, x) = Parts::of(graph, node)?;
        return parts.rounded_at_run(x);
    };
    // Without a zero point the output is uint8.
    let zeros = match node.inputs.len() {
        2 => Data::U8(vec![0; scales.len()]),
        _ => constant(2)?,
    };
    let (low, high, number) = saturated(zeros.element())?;
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
    let (mut parts, x) = Parts::of(graph, node)?;
    let mut sizes = vec![1; shape.len()];
    let mut from = x;
    match at.and_then(|at| Some((sizes.get_mut(at)?, shape.get(at)?))) {
        Some((size, &count)) => *size = count,
        None => {
            *sizes.last_mut()? = 2;
            let zeros = parts.constant("twice.zeros", &[2], vec![0.0; 2]);
            from = parts.shaped(Op::Add, &[x, zeros], "twice", sizes.clone());
        }
    }
    let repeated = |all: Vec<f32>| match all[..] {
        [one] => vec![one; sizes.iter().product()],
        _ => all,
    };
    let zeros = zeros.iter().map(|&zero| zero as f32).collect();
    let (scales, zeros) = (repeated(scales), repeated(zeros));
    let scale = parts.constant("step", &sizes, scales);
    let steps = parts.push(Op::Div, &[from, scale], "steps");
    let mut rounded = parts.push(onnx("Round", 1, vec![]), &[steps], "rounded");
    if zeros.iter().any(|&zero| zero != 0.0) {
        let zeros = parts.constant("zeros", &sizes, zeros);
        rounded = parts.push(Op::Add, &[rounded, zeros], "moved");
    }
    if from != x {
        let axis = shape.len().checked_sub(1)?;
        let first = Entries::run(axis, 0, 1).into();
        rounded = parts.push(first, &[rounded], "single");
    }
    let (min, max) = (low, high);
    let clamped = parts.push(Op::Clip { min, max }, &[rounded], "clamped");
    let to = vec![("to".to_owned(), OnnxAttribute::Int(number))];
    parts.last(onnx("Cast", 1, to), &[clamped])
}
