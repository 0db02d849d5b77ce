//! Values that nothing rounds: the device gives their sums, which are exact, in digits.

use super::super::net::{NetConv, NetNode, NetOp, NetSum, NetTensor};
use super::values::{Reading, Real};
use crate::qgraph::window::{Pads, Window};
use crate::qgraph::{Numbers, TensorId};
use crate::semantics::{Digits, Interval};

/// The largest bias, in a sum's steps, that the device adds.
const MAX_BIAS: f64 = (1i64 << 30) as f64;
/// What a bias may be more than whole steps: int32 biases are no farther, whose scale is a product that
/// was rounded to float32.
const FRACTION: f64 = 1.0 / 1024.0;

/// A sum that the device computes without rounding, and what it stands for.
pub(super) struct ExactSum {
    /// As the model has it.
    pub(super) model: Real,
    /// What computes it, with biases that are whole steps.
    op: NetOp,
    digits: Digits,
    /// Real value of one, and what is added to its reals: for each channel, or one for all.
    step: Vec<f64>,
    rest: Vec<f64>,
}

impl Reading<'_> {
    /// The sum that a value is, but for the step that it is multiplied by; `None` for values that are
    /// none or need more than int32.
    pub(super) fn exact_sum(&self, real: &Real) -> Option<ExactSum> {
        if !real.is_unbounded() || real.moved.is_some() {
            return None;
        }
        let mut op = real.op.clone();
        let (step, rest, digits) = match &mut op {
            NetOp::AvgPool {
                input,
                window,
                count_include_pad,
            } => {
                let (step, bounds) = self.averaged(*input, window, *count_include_pad)?;
                (
                    vec![step],
                    Vec::new(),
                    Digits::of(&[bounds], self.net.numbers)?,
                )
            }
            NetOp::Conv(conv @ NetConv { residual: None, .. }) => {
                convolved(&self.net.tensors[conv.input.0], conv, self.net.numbers)?
            }
            _ => return None,
        };
        Some(ExactSum {
            model: real.clone(),
            op,
            digits,
            step,
            rest,
        })
    }

    /// The step of a window's sum that is a mean, and its bounds. Windows that have no one divisor give
    /// none.
    fn averaged(
        &self,
        input: TensorId,
        window: &Window,
        count_include_pad: bool,
    ) -> Option<(f64, Interval)> {
        let NetTensor { scale, zero, .. } = self.net.tensors[input.0];
        if !count_include_pad && window.pads != Pads::NONE {
            return None;
        }
        let (area, zero) = (window.area() as i64, i64::from(zero));
        // Fewer values where some are on padding: 0 is among the bounds.
        let bound = |q: i16| area.checked_mul(i64::from(q) - zero);
        let (least, most) = self.net.numbers.bounds();
        let bounds = (bound(least)?.min(0), bound(most)?.max(0));
        Some((scale / area as f64, bounds))
    }

    /// The nodes of a sum's digits, and its place among the net's sums.
    pub(super) fn give_digits(&mut self, sum: ExactSum, name: &str) -> usize {
        let known = self.sums.iter().position(|known| *known == sum.model.op);
        if let Some(known) = known {
            return known;
        }
        let base = 2f64.powi(self.net.numbers.bits() as i32);
        let digit = |place: usize| {
            let zero = if place + 1 == sum.digits.count {
                sum.digits.zero
            } else {
                0
            };
            NetTensor {
                name: format!("{name}.digit{place}"),
                chw: sum.model.chw,
                scale: base.powi(place as i32),
                zero,
            }
        };
        let digits: Vec<NetTensor> = (0..sum.digits.count).map(digit).collect();
        let give = |(place, tensor): (usize, NetTensor)| {
            let name = format!("{}.digit{place}", sum.model.name);
            let output = self.push_tensor(tensor);
            self.net.nodes.push(NetNode {
                digit: Some(place),
                ..NetNode::new(name, sum.op.clone(), output, self.net.numbers)
            });
            output
        };
        let digits = digits.into_iter().enumerate().map(give).collect();
        self.sums.push(sum.model.op);
        self.net.ends.sums.push(NetSum {
            digits,
            step: sum.step,
            rest: sum.rest,
        });
        self.sums.len() - 1
    }
}

/// The steps of a convolution's sums, what their reals lack, and their digits; its biases become whole steps.
fn convolved(
    input: &NetTensor,
    conv: &mut NetConv,
    numbers: Numbers,
) -> Option<(Vec<f64>, Vec<f64>, Digits)> {
    let step = conv.weight_scale.iter().map(|w| input.scale * w);
    let step: Vec<f64> = step.collect();
    let whole = conv.bias.iter().zip(&step).map(|(b, s)| (b / s).round());
    let whole: Vec<f64> = whole.collect();
    if !whole.iter().all(|b| b.abs() <= MAX_BIAS) {
        return None;
    }
    let (weights, zeros) = conv.sums(input).ok()?;
    let sums = weights.iter().map(|sums| sums.bounds(numbers.bounds()));
    let within = |bound: i64| i32::try_from(bound).is_ok();
    let bounds = sums.zip(whole.iter().zip(zeros));
    let bounds = bounds.map(|((low, high), (&whole, zero))| {
        let bias = whole as i64 - zero;
        (within(low) && within(high)).then_some((low + bias, high + bias))
    });
    let bounds: Vec<Interval> = bounds.collect::<Option<_>>()?;
    let digits = Digits::of(&bounds, numbers)?;
    let exact: Vec<f64> = whole.iter().zip(&step).map(|(b, s)| b * s).collect();
    let rest: Vec<f64> = conv.bias.iter().zip(&exact).map(|(b, e)| b - e).collect();
    conv.bias = exact;
    let near = |(rest, step): (&f64, &f64)| rest.abs() <= step.abs() * FRACTION;
    let rest = if rest.iter().zip(&step).all(near) {
        Vec::new()
    } else {
        rest
    };
    Some((step, rest, digits))
}
