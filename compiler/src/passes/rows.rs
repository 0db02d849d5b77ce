//! Channels of a convolution in the order in which they become positions.
//!
//! What makes planes of channels (a vector that is read as one, DepthToSpace) takes, for every position, channels
//! that lie far apart, a product for each block that one of them is in. Where a convolution alone makes them,
//! and nothing else reads them, its rows may have any order: those of one position, one behind the other.

use super::net::{Net, NetNode, NetOp};
use crate::qgraph::{Spread, TensorId};

/// What the names of tensors end with that aren't the model's.
const PHASES: &str = ".phases";

/// Orders the rows of every convolution whose channels only become positions.
pub(super) fn order_rows(net: &mut Net) {
    let (uses, writer) = (net.uses(), net.writers());
    for reader in 0..net.nodes.len() {
        let Some((input, order, spread)) = order(&net.nodes[reader].op) else {
            continue;
        };
        let alone = uses[input.0] == 1 && !order.is_sorted();
        let Some(maker) = writer[input.0].filter(|_| alone) else {
            continue;
        };
        let first = net.nodes[maker].op.inputs().first().copied();
        let inputs = first.map_or(0, |id| net.tensors[id.0].chw[0]);
        if !sort(&mut net.nodes[maker], inputs, &order) {
            continue;
        }
        // It is no tensor of the model any more.
        let name = &mut net.tensors[input.0].name;
        if !name.ends_with(PHASES) {
            name.push_str(PHASES);
        }
        net.nodes[reader].op = NetOp::channels_of(input, 0..order.len(), spread);
    }
}

/// The one tensor of which an operator makes positions of every channel, each once, and in which order it
/// takes these; `None` for any other.
fn order(op: &NetOp) -> Option<(TensorId, Vec<usize>, Spread)> {
    let (input, map, spread) = op.of_one()?;
    let order: Option<Vec<usize>> = map.iter().map(|of| of.map(|of| of.channel)).collect();
    let order = order.filter(|_| spread != Spread::NONE)?;
    let mut seen = vec![false; order.len()];
    let once = |&channel: &usize| {
        let seen = seen.get_mut(channel);
        seen.is_some_and(|seen| !std::mem::replace(seen, true))
    };
    order.iter().all(once).then_some((input, order, spread))
}

/// Gives the channels of a convolution of `inputs` channels another order; whether it has as many, and they may
/// have any.
fn sort(node: &mut NetNode, inputs: usize, order: &[usize]) -> bool {
    let NetOp::Conv(conv) = &mut node.op else {
        return false;
    };
    let (channels, row) = (order.len(), conv.row(inputs));
    let fits = [conv.weight_scale.len(), conv.bias.len()] == [channels; 2];
    let alone = conv.group == 1 && conv.residual.is_none() && node.digit.is_none();
    if !fits || row == 0 || !alone {
        return false;
    }
    let mut sorted = Vec::with_capacity(conv.weights.len());
    for part in conv.weights.chunks_exact(channels * row) {
        let rows = order.iter().map(|&from| &part[from * row..][..row]);
        rows.for_each(|row| sorted.extend_from_slice(row));
    }
    conv.weights = sorted.into();
    for of_channels in [&mut conv.weight_scale, &mut conv.bias] {
        *of_channels = order.iter().map(|&from| of_channels[from]).collect();
    }
    true
}

#[cfg(test)]
mod tests;
