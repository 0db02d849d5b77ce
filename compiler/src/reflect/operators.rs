//! The attributes of every kind. A field of an operator is named here or the crate doesn't compile.

use std::fmt;

use vta_isa::Rounding;
use vta_program::HostKernel;

use super::{Attribute, AttributeValue, Network, NodeInfo, Reflect, TensorInfo, listed};
use crate::graph::{Graph, Node, Op, ValueId};
use crate::operators::{planes, pool};
use crate::passes::{Net, NetConv, NetNode, NetOp};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::Window;
use crate::qgraph::{ChannelOf, NodeId, QConv, QGraph, QOp, QPair, Spread, TensorId};
use crate::semantics::Join;

const CLAMP: &str = "bounds of the output, in its steps";
const CONSTANTS: &str = "how many constants there are, one for each value or each position";
const DENSE: &str = "whether it is a dense layer, whose window is the whole input";
const DIGIT: &str = "which digit of the sum it gives, in place of rounding";
const NEGATIVE: &str = "whether the input is taken off the constants";
const GROUP: &str = "groups that the channels are divided into";

fn count(name: &'static str, value: usize, meaning: &'static str) -> Attribute {
    Attribute::new(name, AttributeValue::Int(value as i64), meaning)
}

fn flag(name: &'static str, value: bool, meaning: &'static str) -> Attribute {
    Attribute::new(name, AttributeValue::Flag(value), meaning)
}

fn lanes(name: &'static str, ops: &[LaneOp], meaning: &'static str) -> Attribute {
    Attribute::new(name, AttributeValue::texts(ops), meaning)
}

/// The four attributes of a window.
fn window(window: &Window) -> Vec<Attribute> {
    planes::fields(window)
        .map(|field| field.attribute)
        .collect()
}

/// A window's attributes and one more.
fn and(window: Vec<Attribute>, more: impl IntoIterator<Item = Attribute>) -> Vec<Attribute> {
    window.into_iter().chain(more).collect()
}

fn clamp((low, high): (i16, i16)) -> Attribute {
    let bounds = vec![low.into(), high.into()];
    Attribute::new("clamp", AttributeValue::Ints(bounds), CLAMP)
}

impl Reflect for Op {
    fn kind(&self) -> &'static str {
        self.facts().kind
    }

    fn attributes(&self) -> Vec<Attribute> {
        let fields = self.facts().fields.into_iter();
        fields.map(|field| field.attribute).collect()
    }
}

impl Reflect for NetOp {
    fn kind(&self) -> &'static str {
        NetOp::kind(self)
    }

    fn attributes(&self) -> Vec<Attribute> {
        match self {
            Self::Conv(NetConv {
                input: _,
                window: w,
                weights: _,
                group,
                weight_scale: _,
                bias: _,
                residual,
                dense,
            }) => and(
                window(w),
                [
                    count("group", *group, GROUP),
                    flag("dense", *dense, DENSE),
                    flag(
                        "residual",
                        residual.is_some(),
                        "whether its last input is added before rounding",
                    ),
                ],
            ),
            Self::MaxPool {
                input: _,
                window: w,
            } => window(w),
            Self::AvgPool {
                input: _,
                window: w,
                count_include_pad,
            } => and(window(w), [pool::include_pad(*count_include_pad).attribute]),
            Self::Host { part, inputs: _ } => {
                let kinds = part.nodes.iter().map(|n| n.op.kind().to_owned());
                let kinds = AttributeValue::Texts(kinds.collect());
                vec![Attribute::new("ops", kinds, "ONNX's operators")]
            }
            Self::Channels {
                inputs: _,
                map,
                spread,
            } => channels(map, *spread),
            Self::Curve { input: _, curve } => curve.attributes(),
            Self::Constants {
                join,
                input: _,
                constants,
            } => vec![
                count("values", constants.len(), CONSTANTS),
                flag("negative", *join == Join::Difference, NEGATIVE),
            ],
            Self::Pair {
                join: _,
                a: _,
                b: _,
            }
            | Self::Eltwise { input: _ } => vec![],
        }
    }
}

