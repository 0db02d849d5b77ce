//! Passes that join nodes.
//!
//! Each walks the nodes once, in time linear in their number: [`Nodes`] knows who writes each
//! tensor and how often it is read, and a node that goes leaves an empty place until the end.

use super::error::PassError;
use super::net::{Net, NetNode, NetOp, NetTensor};
use crate::qgraph::TensorId;
use crate::semantics::{self, Requant};

/// The nodes of a net while they are rewritten.
struct Nodes<'n> {
    tensors: &'n [NetTensor],
    requant: Requant,
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
        let mut writer = vec![None; net.tensors.len()];
        for (index, node) in net.nodes.iter().enumerate() {
            writer[node.output.0] = Some(index);
        }
        let mut nodes = Nodes {
            uses: net.uses(),
            requant: net.requant,
            nodes: std::mem::take(&mut net.nodes)
                .into_iter()
                .map(Some)
                .collect(),
            tensors: &net.tensors,
            writer,
        };
        for index in 0..nodes.nodes.len() {
            pass(&mut nodes, index);
        }
        net.nodes = nodes.nodes.into_iter().flatten().collect();
    }

    fn scale(&self, id: TensorId) -> f64 {
        self.tensors[id.0].scale
    }

    fn zero(&self, id: TensorId) -> i32 {
        self.tensors[id.0].zero
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
/// what the model says: a precise network keeps changes of scale.
pub(super) fn merge_clamps(net: &mut Net) -> Result<(), PassError> {
    Nodes::rewrite(net, |nodes, index| {
        if let Some(producer) = mergeable(nodes, index) {
            merge(nodes, producer, index);
        }
    });
    Ok(())
}

/// The producer that an element-wise node can join.
fn mergeable(nodes: &Nodes<'_>, index: usize) -> Option<usize> {
    let node = nodes.nodes[index].as_ref()?;
    let NetOp::Eltwise { input } = node.op else {
        return None;
    };
    let producer = nodes.only_reader_of(input)?;
    let precise = nodes.requant == Requant::Precise;
    let rescales = nodes.scale(input) != nodes.scale(node.output);
    (!(precise && rescales)).then_some(producer)
}

fn merge(nodes: &mut Nodes<'_>, producer: usize, eltwise: usize) {
    let (Some(removed), Some(mut node)) = (nodes.take(eltwise), nodes.take(producer)) else {
        return;
    };
    let ratio = nodes.scale(node.output) / nodes.scale(removed.output);
    let [from, to] = [node.output, removed.output].map(|id| f64::from(nodes.zero(id)));
    // A bound of the producer is kept in the new steps, except int8's own where steps differ.
    let keep = |bound: i8, own: i8| {
        if bound == own && ratio != 1.0 {
            own
        } else {
            ((f64::from(bound) - from) * ratio + to).round() as i8
        }
    };
    let low = keep(node.clamp.0, -128).max(removed.clamp.0);
    let high = keep(node.clamp.1, 127).min(removed.clamp.1);
    node.clamp = (low.min(high), high);
    node.output = removed.output;
    nodes.put(producer, node);
}

/// A sum whose operand is a convolution that nothing else reads becomes part of it: the other
/// operand is loaded into the accumulators. If both operands qualify, the later convolution
/// takes the other as its residual, whatever their order in the model. The convolution's own
/// rounding is lost by that, so that a precise network keeps its sums.
pub(super) fn fuse_residuals(net: &mut Net) -> Result<(), PassError> {
    if net.requant == Requant::Precise {
        return Ok(());
    }
    Nodes::rewrite(net, |nodes, index| {
        let Some(NetOp::Add { a, b }) = nodes.nodes[index].as_ref().map(|n| &n.op) else {
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
    Ok(())
}

/// The convolution that makes `conv`, if the sum at `add` can join it.
fn fusable(nodes: &Nodes<'_>, add: usize, conv: TensorId, shortcut: TensorId) -> Option<usize> {
    let chw = |id: TensorId| nodes.tensors[id.0].chw;
    if chw(conv) != chw(shortcut) {
        return None;
    }
    let producer = nodes.only_reader_of(conv)?;
    let node = nodes.nodes[producer].as_ref()?;
    let NetOp::Conv {
        input,
        weight_scale,
        residual: None,
        ..
    } = &node.op
    else {
        return None;
    };
    if node.clamp != (-128, 127) {
        return None;
    }
    let step = |w: &f64| nodes.scale(*input) * w;
    let ratio: Vec<f64> = weight_scale
        .iter()
        .map(|w| nodes.scale(shortcut) / step(w))
        .collect();
    let output = nodes.scale(nodes.nodes[add].as_ref()?.output);
    let steps: Vec<f64> = weight_scale.iter().map(|w| step(w) / output).collect();
    semantics::plan_residual(&ratio, &steps).map(|_| producer)
}

/// Moves the convolution to the sum's place, since its residual may be made after it.
fn fuse(nodes: &mut Nodes<'_>, producer: usize, shortcut: TensorId, add: usize) {
    let (Some(sum), Some(mut conv)) = (nodes.take(add), nodes.take(producer)) else {
        return;
    };
    if let NetOp::Conv { residual, .. } = &mut conv.op {
        *residual = Some(shortcut);
    }
    (conv.output, conv.clamp) = (sum.output, sum.clamp);
    nodes.put(add, conv);
}
