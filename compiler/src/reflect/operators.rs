//! The attributes of every kind. A field of an operator is named here or the crate doesn't compile.

use std::fmt;

use vta_files::printable;
use vta_program::HostKernel;

use super::{Attribute, AttributeValue, Network, NodeInfo, Reflect, TensorInfo, listed};
use crate::graph::{Graph, Node, OnnxAttribute, OnnxOp, Op, ValueId};
use crate::host::HostOp;
use crate::lane::LaneOp;
use crate::passes::{Net, NetNode, NetOp};
use crate::qgraph::{ChannelOf, NodeId, QGraph, QOp, Spread, TensorId};
use crate::semantics::Sign;
use crate::window::Window;

const BLOCK: &str = "rows and columns of a block";
const CLAMP: &str = "bounds of the output, in its steps";
const CONSTANTS: &str = "how many constants there are, one for each value or each position";
const DENSE: &str = "whether it is a dense layer, whose window is the whole input";
const DIGIT: &str = "which digit of the sum it gives, in place of rounding";
const DIMENSION: &str = "the dimension that entries are taken of";
const DIVISOR: &str = "whether padding counts in the divisor";
const NEGATIVE: &str = "whether the input is taken off the constants";
const PADS: &str = "zeros at the top, left, bottom and right";
const GROUP: &str = "groups that the channels are divided into";

fn float(name: &'static str, value: f32, meaning: &'static str) -> Attribute {
    Attribute::new(name, AttributeValue::Float(value.into()), meaning)
}

fn count(name: &'static str, value: usize, meaning: &'static str) -> Attribute {
    Attribute::new(name, AttributeValue::Int(value as i64), meaning)
}

fn flag(name: &'static str, value: bool, meaning: &'static str) -> Attribute {
    Attribute::new(name, AttributeValue::Flag(value), meaning)
}

fn lanes(name: &'static str, ops: &[LaneOp], meaning: &'static str) -> Attribute {
    Attribute::new(name, AttributeValue::texts(ops), meaning)
}

fn include_pad(included: bool) -> Attribute {
    flag("count_include_pad", included, DIVISOR)
}

/// The four attributes of a window.
fn window(window: &Window) -> Vec<Attribute> {
    let Window {
        kernel,
        stride,
        dilation,
        pads,
    } = window;
    let ints = |name, values: &[usize], meaning| {
        Attribute::new(name, AttributeValue::ints(values), meaning)
    };
    vec![
        ints("kernel", kernel, "rows and columns of the kernel"),
        ints("stride", stride, "rows and columns from window to window"),
        ints("dilation", dilation, "rows and columns from tap to tap"),
        ints("pads", &pads.to_array(), PADS),
    ]
}

/// What an operator that is kept as its file has it is told there, without tensors.
fn onnx(op: &OnnxOp) -> Vec<Attribute> {
    let value = |value: &OnnxAttribute| {
        Some(match value {
            OnnxAttribute::Int(i) => AttributeValue::Int(*i),
            OnnxAttribute::Float(f) => AttributeValue::Float((*f).into()),
            OnnxAttribute::Text(text) => {
                let text = String::from_utf8_lossy(text);
                AttributeValue::Texts(vec![printable(&text).into_owned()])
            }
            OnnxAttribute::Ints(ints) => AttributeValue::Ints(ints.clone()),
            OnnxAttribute::Floats(_) | OnnxAttribute::Tensor { .. } => return None,
        })
    };
    let named = |(name, v): &(String, OnnxAttribute)| {
        Some(Attribute {
            name: name.clone().into(),
            value: value(v)?,
            meaning: "as in the model".into(),
        })
    };
    op.attributes.iter().filter_map(named).collect()
}

/// A window's attributes and one more.
fn and(window: Vec<Attribute>, more: impl IntoIterator<Item = Attribute>) -> Vec<Attribute> {
    window.into_iter().chain(more).collect()
}

fn clamp((low, high): (i8, i8)) -> Attribute {
    let bounds = vec![low.into(), high.into()];
    Attribute::new("clamp", AttributeValue::Ints(bounds), CLAMP)
}

impl Reflect for HostOp {
    fn kind(&self) -> &'static str {
        self.name()
    }

    fn attributes(&self) -> Vec<Attribute> {
        match self {
            Self::HardSigmoid { alpha, beta } => vec![
                float("alpha", *alpha, "slope"),
                float("beta", *beta, "value at 0"),
            ],
            Self::Elu { alpha } => vec![float("alpha", *alpha, "factor below 0")],
            Self::LeakyRelu { alpha } => vec![float("alpha", *alpha, "slope below 0")],
            Self::Resize { factors } => vec![Attribute::new(
                "factors",
                AttributeValue::ints(factors),
                "rows and columns for each",
            )],
            Self::Sigmoid
            | Self::HardSwish
            | Self::Tanh
            | Self::Softmax
            | Self::Mul
            | Self::Max
            | Self::Concat => vec![],
        }
    }
}