/// Where channels come from, by runs of neighbours: `input:first..end`, or zeros.
fn channels(map: &[Option<ChannelOf>], spread: Spread) -> Vec<Attribute> {
    // There may be thousands of channels, of which most stand beside their neighbours.
    let follows = |a: &Option<ChannelOf>, b: &Option<ChannelOf>| match (a, b) {
        (Some(a), Some(b)) => a.input == b.input && a.channel + 1 == b.channel,
        (a, b) => a.is_none() && b.is_none(),
    };
    let text = |run: &[Option<ChannelOf>]| match run.first().copied().flatten() {
        None => format!("{} zeros", run.len()),
        Some(ChannelOf { input, channel }) => format!("{input}:{channel}..{}", channel + run.len()),
    };
    let runs = map.chunk_by(follows).map(text).collect();
    let meaning = "where channels come from, by runs: input, first and end";
    let ints = |name, values: &[usize; 2], meaning| {
        Attribute::new(name, AttributeValue::ints(values), meaning)
    };
    vec![
        Attribute::new("from", AttributeValue::Texts(runs), meaning),
        ints("up", &spread.up, "rows and columns for each of an input's"),
        ints("skip", &spread.skip, "rows and columns left out in front"),
        ints("step", &spread.step, "rows and columns to the next one"),
    ]
}

impl Reflect for QOp {
    fn kind(&self) -> &'static str {
        QOp::kind(self)
    }

    fn attributes(&self) -> Vec<Attribute> {
        match self {
            Self::Conv(conv) => integer_conv(conv),
            Self::Add(pair) | Self::Mul(pair) => integer_pair(pair),
            Self::Eltwise { input: _, ops } => vec![epilogue(ops)],
            Self::MaxPool {
                input: _,
                window: w,
                ops,
            } => and(window(w), [epilogue(ops)]),
            Self::AvgPool {
                input: _,
                window: w,
                count_include_pad,
                ops_by_count,
            } => and(
                window(w),
                [
                    pool::include_pad(*count_include_pad).attribute,
                    epilogues(ops_by_count),
                ],
            ),
            Self::Channels {
                inputs: _,
                map,
                spread,
                gain,
                ops,
            } => {
                let gain = (*gain).max(0) as usize;
                let gain = count("gain", gain, "what values are multiplied by first");
                and(channels(map, *spread), [gain, epilogue(ops)])
            }
            Self::Host {
                segment,
                inputs: _,
                output,
            } => and(
                HostKernel::attributes(&**segment),
                [count("output", *output, "which of the outputs")],
            ),
        }
    }
}

fn epilogue(ops: &[LaneOp]) -> Attribute {
    lanes("epilogue", ops, "requantisation and clamp of sums")
}

fn epilogues(by_count: &[(usize, Vec<LaneOp>)]) -> Attribute {
    let line = |(positions, ops): &(usize, Vec<LaneOp>)| {
        format!("{positions}: {}", AttributeValue::texts(ops))
    };
    let lines = AttributeValue::Texts(by_count.iter().map(line).collect());
    let meaning = "requantisation and clamp by the number of positions in a window";
    Attribute::new("epilogues", lines, meaning)
}

fn integer_conv(conv: &QConv) -> Vec<Attribute> {
    let QConv {
        input: _,
        window: w,
        weights: _,
        group,
        residual,
        epilogue: ops,
        store,
        dense,
    } = conv;
    let residual = residual.as_ref().map(|(_, ops)| {
        let meaning = "alignment of the residual to the sums";
        lanes("residual", ops, meaning)
    });
    let own = [count("group", *group, GROUP), flag("dense", *dense, DENSE)];
    let all = own.into_iter().chain(residual);
    let store = store.as_ref().map(|store| stores(&store.rounding));
    and(window(w), all.chain([epilogue(ops)]).chain(store))
}

