//! Operators between DequantizeLinear and QuantizeLinear.

use super::super::error::PassError;
use super::super::net::{NetConv, NetOp};
use super::affine::{ByChannel, of_channel};
use super::constant::Constant;
use super::layout::Order;
use super::values::{Reading, UNQUANTIZED, Val, error, ordered, real};
use crate::graph::{MatMulForm, Node};
use crate::qgraph::TensorId;
use crate::qgraph::window::Window;
use crate::semantics;

impl<'g> Reading<'g> {
    /// Weights with one scale for each output channel, which is axis `axis`.
    pub(crate) fn weights(
        &self,
        node: &Node,
        axis: usize,
    ) -> Result<(Constant<'g>, Vec<f64>), PassError> {
        let weights = self.constant(node, 1)?;
        let channels = weights.shape.get(axis).copied();
        let channels =
            channels.ok_or_else(|| error(node, "its weights have too few dimensions"))?;
        if !weights.is_byte {
            return Err(error(node, "its weights are neither int8 nor uint8"));
        }
        let scale = match weights.scale.len() {
            1 => vec![weights.scale[0]; channels],
            _ if weights.axis == axis => weights.scale.clone(),
            _ => return Err(error(node, "its weights have scales along another axis")),
        };
        Ok((weights, scale))
    }

    /// Real bias values: a quantised or a float constant, zeros when absent.
    pub(crate) fn bias(&self, node: &Node, channels: usize) -> Result<Vec<f64>, PassError> {
        if node.inputs.len() < 3 {
            return Ok(vec![0.0; channels]);
        }
        let bias: Vec<f64> = match self.floats(node, 2) {
            Ok(floats) => floats.iter().map(|&b| b.into()).collect(),
            Err(_) => {
                let c = self.constant(node, 2)?;
                let scales = c.scale.iter().cycle();
                let real = |(v, &s): (i32, &f64)| f64::from(v) * s;
                c.integers().zip(scales).map(real).collect()
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

    pub(crate) fn conv(
        &self,
        node: &Node,
        window: Window,
        group: usize,
    ) -> Result<Val<'g>, PassError> {
        let input = self.tensor(node, 0)?;
        let (weights, weight_scale) = self.weights(node, 0)?;
        let [ci, h, w] = self.net.tensors[input.0].chw;
        let [oh, ow] = covered(node, window, [h, w])?;
        let channels = weight_scale.len();
        let taps = ci / group.max(1) * window.area();
        if weights.len() != channels * taps {
            return Err(error(node, "its weights don't fit its input"));
        }
        let parameters = (weight_scale, self.bias(node, channels)?);
        let conv = NetConv {
            group,
            ..NetConv::plain(input, window, weights.weights(), parameters)
        };
        Ok(real(node, NetOp::Conv(conv), [channels, oh, ow]))
    }

    pub(crate) fn gemm(&self, node: &Node, trans_b: bool) -> Result<Val<'g>, PassError> {
        let (input, order) = self.operand(node, 0)?;
        let (weights, weight_scale) = self.weights(node, usize::from(!trans_b))?;
        let channels = weight_scale.len();
        let [c, h, w] = self.net.tensors[input.0].chw;
        let inner = c * h * w;
        if weights.len() != inner * channels {
            return Err(error(node, "its weights don't fit the flattened input"));
        }
        let at = |o: usize, k: usize| {
            if trans_b {
                o * inner + k
            } else {
                k * channels + o
            }
        };
        // Where the model has the values of the tensor.
        let place = |k: usize| match order {
            Order::First => k,
            Order::Last => k % (h * w) * c + k / (h * w),
        };
        let weights = match (trans_b, order) {
            (true, Order::First) => weights.weights(),
            _ => weights.moved(channels * inner, |i| at(i / inner, place(i % inner))),
        };
        let parameters = (weight_scale, self.bias(node, channels)?);
        let conv = NetConv {
            dense: true,
            ..NetConv::plain(input, Window::whole([h, w]), weights, parameters)
        };
        Ok(real(node, NetOp::Conv(conv), [channels, 1, 1]))
    }

    /// A product of a matrix and a constant: a convolution of single positions.
    pub(crate) fn product(&self, node: &Node, form: MatMulForm) -> Result<Val<'g>, PassError> {
        let (input, order) = self.operand(node, 0)?;
        let (weights, weight_scale) = self.weights(node, form.output_axis())?;
        let &[rows, columns] = &weights.shape[..] else {
            return Err(error(node, "its weights are no matrix"));
        };
        let [channels, inner] = match form {
            MatMulForm::Right => [columns, rows],
            MatMulForm::RightTransposed | MatMulForm::Left => [rows, columns],
        };
        let wanted = match form {
            MatMulForm::Left => Order::First,
            MatMulForm::Right | MatMulForm::RightTransposed => Order::Last,
        };
        let [c, h, w] = self.net.tensors[input.0].chw;
        if c != inner || order != wanted.of([c, h, w]) {
            let shape = &self.graph.values[node.inputs[0].0].shape;
            let text = format!("its input of shape {shape:?} lies as {c}x{h}x{w}");
            return Err(error(node, text));
        }
        let chw = [channels, h, w];
        let order = wanted.of(chw);
        if order == Order::Last && self.layouts.is_first(node.output) {
            return Err(error(node, "its output is read in another order"));
        }
        let weights = match form {
            MatMulForm::Right => {
                weights.moved(channels * inner, |i| i % inner * channels + i / inner)
            }
            MatMulForm::RightTransposed | MatMulForm::Left => weights.weights(),
        };
        let parameters = (weight_scale, self.bias(node, channels)?);
        let conv = NetConv::plain(input, Window::whole([1, 1]), weights, parameters);
        Ok(ordered(node, NetOp::Conv(conv), chw, order))
    }

