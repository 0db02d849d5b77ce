//! Sums and products, of two tensors or with constants, and functions of one tensor.

use super::super::error::PassError;
use super::super::net::NetOp;
use super::values::{HOST, Reading, Val, error, real};
use crate::graph::{Data, Node};
use crate::qgraph::TensorId;
use crate::window::Window;

/// The weight that stands for a factor: a power of two, so that the scale is exact, and large, so
/// that half a step of the output is many of the sum.
const WEIGHT: f64 = 64.0;
/// The largest offset, in steps of the sum.
const MAX_OFFSET: f64 = (1 << 28) as f64;
/// Steps of inputs for which HardSwish's bounds are immediates.
const SWISH_SCALES: std::ops::RangeInclusive<f64> = 2e-4..=1e4;

/// What is done with a tensor and a constant.
#[derive(Clone, Copy)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}

/// One value, or one for each channel.
type ByChannel = Vec<f64>;

impl Reading<'_> {
    /// A sum, difference, product or quotient.
    pub(super) fn arithmetic(&self, node: &Node, kind: Arithmetic) -> Result<Val, PassError> {
        let constants = [self.reals(node, 0), self.reals(node, 1)];
        match constants {
            [None, None] => self.pair(node, kind),
            [Some(_), Some(_)] => Err(error(node, "both operands are constants")),
            [None, Some(constant)] => {
                let c = self.by_channel(node, 0, &constant)?;
                let (factors, offsets) = match kind {
                    Arithmetic::Add => (vec![1.0], c),
                    Arithmetic::Sub => (vec![1.0], c.iter().map(|c| -c).collect()),
                    Arithmetic::Mul => (c, vec![0.0]),
                    Arithmetic::Div => (c.iter().map(|c| 1.0 / c).collect(), vec![0.0]),
                };
                self.affine(node, 0, [factors, offsets])
            }
            [Some(constant), None] => {
                let c = self.by_channel(node, 1, &constant)?;
                let (factors, offsets) = match kind {
                    Arithmetic::Add => (vec![1.0], c),
                    Arithmetic::Sub => (vec![-1.0], c),
                    Arithmetic::Mul => (c, vec![0.0]),
                    Arithmetic::Div => return Err(error(node, "its divisor is no constant")),
                };
                self.affine(node, 1, [factors, offsets])
            }
        }
    }

    /// Two tensors, of which one may have one position for each channel.
    fn pair(&self, node: &Node, kind: Arithmetic) -> Result<Val, PassError> {
        let (a, b) = (self.tensor(node, 0)?, self.tensor(node, 1)?);
        let [x, y] = [a, b].map(|id| self.net.tensors[id.0].chw);
        let shapes = [0, 1].map(|i| &self.graph.values[node.inputs[i].0].shape);
        let spread = |small: [usize; 3], large: [usize; 3]| small == [large[0], 1, 1];
        let direct = |id: usize| Ok::<bool, PassError>(self.channels(node, id)?.is_some());
        // Of tensors that were flattened every value has its place.
        let alike = x == y && shapes[0].iter().product::<usize>() == x.iter().product::<usize>();
        let fits = (alike && shapes[0] == shapes[1])
            || (direct(0)? && direct(1)? && (x == y || spread(x, y) || spread(y, x)));
        let chw = if spread(x, y) { y } else { x };
        match kind {
            Arithmetic::Add if fits => Ok(real(node, NetOp::Add { a, b }, chw)),
            Arithmetic::Mul if fits => Ok(real(node, NetOp::Mul { a, b }, chw)),
            Arithmetic::Mul => Err(error(node, HOST)),
            Arithmetic::Sub => Err(error(node, HOST)),
            Arithmetic::Add => Err(error(
                node,
                format!(
                    "a sum of {:?} and {:?}; only values for each channel are broadcast",
                    shapes[0], shapes[1]
                ),
            )),
            Arithmetic::Div => Err(error(node, "its divisor is no constant")),
        }
    }

    /// Shape and real values of a constant operand; `None` for any other.
    pub(super) fn reals(&self, node: &Node, index: usize) -> Option<(Vec<usize>, Vec<f64>)> {
        let value = &self.graph.values[node.inputs.get(index)?.0];
        if let Some(Data::F32(data)) = &value.data {
            let data = data.iter().map(|&v| v.into()).collect();
            return Some((value.shape.clone(), data));
        }
        match self.value(node, index) {
            Ok(Val::Constant(constant)) if constant.scale.len() == 1 => {
                let real = |&v: &i32| f64::from(v) * constant.scale[0];
                let data = constant.values.iter().map(real).collect();
                Some((constant.shape, data))
            }
            _ => None,
        }
    }

    /// A constant beside an operand: one value, or one for each channel.
    fn by_channel(
        &self,
        node: &Node,
        operand: usize,
        (shape, values): &(Vec<usize>, Vec<f64>),
    ) -> Result<ByChannel, PassError> {
        if values.iter().any(|v| !v.is_finite()) {
            return Err(error(node, "a constant isn't finite"));
        }
        if let [one] = values[..] {
            return Ok(vec![one]);
        }
        let x = &self.graph.values[node.inputs[operand].0].shape;
        // Shapes are aligned at their last dimension.
        let channel = (shape.len() + 1).checked_sub(x.len());
        let other = |(i, &size): (usize, &usize)| Some(i) == channel || size == 1;
        let fits = shape.len() <= x.len()
            && channel.and_then(|c| shape.get(c)) == x.get(1)
            && shape.iter().enumerate().all(other);
        match fits {
            true => Ok(values.clone()),
            false => Err(error(
                node,
                format!(
                    "a constant of shape {shape:?} beside {x:?}; only one value, or one for each channel, is supported"
                ),
            )),
        }
    }

    /// `x * factor + offset`: a depthwise 1x1 convolution.
    pub(super) fn affine(
        &self,
        node: &Node,
        operand: usize,
        [factors, offsets]: [ByChannel; 2],
    ) -> Result<Val, PassError> {
        let input = self.tensor(node, operand)?;
        let chw = self.net.tensors[input.0].chw;
        let several = factors.len() > 1 || offsets.len() > 1;
        if several && self.channels(node, operand)?.is_none() {
            return Err(error(
                node,
                "its input was flattened, and it has values for each channel",
            ));
        }
        let all = |values: &ByChannel, c: usize| values[if values.len() == 1 { 0 } else { c }];
        let step = self.net.tensors[input.0].scale;
        let mut weights = Vec::with_capacity(chw[0]);
        let (mut weight_scale, mut bias) = (Vec::new(), Vec::new());
        for c in 0..chw[0] {
            let (factor, offset) = (all(&factors, c), all(&offsets, c));
            if !factor.is_finite() || !offset.is_finite() {
                return Err(error(
                    node,
                    format!("channel {c}: its factor is {factor}, its offset {offset}"),
                ));
            }
            // Steps in which the offset is no larger than an int32 sum has room for; a factor
            // that is 0 in them does nothing to it.
            let least = offset.abs() / step / MAX_OFFSET;
            let scale = (factor.abs() / WEIGHT).max(least);
            let scale = if scale > 0.0 { scale } else { 1.0 / WEIGHT };
            weights.push((factor / scale).round() as i8);
            weight_scale.push(scale);
            bias.push(offset);
        }
        let op = NetOp::Conv {
            input,
            window: Window::whole([1, 1]),
            weights,
            group: chw[0],
            weight_scale,
            bias,
            residual: None,
            dense: false,
        };
        Ok(real(node, op, chw))
    }

    /// BatchNormalization of a tensor.
    pub(super) fn normalized(&self, node: &Node, epsilon: f64) -> Result<Val, PassError> {
        let [gamma, beta, mean, var] = self.statistics(node)?;
        let factor = |(g, v): (&f64, &f64)| g / (v + epsilon).sqrt();
        let factors: ByChannel = gamma.iter().zip(&var).map(factor).collect();
        let offset = |((b, m), f): ((&f64, &f64), &f64)| b - m * f;
        let offsets = beta.iter().zip(&mean).zip(&factors).map(offset).collect();
        self.affine(node, 0, [factors, offsets])
    }

    pub(super) fn hard_sigmoid(
        &self,
        node: &Node,
        alpha: f32,
        beta: f32,
    ) -> Result<Val, PassError> {
        let value = self.affine(node, 0, [vec![alpha.into()], vec![beta.into()]])?;
        Ok(match value {
            Val::Real(mut real) => {
                real.bounds = (0.0, 1.0);
                Val::Real(real)
            }
            other => other,
        })
    }

    pub(super) fn hard_swish(&self, node: &Node) -> Result<Val, PassError> {
        let input = self.tensor(node, 0)?;
        let tensor = &self.net.tensors[input.0];
        match SWISH_SCALES.contains(&tensor.scale) {
            true => Ok(real(node, NetOp::HardSwish { input }, tensor.chw)),
            false => Err(error(node, HOST)),
        }
    }

    pub(super) fn leaky(&self, node: &Node, alpha: f32) -> Result<Val, PassError> {
        self.slopes(node, vec![alpha.into()])
    }

    pub(super) fn prelu(&self, node: &Node) -> Result<Val, PassError> {
        let slopes = self.reals(node, 1);
        let slopes = slopes.ok_or_else(|| error(node, "its slopes must be constants"))?;
        let slopes = self.by_channel(node, 0, &slopes)?;
        if slopes.len() > 1 && self.channels(node, 0)?.is_none() {
            return Err(error(node, "its input was flattened"));
        }
        self.slopes(node, slopes)
    }

    /// One slope that is positive, or one for each channel.
    fn slopes(&self, node: &Node, slopes: ByChannel) -> Result<Val, PassError> {
        let input: TensorId = self.tensor(node, 0)?;
        let chw = self.net.tensors[input.0].chw;
        if slopes.iter().any(|s| !s.is_finite()) {
            return Err(error(node, "a slope isn't finite"));
        }
        let slopes = match slopes[..] {
            [one] if one <= 0.0 => vec![one; chw[0]],
            _ => slopes,
        };
        Ok(real(node, NetOp::Slopes { input, slopes }, chw))
    }
}
