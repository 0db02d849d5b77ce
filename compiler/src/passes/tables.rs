//! What the host computes of one tensor value by value goes on as long as the next node does the same.
//!
//! A SiLU is `x * sigmoid(x)`: its Sigmoid is the host's, its product might be the device's, which would then read both.
//! But an int8 tensor has 256 values, and so has any function of it: the host makes the product's values of a table, the
//! device has no layer, and one tensor travels in place of two. Every rounding between stays where the model has it.
//! Tensors of int16 are left as they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::import::layout::reshape;
use super::net::{Net, NetConv, NetNode, NetOp};
use super::segments::{element, zero_point};
use super::views::views;
use crate::graph::{Data, Graph, Op, ValueId};
use crate::qgraph::{Numbers, TensorId};
use crate::reflect::Reflect;
use crate::semantics::{Curve, Join};

/// Nodes of a part beyond which nothing more joins it: each time it is copied.
const MOST_NODES: usize = 256;

/// The model of a function of one tensor, while it grows.
struct Part<'n> {
    net: &'n Net,
    graph: Graph,
    shape: Vec<usize>,
}

/// Joins nodes of the device, and of the host, to those of the host that alone they read, where both together are a
/// function of one tensor, value by value. What a device computes alone stays there.
pub(super) fn join_tables(net: &mut Net) {
    if net.numbers != Numbers::Int8 {
        return;
    }
    let mut removed = BTreeSet::new();
    let mut uses = net.uses();
    let writers = net.writers();
    for index in 0..net.nodes.len() {
        // Each round takes up a node before it.
        while let Some((op, taken)) = joined(net, index, &uses, &writers) {
            let node = &mut net.nodes[index];
            for id in node.op.inputs() {
                uses[id.0] -= 1;
            }
            node.op = op;
            for id in node.op.inputs() {
                uses[id.0] += 1;
            }
            for producer in taken {
                for id in net.nodes[producer].op.inputs() {
                    uses[id.0] -= 1;
                }
                removed.insert(producer);
            }
        }
    }
    let mut index = 0;
    net.nodes.retain(|_| {
        index += 1;
        !removed.contains(&(index - 1))
    });
}

/// A node together with those whose results it alone reads, as the host's, and these.
fn joined(
    net: &Net,
    index: usize,
    uses: &[usize],
    writers: &[Option<usize>],
) -> Option<(NetOp, Vec<usize>)> {
    let node = &net.nodes[index];
    let reads = node.op.inputs();
    let distinct: BTreeSet<TensorId> = reads.iter().copied().collect();
    // What it alone reads, and is a function of one tensor.
    let alone = |id: &TensorId| {
        let count = reads.iter().filter(|other| *other == id).count();
        let producer = writers[id.0].filter(|_| uses[id.0] == count)?;
        let root = of_one(net, &net.nodes[producer])?;
        Some((*id, producer, root))
    };
    let taken: Vec<(TensorId, usize, TensorId)> = distinct.iter().filter_map(alone).collect();
    let mut roots = distinct.clone();
    for (id, _, root) in &taken {
        roots.remove(id);
        roots.insert(*root);
    }
    let is_host = |node: &NetNode| matches!(node.op, NetOp::Host { .. });
    let producers = taken.iter().map(|(_, producer, _)| &net.nodes[*producer]);
    if taken.is_empty() || roots.len() != 1 || !producers.chain([node]).any(is_host) {
        return None;
    }
    let root = roots.pop_first()?;
    if !is_by_value(net, node) || net.tensors[root.0].chw != net.tensors[node.output.0].chw {
        return None;
    }
    let [c, h, w] = net.tensors[root.0].chw;
    let mut part = Part {
        net,
        graph: Graph::default(),
        shape: vec![1, c, h, w],
    };
    let x = part.value("x", None);
    part.graph.inputs = vec![x];
    let mut made: Vec<(TensorId, ValueId)> = vec![(root, x)];
    for (id, producer, _) in &taken {
        let producer = &net.nodes[*producer];
        let real = part.node(producer, &[(root, x)])?;
        made.push((*id, part.rounded(producer, real)?));
    }
    let output = part.node(node, &made)?;
    part.graph.outputs = vec![output];
    if part.graph.nodes.len() > MOST_NODES {
        return None;
    }
    let op = NetOp::Host {
        part: Arc::new(part.graph),
        inputs: vec![root],
    };
    Some((op, taken.into_iter().map(|(_, at, _)| at).collect()))
}

/// The one tensor that a node reads, of which its results are a function value by value.
fn of_one(net: &Net, node: &NetNode) -> Option<TensorId> {
    let mut reads = node.op.inputs().into_iter();
    let first = reads.next()?;
    let one = reads.all(|id| id == first);
    let alike = net.tensors[first.0].chw == net.tensors[node.output.0].chw;
    (one && alike && is_by_value(net, node)).then_some(first)
}

/// Whether each result depends on the values at its place alone, and is rounded.
fn is_by_value(net: &Net, node: &NetNode) -> bool {
    let chw = |id: &TensorId| net.tensors[id.0].chw;
    let by_value = match &node.op {
        NetOp::Host { part, .. } => {
            let count = node
                .op
                .inputs()
                .first()
                .map_or(0, |id| chw(id).iter().product());
            let views = views(part, &vec![0; part.inputs.len()]);
            matches!(&views[..], [Some(view)] if view.is_whole(count))
        }
        NetOp::Pair { .. } | NetOp::Eltwise { .. } => true,
        NetOp::Curve { curve, .. } => match curve {
            Curve::HardSwish => true,
            Curve::Slopes(slopes) => slopes.len() == 1,
        },
        NetOp::Conv(conv) => line(conv).is_some(),
        NetOp::Constants { .. }
        | NetOp::MaxPool { .. }
        | NetOp::AvgPool { .. }
        | NetOp::Channels { .. } => false,
    };
    by_value && node.digit.is_none()
}

