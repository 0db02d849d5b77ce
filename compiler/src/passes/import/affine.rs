//! Sums and products, of two tensors or with constants, and functions of one tensor.

use super::super::error::PassError;
use super::super::net::{NetConv, NetOp};
use super::values::{HOST, Reading, Real, Val, error, ordered};
use crate::graph::{Data, Node};
use crate::qgraph::window::Window;
use crate::semantics::{Curve, Join};

/// The weight that stands for a factor: a power of two, so that the scale is exact, and large, so
/// that half a step of the output is many of the sum.
const WEIGHT: f64 = 64.0;
/// The largest offset, in steps of the sum.
const MAX_OFFSET: f64 = (1 << 28) as f64;
/// Steps of inputs for which HardSwish's bounds are immediates.
const SWISH_SCALES: std::ops::RangeInclusive<f64> = 2e-4..=1e4;

/// What is done with a tensor and a constant.
#[derive(Clone, Copy)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}

const NO_DIVISOR: &str = "its divisor is no constant";

/// One value, or one for each channel.
pub(crate) type ByChannel = Vec<f64>;

impl<'g> Reading<'g> {
    /// A sum, difference, product or quotient.
    pub(crate) fn arithmetic(
        &mut self,
        node: &Node,
        kind: Arithmetic,
    ) -> Result<Val<'g>, PassError> {
        let (operand, constant) = match [self.reals(node, 0), self.reals(node, 1)] {
            [None, None] => return self.pair(node, kind),
            [Some(_), Some(_)] => return Err(error(node, "both operands are constants")),
            [None, Some(constant)] => (0, constant),
            [Some(constant), None] => (1, constant),
        };
        // The join with a constant that is the same, and what becomes of the constant for that.
        let (join, turned): (Join, fn(f64) -> f64) = match (kind, operand) {
            (Arithmetic::Add, _) => (Join::Sum, |c| c),
            (Arithmetic::Sub, 0) => (Join::Sum, |c| -c),
            (Arithmetic::Sub, _) => (Join::Difference, |c| c),
            (Arithmetic::Mul, _) => (Join::Product, |c| c),
            (Arithmetic::Div, 0) => (Join::Product, |c| 1.0 / c),
            (Arithmetic::Div, _) => return Err(error(node, NO_DIVISOR)),
        };
        let value = self.value(node, operand)?;
        let c: ByChannel = match self.by_channel(node, operand, &value, &constant) {
            Ok(c) => c.into_iter().map(turned).collect(),
            Err(why) => {
                let (shape, values) = constant;
                let values = values.into_iter().map(turned).collect();
                return self.by_position(node, join, operand, &(shape, values), why);
            }
        };
        let both = match join {
            Join::Sum => [vec![1.0], c],
            Join::Difference => [vec![-1.0], c],
            Join::Product => [c, vec![0.0]],
        };
        match &value {
            Val::Real(real) if real.exactly().is_none() => self.scaled(node, value, &both),
            _ => self.affine(node, operand, both).map(Val::from),
        }
    }

    /// Two tensors, of which one may have one position for each channel, or one channel for all.
    fn pair(&mut self, node: &Node, kind: Arithmetic) -> Result<Val<'g>, PassError> {
        let join = match kind {
            Arithmetic::Add => Join::Sum,
            Arithmetic::Sub => Join::Difference,
            Arithmetic::Mul => Join::Product,
            Arithmetic::Div => return Err(error(node, NO_DIVISOR)),
        };
        let [(mut a, order), (mut b, other)] = [self.operand(node, 0)?, self.operand(node, 1)?];
        let [x, y] = [a, b].map(|id| self.net.tensors[id.0].chw);
        let shapes = [0, 1].map(|i| &self.graph.values[node.inputs[i].0].shape);
        let direct = |index: usize| self.channels(node, index).is_ok();
        let spread = |small: [usize; 3], large: [usize; 3]| {
            small == [large[0], 1, 1] || small == [1, large[1], large[2]] || small == [1, 1, 1]
        };
        // Of values of one shape that lie alike every value has its place.
        let alike = x == y && order == other && shapes[0] == shapes[1];
        let fits = alike || direct(0) && direct(1) && (x == y || spread(x, y) || spread(y, x));
        if !fits {
            let text = format!(
                "operands of {:?} and {:?}; only one value for each channel, or for each position, is broadcast",
                shapes[0], shapes[1]
            );
            return Err(error(node, text));
        }
        let chw = if spread(x, y) { y } else { x };
        for (id, of) in [(&mut a, x), (&mut b, y)] {
            if of[0] == 1 && chw[0] > 1 {
                *id = self.repeated(node, *id, chw[0]);
            }
        }
        Ok(ordered(node, NetOp::Pair { join, a, b }, chw, order))
    }

    /// Shape and real values of a constant operand; `None` for any other.
    pub(crate) fn reals(&self, node: &Node, index: usize) -> Option<(Vec<usize>, Vec<f64>)> {
        let value = &self.graph.values[node.inputs.get(index)?.0];
        if let Some(Data::F32(data)) = &value.data {
            let data = data.iter().map(|&v| v.into()).collect();
            return Some((value.shape.clone(), data));
        }
        match self.value(node, index) {
            Ok(Val::Constant(constant)) if constant.scale.len() == 1 => {
                let real = |v: i32| f64::from(v) * constant.scale[0];
                let data = constant.integers().map(real).collect();
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
        value: &Val<'_>,
        (shape, values): &(Vec<usize>, Vec<f64>),
    ) -> Result<ByChannel, PassError> {
        if values.iter().any(|v| !v.is_finite()) {
            return Err(error(node, "a constant isn't finite"));
        }
        let x = &self.graph.values[node.inputs[operand].0].shape;
        let wrong = || {
            let text = format!(
                "a constant of shape {shape:?} beside {x:?}, which is neither one value nor one for each channel"
            );
            error(node, text)
        };
        // Shapes are aligned at their last dimension. It must not give the operand more of them.
        let before = x.len().checked_sub(shape.len()).ok_or_else(wrong)?;
        if let [one] = values[..] {
            return Ok(vec![one]);
        }
        let (channels, order) = match value {
            Val::Real(real) => (real.placed()[0], real.order),
            _ => return Err(wrong()),
        };
        let dims = order.channels(x, channels).ok_or_else(wrong)?;
        let size = |at: usize| at.checked_sub(before).map_or(1, |at| shape[at]);
        let alike = |at: usize| {
            if dims.contains(&at) {
                [1, x[at]].contains(&size(at))
            } else {
                size(at) == 1
            }
        };
        if !(0..x.len()).all(alike) {
            return Err(wrong());
        }
        // The value of a channel, whose dimensions the constant may be broadcast along.
        let of = |channel: usize| {
            let (mut rest, mut at, mut stride) = (channel, 0, 1);
            for dim in dims.clone().rev() {
                if size(dim) != 1 {
                    at += rest % x[dim] * stride;
                    stride *= size(dim);
                }
                rest /= x[dim];
            }
            values.get(at).copied()
        };
        (0..channels)
            .map(of)
            .collect::<Option<_>>()
            .ok_or_else(wrong)
    }

    /// `x * factor + offset`: a depthwise 1x1 convolution.
    pub(crate) fn affine(
        &self,
        node: &Node,
        operand: usize,
        both: [ByChannel; 2],
    ) -> Result<Real, PassError> {
        let (input, order) = self.operand(node, operand)?;
        let chw = self.net.tensors[input.0].chw;
        let step = self.net.tensors[input.0].scale;
        let mut weights = Vec::with_capacity(chw[0]);
        let (mut weight_scale, mut bias) = (Vec::new(), Vec::new());
        for c in 0..chw[0] {
            let [factor, offset] = of_channel(node, &both, c)?;
            // Steps in which the offset is no larger than an int32 sum has room for; a factor
            // that is 0 in them does nothing to it.
            let least = offset.abs() / step / MAX_OFFSET;
            let scale = (factor.abs() / WEIGHT).max(least);
            let scale = if scale > 0.0 { scale } else { 1.0 / WEIGHT };
            weights.push((factor / scale).round() as i8);
            weight_scale.push(scale);
            bias.push(offset);
        }
        let parameters = (weight_scale, bias);
        let conv = NetConv {
            group: chw[0],
            ..NetConv::plain(input, Window::whole([1, 1]), weights.into(), parameters)
        };
        Ok(Real::new(&node.name, NetOp::Conv(conv), chw, order))
    }

    /// Factors and offsets of a BatchNormalization.
    pub(crate) fn normalized(
        &self,
        node: &Node,
        epsilon: f64,
    ) -> Result<[ByChannel; 2], PassError> {
        let list = |index: usize| {
            let reals = self.reals(node, index).map(|(_, values)| values);
            reals.ok_or_else(|| error(node, format!("input {index} must be a constant")))
        };
        let [gamma, beta, mean, var] = [list(1)?, list(2)?, list(3)?, list(4)?];
        let factor = |(g, v): (&f64, &f64)| g / (v + epsilon).sqrt();
        let factors: ByChannel = gamma.iter().zip(&var).map(factor).collect();
        let offset = |((b, m), f): ((&f64, &f64), &f64)| b - m * f;
        let offsets = beta.iter().zip(&mean).zip(&factors).map(offset).collect();
        Ok([factors, offsets])
    }

    pub(crate) fn hard_sigmoid(
        &self,
        node: &Node,
        alpha: f32,
        beta: f32,
    ) -> Result<Val<'g>, PassError> {
        let real = self.affine(node, 0, [vec![alpha.into()], vec![beta.into()]])?;
        let bounds = (0.0, 1.0);
        Ok(Val::from(Real { bounds, ..real }))
    }

    pub(crate) fn hard_swish(&self, node: &Node) -> Result<Val<'g>, PassError> {
        let (input, _) = self.operand(node, 0)?;
        if !SWISH_SCALES.contains(&self.net.tensors[input.0].scale) {
            return Err(error(node, HOST));
        }
        self.curve(node, Curve::HardSwish)
    }

    /// A function of the first input.
    pub(crate) fn curve(&self, node: &Node, curve: Curve) -> Result<Val<'g>, PassError> {
        let (input, order) = self.operand(node, 0)?;
        let chw = self.net.tensors[input.0].chw;
        Ok(ordered(node, NetOp::Curve { input, curve }, chw, order))
    }

    pub(crate) fn prelu(&self, node: &Node) -> Result<Val<'g>, PassError> {
        let slopes = self.reals(node, 1);
        let slopes = slopes.ok_or_else(|| error(node, "its slopes must be constants"))?;
        let slopes = self.by_channel(node, 0, &self.value(node, 0)?, &slopes)?;
        self.slopes(node, slopes)
    }

    /// One slope that is positive, or one for each channel.
    pub(crate) fn slopes(&self, node: &Node, slopes: ByChannel) -> Result<Val<'g>, PassError> {
        let (input, _) = self.operand(node, 0)?;
        if slopes.iter().any(|s| !s.is_finite()) {
            return Err(error(node, "a slope isn't finite"));
        }
        let slopes = match slopes[..] {
            [one] if one <= 0.0 => vec![one; self.net.tensors[input.0].chw[0]],
            _ => slopes,
        };
        self.curve(node, Curve::Slopes(slopes))
    }
}

/// Factor and offset of a channel, of which all may share one.
///
/// # Errors
/// One that isn't finite.
pub(super) fn of_channel(
    node: &Node,
    both: &[ByChannel; 2],
    channel: usize,
) -> Result<[f64; 2], PassError> {
    let [factor, offset] = both
        .each_ref()
        .map(|all| all[if all.len() == 1 { 0 } else { channel }]);
    if factor.is_finite() && offset.is_finite() {
        Ok([factor, offset])
    } else {
        let text = format!("channel {channel}: its factor is {factor}, its offset {offset}");
        Err(error(node, text))
    }
}
