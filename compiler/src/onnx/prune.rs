//! What nothing reads is dropped: nodes that lead to no output, values that no node names.

use crate::graph::{Graph, Node, ValueId};

/// Keeps what the outputs need, and all inputs.
pub(super) fn prune(graph: &mut Graph) {
    let mut needed = vec![false; graph.values.len()];
    let ends = graph.outputs.iter().chain(&graph.inputs);
    ends.for_each(|id| needed[id.0] = true);
    let mut kept: Vec<Node> = Vec::with_capacity(graph.nodes.len());
    for node in std::mem::take(&mut graph.nodes).into_iter().rev() {
        if needed[node.output.0] {
            node.inputs.iter().for_each(|id| needed[id.0] = true);
            kept.push(node);
        }
    }
    kept.reverse();
    let mut new = vec![ValueId(0); needed.len()];
    let values = std::mem::take(&mut graph.values);
    for (old, value) in values.into_iter().enumerate() {
        if needed[old] {
            new[old] = ValueId(graph.values.len());
            graph.values.push(value);
        }
    }
    for node in &mut kept {
        node.inputs.iter_mut().for_each(|id| *id = new[id.0]);
        node.output = new[node.output.0];
    }
    graph.nodes = kept;
    let ends = graph.outputs.iter_mut().chain(&mut graph.inputs);
    ends.for_each(|id| *id = new[id.0]);
}
