//! Products of two tensors, and functions of one that are products or have two slopes.

use super::lanes::{
    Interval, Join, Operand, Output, PairPlan, Requant, SemanticsError, added, is_usable,
    log2_exact, product, push_clamp, range,
};
use super::precise;
use super::sums::{add, multiplied, plan_scale, round, scaled};
use crate::qgraph::lane::LaneOp;
use crate::reflect::{Attribute, AttributeValue};

/// The most that 3 is in units of HardSwish's second factor, for values that it clamps: an immediate.
const WIDEST: f64 = 32767.0;
/// More steps than so many below 3 are far beyond what an int8 has.
const MOST_STEPS: f64 = 4096.0;
/// Bits of a product that int32 holds.
const WIDEST_PRODUCT: u32 = 31;
/// Bits of a product that leave room for multipliers.
const SCALED_PRODUCT: u32 = 26;
/// What 3 is off a whole number of steps where a file's scale, a 32-bit float, means one.
const WHOLE: f64 = 1e-6;

/// A function of one tensor whose values are lane operations: what only this file knows of it, passes and
/// listings have from here.
#[derive(Clone, Debug, PartialEq)]
pub enum Curve {
    /// `x * max(0, min(1, x / 6 + 1/2))`.
    HardSwish,
    /// `x`, and below 0 its product with a slope: one that is positive, or one for each channel.
    Slopes(Vec<f64>),
}

impl Curve {
    /// The kind, for listings.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::HardSwish => "hardswish",
            Self::Slopes(_) => "slopes",
        }
    }

    /// The attributes, for listings.
    pub fn attributes(&self) -> Vec<Attribute> {
        match self {
            Self::HardSwish => vec![],
            Self::Slopes(slopes) => {
                let all = slopes.iter().map(ToString::to_string).collect();
                let meaning = "slopes below 0, one or one for each channel";
                let all = AttributeValue::Texts(all);
                vec![Attribute::new("slopes", all, meaning)]
            }
        }
    }

    /// The operations that compute it of a tensor, which is both operands.
    ///
    /// # Errors
    /// [`SemanticsError::Ratio`] for a ratio outside fixed point, and for steps so small or large that 3
    /// of them, which HardSwish compares with, is no immediate.
    pub fn plan(&self, x: &Operand, to: &Output) -> Result<PairPlan, SemanticsError> {
        match self {
            Self::HardSwish => hard_swish(x, to),
            Self::Slopes(list) => slopes(list, x, to),
        }
    }
}

/// Values counted from their zero point.
fn centred(zero: i32) -> Vec<LaneOp> {
    // Two immediates hold any zero point's negative.
    added(-i64::from(zero)).unwrap_or_default()
}

/// The operations of the sum, the difference or the product of two tensors, rounded and clamped.
///
/// # Errors
/// [`SemanticsError::Ratio`] for ratios outside fixed point.
pub fn plan_pair(
    join: Join,
    operands: [Operand; 2],
    to: &Output,
) -> Result<PairPlan, SemanticsError> {
    match join {
        Join::Sum | Join::Difference => add(join, operands, to),
        Join::Product => {
            let [x, y] = operands;
            multiply(
                [centred(x.zero), centred(y.zero)],
                operands,
                x.scale * y.scale,
                to,
            )
        }
    }
}

/// `round(a * b * scale / s_y) + z` of operands after their own operations. The second has as many bits less as their
/// product has more than int32: at most two, of int16 whose zero points lie at their ends.
fn multiply(
    [a, mut b]: [Vec<LaneOp>; 2],
    [x, y]: [Operand; 2],
    mut scale: f64,
    to: &Output,
) -> Result<PairPlan, SemanticsError> {
    let first = x.after(&a, 0)?;
    let mut lanes = product(first, y.after(&b, 0)?);
    let dropped = bits(lanes).saturating_sub(WIDEST_PRODUCT);
    if dropped > 0 {
        b.extend(round(dropped as i32, 0).ok_or_else(|| SemanticsError::ratio(scale))?);
        lanes = product(first, y.after(&b, 0)?);
        scale *= 2f64.powi(dropped as i32);
    }
    Ok(PairPlan {
        is_product: true,
        a,
        b,
        epilogue: requantized(scale / to.scale, lanes, to)?,
    })
}

/// Bits of the value of lanes that is farthest from 0.
fn bits((low, high): Interval) -> u32 {
    i64::BITS - low.unsigned_abs().max(high.unsigned_abs()).leading_zeros()
}

/// `round(x * ratio) + z` of products, clamped.
fn requantized(ratio: f64, lanes: Interval, to: &Output) -> Result<Vec<LaneOp>, SemanticsError> {
    // Products of int16 leave a multiplier no bits. What they lose here is far below a step.
    let dropped = bits(lanes).saturating_sub(SCALED_PRODUCT) as i32;
    if dropped > 0 {
        let ops = round(dropped, 0).ok_or_else(|| SemanticsError::ratio(ratio))?;
        let rest = requantized(ratio * 2f64.powi(dropped), range(&ops, 0, lanes)?, to)?;
        return Ok([ops, rest].concat());
    }
    // One shift is exact, and fewer operations.
    let shift = log2_exact(ratio).is_some_and(|n| (-15..=0).contains(&n));
    if is_usable(ratio)
        && !shift
        && to.requant == Requant::Precise
        && let Some(wide) = precise::scale_wide(ratio, lanes, f64::from(to.reach() + 1))
        && wide.error <= precise::MAX_ERROR * to.numbers.finer()
        && let Some(rounding) = round(wide.last, (i64::from(to.zero) << wide.last) + wide.half)
    {
        let mut ops = [wide.ops, rounding].concat();
        if range(&ops, 0, lanes).is_ok() {
            push_clamp(&mut ops, &[lanes], to.clamp)?;
            return Ok(ops);
        }
    }
    plan_scale(ratio, lanes, 0, to)
}

