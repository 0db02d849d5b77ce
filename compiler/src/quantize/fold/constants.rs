//! Constants that a node multiplies, divides, adds or subtracts.

use crate::graph::{Data, Graph, Node, Op, ValueId};

/// The value that a node scales by one constant, and by what.
pub(in crate::quantize) fn scaled_by_one(graph: &Graph, node: &Node) -> Option<(ValueId, f32)> {
    let &[a, b] = &node.inputs[..] else {
        return None;
    };
    let by = |x: ValueId, by: ValueId| constant(graph, by).map(|by| (x, by));
    match node.op {
        Op::Mul => by(a, b).or_else(|| by(b, a)),
        Op::Div => by(a, b).map(|(x, by)| (x, by.recip())),
        _ => None,
    }
}

/// A constant of one value.
pub(super) fn constant(graph: &Graph, id: ValueId) -> Option<f32> {
    match &graph.values[id.0].data {
        Some(Data::F32(data)) if data.len() == 1 => Some(data[0]),
        _ => None,
    }
}

/// A constant for all channels of a node's output, or one for each. A factor of 0 would lose a channel's weights.
pub(super) fn constants<'g>(graph: &'g Graph, node: &Node, id: ValueId) -> Option<&'g [f32]> {
    let value = &graph.values[id.0];
    let Some(Data::F32(constants)) = &value.data else {
        return None;
    };
    let shape = &graph.values[node.output.0].shape[..];
    let &[1, channels, _, ..] = shape else {
        return None;
    };
    // Shapes are aligned at their last dimension.
    let mut sizes = value.shape.iter().rev().enumerate();
    let fits = sizes.all(|(at, &size)| size == 1 || at + 2 == shape.len() && size == channels);
    let scales = matches!(node.op, Op::Mul | Op::Div);
    let usable = |c: &f32| c.is_finite() && (!scales || c.recip().is_finite());
    (fits && constants.iter().all(usable)).then_some(constants)
}