    pub(crate) fn pool(
        &self,
        node: &Node,
        window: Window,
        op: impl Fn(TensorId, Window) -> NetOp,
    ) -> Result<Val<'g>, PassError> {
        let input = self.tensor(node, 0)?;
        let [c, h, w] = self.net.tensors[input.0].chw;
        let [oh, ow] = covered(node, window, [h, w])?;
        // A window on padding alone has no maximum, and no positions to divide by.
        let wide = |axis: usize| {
            let pads = [window.pads.before(), window.pads.after()];
            pads.iter().any(|pads| pads[axis] >= window.span(axis))
        };
        if wide(0) || wide(1) {
            return Err(error(node, "a pad is as large as the kernel"));
        }
        Ok(real(node, op(input, window), [c, oh, ow]))
    }

    /// Relu and Clip: narrower real bounds.
    pub(crate) fn bounded(&self, node: &Node, low: f64, high: f64) -> Result<Val<'g>, PassError> {
        match self.value(node, 0)? {
            Val::Real(mut real) => {
                if low.is_nan() || high.is_nan() || low > high {
                    return Err(error(node, format!("its bounds are {low} and {high}")));
                }
                let within = |bound: f64| bound.max(low).min(high);
                real.bounds = (within(real.bounds.0), within(real.bounds.1));
                Ok(Val::Real(real))
            }
            _ => Err(error(node, UNQUANTIZED)),
        }
    }

    /// Folds into the convolution before it: scales its weights' scales.
    pub(crate) fn batch_norm(&self, node: &Node, epsilon: f64) -> Result<Val<'g>, PassError> {
        let factors = self.normalized(node, epsilon)?;
        if self.tensor(node, 0).is_ok() {
            return self.affine(node, 0, factors).map(Val::from);
        }
        let value = self.value(node, 0)?;
        if matches!(&value, Val::Real(real) if real.order == Order::Last) {
            return Err(error(node, "its channels aren't those of its input"));
        }
        self.scaled(node, value, &factors)
    }

    /// Factors and offsets of the channels of a convolution that isn't rounded yet: they join it.
    pub(crate) fn scaled(
        &self,
        node: &Node,
        value: Val<'g>,
        both: &[ByChannel; 2],
    ) -> Result<Val<'g>, PassError> {
        let Val::Real(mut value) = value else {
            return Err(error(node, UNQUANTIZED));
        };
        let unbounded = value.is_unbounded();
        let moved = value.moved.as_ref().map(|moved| &moved.channels);
        let NetOp::Conv(conv) = &mut value.op else {
            return Err(error(node, "it doesn't follow a convolution"));
        };
        if !unbounded {
            return Err(error(node, "it follows an activation function"));
        }
        let per_channel = conv.row(self.net.tensors[conv.input.0].chw[0]);
        let mut turned = Vec::new();
        for c in 0..conv.weight_scale.len() {
            let [factor, offset] = of_channel(node, both, moved.map_or(c, |moved| moved[c]))?;
            if factor == 0.0 {
                return Err(error(node, format!("channel {c}: its factor is 0")));
            }
            // Scales are positive: a negative factor turns the weights.
            conv.weight_scale[c] *= factor.abs();
            conv.bias[c] = conv.bias[c] * factor + offset;
            if factor < 0.0 {
                turned.push(c);
            }
        }
        if !turned.is_empty() {
            let count = per_channel * conv.weight_scale.len();
            let mut whole = semantics::whole_weights(&conv.weights, count);
            for c in turned {
                let row = whole.iter_mut().skip(c * per_channel).take(per_channel);
                row.for_each(|w| *w = -*w);
            }
            conv.weights = semantics::weight_parts(count, |i| whole[i]).into();
        }
        Ok(Val::Real(value))
    }

    /// Tensors keep their rows and columns, since a dense layer covers them all; constants don't.
    pub(crate) fn flatten(&self, node: &Node) -> Result<Val<'g>, PassError> {
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
}

/// Rows and columns of what a window makes of an input.
fn covered(node: &Node, window: Window, [h, w]: [usize; 2]) -> Result<[usize; 2], PassError> {
    let out = window.output(h, w);
    out.ok_or_else(|| error(node, "its window doesn't fit"))
}
