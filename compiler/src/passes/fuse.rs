//! Passes that join nodes.

use super::PassError;
use super::net::{Net, NetOp};
use crate::qgraph::TensorId;
use crate::semantics::{self, Requant};

/// A change of scale or a clamp right after a node becomes part of that node, when nothing else
/// reads what lies between. Rounding once instead of twice is closer to the real result, but not
/// what the model says: a precise network keeps changes of scale.
pub(super) fn merge_clamps(net: &mut Net) -> Result<(), PassError> {
    let mut index = 0;
    while index < net.nodes.len() {
        match mergeable(net, index) {
            Some(producer) => merge(net, producer, index),
            None => index += 1,
        }
    }
    Ok(())
}

/// The producer that an element-wise node can join.
fn mergeable(net: &Net, index: usize) -> Option<usize> {
    let NetOp::Eltwise { input } = net.nodes[index].op else {
        return None;
    };
    if net.uses()[input.0] != 1 {
        return None;
    }
    let scale = |id: TensorId| net.tensors[id.0].scale;
    if net.requant == Requant::Precise && scale(input) != scale(net.nodes[index].output) {
        return None;
    }
    net.nodes.iter().position(|n| n.output == input)
}

fn merge(net: &mut Net, producer: usize, eltwise: usize) {
    let removed = net.nodes.remove(eltwise);
    let node = &mut net.nodes[producer];
    let ratio = net.tensors[node.output.0].scale / net.tensors[removed.output.0].scale;
    // A bound of the producer is kept in the new steps, except int8's own.
    let keep = |bound: i8, own: i8| {
        if bound == own {
            own
        } else {
            (f64::from(bound) * ratio).round() as i8
        }
    };
    let low = keep(node.clamp.0, -128).max(removed.clamp.0);
    let high = keep(node.clamp.1, 127).min(removed.clamp.1);
    node.clamp = (low.min(high), high);
    node.output = removed.output;
}

/// A sum whose operand is a convolution that nothing else reads becomes part of it: the other
/// operand is loaded into the accumulators. If both operands qualify, the later convolution
/// takes the other as its residual, whatever their order in the model. The convolution's own
/// rounding is lost by that, so that a precise network keeps its sums.
pub(super) fn fuse_residuals(net: &mut Net) -> Result<(), PassError> {
    if net.requant == Requant::Precise {
        return Ok(());
    }
    let mut index = 0;
    while index < net.nodes.len() {
        if let NetOp::Add { a, b } = net.nodes[index].op {
            let options = [(a, b), (b, a)].into_iter().filter_map(|(conv, shortcut)| {
                fusable(net, index, conv, shortcut).map(|producer| (producer, shortcut))
            });
            if let Some((producer, shortcut)) = options.max_by_key(|(producer, _)| *producer) {
                fuse(net, producer, shortcut, index);
                // The convolution moved to the sum's place, one position earlier.
                index = index.saturating_sub(1);
            }
        }
        index += 1;
    }
    Ok(())
}

/// The convolution that makes `conv`, if the sum at `add` can join it.
fn fusable(net: &Net, add: usize, conv: TensorId, shortcut: TensorId) -> Option<usize> {
    let producer = net.nodes.iter().position(|n| n.output == conv)?;
    let node = &net.nodes[producer];
    let NetOp::Conv {
        input,
        weight_scale,
        residual: None,
        ..
    } = &node.op
    else {
        return None;
    };
    if net.uses()[conv.0] != 1 || node.clamp != (-128, 127) {
        return None;
    }
    let scale = |id: TensorId| net.tensors[id.0].scale;
    let step = |w: &f64| scale(*input) * w;
    let ratio: Vec<f64> = weight_scale
        .iter()
        .map(|w| scale(shortcut) / step(w))
        .collect();
    let output = scale(net.nodes[add].output);
    let steps: Vec<f64> = weight_scale.iter().map(|w| step(w) / output).collect();
    semantics::plan_residual(&ratio, &steps).map(|_| producer)
}

fn fuse(net: &mut Net, producer: usize, shortcut: TensorId, add: usize) {
    let (output, clamp) = (net.nodes[add].output, net.nodes[add].clamp);
    let mut conv = net.nodes.remove(producer);
    if let NetOp::Conv { residual, .. } = &mut conv.op {
        *residual = Some(shortcut);
    }
    (conv.output, conv.clamp) = (output, clamp);
    // Everything after `producer` moved up by one.
    net.nodes[add - 1] = conv;
}
