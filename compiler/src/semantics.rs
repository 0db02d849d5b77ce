//! Integer semantics: how real-valued scales become lane operations, with proofs.
//!
//! A tensor's int8 value `q` means `scale * (q - z)` with its zero point `z`, 0 where it is
//! symmetric. A convolution accumulates `A = sum x * w` in int32, and the bias takes `z_x * sum w`
//! off it; the real result in steps of the output's scale is `(A + bias) * r[c]` with
//! `r[c] = s_x * s_w[c] / s_y`. It becomes int8 by rounding half up, adding the output's zero
//! point, and clamping, in one of
//! these forms, every step one [`LaneOp`]:
//!
//! - **shift**, when every `r[c] = 2^-n`: `(A + bias + 2^(n-1)) >> n`, exact;
//! - **per-channel shift**, when every `r[c]` is a power of two: the same with a vector;
//! - **multiply**: `(((A + bias') >> a) * m[c]) >> s` with `m[c] = round(r[c] * 2^(a+s))`. The
//!   rounding constant `0.5 / r[c]` and half of what the first shift drops are folded into
//!   `bias'`. `a` and `s` are chosen to make the largest error small while every product stays
//!   below 2^31; if bounds can't prove that, the shifted sum is first clamped to int16, which
//!   can't change the result because it is far outside the output's range.
//!
//! Channels whose ratios lie too far apart for one first shift get a vector of them.
//!
//! - **precise**, when the model asks for it ([`Requant`]): two multipliers, see `precise`.
//!
//! A residual joins before the sum, aligned to the accumulator's scale: `b << k` or `b * m[c]`
//! with `m[c] = round(s_b / (s_x * s_w[c]))`. That skips a rounding of the model, so that precise
//! networks keep the sum as an operation of its own.
//!
//! ONNX rounds half to even, so results differ from it by at most one step, at ties and within
//! the multiplier's error: of a precise network 2^-8 of a step (docs/exactness.md).
//!
//! Nothing wraps: [`range`] follows the interval of every channel through all operations.

mod clips;
mod constants;
mod digits;
mod lanes;
mod multiply;
mod pairs;
mod precise;
mod products;
mod stored;
mod sums;

pub use self::clips::{join_clamps, leave_clamps};
pub use self::constants::plan_constants;
pub use self::digits::{Digits, plan_digit};
pub use self::lanes::{
    Interval, Join, Operand, Output, PairPlan, Requant, Requantize, SemanticsError, WeightSums,
    apply, log2_exact, range, weight_parts, whole_weights, wider,
};
use self::lanes::{push_add, push_clamp, push_shift, push_zero, saturate};
pub use self::products::{Curve, plan_pair};
pub use self::stored::{plan_store, plan_store_joined, plan_store_sum};
pub use self::sums::{plan_residual, plan_scale};
use crate::qgraph::lane::LaneOp;

/// Largest magnitude of a bias that plans look at.
const BIAS: f64 = (1i64 << 40) as f64;
/// What lies between whole biases counts from here: anything nearer is what doubles are off by.
const FRACTION: f64 = 1.0 / 1024.0;

/// Lane operations that turn an int32 sum into the clamped int8 result (see the module's text
/// for the forms).
///
/// # Errors
/// [`SemanticsError::Ratio`] for a ratio that isn't positive and finite,
/// [`SemanticsError::Overflow`] when no form can be proven safe.
pub fn plan_requantize(given: &Requantize<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    for &ratio in given.ratio {
        if !(ratio.is_finite() && ratio > 0.0) {
            return Err(SemanticsError::ratio(ratio));
        }
    }
    // A bias beyond int32 decides the result alone; bounded here, no sum below wraps.
    let bias = given.bias.iter().map(|b| {
        let b = b.clamp(-BIAS, BIAS);
        let whole = b.round();
        if (b - whole).abs() < FRACTION {
            whole
        } else {
            b
        }
    });
    let bias: Vec<f64> = bias.collect();
    let given = &Requantize {
        bias: &bias,
        ..*given
    };
    let shifts: Option<Vec<i32>> = given
        .ratio
        .iter()
        .map(|&r| log2_exact(r).map(|n| -n))
        .collect();
    let mut ops = match shifts {
        Some(shifts) if shifts.iter().all(|n| (0..=30).contains(n)) => {
            let joined = plan_shift(given, &shifts);
            joined
                .filter(|ops| proven(ops, given.sum))
                .unwrap_or_else(|| {
                    let bias = rounding(given, &shifts).map(saturate);
                    let mut ops = shifted(bias.collect(), &shifts);
                    push_zero(&mut ops, given.to.zero);
                    ops
                })
        }
        _ => match precisely(given) {
            Some(ops) => ops,
            None => multiply::requantize(given)?,
        },
    };
    push_clamp(&mut ops, given.sum, given.to.clamp)?;
    Ok(ops)
}

/// The precise form, if it is wanted and proven not to wrap.
fn precisely(given: &Requantize<'_>) -> Option<Vec<LaneOp>> {
    let ops = match given.to.requant {
        Requant::Precise => precise::requantize(given)?,
        Requant::Fast => return None,
    };
    proven(&ops, given.sum).then_some(ops)
}

/// Whether no channel's operations wrap.
fn proven(ops: &[LaneOp], sums: &[Interval]) -> bool {
    let mut sums = sums.iter().enumerate();
    sums.all(|(c, &sum)| range(ops, c, sum).is_ok())
}

/// The bias that rounds what is shifted, in the sum's steps: no fraction of it changes the result.
fn rounding(given: &Requantize<'_>, shifts: &[i32]) -> impl Iterator<Item = i64> {
    let half = |n: i32| 2f64.powi(n - 1);
    let bias = given.bias.iter().zip(shifts);
    bias.map(move |(&b, &n)| (b + half(n)).floor() as i64)
}

/// Shifts whose bias rounds, and has the zero point in it; `None` where it is too large for that.
fn plan_shift(given: &Requantize<'_>, shifts: &[i32]) -> Option<Vec<LaneOp>> {
    let zero = |n: &i32| i64::from(given.to.zero) << n;
    let bias = rounding(given, shifts)
        .zip(shifts)
        .map(|(b, n)| b + zero(n));
    let exact = |b: i64| i32::try_from(b).ok().filter(|&exact| exact == saturate(b));
    let bias: Option<Vec<i32>> = bias.map(exact).collect();
    Some(shifted(bias?, shifts))
}

/// A sum with its bias, shifted.
fn shifted(bias: Vec<i32>, shifts: &[i32]) -> Vec<LaneOp> {
    let mut ops = Vec::new();
    push_add(&mut ops, bias);
    match shifts.first() {
        Some(&n) if shifts.iter().all(|&m| m == n) => push_shift(&mut ops, n),
        _ => ops.push(LaneOp::shr(shifts.to_vec())),
    }
    ops
}

#[cfg(test)]
mod tests;
