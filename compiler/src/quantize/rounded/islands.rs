//! What the host computes anyway, with what it then may as well compute, all in float: a LayerNormalization, a GELU or
//! a Softmax that a file has in parts. Rounding between the parts loses what their squares and differences need, and
//! sends tensors to the device and back.

use std::collections::BTreeMap;

use crate::graph::{Graph, Node, Op, ValueId};
use crate::operators::fields::Steps;
use crate::passes::import::layout::Role;

/// Operators of files that only move values.
const MOVES: [&str; 7] = [
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Expand",
    "Cast",
];

/// For each node, whether the host computes it, in float where its neighbours are such nodes, too: operators that no
/// device has; what computes from one tensor alone what only they read; and what they give together with that tensor.
pub(super) fn islands(graph: &Graph) -> Vec<bool> {
    let mut hosted: Vec<bool> = graph
        .nodes
        .iter()
        .map(|node| matches!(node.op, Op::Onnx(_)))
        .collect();
    let seeds: Vec<bool> = graph
        .nodes
        .iter()
        .map(|node| is_seed(graph, node))
        .collect();
    if !seeds.contains(&true) {
        return hosted;
    }
    let makers = graph.makers();
    let roots = roots(graph, &makers);
    let tensors = |node: &Node| {
        let all = node
            .inputs
            .iter()
            .filter(|id| graph.values[id.0].data.is_none());
        all.copied().collect::<Vec<ValueId>>()
    };
    let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        node.inputs
            .iter()
            .for_each(|id| readers.entry(*id).or_default().push(index));
    }
    let mut island = seeds;
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        let output = node.output;
        let readers = readers
            .get(&output)
            .filter(|_| !graph.outputs.contains(&output));
        let only_hosts = readers.is_some_and(|all| all.iter().all(|reader| island[*reader]));
        island[index] |= (roots[output.0] != output || moves(node)) && only_hosts;
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        let inputs = tensors(node);
        let root = roots[node.output.0];
        let is_hosts = |id: &ValueId| makers.get(id).is_some_and(|maker| island[*maker]);
        let known = |id: &ValueId| *id == root || is_hosts(id);
        island[index] |=
            root != node.output && inputs.iter().any(is_hosts) && inputs.iter().all(known);
    }
    hosted
        .iter_mut()
        .zip(island)
        .for_each(|(hosted, island)| *hosted |= island);
    hosted
}

/// Whether no device computes a node, whatever its shapes.
fn is_seed(graph: &Graph, node: &Node) -> bool {
    match &node.op {
        Op::Onnx(_) => !moves(node),
        Op::Div => graph.values[node.inputs[1].0].data.is_none(),
        _ => false,
    }
}

/// Whether a node only moves values: where hosts alone read them, they may as well read what it reads.
fn moves(node: &Node) -> bool {
    match &node.op {
        Op::Onnx(op) => MOVES.contains(&op.kind),
        op => matches!(
            op,
            Op::Concat { .. } | Op::Slice { .. } | Op::Flatten | Op::Identity
        ),
    }
}

/// For each value, the one tensor that it is computed from by steps that have no weights, or itself.
fn roots(graph: &Graph, makers: &BTreeMap<ValueId, usize>) -> Vec<ValueId> {
    let uses = graph.uses();
    let mut roots: Vec<ValueId> = (0..graph.values.len()).map(ValueId).collect();
    for node in &graph.nodes {
        let mut tensors = node
            .inputs
            .iter()
            .filter(|id| graph.values[id.0].data.is_none());
        let facts = node.op.facts();
        let is_step = match &node.op {
            Op::Onnx(_) | Op::GlobalAveragePool | Op::Flatten => true,
            _ => matches!(facts.role, Role::Each),
        };
        let Some(first) = tensors.next() else {
            continue;
        };
        // What stands directly behind a layer with weights is part of it.
        let maker = makers.get(first).map(|maker| &graph.nodes[*maker].op);
        let layer = matches!(
            maker,
            Some(Op::Conv { .. } | Op::ConvTranspose { .. } | Op::Gemm { .. } | Op::MatMul { .. })
        );
        let adds = node.inputs.len() > 1 || facts.steps == Steps::Activation;
        let is_part =
            layer && adds && uses.get(first) == Some(&1) && !matches!(node.op, Op::Onnx(_));
        let root = roots[first.0];
        if is_step && !is_part && tensors.all(|id| roots[id.0] == root) {
            roots[node.output.0] = root;
        }
    }
    roots
}

#[cfg(test)]
mod tests;
