//! The attributes of every kind. A field of an operator is named here or the crate doesn't compile.

use std::fmt;

use super::{Attribute, AttributeValue, Network, NodeInfo, Reflect, TensorInfo, listed};
use crate::graph::{Graph, Op, ValueId};
use crate::host::HostOp;
use crate::lane::LaneOp;
use crate::passes::{Net, NetOp};
use crate::qgraph::{QGraph, QOp, TensorId};
use crate::window::Window;

const CLAMP: &str = "bounds of the output, in its steps";
const DENSE: &str = "whether it is a dense layer, whose window is the whole input";
const DIVISOR: &str = "whether padding counts in the divisor";
const FLAT: &str = "whether tensors are vectors, however many rows and columns they have";
const GROUP: &str = "groups that the channels are divided into";

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
        ints(
            "pads",
            &pads.to_array(),
            "zeros at the top, left, bottom and right",
        ),
    ]
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
        let float = Attribute::float;
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
            | Self::Sub
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
            Self::BatchNormalization { .. } => "BatchNormalization",
            Self::QuantizeLinear { .. } => "QuantizeLinear",
            Self::DequantizeLinear { .. } => "DequantizeLinear",
            Self::Identity => "Identity",
            Self::Host(op) => op.kind(),
        }
    }

    fn attributes(&self) -> Vec<Attribute> {
        let axis = |axis: &usize| Attribute::count("axis", *axis, "axis of several scales");
        match self {
            Self::Conv { window: w, group } => {
                and(window(w), [Attribute::count("group", *group, GROUP)])
            }
            Self::Clip { min, max } => vec![
                Attribute::float("min", *min, "lower bound"),
                Attribute::float("max", *max, "upper bound"),
            ],
            Self::MaxPool { window: w } => window(w),
            Self::AveragePool {
                window: w,
                count_include_pad,
            } => and(
                window(w),
                [Attribute::flag(
                    "count_include_pad",
                    *count_include_pad,
                    DIVISOR,
                )],
            ),
            Self::Gemm { trans_b } => vec![Attribute::flag(
                "transB",
                *trans_b,
                "whether weights are [N][K], not [K][N]",
            )],
            Self::BatchNormalization { epsilon } => vec![Attribute::float(
                "epsilon",
                *epsilon,
                "added to the variance",
            )],
            Self::QuantizeLinear { axis: a } | Self::DequantizeLinear { axis: a } => vec![axis(a)],
            Self::Host(op) => op.attributes(),
            Self::Relu | Self::Add | Self::GlobalAveragePool | Self::Flatten | Self::Identity => {
                vec![]
            }
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
                    Attribute::count("group", *group, GROUP),
                    Attribute::flag("dense", *dense, DENSE),
                    Attribute::flag(
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
            } => and(
                window(w),
                [Attribute::flag(
                    "count_include_pad",
                    *count_include_pad,
                    DIVISOR,
                )],
            ),
            Self::Host {
                op,
                inputs: _,
                flat,
            } => host(op, *flat),
            Self::Add { a: _, b: _ } | Self::Eltwise { input: _ } => vec![],
        }
    }
}

/// What the host computes: its operator, whether tensors are vectors, the operator's attributes.
fn host(op: &HostOp, flat: bool) -> Vec<Attribute> {
    let name = AttributeValue::Texts(vec![op.name().to_owned()]);
    let first = [
        Attribute::new("op", name, "ONNX's operator"),
        Attribute::flag("flat", flat, FLAT),
    ];
    first.into_iter().chain(op.attributes()).collect()
}

impl Reflect for QOp {
    fn kind(&self) -> &'static str {
        QOp::kind(self)
    }

    fn attributes(&self) -> Vec<Attribute> {
        let epilogue = |ops| Attribute::lanes("epilogue", ops, "requantisation and clamp of sums");
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
                    Attribute::lanes("residual", ops, "alignment of the residual to the sums")
                });
                let mut all = window(w);
                all.push(Attribute::count("group", *group, GROUP));
                all.push(Attribute::flag("dense", *dense, DENSE));
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
            } => vec![
                Attribute::lanes("a", a_ops, "what the first operand goes through"),
                Attribute::lanes("b", b_ops, "what the second operand goes through"),
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
                let line = |(count, ops): &(usize, Vec<LaneOp>)| {
                    format!("{count}: {}", AttributeValue::lanes(ops))
                };
                let lines = ops_by_count.iter().map(line).collect();
                let flag = Attribute::flag("count_include_pad", *count_include_pad, DIVISOR);
                let meaning = "requantisation and clamp by the number of positions in a window";
                let epilogues = AttributeValue::Texts(lines);
                and(
                    window(w),
                    [flag, Attribute::new("epilogues", epilogues, meaning)],
                )
            }
            Self::Host {
                op,
                inputs: _,
                flat,
                clamp: bounds,
            } => and(host(op, *flat), [clamp(*bounds)]),
        }
    }
}

impl Network for Graph {
    fn describe(&self) -> Vec<NodeInfo> {
        let info = |id: &ValueId| TensorInfo {
            name: self.values[id.0].name.clone(),
            shape: self.values[id.0].shape.clone(),
        };
        let nodes = self.nodes.iter().map(|node| NodeInfo {
            name: node.name.clone(),
            kind: node.op.kind(),
            attributes: node.op.attributes(),
            inputs: node.inputs.iter().map(info).collect(),
            output: info(&node.output),
        });
        nodes.collect()
    }
}

impl Network for Net {
    fn describe(&self) -> Vec<NodeInfo> {
        let info = |id: &TensorId| TensorInfo {
            name: self.tensors[id.0].name.clone(),
            shape: self.tensors[id.0].chw.to_vec(),
        };
        let nodes = self.nodes.iter().map(|node| NodeInfo {
            name: node.name.clone(),
            kind: node.op.kind(),
            attributes: and(node.op.attributes(), [clamp(node.clamp)]),
            inputs: node.op.inputs().iter().map(info).collect(),
            output: info(&node.output),
        });
        nodes.collect()
    }
}

impl Network for QGraph {
    fn describe(&self) -> Vec<NodeInfo> {
        let info = |id: &TensorId| TensorInfo {
            name: self.tensors[id.0].name.clone(),
            shape: self.tensors[id.0].chw.to_vec(),
        };
        let nodes = self.nodes.iter().map(|node| NodeInfo {
            name: node.name.clone(),
            kind: node.op.kind(),
            attributes: node.op.attributes(),
            inputs: node.op.inputs().iter().map(info).collect(),
            output: info(&node.output),
        });
        nodes.collect()
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