/// `x * max(0, min(1, x / 6 + 1/2))` as a product of the tensor by itself: its second factor is
/// `clamp(x * n, -3 * n, 3 * n) + 3 * n`, counted in steps of `x`, with the `n` for which rounding `3 * n` takes
/// the least off it. That is 1 where 3 is a whole number of steps, and no zero point needs an operation then.
fn hard_swish(x: &Operand, to: &Output) -> Result<PairPlan, SemanticsError> {
    let scale = x.scale;
    let bad = || SemanticsError::ratio(scale);
    let three = |n: i16| f64::from(n) * 3.0 / scale;
    let most = (WIDEST * scale / 3.0).min(WIDEST) as i16;
    let off = |n: &i16| (three(*n).round() / three(*n) - 1.0).abs();
    let is_whole = three(1) < MOST_STEPS && off(&1) < WHOLE;
    // Of steps so small that 3 is no immediate, no value is as far: nothing is clamped.
    let units = if is_whole || most == 0 {
        1..=1
    } else {
        (most / 2).max(1)..=most
    };
    let usable = units.filter(|&n| three(n) >= 1.0);
    let n = usable.min_by(|a, b| off(a).total_cmp(&off(b)));
    let n = n.ok_or_else(bad)?;
    let three = three(n).round() as i32;
    let a = centred(x.zero);
    let (mut b, zero) = if is_whole {
        (Vec::new(), x.zero)
    } else {
        let scaled = (n != 1).then(|| LaneOp::mul(n));
        (centred(x.zero).into_iter().chain(scaled).collect(), 0)
    };
    let (low, high) = x.after(&b, 0)?;
    let imm = |bound: i32| i16::try_from(bound).map_err(|_| bad());
    if low < (zero - three).into() {
        b.push(LaneOp::max(imm(zero - three)?));
    }
    if high > (zero + three).into() {
        b.push(LaneOp::min(imm(zero + three)?));
    }
    b.extend(added((three - zero).into()).ok_or_else(bad)?);
    let ratio = scale / (2.0 * f64::from(three));
    multiply([a, b], [*x; 2], ratio, to)
}

/// `x`, and below 0 its product with a slope (one, or one for each channel), as a sum of what is above 0 and
/// what is below.
fn slopes(slopes: &[f64], x: &Operand, to: &Output) -> Result<PairPlan, SemanticsError> {
    let ratio = x.scale / to.scale;
    let bad = || SemanticsError::ratio(ratio);
    let steepest = slopes.iter().fold(0f64, |m, s| m.max(s.abs()));
    let flat = steepest == 0.0;
    if !is_usable(ratio) || !(flat || is_usable(ratio * steepest)) {
        return Err(bad());
    }
    let both = match slopes {
        [one] if *one > 0.0 => scaled([ratio, ratio * one], to),
        // Slopes are products, whatever the ratio is.
        _ => multiplied([ratio, ratio * steepest.max(1.0)], to),
    };
    let ([above, below], shift) = both.ok_or_else(bad)?;
    let zero = i64::from(x.zero);
    let imm = x.zero as i16;
    let a = [vec![LaneOp::max(imm)], above.ops].concat();
    let (b, offset) = match slopes {
        [one] if *one > 0.0 => {
            let ops = [vec![LaneOp::min(imm)], below.ops].concat();
            (ops, zero * (above.factor + below.factor))
        }
        slopes => {
            let factor = |s: &f64| (ratio * s * 2f64.powi(shift)).round() as i32;
            let mut ops = vec![LaneOp::min(imm)];
            ops.extend(centred(x.zero));
            ops.push(LaneOp::mul(slopes.iter().map(factor).collect::<Vec<_>>()));
            (ops, zero * above.factor)
        }
    };
    let offset = (i64::from(to.zero) << shift) - offset;
    let mut epilogue = round(shift, offset).ok_or_else(bad)?;
    let channels = if b.iter().any(|op| op.vector().is_some()) {
        slopes.len()
    } else {
        1
    };
    let sums = (0..channels).map(|c| {
        let (above, below) = (x.after(&a, 0)?, x.after(&b, c)?);
        Ok((above.0 + below.0, above.1 + below.1))
    });
    let sums = sums.collect::<Result<Vec<Interval>, SemanticsError>>()?;
    let mut start = (0, 0);
    for sum in &sums {
        start = (start.0.min(sum.0), start.1.max(sum.1));
    }
    push_clamp(&mut epilogue, &[start], to.clamp)?;
    Ok(PairPlan {
        is_product: false,
        a,
        b,
        epilogue,
    })
}

#[cfg(test)]
mod tests;
