use proptest::prelude::*;

use super::*;
use crate::passes::net::{NetConv, NetTensor};
use crate::passes::plan;
use crate::qgraph::ChannelOf;
use crate::qgraph::Numbers;
use crate::qgraph::window::Window;
use crate::reference;
use crate::semantics::Join;

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
    let node = |op: NetOp, output: TensorId| {
        NetNode::new(format!("n{}", output.0), op, output, Numbers::Int8)
    };
    let conv = NetOp::Conv(NetConv {
        input,
        window: Window::whole([1, 1]),
        weights: weights.into(),
        group,
        // Residuals of these scales are multiplied by whole numbers.
        weight_scale: (1..=all).map(|c| 1.0 / (64 * c) as f64).collect(),
        bias: (0..all).map(|c| c as f64 / 16.0 - 1.0).collect(),
        residual: (besides == Besides::Residual).then_some(other),
        dense: false,
    });
    let channels = NetOp::Channels {
        inputs: vec![made],
        map,
        spread: Spread { up, ..Spread::NONE },
    };
    net.nodes = vec![node(conv, made), node(channels, plane)];
    (net.inputs, net.outputs) = (vec![input, other], vec![plane]);
    match besides {
        Besides::Reader => {
            let (join, a, b) = (Join::Sum, made, other);
            net.nodes.push(node(NetOp::Pair { join, a, b }, more));
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
        order_rows(&mut net);
        let run = |net: &Net| {
            let graph = plan::plan(net).unwrap();
            let len: usize = graph.inputs.iter().map(|id| graph.tensors[id.0].chw.iter().product::<usize>()).sum();
            let image: Vec<i16> = (0..len).map(|i| (((i + seed) * 31 % 256) as u8 as i8).into()).collect();
            let all = reference::run(&graph, &image).unwrap();
            graph.outputs.iter().map(|id| all[id.0].clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(&net), run(&before));
        let sorted = order(&before.nodes[1].op).is_none_or(|(_, order, _)| order.is_sorted());
        prop_assert_eq!(net == before, besides != Besides::Nothing || sorted);
    }
}
