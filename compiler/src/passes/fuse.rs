//! Passes that join nodes.
//!
//! Each walks the nodes once, in time linear in their number: [`Nodes`] knows who writes each
//! tensor and how often it is read, and a node that goes leaves an empty place until the end.

use super::net::{Net, NetConv, NetNode, NetOp};
use crate::qgraph::{ChannelOf, Spread, TensorId};
use crate::semantics::{self, Join, Requant};

/// The most that roundings of the model that are left out may move a value, in steps of its tensor. Half a step
/// by them and the rounding that stays differ from the model by at most one.
const MOST_LOST: f64 = 0.5;

/// The nodes of a net while they are rewritten.
struct Nodes<'n> {
    /// Without its nodes.
    net: &'n mut Net,
    /// In execution order; `None` where one was.
    nodes: Vec<Option<NetNode>>,
    /// The place of the node that writes each tensor.
    writer: Vec<Option<usize>>,
    /// How often each tensor is read, network outputs counted.
    uses: Vec<usize>,
}

impl<'n> Nodes<'n> {
    /// Applies a pass to each place in turn.
    fn rewrite(net: &mut Net, pass: fn(&mut Nodes<'_>, usize)) {
        let mut nodes = Nodes {
            uses: net.uses(),
            writer: net.writers(),
            nodes: std::mem::take(&mut net.nodes)
                .into_iter()
                .map(Some)
                .collect(),
            net,
        };
        for index in 0..nodes.nodes.len() {
            pass(&mut nodes, index);
        }
        nodes.net.nodes = nodes.nodes.into_iter().flatten().collect();
    }

    fn scale(&self, id: TensorId) -> f64 {
        self.net.tensors[id.0].scale
    }

    fn zero(&self, id: TensorId) -> i32 {
        self.net.tensors[id.0].zero
    }

    /// A tensor's smallest and largest value.
    fn range(&self, id: TensorId) -> (i16, i16) {
        let writer = self.writer[id.0].and_then(|at| self.nodes[at].as_ref());
        writer.map_or(self.net.numbers.bounds(), |node| node.clamp)
    }

    /// The real value of a tensor's step.
    fn real(&self, id: TensorId, step: f64) -> f64 {
        (step - f64::from(self.zero(id))) * self.scale(id)
    }

    /// Where a real value lies among a tensor's steps.
    fn step(&self, id: TensorId, real: f64) -> f64 {
        real / self.scale(id) + f64::from(self.zero(id))
    }

    /// What roundings that were left out move a node's values by, in steps of `output`, once its own is, too.
    fn lost(&self, node: &NetNode, output: TensorId) -> f64 {
        (node.lost + 0.5) * self.scale(node.output) / self.scale(output)
    }

    /// Takes a node away.
    fn take(&mut self, index: usize) -> Option<NetNode> {
        let node = self.nodes[index].take()?;
        self.writer[node.output.0] = None;
        Some(node)
    }

    /// Puts a node into an empty place.
    fn put(&mut self, index: usize, node: NetNode) {
        self.writer[node.output.0] = Some(index);
        self.nodes[index] = Some(node);
    }

    /// The place of the node that writes what only one node reads.
    fn only_reader_of(&self, id: TensorId) -> Option<usize> {
        self.writer[id.0].filter(|_| self.uses[id.0] == 1)
    }
}

/// A change of scale or a clamp right after a node becomes part of that node, when nothing else
/// reads what lies between. Rounding once instead of twice is closer to the real result, but not
/// what the model says: a precise network keeps changes of scale, a fast one those to finer steps, of which
/// one of the model's is several.
pub(super) fn merge_clamps(net: &mut Net) {
    Nodes::rewrite(net, |nodes, index| {
        if let Some(producer) = mergeable(nodes, index) {
            merge(nodes, producer, index);
        }
    });
}

/// The producer that an element-wise node can join.
fn mergeable(nodes: &Nodes<'_>, index: usize) -> Option<usize> {
    let node = nodes.nodes[index].as_ref()?;
    let NetOp::Eltwise { input } = node.op else {
        return None;
    };
    let producer = nodes.only_reader_of(input)?;
    if nodes.scale(input) == nodes.scale(node.output) {
        return Some(producer);
    }
    let lost = node.lost + nodes.lost(nodes.nodes[producer].as_ref()?, node.output);
    (nodes.net.requant == Requant::Fast && lost <= MOST_LOST).then_some(producer)
}

fn merge(nodes: &mut Nodes<'_>, producer: usize, eltwise: usize) {
    let (Some(removed), Some(mut node)) = (nodes.take(eltwise), nodes.take(producer)) else {
        return;
    };
    // What the producer saturates at, in the new steps.
    let bound = |own: i16| {
        let real = nodes.real(node.output, own.into());
        let step = (nodes.step(removed.output, real) + 0.5).floor() as i16;
        step.clamp(removed.clamp.0, removed.clamp.1)
    };
    let clamp = (bound(node.clamp.0), bound(node.clamp.1));
    if nodes.scale(node.output) != nodes.scale(removed.output) {
        node.lost = removed.lost + nodes.lost(&node, removed.output);
    }
    node.clamp = clamp;
    node.output = removed.output;
    nodes.put(producer, node);
}

/// Whether a node may give all numbers.
fn is_whole(nodes: &Nodes<'_>, node: &NetNode) -> bool {
    node.clamp == nodes.net.numbers.bounds()
}

/// Rows, columns and channels that are taken of what nothing else reads are taken of what that was taken of: a Slice,
/// and what cuts or pads its channels, are one node. Those of a convolution are all that it computes.
pub(super) fn join_channels(net: &mut Net) {
    Nodes::rewrite(net, |nodes, index| {
        let joined = joinable(nodes, index);
        if let Some((producer, op)) = joined
            && let (Some(_), Some(mut node)) = (nodes.take(producer), nodes.take(index))
        {
            node.op = op;
            nodes.put(index, node);
        }
    });
    // Files often have a Slice for each dimension, which are one node now.
    Nodes::rewrite(net, |nodes, index| {
        stride(nodes, index);
    });
}

/// Gives a convolution the steps and pads with which it computes the rows and columns alone that a node takes of
/// all its channels; `None` where it stays, as where something else reads others. The node keeps its rounding.
fn stride(nodes: &mut Nodes<'_>, index: usize) -> Option<()> {
    let node = nodes.nodes[index].as_ref()?;
    let (between, _, spread) = node.op.of_one()?;
    let channels = 0..nodes.net.tensors[between.0].chw[0];
    let all = node.op == NetOp::channels_of(between, channels, spread);
    if !all || spread.up != [1, 1] || spread == Spread::NONE {
        return None;
    }
    let chw @ [_, rows, columns] = nodes.net.tensors[node.output.0].chw;
    let producer = nodes.only_reader_of(between)?;
    let NetOp::Conv(NetConv {
        input,
        window,
        residual: None,
        dense: false,
        ..
    }) = &mut nodes.nodes[producer].as_mut()?.op
    else {
        return None;
    };
    let [_, h, w] = nodes.net.tensors[input.0].chw;
    *window = window.every([spread.skip, spread.step], [h, w], [rows, columns])?;
    // It is no tensor of the model any more.
    nodes.net.tensors[between.0].chw = chw;
    nodes.net.tensors[between.0].name.push_str(".taken");
    // What is left of the node is its rounding, which the next pass gives the convolution where it may.
    nodes.nodes[index].as_mut()?.op = NetOp::Eltwise { input: between };
    Some(())
}

/// The node that takes rows or columns for another one alone, and what the other is without it.
fn joinable(nodes: &Nodes<'_>, index: usize) -> Option<(usize, NetOp)> {
    let (between, map, spread) = nodes.nodes[index].as_ref()?.op.of_one()?;
    let producer = nodes.only_reader_of(between)?;
    let made = nodes.nodes[producer].as_ref()?;
    let NetOp::Channels {
        inputs,
        map: from,
        spread: first,
    } = &made.op
    else {
        return None;
    };
    let steps = |id: TensorId| (nodes.scale(id), nodes.zero(id));
    let same = inputs.iter().all(|id| steps(*id) == steps(between)) && is_whole(nodes, made);
    let cuts = [first.up, spread.up] == [[1, 1]; 2] && *first != Spread::NONE;
    if !same || !cuts {
        return None;
    }
    let both = |axis: usize| {
        let skip = first.step[axis].checked_mul(spread.skip[axis])?;
        let skip = skip.checked_add(first.skip[axis])?;
        Some((skip, first.step[axis].checked_mul(spread.step[axis])?))
    };
    let [rows, columns] = [both(0)?, both(1)?];
    let of = |of: &Option<ChannelOf>| of.and_then(|of| from.get(of.channel).copied().flatten());
    let op = NetOp::Channels {
        inputs: inputs.clone(),
        map: map.iter().map(of).collect(),
        spread: Spread {
            skip: [rows.0, columns.0],
            step: [rows.1, columns.1],
            ..Spread::NONE
        },
    };
    Some((producer, op))
}

/// A sum whose operand is a convolution that nothing else reads becomes part of it: the other
/// operand is loaded into the accumulators. If both operands qualify, the later convolution
/// takes the other as its residual, whatever their order in the model. The convolution's own
/// rounding and bounds are lost by that: a precise network keeps its sums, a fast one those whose values
/// more than a step would change.
pub(super) fn fuse_residuals(net: &mut Net) {
    if net.requant == Requant::Precise {
        return;
    }
    Nodes::rewrite(net, |nodes, index| {
        let node = nodes.nodes[index].as_ref();
        let Some(NetOp::Pair {
            join: Join::Sum,
            a,
            b,
        }) = node.map(|node| &node.op)
        else {
            return;
        };
        let options = [(*a, *b), (*b, *a)].into_iter();
        let options = options.filter_map(|(conv, shortcut)| {
            fusable(nodes, index, conv, shortcut).map(|producer| (producer, shortcut))
        });
        if let Some((producer, shortcut)) = options.max_by_key(|(producer, _)| *producer) {
            fuse(nodes, producer, shortcut, index);
        }
    });
}

/// The convolution that makes `conv`, if the sum at `add` can join it.
fn fusable(nodes: &Nodes<'_>, add: usize, conv: TensorId, shortcut: TensorId) -> Option<usize> {
    let chw = |id: TensorId| nodes.net.tensors[id.0].chw;
    if chw(conv) != chw(shortcut) {
        return None;
    }
    let producer = nodes.only_reader_of(conv)?;
    let node = nodes.nodes[producer].as_ref()?;
    let NetOp::Conv(conv @ NetConv { residual: None, .. }) = &node.op else {
        return None;
    };
    let sum = nodes.nodes[add].as_ref()?;
    let fits = if nodes.net.wide_sums {
        is_whole(nodes, node)
    } else {
        sum.lost + nodes.lost(node, sum.output) <= MOST_LOST
    };
    if !fits {
        return None;
    }
    let steps = conv
        .weight_scale
        .iter()
        .map(|w| nodes.scale(conv.input) * w);
    let ratio = steps.clone().map(|step| nodes.scale(shortcut) / step);
    let ratio: Vec<f64> = ratio.collect();
    let steps: Vec<f64> = steps.map(|step| step / nodes.scale(sum.output)).collect();
    semantics::plan_residual(&ratio, &steps)?;
    // A wide sum takes the convolution's values as they are, so that there are no bounds to lose.
    let free = nodes.net.wide_sums || !bounded(nodes, node, shortcut, sum);
    free.then_some(producer)
}

/// Whether a convolution's bounds can be seen in its sum with a shortcut. They can't where no input reaches them,
/// or where the sum is at its own bound whatever the shortcut adds.
fn bounded(nodes: &Nodes<'_>, conv: &NetNode, shortcut: TensorId, sum: &NetNode) -> bool {
    let added = nodes.range(shortcut);
    let at = |bound: i16, added: i16| {
        let real = nodes.real(conv.output, bound.into()) + nodes.real(shortcut, added.into());
        nodes.step(sum.output, real)
    };
    let shows = [
        at(conv.clamp.0, added.1) > f64::from(sum.clamp.0) + 0.5,
        at(conv.clamp.1, added.0) < f64::from(sum.clamp.1) - 0.5,
    ];
    if shows == [false, false] {
        return false;
    }
    let Some((least, most)) = extremes(nodes, conv) else {
        return true;
    };
    let reached = [
        least < f64::from(conv.clamp.0) - 0.5,
        most > f64::from(conv.clamp.1) + 0.5,
    ];
    (0..2).any(|side| shows[side] && reached[side])
}

/// The smallest and largest value of a convolution in steps of its output, before it is rounded, by its weights.
fn extremes(nodes: &Nodes<'_>, conv: &NetNode) -> Option<(f64, f64)> {
    let NetOp::Conv(of) = &conv.op else {
        return None;
    };
    let (sums, offsets) = of.sums(&nodes.net.tensors[of.input.0]).ok()?;
    let range = semantics::wider(nodes.range(of.input), nodes.zero(of.input));
    let mut all = (f64::INFINITY, f64::NEG_INFINITY);
    for (c, (sums, offset)) in sums.iter().zip(offsets).enumerate() {
        let step = nodes.scale(of.input) * of.weight_scale.get(c)?;
        let bias = of.bias.get(c).copied().unwrap_or(0.0);
        let real = |sum: i64| (sum - offset) as f64 * step + bias;
        let (low, high) = sums.bounds(range);
        all.0 = all.0.min(nodes.step(conv.output, real(low)));
        all.1 = all.1.max(nodes.step(conv.output, real(high)));
    }
    Some(all)
}

/// Moves the convolution to the sum's place, since its residual may be made after it.
fn fuse(nodes: &mut Nodes<'_>, producer: usize, shortcut: TensorId, add: usize) {
    let (Some(sum), Some(mut conv)) = (nodes.take(add), nodes.take(producer)) else {
        return;
    };
    if let NetOp::Conv(conv) = &mut conv.op {
        conv.residual = Some(shortcut);
    }
    conv.lost = if nodes.net.wide_sums {
        sum.lost
    } else {
        sum.lost + nodes.lost(&conv, sum.output)
    };
    (conv.output, conv.clamp) = (sum.output, sum.clamp);
    nodes.put(add, conv);
}

#[cfg(test)]
mod tests;