fn integer_pair(pair: &QPair) -> Vec<Attribute> {
    let QPair {
        a: _,
        a_ops,
        b: _,
        b_ops,
        epilogue: ops,
        store,
    } = pair;
    let lists = [
        lanes("a", a_ops, "what the first operand goes through"),
        lanes("b", b_ops, "what the second operand goes through"),
        epilogue(ops),
    ];
    let store = store.as_ref().map(|(_, rounding)| stores(&[*rounding]));
    lists.into_iter().chain(store).collect()
}

/// What STOREs that requantise do, by channel.
fn stores(all: &[Rounding]) -> Attribute {
    let line = |r: &Rounding| {
        let Rounding {
            offset,
            multiplier,
            shift,
            low,
            high,
        } = r;
        format!("(x * {multiplier} + {offset}) >> {shift}, {low} to {high}")
    };
    let lines = AttributeValue::Texts(all.iter().map(line).collect());
    Attribute::new("store", lines, "how STOREs round sums")
}

/// What a node says of itself, its tensors described by `tensor`.
fn info<Id>(
    name: &str,
    op: &impl Reflect,
    inputs: impl IntoIterator<Item = Id>,
    output: Id,
    tensor: impl Fn(Id) -> TensorInfo,
) -> NodeInfo {
    NodeInfo {
        name: name.to_owned(),
        kind: op.kind().into(),
        attributes: op.attributes(),
        inputs: inputs.into_iter().map(&tensor).collect(),
        output: tensor(output),
    }
}

/// A tensor of a net or an integer graph.
fn tensor_info(name: &str, chw: [usize; 3]) -> TensorInfo {
    TensorInfo {
        name: name.to_owned(),
        shape: chw.to_vec(),
    }
}

impl Network for Graph {
    fn describe(&self) -> Vec<NodeInfo> {
        let tensor = |id: ValueId| TensorInfo {
            name: self.values[id.0].name.clone(),
            shape: self.values[id.0].shape.clone(),
        };
        let nodes = self.nodes.iter();
        let node = |n: &Node| info(&n.name, &n.op, n.inputs.iter().copied(), n.output, tensor);
        nodes.map(node).collect()
    }
}

impl Network for Net {
    fn describe(&self) -> Vec<NodeInfo> {
        let tensor = |id: TensorId| {
            let tensor = &self.tensors[id.0];
            tensor_info(&tensor.name, tensor.chw)
        };
        let node = |n: &NetNode| {
            let mut all = info(&n.name, &n.op, n.op.inputs(), n.output, tensor);
            all.attributes.push(match n.digit {
                Some(place) => count("digit", place, DIGIT),
                None => clamp(n.clamp),
            });
            all
        };
        self.nodes.iter().map(node).collect()
    }
}

impl Network for QGraph {
    fn describe(&self) -> Vec<NodeInfo> {
        self.ids().map(|(id, _)| self.describe_node(id)).collect()
    }
}

impl QGraph {
    /// What one node says of itself.
    pub fn describe_node(&self, id: NodeId) -> NodeInfo {
        let tensor = |id: TensorId| {
            let tensor = &self.tensors[id.0];
            tensor_info(&tensor.name, tensor.chw)
        };
        let node = &self.nodes[id.0];
        info(&node.name, &node.op, node.op.inputs(), node.output, tensor)
    }
}

impl fmt::Display for Graph {
    /// One line a node: output, kind, inputs, attributes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for id in &self.inputs {
            let value = &self.values[id.0];
            writeln!(f, "input \"{}\" {:?}", value.name, value.shape)?;
        }
        for node in self.describe() {
            let inputs: Vec<_> = node.inputs.iter().map(|t| &t.name[..]).collect();
            let (TensorInfo { name, shape }, kind) = (&node.output, node.kind);
            let (inputs, attributes) = (inputs.join(", "), listed(&node.attributes));
            writeln!(
                f,
                "\"{name}\" {shape:?} = {kind}({inputs}){attributes} \"{}\"",
                node.name
            )?;
        }
        for id in &self.outputs {
            writeln!(f, "output \"{}\"", self.values[id.0].name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
