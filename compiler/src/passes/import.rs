//! Reads the QDQ pattern: QuantizeLinear after, DequantizeLinear before every operator.

use std::collections::HashMap;

use super::PassError;
use super::net::{Net, NetNode, NetOp, NetTensor};
use crate::graph::{Data, Graph, Node, Op, ValueId};
use crate::host::HostOp;
use crate::qgraph::{TensorId, Window};
use crate::reflect::Reflect;
use crate::semantics::Requant;

/// A constant after DequantizeLinear: integers with scales.
#[derive(Clone)]
struct Constant {
    values: Vec<i32>,
    /// One, or one for each slice of `axis`.
    scale: Vec<f64>,
    axis: usize,
    shape: Vec<usize>,
    is_int8: bool,
}

/// A real value between DequantizeLinear and QuantizeLinear.
#[derive(Clone)]
struct Real {
    op: NetOp,
    name: String,
    chw: [usize; 3],
    /// Real bounds of Relu and Clip.
    bounds: (f64, f64),
}

#[derive(Clone)]
enum Val {
    /// The network's input before its QuantizeLinear.
    Input,
    /// An int8 tensor.
    Quantized(TensorId),
    /// A real value not yet rounded.
    Real(Box<Real>),
    /// A constant.
    Constant(Box<Constant>),
}

/// The net of a QDQ graph, one node for each quantised operator.
pub(super) fn import(graph: &Graph) -> Result<Net, PassError> {
    let mut import = Import {
        graph,
        net: Net::default(),
        values: HashMap::new(),
    };
    import.net.metadata.clone_from(&graph.metadata);
    if let Some(name) = graph.metadata.get(Requant::KEY) {
        let requant = name.parse::<Requant>();
        import.net.requant = requant.map_err(|e| PassError::Graph(format!("metadata: {e}")))?;
    }
    for id in &graph.inputs {
        import.values.insert(*id, Val::Input);
    }
    for node in &graph.nodes {
        let value = import.node(node)?;
        import.values.insert(node.output, value);
    }
    for id in &graph.outputs {
        let output = import.output(*id)?;
        import.net.outputs.push(output);
    }
    if import.net.inputs.is_empty() {
        return Err(PassError::Graph(
            "the network's input is never quantised".to_owned(),
        ));
    }
    import.net.verify()?;
    Ok(import.net)
}

struct Import<'a> {
    graph: &'a Graph,
    net: Net,
    values: HashMap<ValueId, Val>,
}

fn error(node: &Node, reason: impl Into<String>) -> PassError {
    let (node, op) = (node.name.clone(), node.op.kind().to_owned());
    PassError::Node {
        node,
        op,
        reason: reason.into(),
    }
}

const UNQUANTISED: &str = "its input is not quantised (no QuantizeLinear and DequantizeLinear \
                           before it); run `vta quantize` on the float model";