/// Factor and offset of a convolution that gives every channel the same of its own.
fn line(conv: &NetConv) -> Option<[f64; 2]> {
    let channels = conv.weight_scale.len();
    let alone = conv.window.area() == 1 && conv.window.stride == [1, 1];
    let plain = conv.residual.is_none() && conv.group == channels && conv.weights.len() == channels;
    let factor = |channel: usize| {
        let weight = f64::from(*conv.weights.get(channel)?);
        Some(weight * conv.weight_scale[channel])
    };
    let (first, offset) = (factor(0)?, *conv.bias.first()?);
    let alike = |channel: usize| factor(channel) == Some(first) && conv.bias[channel] == offset;
    (alone && plain && (0..channels).all(alike)).then_some([first, offset])
}

impl Part<'_> {
    fn value(&mut self, what: &str, data: Option<Data>) -> ValueId {
        let name = format!("{what}.{}", self.graph.values.len());
        let shape = match data {
            Some(_) => vec![],
            None => self.shape.clone(),
        };
        self.graph.value(name, shape, data)
    }

    fn push(&mut self, name: &str, op: Op, inputs: Vec<ValueId>) -> ValueId {
        let output = self.value(op.kind(), None);
        self.graph.push(name, op, inputs, output);
        output
    }

    fn constant(&mut self, value: f64) -> ValueId {
        self.value("constant", Some(Data::F32(vec![value as f32])))
    }

    /// What a node gives of the values of tensors.
    fn node(&mut self, node: &NetNode, tensors: &[(TensorId, ValueId)]) -> Option<ValueId> {
        let of = |id: &TensorId| {
            let known = tensors.iter().find(|(other, _)| other == id);
            known.map(|(_, value)| *value)
        };
        let name = &node.name[..];
        Some(match &node.op {
            NetOp::Pair { join, a, b } => {
                let op = match join {
                    Join::Sum => Op::Add,
                    Join::Difference => Op::Sub,
                    Join::Product => Op::Mul,
                };
                self.push(name, op, vec![of(a)?, of(b)?])
            }
            NetOp::Eltwise { input } => of(input)?,
            NetOp::Curve { input, curve } => {
                let op = match curve {
                    Curve::HardSwish => Op::HardSwish,
                    Curve::Slopes(slopes) => Op::LeakyRelu {
                        alpha: *slopes.first()? as f32,
                    },
                };
                self.push(name, op, vec![of(input)?])
            }
            NetOp::Conv(conv) => {
                let [factor, offset] = line(conv)?.map(|value| self.constant(value));
                let product = self.push(name, Op::Mul, vec![of(&conv.input)?, factor]);
                self.push("", Op::Add, vec![product, offset])
            }
            NetOp::Host { part, inputs } => {
                let reads = inputs.iter().map(of);
                self.copied(part, &reads.collect::<Option<Vec<_>>>()?)?
            }
            _ => return None,
        })
    }

    /// The output of another part, whose inputs are values.
    fn copied(&mut self, part: &Graph, inputs: &[ValueId]) -> Option<ValueId> {
        let mut ids = vec![None; part.values.len()];
        for (id, value) in part.inputs.iter().zip(inputs) {
            ids[id.0] = Some(self.reshaped(*value, &part.values[id.0].shape));
        }
        for node in &part.nodes {
            for id in node.inputs.iter().chain([&node.output]) {
                if ids[id.0].is_none() {
                    self.graph.values.push(part.values[id.0].clone());
                    ids[id.0] = Some(ValueId(self.graph.values.len() - 1));
                }
            }
            let reads = node.inputs.iter().map(|id| ids[id.0]);
            let reads = reads.collect::<Option<Vec<_>>>()?;
            let output = ids[node.output.0]?;
            self.graph
                .push(&node.name[..], node.op.clone(), reads, output);
        }
        let output = ids[part.outputs.first()?.0]?;
        Some(self.reshaped(output, &self.shape.clone()))
    }

    fn reshaped(&mut self, from: ValueId, shape: &[usize]) -> ValueId {
        if self.graph.values[from.0].shape == shape {
            return from;
        }
        let to = self.graph.value("reshaped", shape.to_vec(), None);
        reshape(&mut self.graph, from, to);
        to
    }

    /// A node's real values as its int8 tensor has them.
    fn rounded(&mut self, node: &NetNode, real: ValueId) -> Option<ValueId> {
        let tensor = &self.net.tensors[node.output.0];
        let mut real = real;
        if node.clamp != self.net.numbers.bounds() {
            let bound = |q: i16| (i32::from(q) - tensor.zero) as f32 * tensor.scale as f32;
            let (min, max) = (bound(node.clamp.0), bound(node.clamp.1));
            real = self.push("", Op::Clip { min, max }, vec![real]);
        }
        let zero = zero_point(self.net.numbers, tensor.zero)?;
        let scale = self.constant(tensor.scale);
        let zero = self.value("zero", Some(zero));
        let int8 = self.push("", Op::QuantizeLinear { axis: 1 }, vec![real, scale, zero]);
        self.graph.values[int8.0].element = element(self.net.numbers);
        let back = Op::DequantizeLinear { axis: 1 };
        Some(self.push("", back, vec![int8, scale, zero]))
    }
}
