//! Which values of a graph are rounded, and whose steps they have.

mod islands;
pub mod keep;

use std::collections::BTreeSet;

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

/// Nodes that stay in float on the host, by their index.
pub type Kept = BTreeSet<usize>;

/// Which values are rounded to int8: the input, and what an operator gives after its
/// activation function; but for those that only nodes in `kept` make and read.
pub(super) fn rounded(graph: &Graph, kept: &Kept) -> Vec<bool> {
    let mut rounded = vec![false; graph.values.len()];
    let uses = graph.uses();
    let makers = graph.makers();
    let islands = islands::islands(graph);
    let hosted = |index: usize| islands[index] || kept.contains(&index);
    // Whether a value's maker is on the same side as a node that alone reads it.
    let joined = |id: &ValueId, reader: usize| {
        let maker = makers.get(id);
        let apart = maker.is_some_and(|maker| hosted(*maker) != hosted(reader));
        uses.get(id) == Some(&1) && !apart
    };
    for (index, node) in graph.nodes.iter().enumerate() {
        rounded[node.output.0] = true;
        // An operator that only its activation function reads needs no rounding of its own.
        if node.op.facts().steps == Steps::Activation && joined(&node.inputs[0], index) {
            rounded[node.inputs[0].0] = false;
        }
    }
    // A constant that is added to a product of matrices is its bias.
    for (index, node) in graph.nodes.iter().enumerate() {
        let form = |id: &ValueId| match graph.nodes[*makers.get(id)?].op {
            Op::MatMul { form } => Some((*id, form)),
            _ => None,
        };
        if node.op == Op::Add
            && let Some((id, form)) = node.inputs.iter().find_map(form)
            && node
                .inputs
                .iter()
                .any(|id| is_bias(&graph.values[id.0], form))
            && joined(&id, index)
        {
            rounded[id.0] = false;
        }
    }
    // What the host computes stays a float where only the host reads it, or nothing does, and so do integers.
    let mut read_as_int8 = vec![false; graph.values.len()];
    for (_, node) in graph.nodes.iter().enumerate().filter(|(i, _)| !hosted(*i)) {
        node.inputs.iter().for_each(|id| read_as_int8[id.0] = true);
    }
    for (_, node) in graph.nodes.iter().enumerate().filter(|(i, _)| hosted(*i)) {
        rounded[node.output.0] &= read_as_int8[node.output.0];
    }
    for (rounded, value) in rounded.iter_mut().zip(&graph.values) {
        *rounded &= value.element == Element::F32;
    }
    // An input is, whatever reads it, but for integers.
    for id in &graph.inputs {
        rounded[id.0] = graph.values[id.0].element == Element::F32;
    }
    raw_inputs(graph, kept, &mut rounded);
    rounded
}

/// Leaves inputs as they are that only kept nodes read, where the host can begin with them: before the first
/// rounding it reads either inputs or int8 tensors, and an output needs an int8 tensor.
fn raw_inputs(graph: &Graph, kept: &Kept, rounded: &mut [bool]) {
    let reads = |id: &ValueId, index: usize| graph.nodes[index].inputs.contains(id);
    let only_kept = |id: &&ValueId| {
        let mut readers = (0..graph.nodes.len()).filter(|index| reads(id, *index));
        rounded[id.0] && readers.all(|index| kept.contains(&index))
    };
    let raw: Vec<ValueId> = graph.inputs.iter().filter(only_kept).copied().collect();
    if kept.is_empty() || raw.is_empty() {
        return;
    }
    // What each value comes from since it was last rounded: inputs as they are, int8 tensors.
    let mut from = vec![[false; 2]; graph.values.len()];
    raw.iter().for_each(|id| from[id.0] = [true, false]);
    let (mut possible, mut any) = (true, false);
    for id in graph.inputs.iter().filter(|id| !raw.contains(id)) {
        // Whole numbers are inputs as they are, too.
        from[id.0] = [!rounded[id.0], rounded[id.0]];
    }
    for node in &graph.nodes {
        let of = |which: usize| node.inputs.iter().any(|id| from[id.0][which]);
        let sources = [of(0), of(1)];
        let output = node.output.0;
        from[output] = sources;
        if rounded[output] {
            possible &= sources != [true, true];
            any = true;
            from[output] = [false, true];
        }
    }
    possible &= graph.outputs.iter().all(|id| from[id.0][1]);
    if possible && any {
        raw.iter().for_each(|id| rounded[id.0] = false);
    }
}

/// Whether a constant has one value for each channel of a product of matrices, or one for all: others are sums of
/// their own.
pub(super) fn is_bias(constant: &Value, form: MatMulForm) -> bool {
    let behind = match form {
        MatMulForm::Left => 1,
        MatMulForm::Right | MatMulForm::RightTransposed => 0,
    };
    let mut dims = constant.shape.iter().rev().enumerate();
    constant.data.is_some() && dims.all(|(at, &size)| at == behind || size == 1)
}
