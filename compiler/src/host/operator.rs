//! The operators: shapes and real values.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::bits;

/// An operator with the semantics of ONNX (opset 13 where the opset matters).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HostOp {
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `max(0, min(1, alpha * x + beta))`.
    HardSigmoid {
        /// Slope.
        #[serde(with = "bits")]
        alpha: f32,
        /// Value at 0.
        #[serde(with = "bits")]
        beta: f32,
    },
    /// `x * max(0, min(1, x / 6 + 1/2))`.
    HardSwish,
    /// Hyperbolic tangent.
    Tanh,
    /// `x`, and below 0 `alpha * (e^x - 1)`.
    Elu {
        /// Factor below 0.
        #[serde(with = "bits")]
        alpha: f32,
    },
    /// `x`, and below 0 `alpha * x`.
    LeakyRelu {
        /// Slope below 0.
        #[serde(with = "bits")]
        alpha: f32,
    },
    /// `e^x` divided by its sum over the channels, at each position.
    Softmax,
    /// Product of two tensors of one shape, or one of which has one position for each channel.
    Mul,
    /// Difference of two tensors, with shapes as for the product.
    Sub,
    /// Tensors of equal rows and columns one after another along the channels.
    Concat,
    /// Every value repeated over as many rows and columns: Resize to the nearest.
    Resize {
        /// Rows and columns for each, at least 1.
        factors: [usize; 2],
    },
}

/// Inputs that don't fit the operator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{op}: its tensors don't fit each other")]
pub struct HostError {
    /// The operator.
    pub op: &'static str,
}

/// What the output's shape is, by the inputs'.
enum ShapeRule {
    /// That of the one input.
    Same,
    /// That of the larger of two.
    Pair,
    /// All channels together.
    Joined,
    /// Rows and columns times these.
    Enlarged([usize; 2]),
}

