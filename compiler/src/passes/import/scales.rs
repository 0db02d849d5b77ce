//! QuantizeLinear and DequantizeLinear.

use super::super::error::PassError;
use super::super::net::{NetNode, NetOp};
use super::values::{Constant, Reading, Real, UNQUANTIZED, Val, error, real};
use crate::graph::{Data, Node, Op};
use crate::qgraph::TensorId;

impl Reading<'_> {
    pub(super) fn scale(&self, node: &Node) -> Result<Vec<f64>, PassError> {
        let scale: Vec<f64> = self.floats(node, 1)?.iter().map(|&s| s.into()).collect();
        if scale.is_empty() || scale.iter().any(|s| !(s.is_finite() && *s > 0.0)) {
            return Err(error(node, "a scale is not positive and finite"));
        }
        Ok(scale)
    }

    /// Zero points must be int8 (int32 for a bias) and zero.
    pub(super) fn check_zero_point(&self, node: &Node) -> Result<(), PassError> {
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

    pub(super) fn quantize(&mut self, node: &Node, axis: usize) -> Result<Val, PassError> {
        self.check_zero_point(node)?;
        let scale = self.scale(node)?;
        let is_constant = self.graph.values[node.inputs[0].0].data.is_some();
        if is_constant {
            return self.quantize_constant(node, axis, scale);
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

    pub(super) fn network_input(
        &mut self,
        node: &Node,
        name: String,
        scale: f64,
    ) -> Result<Val, PassError> {
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

    /// Ends a real value in an int8 tensor; rounding a tensor to its own steps changes nothing.
    pub(super) fn round(&mut self, real: Real, name: String, scale: f64) -> TensorId {
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

    fn quantize_constant(
        &self,
        node: &Node,
        axis: usize,
        scale: Vec<f64>,
    ) -> Result<Val, PassError> {
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

    pub(super) fn dequantize(&mut self, node: &Node, axis: usize) -> Result<Val, PassError> {
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
            Val::Input | Val::Real(_) => Err(error(node, UNQUANTIZED)),
        }
    }
}
