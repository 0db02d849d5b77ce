//! Reads the QDQ pattern: QuantizeLinear after, DequantizeLinear before every operator.

mod affine;
mod islands;
mod layers;
mod moves;
mod scales;
mod transposed;
mod values;

use std::collections::{HashMap, HashSet};

use super::error::PassError;
use super::net::{Net, NetOp};
use crate::graph::{Graph, Node, Op, ValueId};
use crate::qgraph::TensorId;
use crate::semantics::Requant;
use crate::window::Window;
use affine::Arithmetic;
use values::{HOST, Reading, Val, error};

/// The net of a QDQ graph, one node for each quantised operator.
pub(super) fn import(graph: &Graph) -> Result<Net, PassError> {
    let mut reading = Reading {
        graph,
        net: Net::default(),
        values: HashMap::new(),
        unsigned: HashSet::new(),
        makers: graph
            .nodes
            .iter()
            .enumerate()
            .map(|(i, n)| (n.output, i))
            .collect(),
        refused: None,
        host_nodes: 0,
    };
    reading.net.metadata.clone_from(&graph.metadata);
    if let Some(name) = graph.metadata.get(Requant::KEY) {
        let requant = name.parse::<Requant>();
        reading.net.requant = requant.map_err(|e| PassError::Graph(format!("metadata: {e}")))?;
    }
    for id in &graph.inputs {
        reading.values.insert(*id, Val::Input);
    }
    for node in &graph.nodes {
        let value = match reading.node(node) {
            Ok(value) => value,
            Err(error) if Reading::is_hostable(node) => {
                reading.refused.get_or_insert(error);
                Val::Float
            }
            Err(error) => return Err(error),
        };
        reading.values.insert(node.output, value);
    }
    let mut named: HashSet<TensorId> = reading.net.inputs.iter().copied().collect();
    for id in &graph.outputs {
        let output = reading.output(*id)?;
        // The model's name for it, not that of the value before its QuantizeLinear.
        if named.insert(output) {
            let name = &graph.values[id.0].name;
            reading.net.tensors[output.0].name.clone_from(name);
        }
        reading.net.outputs.push(output);
    }
    if reading.net.inputs.is_empty() {
        return Err(PassError::Graph(
            "the network's input is never quantised".to_owned(),
        ));
    }
    reading.net.verify()?;
    Ok(reading.net)
}

impl Reading<'_> {
    fn node(&mut self, node: &Node) -> Result<Val, PassError> {
        match &node.op {
            Op::QuantizeLinear { axis } => self.quantize(node, *axis),
            Op::DequantizeLinear { axis } => self.dequantize(node, *axis),
            Op::Conv { window, group } => self.conv(node, *window, *group),
            Op::Gemm { trans_b } => self.gemm(node, *trans_b),
            Op::Relu => self.bounded(node, 0.0, f64::INFINITY),
            Op::Clip { min, max } => self.bounded(node, (*min).into(), (*max).into()),
            Op::Add => self.arithmetic(node, Arithmetic::Add),
            Op::MaxPool { window } => self.pool(node, *window, |input, window| NetOp::MaxPool {
                input,
                window,
            }),
            Op::AveragePool {
                window,
                count_include_pad,
            } => {
                let count_include_pad = *count_include_pad;
                self.pool(node, *window, |input, window| NetOp::AvgPool {
                    input,
                    window,
                    count_include_pad,
                })
            }
            Op::GlobalAveragePool => {
                let input = self.tensor(node, 0)?;
                let [_, h, w] = self.net.tensors[input.0].chw;
                let window = Window::whole([h, w]);
                self.pool(node, window, |input, window| NetOp::AvgPool {
                    input,
                    window,
                    count_include_pad: false,
                })
            }
            Op::BatchNormalization { epsilon } => self.batch_norm(node, (*epsilon).into()),
            Op::Host(_) => Err(error(node, HOST)),
            Op::Concat { axis } => self.concat(node, *axis),
            Op::Slice {
                axis: 1,
                start,
                len,
                step,
            } => {
                let entries = (0..*len).map(|i| start + i * step);
                self.entries(node, entries.collect())
            }
            Op::Gather { axis: 1 } => self.gather(node),
            Op::Mul => self.arithmetic(node, Arithmetic::Mul),
            Op::Sub => self.arithmetic(node, Arithmetic::Sub),
            Op::Div => self.arithmetic(node, Arithmetic::Div),
            Op::LeakyRelu { alpha } => self.leaky(node, *alpha),
            Op::PRelu => self.prelu(node),
            Op::HardSwish => self.hard_swish(node),
            Op::HardSigmoid { alpha, beta } => self.hard_sigmoid(node, *alpha, *beta),
            Op::Resize { factors } => self.resize(node, *factors),
            Op::ConvTranspose { window, group, .. } => self.conv_transpose(node, *window, *group),
            Op::DepthToSpace { block, mode } => self.depth_to_space(node, *block, *mode),
            Op::SpaceToDepth { block } => self.space_to_depth(node, *block),
            Op::Slice { .. } | Op::Gather { .. } => Err(error(node, HOST)),
            Op::Flatten => self.flatten(node),
            Op::Identity => self.value(node, 0),
            Op::Pad { .. } => Err(error(node, "no convolution takes its zeros over")),
            Op::Onnx(op) => Err(error(node, op.reason.clone())),
        }
    }

    fn output(&mut self, id: ValueId) -> Result<TensorId, PassError> {
        let name = &self.graph.values[id.0].name;
        match self.values.get(&id).cloned() {
            Some(Val::Real(value)) => {
                let tensor = value.exactly().or_else(|| self.unrounded(&value, name));
                tensor.ok_or_else(|| {
                    PassError::Graph(format!(
                        "output {name} is not quantised (node {}); run `quantize` on the float model",
                        value.name
                    ))
                })
            }
            Some(Val::Float) => Err(PassError::Graph(format!(
                "output {name} is not quantised: the host would compute it in floats; run `quantize` \
                 on the float model"
            ))),
            Some(Val::Quantized(id)) => Ok(id),
            _ => Err(PassError::Graph(format!(
                "output {name} is not computed from the input"
            ))),
        }
    }
}