impl Reflect for Op {
    fn kind(&self) -> &'static str {
        match self {
            Self::Conv { .. } => "Conv",
            Self::Relu => "Relu",
            Self::Clip { .. } => "Clip",
            Self::Add => "Add",
            Self::MaxPool { .. } => "MaxPool",
            Self::AveragePool { .. } => "AveragePool",
            Self::GlobalAveragePool => "GlobalAveragePool",
            Self::Flatten => "Flatten",
            Self::Gemm { .. } => "Gemm",
            Self::MatMul { .. } => "MatMul",
            Self::BatchNormalization { .. } => "BatchNormalization",
            Self::QuantizeLinear { .. } => "QuantizeLinear",
            Self::DequantizeLinear { .. } => "DequantizeLinear",
            Self::Identity => "Identity",
            Self::Pad { .. } => "Pad",
            Self::Host(op) => op.kind(),
            Self::Onnx(op) => op.kind,
            Self::ConvTranspose { .. } => "ConvTranspose",
            Self::Concat { .. } => "Concat",
            Self::Slice { .. } => "Slice",
            Self::Gather { .. } => "Gather",
            Self::DepthToSpace { .. } => "DepthToSpace",
            Self::SpaceToDepth { .. } => "SpaceToDepth",
            Self::Resize { .. } => "Resize",
            Self::Mul => "Mul",
            Self::Sub => "Sub",
            Self::Div => "Div",
            Self::LeakyRelu { .. } => "LeakyRelu",
            Self::PRelu => "PRelu",
            Self::HardSigmoid { .. } => "HardSigmoid",
            Self::HardSwish => "HardSwish",
        }
    }

    fn attributes(&self) -> Vec<Attribute> {
        let axis = |axis: &usize| count("axis", *axis, "axis of several scales");
        match self {
            Self::Conv { window: w, group } => and(window(w), [count("group", *group, GROUP)]),
            Self::Clip { min, max } => vec![
                float("min", *min, "lower bound"),
                float("max", *max, "upper bound"),
            ],
            Self::MaxPool { window: w } => window(w),
            Self::AveragePool {
                window: w,
                count_include_pad,
            } => and(window(w), [include_pad(*count_include_pad)]),
            Self::Gemm { trans_b } => vec![flag(
                "transB",
                *trans_b,
                "whether weights are [N][K], not [K][N]",
            )],
            Self::MatMul { form } => {
                let form = AttributeValue::Texts(vec![form.name().to_owned()]);
                vec![Attribute::new("form", form, "the side of the constant")]
            }
            Self::BatchNormalization { epsilon } => {
                vec![float("epsilon", *epsilon, "added to the variance")]
            }
            Self::QuantizeLinear { axis: a } | Self::DequantizeLinear { axis: a } => vec![axis(a)],
            Self::Pad { pads } => {
                let sides = AttributeValue::ints(&pads.to_array());
                vec![Attribute::new("pads", sides, PADS)]
            }
            Self::Host(op) => op.attributes(),
            Self::Onnx(op) => onnx(op),
            Self::ConvTranspose {
                window: w,
                group,
                output_padding,
            } => {
                let meaning = "rows and columns more, below and on the right";
                let more = AttributeValue::ints(output_padding);
                and(
                    window(w),
                    [
                        count("group", *group, GROUP),
                        Attribute::new("output_padding", more, meaning),
                    ],
                )
            }
            Self::Concat { axis } => vec![count("axis", *axis, "dimension that grows")],
            Self::Gather { axis } => vec![count("axis", *axis, DIMENSION)],
            Self::Slice {
                axis,
                start,
                len,
                step,
            } => vec![
                count("axis", *axis, DIMENSION),
                count("start", *start, "the first entry"),
                count("len", *len, "how many entries"),
                count("step", *step, "from one entry to the next"),
            ],
            Self::DepthToSpace { block, mode } => {
                let mode = AttributeValue::Texts(vec![mode.name().to_owned()]);
                let meaning = "whether channels lie position by position or channel by channel";
                vec![
                    count("block", *block, BLOCK),
                    Attribute::new("mode", mode, meaning),
                ]
            }
            Self::SpaceToDepth { block } => vec![count("block", *block, BLOCK)],
            Self::Resize { factors } => vec![Attribute::new(
                "factors",
                AttributeValue::ints(factors),
                "rows and columns for each",
            )],
            Self::LeakyRelu { alpha } => vec![float("alpha", *alpha, "slope below 0")],
            Self::HardSigmoid { alpha, beta } => vec![
                float("alpha", *alpha, "slope"),
                float("beta", *beta, "value at 0"),
            ],
            Self::Relu
            | Self::Add
            | Self::GlobalAveragePool
            | Self::Flatten
            | Self::Identity
            | Self::Mul
            | Self::Sub
            | Self::Div
            | Self::PRelu
            | Self::HardSwish => vec![],
        }
    }
}