impl Import<'_> {
    fn node(&mut self, node: &Node) -> Result<Val, PassError> {
        match &node.op {
            Op::QuantizeLinear { .. } => self.quantize(node),
            Op::DequantizeLinear { axis } => self.dequantize(node, *axis),
            Op::Conv { window, group } => self.conv(node, *window, *group),
            Op::Gemm { trans_b } => self.gemm(node, *trans_b),
            Op::Relu => self.bounded(node, 0.0, f64::INFINITY),
            Op::Clip { min, max } => self.bounded(node, (*min).into(), (*max).into()),
            Op::Add => {
                let (a, b) = (self.tensor(node, 0)?, self.tensor(node, 1)?);
                let chw = self.net.tensors[a.0].chw;
                Ok(real(node, NetOp::Add { a, b }, chw))
            }
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
                let window = whole([h, w]);
                self.pool(node, window, |input, window| NetOp::AvgPool {
                    input,
                    window,
                    count_include_pad: false,
                })
            }
            Op::BatchNormalization { epsilon } => self.batch_norm(node, (*epsilon).into()),
            Op::Host(op) => self.host(node, *op),
            Op::Flatten => self.flatten(node),
            Op::Identity => self.value(node, 0),
        }
    }

    /// Tensors keep their rows and columns, since a dense layer covers them all; constants don't.
    fn flatten(&self, node: &Node) -> Result<Val, PassError> {
        let mut value = self.value(node, 0)?;
        if let Val::Constant(constant) = &mut value {
            if constant.scale.len() != 1 && constant.axis != 0 {
                let text = format!("a constant with scales along axis {}", constant.axis);
                return Err(error(node, text));
            }
            constant.shape = self.graph.values[node.output.0].shape.clone();
        }
        Ok(value)
    }

    fn value(&self, node: &Node, index: usize) -> Result<Val, PassError> {
        let id = node
            .inputs
            .get(index)
            .ok_or_else(|| error(node, "an input is missing"))?;
        if let Some(value) = self.values.get(id) {
            return Ok(value.clone());
        }
        let value = &self.graph.values[id.0];
        let (values, is_int8) = match &value.data {
            Some(Data::I8(v)) => (v.iter().map(|&x| x.into()).collect(), true),
            Some(Data::I32(v)) => (v.clone(), false),
            Some(Data::U8(_)) => {
                return Err(error(
                    node,
                    format!("{} is uint8; only int8 is supported", value.name),
                ));
            }
            _ => return Err(error(node, format!("{}: {UNQUANTISED}", value.name))),
        };
        let shape = value.shape.clone();
        Ok(Val::Constant(Box::new(Constant {
            values,
            scale: vec![1.0],
            axis: 0,
            shape,
            is_int8,
        })))
    }

    /// Float data of a constant input.
    fn floats(&self, node: &Node, index: usize) -> Result<&[f32], PassError> {
        let id = node
            .inputs
            .get(index)
            .ok_or_else(|| error(node, "an input is missing"))?;
        match &self.graph.values[id.0].data {
            Some(Data::F32(v)) => Ok(v),
            _ => Err(error(
                node,
                format!("input {index} must be a float constant"),
            )),
        }
    }

    fn scale(&self, node: &Node) -> Result<Vec<f64>, PassError> {
        let scale: Vec<f64> = self.floats(node, 1)?.iter().map(|&s| s.into()).collect();
        if scale.is_empty() || scale.iter().any(|s| !(s.is_finite() && *s > 0.0)) {
            return Err(error(node, "a scale is not positive and finite"));
        }
        Ok(scale)
    }

    /// Zero points must be int8 (int32 for a bias) and zero.
    fn check_zero_point(&self, node: &Node) -> Result<(), PassError> {
        let Some(id) = node.inputs.get(2) else {
            // Without a zero point QuantizeLinear makes uint8.
            return match node.op {
                Op::QuantizeLinear { .. } => Err(error(
                    node,
                    "it makes uint8 (no zero point); only int8 is supported",
                )),
                _ => Ok(()),
            };
        };
        let zero = match &self.graph.values[id.0].data {
            Some(Data::I8(v)) => v.iter().all(|&z| z == 0),
            Some(Data::I32(v)) => v.iter().all(|&z| z == 0),
            Some(Data::U8(_)) => return Err(error(node, "it is uint8; only int8 is supported")),
            _ => return Err(error(node, "the zero point is not an int8 constant")),
        };
        if zero {
            Ok(())
        } else {
            Err(error(
                node,
                "a zero point is not 0; only symmetric scales are supported",
            ))
        }
    }

    fn quantize(&mut self, node: &Node) -> Result<Val, PassError> {
        self.check_zero_point(node)?;
        let scale = self.scale(node)?;
        let is_constant = self.graph.values[node.inputs[0].0].data.is_some();
        if is_constant {
            return self.quantize_constant(node, scale);
        }
        let &[scale] = &scale[..] else {
            return Err(error(node, "activations need one scale per tensor"));
        };
        let name = self.graph.values[node.inputs[0].0].name.clone();
        match self.value(node, 0)? {
            Val::Input => self.network_input(node, name, scale),
            Val::Real(real) => Ok(Val::Quantized(self.round(*real, name, scale))),
            Val::Quantized(_) | Val::Constant(_) => Err(error(node, "its input is not real")),
        }
    }

    fn network_input(&mut self, node: &Node, name: String, scale: f64) -> Result<Val, PassError> {
        let shape = &self.graph.values[node.inputs[0].0].shape;
        let chw = match shape[..] {
            [_, c, h, w] => [c, h, w],
            [_, c] => [c, 1, 1],
            _ => {
                return Err(error(
                    node,
                    format!("input of shape {shape:?}, not [1, C, H, W]"),
                ));
            }
        };
        if let Some(id) = self.net.inputs.first() {
            let known = &self.net.tensors[id.0];
            return match known.name == name && known.scale == scale {
                true => Ok(Val::Quantized(*id)),
                false => Err(error(
                    node,
                    "a second input, or a second scale of the input",
                )),
            };
        }
        let id = self.push_tensor(name, chw, scale);
        self.net.inputs.push(id);
        Ok(Val::Quantized(id))
    }

    fn push_tensor(&mut self, name: String, chw: [usize; 3], scale: f64) -> TensorId {
        self.net.tensors.push(NetTensor { name, chw, scale });
        TensorId(self.net.tensors.len() - 1)
    }

    /// Ends a real value in an int8 tensor; rounding a tensor to its own steps changes nothing.
    fn round(&mut self, real: Real, name: String, scale: f64) -> TensorId {
        let step = |bound: f64| (bound / scale).round().clamp(-128.0, 127.0) as i8;
        let clamp = (step(real.bounds.0), step(real.bounds.1));
        if let NetOp::Eltwise { input } = real.op
            && self.net.tensors[input.0].scale == scale
            && clamp == (-128, 127)
        {
            return input;
        }
        let output = self.push_tensor(name, real.chw, scale);
        self.net.nodes.push(NetNode {
            name: real.name,
            op: real.op,
            output,
            clamp,
        });
        output
    }

    fn quantize_constant(&self, node: &Node, scale: Vec<f64>) -> Result<Val, PassError> {
        let Op::QuantizeLinear { axis } = node.op else {
            return Err(error(node, "not a QuantizeLinear"));
        };
        let shape = self.graph.values[node.inputs[0].0].shape.clone();
        let floats = self.floats(node, 0)?;
        let inner: usize = shape.iter().skip(axis + 1).product();
        let round = |(i, &x): (usize, &f32)| {
            let s = if scale.len() == 1 {
                scale[0]
            } else {
                scale[i / inner.max(1) % scale.len()]
            };
            (f64::from(x) / s).round_ties_even().clamp(-128.0, 127.0) as i32
        };
        let values = floats.iter().enumerate().map(round).collect();
        let constant = Constant {
            values,
            scale: vec![1.0],
            axis,
            shape,
            is_int8: true,
        };
        Ok(Val::Constant(Box::new(constant)))
    }

    fn dequantize(&mut self, node: &Node, axis: usize) -> Result<Val, PassError> {
        self.check_zero_point(node)?;
        let scale = self.scale(node)?;
        match self.value(node, 0)? {
            Val::Constant(mut constant) => {
                constant.axis = if scale.len() == 1 { 0 } else { axis };
                let slices = constant.shape.get(axis).copied().unwrap_or(1);
                if scale.len() != 1 && scale.len() != slices {
                    let text = format!("{} scales for {slices} slices", scale.len());
                    return Err(error(node, text));
                }
                constant.scale = scale;
                Ok(Val::Constant(constant))
            }
            Val::Quantized(input) => {
                let tensor = &self.net.tensors[input.0];
                if scale != [tensor.scale] {
                    return Err(error(node, "its scale differs from its QuantizeLinear's"));
                }
                let chw = tensor.chw;
                Ok(real(node, NetOp::Eltwise { input }, chw))
            }
            Val::Input | Val::Real(_) => Err(error(node, UNQUANTISED)),
        }
    }

    /// An operand that is exactly an int8 tensor.
    fn tensor(&self, node: &Node, index: usize) -> Result<TensorId, PassError> {
        match self.value(node, index)? {
            Val::Real(real) => match real.op {
                NetOp::Eltwise { input } if real.bounds == (f64::NEG_INFINITY, f64::INFINITY) => {
                    Ok(input)
                }
                _ => Err(error(node, UNQUANTISED)),
            },
            Val::Input | Val::Quantized(_) => Err(error(node, UNQUANTISED)),
            Val::Constant(_) => Err(error(node, "a constant operand is not supported here")),
        }
    }

    fn constant(&self, node: &Node, index: usize) -> Result<Constant, PassError> {
        match self.value(node, index)? {
            Val::Constant(constant) => Ok(*constant),
            _ => Err(error(node, format!("input {index} must be a constant"))),
        }
    }

    /// Weights with one scale for each output channel, which is axis `axis`.
    fn weights(&self, node: &Node, axis: usize) -> Result<(Constant, Vec<f64>), PassError> {
        let weights = self.constant(node, 1)?;
        let channels = weights.shape.get(axis).copied().unwrap_or(0);
        if !weights.is_int8 {
            return Err(error(node, "its weights are not int8"));
        }
        let scale = match weights.scale.len() {
            1 => vec![weights.scale[0]; channels],
            _ if weights.axis == axis => weights.scale.clone(),
            _ => return Err(error(node, "its weights have scales along another axis")),
        };
        Ok((weights, scale))
    }

    /// Real bias values: a quantised or a float constant, zeros when absent.
    fn bias(&self, node: &Node, channels: usize) -> Result<Vec<f64>, PassError> {
        if node.inputs.len() < 3 {
            return Ok(vec![0.0; channels]);
        }
        let bias: Vec<f64> = match self.floats(node, 2) {
            Ok(floats) => floats.iter().map(|&b| b.into()).collect(),
            Err(_) => {
                let c = self.constant(node, 2)?;
                let scales = c.scale.iter().cycle();
                let real = |(&v, &s): (&i32, &f64)| f64::from(v) * s;
                c.values.iter().zip(scales).map(real).collect()
            }
        };
        if bias.len() != channels || bias.iter().any(|b| !b.is_finite()) {
            return Err(error(
                node,
                format!("a bias of {} values for {channels} channels", bias.len()),
            ));
        }
        Ok(bias)
    }

    fn conv(&self, node: &Node, window: Window, group: usize) -> Result<Val, PassError> {
        let input = self.tensor(node, 0)?;
        let (weights, weight_scale) = self.weights(node, 0)?;
        let [_, h, w] = self.net.tensors[input.0].chw;
        let [oh, ow] = window
            .output(h, w)
            .ok_or_else(|| error(node, "its window doesn't fit"))?;
        let channels = weight_scale.len();
        let op = NetOp::Conv {
            input,
            window,
            weights: weights.values.iter().map(|&v| v as i8).collect(),
            group,
            weight_scale,
            bias: self.bias(node, channels)?,
            residual: None,
            dense: false,
        };
        Ok(real(node, op, [channels, oh, ow]))
    }

    fn gemm(&self, node: &Node, trans_b: bool) -> Result<Val, PassError> {
        let input = self.tensor(node, 0)?;
        let (weights, weight_scale) = self.weights(node, usize::from(!trans_b))?;
        let channels = weight_scale.len();
        let [c, h, w] = self.net.tensors[input.0].chw;
        let inner = c * h * w;
        if weights.values.len() != inner * channels {
            return Err(error(node, "its weights don't fit the flattened input"));
        }
        let at = |o: usize, k: usize| {
            if trans_b {
                o * inner + k
            } else {
                k * channels + o
            }
        };
        let values = (0..channels).flat_map(|o| (0..inner).map(move |k| (o, k)));
        let op = NetOp::Conv {
            input,
            window: whole([h, w]),
            weights: values
                .map(|(o, k)| weights.values[at(o, k)] as i8)
                .collect(),
            group: 1,
            weight_scale,
            bias: self.bias(node, channels)?,
            residual: None,
            dense: true,
        };
        Ok(real(node, op, [channels, 1, 1]))
    }

    fn pool(
        &self,
        node: &Node,
        window: Window,
        op: impl Fn(TensorId, Window) -> NetOp,
    ) -> Result<Val, PassError> {
        let input = self.tensor(node, 0)?;
        let [c, h, w] = self.net.tensors[input.0].chw;
        let [oh, ow] = window
            .output(h, w)
            .ok_or_else(|| error(node, "its window doesn't fit"))?;
        let covered = |axis: usize| {
            let span = window.dilation[axis] * (window.kernel[axis] - 1) + 1;
            window.pads[axis] < span && window.pads[axis + 2] < span
        };
        if !covered(0) || !covered(1) {
            return Err(error(node, "a pad is as large as the kernel"));
        }
        Ok(real(node, op(input, window), [c, oh, ow]))
    }

    /// What the host computes; vectors in the model are vectors to the operator.
    fn host(&self, node: &Node, op: HostOp) -> Result<Val, PassError> {
        let ids = (0..node.inputs.len()).map(|i| self.tensor(node, i));
        let inputs: Vec<TensorId> = ids.collect::<Result<_, _>>()?;
        let first = node.inputs.first().map(|id| &self.graph.values[id.0].shape);
        let flat = first.is_some_and(|shape| shape.len() == 2);
        let chw = |id: &TensorId| match self.net.tensors[id.0].chw {
            [c, h, w] if flat => [c * h * w, 1, 1],
            chw => chw,
        };
        let shapes: Vec<[usize; 3]> = inputs.iter().map(chw).collect();
        let shape = op.shape(&shapes);
        let mut shape = shape.ok_or_else(|| error(node, "its inputs don't fit each other"))?;
        if let [only] = inputs[..]
            && flat
        {
            shape = self.net.tensors[only.0].chw;
        }
        Ok(real(node, NetOp::Host { op, inputs, flat }, shape))
    }

    /// Relu and Clip: narrower real bounds.
    fn bounded(&self, node: &Node, low: f64, high: f64) -> Result<Val, PassError> {
        match self.value(node, 0)? {
            Val::Real(mut real) => {
                if low > 0.0 || high < 0.0 || low.is_nan() || high.is_nan() {
                    return Err(error(node, "bounds that exclude 0 are not supported"));
                }
                real.bounds = (real.bounds.0.max(low), real.bounds.1.min(high));
                Ok(Val::Real(real))
            }
            _ => Err(error(node, UNQUANTISED)),
        }
    }

    /// Folds into the convolution before it: scales its weights' scales.
    fn batch_norm(&self, node: &Node, epsilon: f64) -> Result<Val, PassError> {
        let Val::Real(mut value) = self.value(node, 0)? else {
            return Err(error(node, UNQUANTISED));
        };
        let unbounded = value.bounds == (f64::NEG_INFINITY, f64::INFINITY);
        let NetOp::Conv {
            weights,
            weight_scale,
            bias,
            ..
        } = &mut value.op
        else {
            return Err(error(node, "it doesn't follow a convolution"));
        };
        if !unbounded {
            return Err(error(node, "it follows an activation function"));
        }
        let [gamma, beta, mean, var] = [
            self.floats(node, 1)?,
            self.floats(node, 2)?,
            self.floats(node, 3)?,
            self.floats(node, 4)?,
        ];
        let per_channel = weights.len() / weight_scale.len().max(1);
        for c in 0..weight_scale.len() {
            let factor = f64::from(gamma[c]) / (f64::from(var[c]) + epsilon).sqrt();
            if !factor.is_finite() || factor == 0.0 {
                return Err(error(node, format!("channel {c}: its factor is {factor}")));
            }
            weight_scale[c] *= factor.abs();
            bias[c] = (bias[c] - f64::from(mean[c])) * factor + f64::from(beta[c]);
            if factor < 0.0 {
                for w in &mut weights[c * per_channel..(c + 1) * per_channel] {
                    *w = w.checked_neg().ok_or_else(|| {
                        error(
                            node,
                            format!("channel {c}: a weight of -128 and a negative factor"),
                        )
                    })?;
                }
            }
        }
        Ok(Val::Real(value))
    }

    fn output(&mut self, id: ValueId) -> Result<TensorId, PassError> {
        let name = &self.graph.values[id.0].name;
        match self.values.get(&id) {
            Some(Val::Real(value)) => match value.op {
                NetOp::Eltwise { input } if value.bounds == (f64::NEG_INFINITY, f64::INFINITY) => {
                    Ok(input)
                }
                _ => Err(PassError::Graph(format!(
                    "output {name} is not quantised (node {}); run `vta quantize` on the float model",
                    value.name
                ))),
            },
            Some(Val::Quantized(id)) => Ok(*id),
            _ => Err(PassError::Graph(format!(
                "output {name} is not computed from the input"
            ))),
        }
    }
}

fn real(node: &Node, op: NetOp, chw: [usize; 3]) -> Val {
    let bounds = (f64::NEG_INFINITY, f64::INFINITY);
    Val::Real(Box::new(Real {
        op,
        name: node.name.clone(),
        chw,
        bounds,
    }))
}

/// A window that covers the whole input.
fn whole(kernel: [usize; 2]) -> Window {
    Window {
        kernel,
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4],
    }
}
