//! Channels of a convolution in the order in which they become positions.
//!
//! What makes planes of channels (a vector that is read as one, DepthToSpace) takes, for every position, channels
//! that lie far apart, a product for each block that one of them is in. Where a convolution alone makes them,
//! and nothing else reads them, its rows may have any order: those of one position, one behind the other.

use super::error::PassError;
use super::net::{Net, NetNode, NetOp};
use crate::qgraph::{ChannelOf, Spread, TensorId};

/// What the names of tensors end with that aren't the model's.
const PHASES: &str = ".phases";

/// Orders the rows of every convolution whose channels only become positions.
pub(super) fn order_rows(net: &mut Net) -> Result<(), PassError> {
    let uses = net.uses();
    let mut writer = vec![None; net.tensors.len()];
    for (index, node) in net.nodes.iter().enumerate() {
        writer[node.output.0] = Some(index);
    }
    for reader in 0..net.nodes.len() {
        let Some((input, order)) = order(&net.nodes[reader].op) else {
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
        if let NetOp::Channels { map, .. } = &mut net.nodes[reader].op {
            let of = |channel: usize| Some(ChannelOf { input: 0, channel });
            *map = (0..order.len()).map(of).collect();
        }
    }
    Ok(())
}

/// The one tensor of which an operator makes positions of every channel, each once, and in which order it
/// takes these; `None` for any other.
fn order(op: &NetOp) -> Option<(TensorId, Vec<usize>)> {
    let NetOp::Channels {
        inputs,
        map,
        spread,
    } = op
    else {
        return None;
    };
    let &[input] = &inputs[..] else {
        return None;
    };
    let order: Option<Vec<usize>> = map.iter().map(|of| of.map(|of| of.channel)).collect();
    let order = order.filter(|_| *spread != Spread::NONE)?;
    let mut seen = vec![false; order.len()];
    let once = |&channel: &usize| {
        let seen = seen.get_mut(channel);
        seen.is_some_and(|seen| !std::mem::replace(seen, true))
    };
    order.iter().all(once).then_some((input, order))
}

/// Gives the channels of a convolution of `inputs` channels another order; whether it has as many, and they may
/// have any.
fn sort(node: &mut NetNode, inputs: usize, order: &[usize]) -> bool {
    let NetOp::Conv {
        window,
        weights,
        group: 1,
        weight_scale,
        bias,
        residual: None,
        ..
    } = &mut node.op
    else {
        return false;
    };
    let (channels, row) = (order.len(), inputs * window.area());
    let fits = [weight_scale.len(), bias.len()] == [channels; 2];
    if !fits || row == 0 || node.digit.is_some() {
        return false;
    }
    let mut sorted = Vec::with_capacity(weights.len());
    for part in weights.chunks_exact(channels * row) {
        let rows = order.iter().map(|&from| &part[from * row..][..row]);
        rows.for_each(|row| sorted.extend_from_slice(row));
    }
    *weights = sorted.into();
    *weight_scale = order.iter().map(|&from| weight_scale[from]).collect();
    *bias = order.iter().map(|&from| bias[from]).collect();
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::passes::net::NetTensor;
    use crate::passes::plan;
    use crate::reference;
    use crate::window::Window;

    /// What a case makes of `channels` of a convolution.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Besides {
        Nothing,
        /// Another node reads them, too.
        Reader,
        /// They are an output.
        Output,
        /// One of them is taken twice, and another not at all.
        Twice,
        /// One channel is of zeros.
        Zeros,
        Groups,
        Residual,
    }

    /// A 1x1 convolution of 4 channels and what makes positions of its own.
    fn net(channels: usize, up: [usize; 2], keys: &[u32], besides: Besides) -> Net {
        let phases = up[0] * up[1];
        let all = phases * channels;
        let mut net = Net::default();
        let mut tensor = |chw: [usize; 3]| {
            net.tensors.push(NetTensor {
                name: format!("t{}", net.tensors.len()),
                chw,
                scale: 0.05,
                zero: 3,
            });
            TensorId(net.tensors.len() - 1)
        };
        let (input, other) = (tensor([4 * phases, 2, 3]), tensor([all, 2, 3]));
        let made = tensor([all, 2, 3]);
        let plane = tensor([channels, 2 * up[0], 3 * up[1]]);
        let more = tensor([all, 2, 3]);
        let group = if besides == Besides::Groups {
            phases
        } else {
            1
        };
        let row = 4 * phases / group;
        let weights: Vec<i8> = (0..2 * all * row).map(|i| (i * 37 % 201) as i8).collect();
        let mut order: Vec<usize> = (0..all).collect();
        order.sort_by_key(|&channel| (keys[channel % keys.len()], channel));
        let of = |channel: usize| Some(ChannelOf { input: 0, channel });
        let mut map: Vec<_> = order.into_iter().map(of).collect();
        match besides {
            Besides::Twice => map[0] = map[all - 1],
            Besides::Zeros => map.iter_mut().step_by(channels).for_each(|of| *of = None),
            _ => {}
        }
        let node = |op: NetOp, output: TensorId| NetNode {
            name: format!("n{}", output.0),
            op,
            output,
            clamp: (-128, 127),
            digit: None,
            lost: 0.0,
        };
        let conv = NetOp::Conv {
            input,
            window: Window::whole([1, 1]),
            weights: weights.into(),
            group,
            // Residuals of these scales are multiplied by whole numbers.
            weight_scale: (1..=all).map(|c| 1.0 / (64 * c) as f64).collect(),
            bias: (0..all).map(|c| c as f64 / 16.0 - 1.0).collect(),
            residual: (besides == Besides::Residual).then_some(other),
            dense: false,
        };
        let channels = NetOp::Channels {
            inputs: vec![made],
            map,
            spread: Spread { up, skip: [0, 0] },
        };
        net.nodes = vec![node(conv, made), node(channels, plane)];
        (net.inputs, net.outputs) = (vec![input, other], vec![plane]);
        match besides {
            Besides::Reader => {
                net.nodes.push(node(NetOp::Add { a: made, b: other }, more));
                net.outputs.push(more);
            }
            Besides::Output => net.outputs.push(made),
            _ => {}
        }
        net
    }

    fn besides() -> impl Strategy<Value = Besides> {
        prop::sample::select(vec![
            Besides::Nothing,
            Besides::Reader,
            Besides::Output,
            Besides::Twice,
            Besides::Zeros,
            Besides::Groups,
            Besides::Residual,
        ])
    }

    proptest! {
        /// Outputs have the same bits, and the order changes exactly where nothing else knows it.
        #[test]
        fn what_is_computed_stays_the_same(
            channels in 2usize..5, up in [1usize..4, 2usize..4], keys in prop::collection::vec(0u32..4, 7),
            besides in besides(), seed in 0usize..99,
        ) {
            let mut net = net(channels, up, &keys, besides);
            let before = net.clone();
            order_rows(&mut net).unwrap();
            let run = |net: &Net| {
                let graph = plan::plan(net).unwrap();
                let len: usize = graph.inputs.iter().map(|id| graph.tensors[id.0].chw.iter().product::<usize>()).sum();
                let image: Vec<i8> = (0..len).map(|i| ((i + seed) * 31 % 256) as u8 as i8).collect();
                let all = reference::run(&graph, &image).unwrap();
                graph.outputs.iter().map(|id| all[id.0].clone()).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(&net), run(&before));
            let sorted = order(&before.nodes[1].op).is_none_or(|(_, order)| order.is_sorted());
            prop_assert_eq!(net == before, besides != Besides::Nothing || sorted);
        }
    }
}