impl Reflect for NetOp {
    fn kind(&self) -> &'static str {
        NetOp::kind(self)
    }

    fn attributes(&self) -> Vec<Attribute> {
        match self {
            Self::Conv {
                input: _,
                window: w,
                weights: _,
                group,
                weight_scale: _,
                bias: _,
                residual,
                dense,
            } => and(
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
            } => and(window(w), [include_pad(*count_include_pad)]),
            Self::Host {
                part,
                inputs: _,
                output,
            } => {
                let kinds = part.nodes.iter().map(|n| n.op.kind().to_owned());
                let kinds = AttributeValue::Texts(kinds.collect());
                vec![
                    Attribute::new("ops", kinds, "ONNX's operators"),
                    count("output", *output, OUTPUT),
                ]
            }
            Self::Channels {
                inputs: _,
                map,
                spread,
            } => channels(map, *spread),
            Self::Slopes { input: _, slopes } => {
                let all = slopes.iter().map(ToString::to_string).collect();
                let meaning = "slopes below 0, one or one for each channel";
                vec![Attribute::new(
                    "slopes",
                    AttributeValue::Texts(all),
                    meaning,
                )]
            }
            Self::Offsets {
                input: _,
                sign,
                offsets,
            } => vec![
                count("values", offsets.len(), CONSTANTS),
                flag("negative", *sign == Sign::Minus, NEGATIVE),
            ],
            Self::Factors { input: _, factors } => {
                vec![count("values", factors.len(), CONSTANTS)]
            }
            Self::Add { a: _, b: _ }
            | Self::Sub { a: _, b: _ }
            | Self::Mul { a: _, b: _ }
            | Self::HardSwish { input: _ }
            | Self::Eltwise { input: _ } => vec![],
        }
    }
}

/// Where channels come from, by runs of neighbours: `input:first..end`, or zeros.
fn channels(map: &[Option<ChannelOf>], spread: Spread) -> Vec<Attribute> {
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
    ]
}

/// What the number of an output of the host is.
const OUTPUT: &str = "which of the outputs";

impl Reflect for QOp {
    fn kind(&self) -> &'static str {
        QOp::kind(self)
    }

    fn attributes(&self) -> Vec<Attribute> {
        let epilogue = |ops| lanes("epilogue", ops, "requantisation and clamp of sums");
        match self {
            Self::Conv {
                input: _,
                window: w,
                weights: _,
                group,
                residual,
                epilogue: ops,
                dense,
            } => {
                let prologue = residual.as_ref().map(|(_, ops)| {
                    lanes("residual", ops, "alignment of the residual to the sums")
                });
                let mut all = window(w);
                all.push(count("group", *group, GROUP));
                all.push(flag("dense", *dense, DENSE));
                all.extend(prologue);
                all.push(epilogue(ops));
                all
            }
            Self::Add {
                a: _,
                a_ops,
                b: _,
                b_ops,
                epilogue: ops,
            }
            | Self::Mul {
                a: _,
                a_ops,
                b: _,
                b_ops,
                epilogue: ops,
            } => vec![
                lanes("a", a_ops, "what the first operand goes through"),
                lanes("b", b_ops, "what the second operand goes through"),
                epilogue(ops),
            ],
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
            } => {
                let line = |(positions, ops): &(usize, Vec<LaneOp>)| {
                    format!("{positions}: {}", AttributeValue::texts(ops))
                };
                let lines = ops_by_count.iter().map(line).collect();
                let meaning = "requantisation and clamp by the number of positions in a window";
                let epilogues = AttributeValue::Texts(lines);
                and(
                    window(w),
                    [
                        include_pad(*count_include_pad),
                        Attribute::new("epilogues", epilogues, meaning),
                    ],
                )
            }
            Self::Channels {
                inputs: _,
                map,
                spread,
                gain,
                ops,
            } => and(
                channels(map, *spread),
                [
                    count(
                        "gain",
                        (*gain).max(0) as usize,
                        "what values are multiplied by first",
                    ),
                    epilogue(ops),
                ],
            ),
            Self::Host {
                segment,
                inputs: _,
                output,
            } => and(
                HostKernel::attributes(&**segment),
                [count("output", *output, OUTPUT)],
            ),
        }
    }
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