impl HostOp {
    /// ONNX's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sigmoid => "Sigmoid",
            Self::HardSigmoid { .. } => "HardSigmoid",
            Self::HardSwish => "HardSwish",
            Self::Tanh => "Tanh",
            Self::Elu { .. } => "Elu",
            Self::LeakyRelu { .. } => "LeakyRelu",
            Self::Softmax => "Softmax",
            Self::Mul => "Mul",
            Self::Sub => "Sub",
            Self::Concat => "Concat",
            Self::Resize { .. } => "Resize",
        }
    }

    const fn rule(&self) -> ShapeRule {
        match self {
            Self::Sigmoid
            | Self::HardSigmoid { .. }
            | Self::HardSwish
            | Self::Tanh
            | Self::Elu { .. }
            | Self::LeakyRelu { .. }
            | Self::Softmax => ShapeRule::Same,
            Self::Mul | Self::Sub => ShapeRule::Pair,
            Self::Concat => ShapeRule::Joined,
            Self::Resize { factors } => ShapeRule::Enlarged(*factors),
        }
    }

    /// Fewest and most inputs.
    pub const fn arity(&self) -> (usize, usize) {
        match self.rule() {
            ShapeRule::Same | ShapeRule::Enlarged(_) => (1, 1),
            ShapeRule::Pair => (2, 2),
            ShapeRule::Joined => (1, 1024),
        }
    }

    /// Channels, rows and columns of the output; `None` when the inputs' don't fit.
    pub fn shape(&self, inputs: &[[usize; 3]]) -> Option<[usize; 3]> {
        let (least, most) = self.arity();
        let first = *inputs.first()?;
        if !(least..=most).contains(&inputs.len()) {
            return None;
        }
        match self.rule() {
            ShapeRule::Pair => {
                let (a, b) = (first, inputs[1]);
                let fits = |large: [usize; 3], small: [usize; 3]| {
                    large == small || (large[0] == small[0] && small[1..] == [1, 1])
                };
                match (fits(a, b), fits(b, a)) {
                    (true, _) => Some(a),
                    (_, true) => Some(b),
                    _ => None,
                }
            }
            ShapeRule::Joined => {
                let same = inputs.iter().all(|chw| chw[1..] == first[1..]);
                let channels = inputs
                    .iter()
                    .try_fold(0usize, |n, chw| n.checked_add(chw[0]));
                channels.filter(|_| same).map(|c| [c, first[1], first[2]])
            }
            ShapeRule::Enlarged(factors) if factors.contains(&0) => None,
            ShapeRule::Enlarged(factors) => {
                let [c, h, w] = first;
                Some([c, h.checked_mul(factors[0])?, w.checked_mul(factors[1])?])
            }
            ShapeRule::Same => Some(first),
        }
    }

    /// Real values to real values, each `[C][H][W]`.
    ///
    /// # Errors
    /// [`HostError`] when shapes or lengths contradict each other.
    pub fn real(&self, inputs: &[(&[f64], [usize; 3])]) -> Result<Vec<f64>, HostError> {
        let fail = HostError { op: self.name() };
        let shapes: Vec<[usize; 3]> = inputs.iter().map(|(_, chw)| *chw).collect();
        let [c, h, w] = self.shape(&shapes).ok_or_else(|| fail.clone())?;
        let whole = |(x, chw): &(&[f64], [usize; 3])| {
            let len = chw.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            len == Some(x.len()) && !x.is_empty()
        };
        if !inputs.iter().all(whole) {
            return Err(fail);
        }
        let first = inputs[0].0;
        let each = |f: &dyn Fn(f64) -> f64| first.iter().map(|&x| f(x)).collect();
        let hard = |y: f64| y.clamp(0.0, 1.0);
        Ok(match *self {
            Self::Sigmoid => each(&|x| 1.0 / (1.0 + exp(-x))),
            Self::HardSigmoid { alpha, beta } => {
                each(&|x| hard(f64::from(alpha) * x + f64::from(beta)))
            }
            Self::HardSwish => each(&|x| x * hard(x / 6.0 + 0.5)),
            Self::Tanh => each(&|x| 1.0 - 2.0 / (exp(2.0 * x) + 1.0)),
            Self::Elu { alpha } => each(&|x| match x < 0.0 {
                true => f64::from(alpha) * (exp(x) - 1.0),
                false => x,
            }),
            Self::LeakyRelu { alpha } => each(&|x| match x < 0.0 {
                true => f64::from(alpha) * x,
                false => x,
            }),
            Self::Mul => binary(inputs, h * w, |a, b| a * b),
            Self::Sub => binary(inputs, h * w, |a, b| a - b),
            Self::Concat => inputs.iter().flat_map(|(x, _)| x.iter().copied()).collect(),
            Self::Softmax => softmax(first, c, h * w),
            Self::Resize { factors } => {
                let from =
                    |row: usize, col: usize| row / factors[0] * (w / factors[1]) + col / factors[1];
                let plane = first.len() / c;
                let rows = (0..c).flat_map(|c| (0..h).map(move |row| (c, row)));
                rows.flat_map(|(c, row)| (0..w).map(move |col| first[c * plane + from(row, col)]))
                    .collect()
            }
        })
    }
}

/// Element by element; an input with fewer values has one for each channel of `plane` positions.
fn binary(inputs: &[(&[f64], [usize; 3])], plane: usize, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let (a, b) = (inputs[0].0, inputs[1].0);
    let len = a.len().max(b.len());
    let at = |x: &[f64], i: usize| x[if x.len() == len { i } else { i / plane }];
    (0..len).map(|i| f(at(a, i), at(b, i))).collect()
}

fn softmax(x: &[f64], channels: usize, plane: usize) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    for position in 0..plane {
        let all = || (0..channels).map(|c| c * plane + position);
        let largest = all().map(|i| x[i]).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = all().map(|i| exp(x[i] - largest)).sum();
        all().for_each(|i| out[i] = exp(x[i] - largest) / sum);
    }
    out
}

