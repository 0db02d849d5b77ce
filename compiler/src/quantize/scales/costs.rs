//! What a zero point costs the device, as what it must gain for that.
//!
//! A convolution has the zero points of its input and of its output in its bias, so that they cost nothing. Where it
//! is padded, its input's are a bias of their own for each edge and corner, with more weight tiles and instructions: up
//! to an eighth of its cycles, but next to nothing where a depthwise one has few edges for its size. A sum or a
//! product of two tensors has one operation of the ALU more, of ten, and so has a mean that gets one.

use super::super::histogram::Histogram;
use super::super::method::Errors;
use super::super::mode::Scale;
use crate::graph::{Graph, Node, Op};
use crate::operators::fields::Steps;
use crate::qgraph::window::Pads;

/// Times that the squared error must be smaller with a zero point where that costs nothing.
const GAIN: f64 = 1.05;
/// Times that it must be smaller where it costs cycles.
const COSTLY_GAIN: f64 = 2.0;
/// Rows and columns from which on the edges of a depthwise convolution are few.
const LARGE: usize = 14;
/// The signal to noise, in energy, from which on values are good enough as they are where a zero point costs cycles.
const GOOD: f64 = 1000.0;

/// For each value, whether a zero point costs cycles.
pub(super) fn costly(graph: &Graph) -> Vec<bool> {
    let mut costly = vec![false; graph.values.len()];
    // What an operation gives is rounded behind its activation function.
    for node in &graph.nodes {
        let bounds = node.op.facts().steps == Steps::Activation;
        let is_mean = matches!(node.op, Op::AveragePool { .. } | Op::GlobalAveragePool);
        let adds = is_mean || is_join(graph, node);
        costly[node.output.0] = adds || bounds && costly[node.inputs[0].0];
    }
    for node in graph.nodes.iter().rev() {
        let moves = node.op.facts().steps == Steps::Input;
        let reads =
            is_join(graph, node) || has_edges(graph, node) || moves && costly[node.output.0];
        for id in &node.inputs {
            costly[id.0] |= reads;
        }
    }
    costly
}

/// Whether a zero point is worth what it costs.
pub(super) fn is_worth(seen: &Histogram, [free, symmetric]: [Scale; 2], costly: bool) -> bool {
    let errors = Errors::new(seen);
    let [with, without] = [free, symmetric].map(|scale| errors.mean(scale));
    if costly {
        with * COSTLY_GAIN < without && without * GOOD > seen.mean_square()
    } else {
        with * GAIN < without
    }
}

/// Whether a node is a sum or a product of two tensors.
fn is_join(graph: &Graph, node: &Node) -> bool {
    let tensors = node
        .inputs
        .iter()
        .filter(|id| graph.values[id.0].data.is_none());
    matches!(node.op, Op::Add | Op::Sub | Op::Mul) && tensors.count() > 1
}

/// Whether a node is a convolution with padding, and with edges that count.
fn has_edges(graph: &Graph, node: &Node) -> bool {
    let Op::Conv { window, group } = node.op else {
        return false;
    };
    let [input, output] = [node.inputs[0], node.output].map(|id| &graph.values[id.0].shape);
    let is_depthwise = group > 1 && input.get(1) == Some(&group);
    let is_large = output.iter().skip(2).all(|size| *size >= LARGE);
    window.pads != Pads::NONE && !(is_depthwise && is_large)
}
