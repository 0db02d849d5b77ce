//! Which values of a graph are rounded, and whose steps they have.

use std::collections::HashMap;

use super::error::QuantizeError;
use crate::graph::{Element, Graph, MatMulForm, Node, Op, Value, ValueId};
use crate::operators::fields::Steps;

/// Refuses a graph that has scales already.
pub(super) fn refuse_quantized(graph: &Graph) -> Result<(), QuantizeError> {
    let quantized = |n: &&Node| {
        matches!(
            n.op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. }
        )
    };
    match graph.nodes.iter().find(quantized) {
        None => Ok(()),
        Some(node) => Err(QuantizeError::Quantized {
            node: node.name.clone(),
        }),
    }
}

/// Which values are rounded to int8: the input, and what an operator gives after its
/// activation function.
pub(super) fn rounded(graph: &Graph) -> Vec<bool> {
    let mut rounded = vec![false; graph.values.len()];
    let uses = graph.uses();
    for node in &graph.nodes {
        rounded[node.output.0] = true;
        // An operator that only its activation function reads needs no rounding of its own.
        if node.op.facts().steps == Steps::Activation && uses.get(&node.inputs[0]) == Some(&1) {
            rounded[node.inputs[0].0] = false;
        }
    }
    // A constant that is added to a product of matrices is its bias.
    let makers: HashMap<_, _> = graph.nodes.iter().map(|n| (n.output, n)).collect();
    for node in graph.nodes.iter().filter(|node| node.op == Op::Add) {
        let form = |id: &ValueId| match makers.get(id)?.op {
            Op::MatMul { form } => Some((*id, form)),
            _ => None,
        };
        if let Some((id, form)) = node.inputs.iter().find_map(form)
            && node
                .inputs
                .iter()
                .any(|id| is_bias(&graph.values[id.0], form))
            && uses.get(&id) == Some(&1)
        {
            rounded[id.0] = false;
        }
    }
    // What operators of the host give that come from a file as they are stays a float where only others of them
    // read it, or nothing does, and so do integers.
    let is_kept = |node: &Node| matches!(node.op, Op::Onnx(_));
    let mut read_as_int8 = vec![false; graph.values.len()];
    let readers = graph.nodes.iter().filter(|node| !is_kept(node));
    let read = readers.flat_map(|node| &node.inputs);
    read.for_each(|id| read_as_int8[id.0] = true);
    for node in graph.nodes.iter().filter(|node| is_kept(node)) {
        rounded[node.output.0] &= read_as_int8[node.output.0];
    }
    for (rounded, value) in rounded.iter_mut().zip(&graph.values) {
        *rounded &= value.element == Element::F32;
    }
    // An input is, whatever reads it, but for integers.
    for id in &graph.inputs {
        rounded[id.0] = graph.values[id.0].element == Element::F32;
    }
    rounded
}

/// Whether a constant has one value for each channel of a product of matrices, or one for all: others are sums of
/// their own.
fn is_bias(constant: &Value, form: MatMulForm) -> bool {
    let behind = match form {
        MatMulForm::Left => 1,
        MatMulForm::Right | MatMulForm::RightTransposed => 0,
    };
    let mut dims = constant.shape.iter().rev().enumerate();
    constant.data.is_some() && dims.all(|(at, &size)| at == behind || size == 1)
}
