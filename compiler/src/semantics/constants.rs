//! Sums and products of a tensor and constants that differ from position to position.
//!
//! A constant is an int32 of its own for each position, so that it holds whatever else is added: of a sum
//! `((x * f) + v) >> s` with the constant, the zero points and the half of rounding in `v`; of a product
//! `(((x - z_x) * m) >> a + h) >> b`, with the ratio of the scales in `m`.

use std::sync::Arc;

use super::lanes::{Join, Operand, Output, Scaled, SemanticsError, added, log2_exact, push_clamp};
use super::precise;
use super::sums::{negated, round};
use crate::qgraph::lane::LaneOp;

/// The largest ratio of a sum, as of one of two tensors.
const MAX_RATIO: f64 = 4096.0;
/// What a multiplier by immediates may be wrong by, in steps of an int8.
const IMMEDIATE_ERROR: f64 = 1.0 / 1024.0;
/// Steps of an int8 that no value is as far from its bounds as: anything farther is clamped.
const FAR: f64 = 257.0;
/// Bits that intermediates have at most.
const BITS: f64 = 30.0;

/// The operations of a sum or product of a tensor of some channels and constants; a difference is what is left of
/// the constants once the tensor is taken off them. Constants are real values: one for each value of the tensor, or
/// for each position of all channels.
///
/// # Errors
/// [`SemanticsError::Ratio`] for a sum whose ratio of steps is 0, not finite or at least 4096, and constants
/// that aren't finite.
pub fn plan_constants(
    join: Join,
    constants: &[f64],
    channels: usize,
    x: &Operand,
    to: &Output,
) -> Result<Vec<LaneOp>, SemanticsError> {
    let ratio = x.scale / to.scale;
    let steps: Vec<f64> = match join {
        Join::Sum | Join::Difference => constants.iter().map(|c| c / to.scale).collect(),
        Join::Product => constants.iter().map(|c| c * ratio).collect(),
    };
    if let Some(&step) = steps.iter().find(|step| !step.is_finite()) {
        return Err(SemanticsError::ratio(step));
    }
    let mut ops = match join {
        Join::Sum => add(ratio, &steps, channels, x, to)?,
        Join::Difference => add(-ratio, &steps, channels, x, to)?,
        Join::Product => multiply(&steps, x, to)?,
    };
    push_clamp(&mut ops, &[x.interval()], to.clamp)?;
    Ok(ops)
}

/// `round((x - z_x) * ratio + offset) + z`, with offsets in steps of the output.
fn add(
    ratio: f64,
    offsets: &[f64],
    channels: usize,
    x: &Operand,
    to: &Output,
) -> Result<Vec<LaneOp>, SemanticsError> {
    let size = ratio.abs();
    if !(size > 0.0 && size < MAX_RATIO) {
        return Err(SemanticsError::ratio(ratio));
    }
    let [from, zero] = [x.zero, to.zero].map(f64::from);
    let ends = [x.range.0, x.range.1].map(|x| (f64::from(x) - from) * ratio);
    let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    // Offsets beyond these decide the result alone.
    let far = FAR * to.numbers.finer();
    let most = (-far - high, far - low);
    let shift = (BITS - (2.0 * far + far * size).log2()).floor() as i32;
    let Scaled { mut ops, factor } = multiplied(ratio, shift, channels)?;
    let unit = 2f64.powi(shift);
    let value = |offset: &f64| {
        let offset = offset.clamp(most.0, most.1) + zero + 0.5;
        (offset * unit - from * factor as f64).round() as i32
    };
    let values: Arc<[i32]> = offsets.iter().map(value).collect();
    ops.extend([LaneOp::add(values), LaneOp::shr(shift as i16)]);
    Ok(ops)
}

/// Multiplies values by `ratio * 2^shift`.
fn multiplied(ratio: f64, shift: i32, channels: usize) -> Result<Scaled, SemanticsError> {
    let exact = ratio.abs() * 2f64.powi(shift);
    let scaled = match log2_exact(exact) {
        Some(left @ 0..) => Scaled {
            ops: Vec::from_iter((left > 0).then_some(LaneOp::shl(left as i16))),
            factor: 1 << left,
        },
        _ => {
            let (ops, factor) = precise::multiply(exact);
            let off = (factor as f64 - exact).abs() * 255.0 / 2f64.powi(shift);
            if off <= IMMEDIATE_ERROR {
                Scaled { ops, factor }
            } else {
                Scaled {
                    ops: vec![LaneOp::mul(vec![exact.round() as i32; channels])],
                    factor: exact.round() as i64,
                }
            }
        }
    };
    if ratio < 0.0 {
        return negated(scaled).ok_or_else(|| SemanticsError::ratio(ratio));
    }
    Ok(scaled)
}

/// `round((x - z_x) * factor) + z`, with factors in steps of the output.
fn multiply(factors: &[f64], x: &Operand, to: &Output) -> Result<Vec<LaneOp>, SemanticsError> {
    // A step more than these are clamped already.
    let far = FAR * to.numbers.finer();
    let kept = |factor: &f64| factor.clamp(-far, far);
    let largest = factors.iter().map(|f| kept(f).abs());
    let largest = largest.fold(0.0, f64::max);
    let off = [x.range.0, x.range.1].map(|value| (i32::from(value) - x.zero).abs());
    let extreme = f64::from(off[0].max(off[1]).max(1));
    let room = (BITS - (largest * extreme).log2()).floor();
    let shift = room.clamp(0.0, BITS) as i32;
    let unit = 2f64.powi(shift);
    let value = |factor: &f64| (kept(factor) * unit).round() as i32;
    let values: Arc<[i32]> = factors.iter().map(value).collect();
    let mut ops = Vec::new();
    ops.extend(added(-i64::from(x.zero)).unwrap_or_default());
    ops.push(LaneOp::mul(values));
    let rounding = round(shift, i64::from(to.zero) << shift);
    ops.extend(rounding.ok_or_else(|| SemanticsError::ratio(largest))?);
    Ok(ops)
}

#[cfg(test)]
mod tests;
