//! Sums and products of a tensor and constants that differ from position to position.
//!
//! A constant is an int32 of its own for each position, so that it holds whatever else is added: of a sum
//! `((x * f) + v) >> s` with the constant, the zero points and the half of rounding in `v`; of a product
//! `(((x - z_x) * m) >> a + h) >> b`, with the ratio of the scales in `m`.

use std::sync::Arc;

use super::lanes::{Scaled, SemanticsError, log2_exact, push_clamp, wide};
use super::precise;
use super::sums::{negated, round};
use crate::qgraph::lane::LaneOp;

/// The largest ratio of a sum, as of one of two tensors.
const MAX_RATIO: f64 = 4096.0;
/// What a multiplier by immediates may be wrong by, in steps of the output.
const IMMEDIATE_ERROR: f64 = 1.0 / 1024.0;
/// Steps of the output that no value is as far from its bounds as: anything farther is clamped.
const FAR: f64 = 512.0;
/// Bits that intermediates have at most.
const BITS: f64 = 30.0;

/// What `round((x - z_x) * ratio + offset) + z` starts from.
pub struct Offsets<'a> {
    /// `s_x / s_y`, negative where the tensor is taken off the constants.
    pub ratio: f64,
    /// In steps of the output: for each value, or for each position of all channels.
    pub offsets: &'a [f64],
    /// The output's channels.
    pub channels: usize,
    /// Smallest and largest value of the tensor.
    pub range: (i8, i8),
    /// Its zero point, and the output's.
    pub zeros: [i32; 2],
    /// Bounds of the output.
    pub clamp: (i8, i8),
}

/// What `round((x - z_x) * factor) + z` starts from.
pub struct Factors<'a> {
    /// `s_x * c / s_y` of constants `c`: for each value, or for each position of all channels.
    pub factors: &'a [f64],
    /// Smallest and largest value of the tensor.
    pub range: (i8, i8),
    /// Its zero point, and the output's.
    pub zeros: [i32; 2],
    /// Bounds of the output.
    pub clamp: (i8, i8),
}

/// The operations of a sum with constants.
///
/// # Errors
/// [`SemanticsError::Ratio`] for a ratio that is 0, not finite or at least 4096, and constants that aren't
/// finite.
pub fn plan_offsets(given: &Offsets<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    let ratio = given.ratio;
    let size = ratio.abs();
    if !(size > 0.0 && size < MAX_RATIO) {
        return Err(SemanticsError::ratio(ratio));
    }
    if let Some(&offset) = given.offsets.iter().find(|o| !o.is_finite()) {
        return Err(SemanticsError::ratio(offset));
    }
    let [from, to] = given.zeros.map(f64::from);
    let ends = [given.range.0, given.range.1].map(|x| (f64::from(x) - from) * ratio);
    let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    // Offsets beyond these decide the result alone.
    let most = (-FAR - high, FAR - low);
    let shift = (BITS - (2.0 * FAR + FAR * size).log2()).floor() as i32;
    let Scaled { mut ops, factor } = multiplied(ratio, shift, given.channels)?;
    let unit = 2f64.powi(shift);
    let value = |offset: &f64| {
        let offset = offset.clamp(most.0, most.1) + to + 0.5;
        (offset * unit - from * factor as f64).round() as i32
    };
    let values: Arc<[i32]> = given.offsets.iter().map(value).collect();
    ops.extend([LaneOp::add(values), LaneOp::shr(shift as i16)]);
    push_clamp(&mut ops, &[wide(given.range)], given.clamp)?;
    Ok(ops)
}

/// Multiplies int8 values by `ratio * 2^shift`.
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

/// The operations of a product with constants.
///
/// # Errors
/// [`SemanticsError::Ratio`] for constants that aren't finite.
pub fn plan_factors(given: &Factors<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    if let Some(&factor) = given.factors.iter().find(|f| !f.is_finite()) {
        return Err(SemanticsError::ratio(factor));
    }
    // A step more than these are clamped already.
    let kept = |factor: &f64| factor.clamp(-FAR, FAR);
    let largest = given.factors.iter().map(|f| kept(f).abs());
    let largest = largest.fold(0.0, f64::max);
    let [from, to] = given.zeros;
    let off = [given.range.0, given.range.1].map(|x| (i32::from(x) - from).abs());
    let extreme = f64::from(off[0].max(off[1]).max(1));
    let room = (BITS - (largest * extreme).log2()).floor();
    let shift = room.clamp(0.0, BITS) as i32;
    let unit = 2f64.powi(shift);
    let value = |factor: &f64| (kept(factor) * unit).round() as i32;
    let values: Arc<[i32]> = given.factors.iter().map(value).collect();
    let mut ops = Vec::new();
    ops.extend((from != 0).then(|| LaneOp::add(-from as i16)));
    ops.push(LaneOp::mul(values));
    let rounding = round(shift, i64::from(to) << shift);
    ops.extend(rounding.ok_or_else(|| SemanticsError::ratio(largest))?);
    push_clamp(&mut ops, &[wide(given.range)], given.clamp)?;
    Ok(ops)
}

#[cfg(test)]
mod tests;