/// `e^x` from additions, multiplications and divisions alone: within 2 units of the last place,
/// and the same bits everywhere. Beyond +-700 it is that of 700.
pub fn exp(x: f64) -> f64 {
    // ln 2 in two parts: the first has few bits, so that its multiples are exact.
    const HIGH: f64 = 0.693_147_180_369_123_8;
    const LOW: f64 = 1.908_214_929_270_587_7e-10;
    let x = x.clamp(-700.0, 700.0);
    let k = (x / (HIGH + LOW)).round();
    let rest = (x - k * HIGH) - k * LOW;
    // |rest| is at most 0.35: 15 terms leave less than 1e-19.
    let taylor = (1..=15)
        .rev()
        .fold(1.0, |sum, n| 1.0 + sum * rest / f64::from(n));
    // k is within +-1010, so this is 2^k exactly.
    let power = f64::from_bits(((k as i64 + 1023) as u64) << 52);
    taylor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_everywhere() {
        for i in -7000..=7000 {
            let x = f64::from(i) / 10.0;
            let expected = x.exp();
            assert!(((exp(x) - expected) / expected).abs() < 1e-15, "{x}");
        }
        assert_eq!(
            (exp(0.0), exp(1e9), exp(-1e9)),
            (1.0, exp(700.0), exp(-700.0))
        );
    }

    #[test]
    fn functions_have_their_known_values() {
        let elu = HostOp::Elu { alpha: 2.0 };
        let leaky = HostOp::LeakyRelu { alpha: 0.25 };
        let hard = HostOp::HardSigmoid {
            alpha: 0.5,
            beta: 0.25,
        };
        for (op, x, expected) in [
            (HostOp::Sigmoid, 0.0, 0.5),
            (HostOp::Sigmoid, 2.0, 0.880_797_077_977_882_4),
            (HostOp::Sigmoid, -800.0, 0.0),
            (HostOp::Tanh, 0.5, 0.462_117_157_260_009_8),
            (HostOp::Tanh, -400.0, -1.0),
            (HostOp::HardSwish, 1.0, 2.0 / 3.0),
            (HostOp::HardSwish, -4.0, 0.0),
            (HostOp::HardSwish, 5.0, 5.0),
            (elu, -1.0, -1.264_241_117_657_115_3),
            (elu, 3.0, 3.0),
            (leaky, -2.0, -0.5),
            (leaky, 2.0, 2.0),
            (hard, 1.0, 0.75),
            (hard, -1.0, 0.0),
            (hard, 9.0, 1.0),
        ] {
            let found = op.real(&[(&[x], [1, 1, 1])]).unwrap()[0];
            assert!((found - expected).abs() < 1e-12, "{op:?} {x}: {found}");
        }
    }

    #[test]
    fn tensors_combine_by_channel() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [10.0, 100.0]);
        let (large, small) = ([2, 1, 2], [2, 1, 1]);
        let scaled = [10.0, 20.0, 300.0, 400.0];
        let mul = |x: &[(&[f64], [usize; 3])]| HostOp::Mul.real(x).unwrap();
        assert_eq!(mul(&[(&a, large), (&b, small)]), scaled);
        assert_eq!(mul(&[(&b, small), (&a, large)]), scaled);
        let sub = HostOp::Sub.real(&[(&b, small), (&a, large)]).unwrap();
        assert_eq!(sub, [9.0, 8.0, 97.0, 96.0]);
        let shape = HostOp::Concat.shape(&[[2, 1, 1], [3, 1, 1]]);
        assert_eq!(shape, Some([5, 1, 1]));
        let resize = HostOp::Resize { factors: [1, 2] };
        assert_eq!(
            resize.real(&[(&a, large)]).unwrap(),
            [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
        );
        let resize = HostOp::Resize { factors: [2, 1] };
        assert_eq!(
            resize.real(&[(&a, large)]).unwrap(),
            [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]
        );
        let softmax = HostOp::Softmax.real(&[(&[0.0, 5.0, 0.0, 5.0], [2, 1, 2])]);
        assert_eq!(softmax.unwrap(), [0.5; 4]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let x = [0.0; 4];
        for (op, shapes) in [
            (HostOp::Sigmoid, vec![]),
            (HostOp::Sigmoid, vec![[1, 2, 2]; 2]),
            (HostOp::Sigmoid, vec![[1, 2, 3]]),
            (HostOp::Mul, vec![[1, 2, 2]]),
            (HostOp::Mul, vec![[4, 0, 1], [4, 1, 1]]),
            (HostOp::Mul, vec![[1, 2, 2], [4, 1, 1]]),
            (HostOp::Concat, vec![[1, 2, 2], [4, 1, 1]]),
            (HostOp::Softmax, vec![[usize::MAX, 2, 2]]),
            (
                HostOp::Resize {
                    factors: [usize::MAX, 2],
                },
                vec![[1, 2, 2]],
            ),
            (HostOp::Resize { factors: [0, 2] }, vec![[1, 2, 2]]),
        ] {
            let given: Vec<_> = shapes.iter().map(|s| (&x[..], *s)).collect();
            assert!(op.real(&given).is_err(), "{op:?} {shapes:?}");
        }
    }
}
