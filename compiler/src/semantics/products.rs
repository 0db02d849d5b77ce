//! Products of two tensors, and functions of one that are products or have two slopes.

use super::lanes::{
    Interval, Requant, SemanticsError, is_usable, log2_exact, product, push_clamp, range, wide,
};
use super::precise;
use super::sums::{AddPlan, Rescale, multiplied, plan_scale, round, scaled};
use crate::qgraph::lane::LaneOp;
use crate::reflect::{Attribute, AttributeValue};

/// The most that HardSwish's second factor is, whose product with a value is still multiplied by
/// a ratio.
const WIDEST: f64 = 32767.0;

/// What a product of two tensors starts from.
pub struct Multiplication {
    /// `s_a * s_b / s_y`.
    pub ratio: f64,
    /// The operands' smallest and largest values.
    pub ranges: [(i8, i8); 2],
    /// Their zero points.
    pub zeros: [i32; 2],
    /// The output's zero point: added after rounding.
    pub zero: i32,
    /// Bounds of the output.
    pub clamp: (i8, i8),
    /// How closely.
    pub requant: Requant,
}

/// A function of one tensor whose values are lane operations: what only this file knows of it, passes and
/// listings have from here.
#[derive(Clone, Debug, PartialEq)]
pub enum Curve {
    /// `x * max(0, min(1, x / 6 + 1/2))`.
    HardSwish,
    /// `x`, and below 0 its product with a slope: one that is positive, or one for each channel.
    Slopes(Vec<f64>),
}

/// How the values of a [`Curve`] are computed of its tensor, which is both operands.
pub enum CurvePlan {
    /// As a sum.
    Sum(AddPlan),
    /// As a product.
    Product(AddPlan),
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

    /// Its operations.
    ///
    /// # Errors
    /// Those of [`plan_hard_swish`] and [`plan_slopes`].
    pub fn plan(&self, given: &Function<'_>) -> Result<CurvePlan, SemanticsError> {
        match self {
            Self::HardSwish => plan_hard_swish(given).map(CurvePlan::Product),
            Self::Slopes(slopes) => plan_slopes(&Function { slopes, ..*given }).map(CurvePlan::Sum),
        }
    }
}

/// What a function of one tensor starts from.
pub struct Function<'a> {
    /// The input's step.
    pub scale: f64,
    /// The output's step.
    pub out: f64,
    /// The input's smallest and largest value.
    pub range: (i8, i8),
    /// The zero points of input and output.
    pub zeros: [i32; 2],
    /// Slopes below 0, one or one for each channel.
    pub slopes: &'a [f64],
    /// Bounds of the output.
    pub clamp: (i8, i8),
    /// How closely.
    pub requant: Requant,
}

/// Values counted from their zero point.
fn centred(zero: i32) -> Vec<LaneOp> {
    let minus = (zero != 0).then(|| LaneOp::add(-zero as i16));
    minus.into_iter().collect()
}

/// `round((a - z_a) * (b - z_b) * ratio) + z` of two int8 tensors, whose lanes are multiplied
/// after their own operations.
///
/// # Errors
/// [`SemanticsError::Ratio`] for a ratio outside fixed point.
pub fn plan_mul(given: &Multiplication) -> Result<AddPlan, SemanticsError> {
    let [a, b] = given.zeros.map(centred);
    let lanes = product(
        range(&a, 0, wide(given.ranges[0]))?,
        range(&b, 0, wide(given.ranges[1]))?,
    );
    let epilogue = requantized(given.ratio, lanes, given)?;
    Ok(AddPlan { a, b, epilogue })
}

/// The farthest that an output may be from its zero point, and a step more.
fn reach(given: &Multiplication) -> f64 {
    let far = |bound: i8| (i32::from(bound) - given.zero).abs();
    f64::from(far(given.clamp.0).max(far(given.clamp.1)) + 1)
}

/// `round(x * ratio) + z` of products, clamped.
fn requantized(
    ratio: f64,
    lanes: Interval,
    given: &Multiplication,
) -> Result<Vec<LaneOp>, SemanticsError> {
    let shift = log2_exact(ratio).is_some_and(|n| (-15..=0).contains(&n));
    if is_usable(ratio)
        && !shift
        && given.requant == Requant::Precise
        && let Some(wide) = precise::scale_wide(ratio, lanes, reach(given))
        && wide.error <= precise::MAX_ERROR
        && let Some(rounding) = round(wide.last, (i64::from(given.zero) << wide.last) + wide.half)
    {
        let mut ops = [wide.ops, rounding].concat();
        if range(&ops, 0, lanes).is_ok() {
            push_clamp(&mut ops, &[lanes], given.clamp)?;
            return Ok(ops);
        }
    }
    plan_scale(&Rescale {
        ratio,
        range: lanes,
        zeros: [0, given.zero.into()],
        clamp: given.clamp,
        requant: given.requant,
    })
}

/// `x * max(0, min(1, x / 6 + 1/2))` as a product of the tensor by itself.
///
/// # Errors
/// [`SemanticsError::Ratio`] for steps so small or large that 3 or 6 of them is no immediate.
pub fn plan_hard_swish(given: &Function<'_>) -> Result<AddPlan, SemanticsError> {
    let scale = given.scale;
    let bad = || SemanticsError::ratio(scale);
    // A power of two, so that machines without MUL shift.
    let factor = 2f64.powi((WIDEST * scale / 6.0).log2().floor().min(14.0) as i32);
    let (three, six) = (3.0 / scale * factor, 6.0 / scale * factor);
    if !(factor >= 1.0 && six <= WIDEST && three >= 1.0) {
        return Err(bad());
    }
    let zero = given.zeros[0];
    let a = centred(zero);
    let mut b = centred(zero);
    b.extend([
        LaneOp::shl(factor.log2() as i16),
        LaneOp::add(three.round() as i16),
        LaneOp::max(0),
        LaneOp::min(six.round() as i16),
    ]);
    let range_of = |ops: &[LaneOp]| range(ops, 0, wide(given.range));
    let lanes = product(range_of(&a)?, range_of(&b)?);
    let multiplication = Multiplication {
        ratio: scale * scale / (6.0 * factor) / given.out,
        ranges: [given.range; 2],
        zeros: [zero; 2],
        zero: given.zeros[1],
        clamp: given.clamp,
        requant: given.requant,
    };
    let epilogue = requantized(multiplication.ratio, lanes, &multiplication)?;
    Ok(AddPlan { a, b, epilogue })
}

/// `x`, and below 0 its product with a slope, as a sum of what is above 0 and what is below.
///
/// # Errors
/// [`SemanticsError::Ratio`] for a ratio outside fixed point.
pub fn plan_slopes(given: &Function<'_>) -> Result<AddPlan, SemanticsError> {
    let ratio = given.scale / given.out;
    let bad = || SemanticsError::ratio(ratio);
    let steepest = given.slopes.iter().fold(0f64, |m, s| m.max(s.abs()));
    let flat = steepest == 0.0;
    if !is_usable(ratio) || !(flat || is_usable(ratio * steepest)) {
        return Err(bad());
    }
    let both = match given.slopes {
        [one] if *one > 0.0 => scaled([ratio, ratio * one], given.requant),
        // Slopes are products, whatever the ratio is.
        _ => multiplied([ratio, ratio * steepest.max(1.0)], given.requant),
    };
    let ([above, below], shift) = both.ok_or_else(bad)?;
    let zero = i64::from(given.zeros[0]);
    let imm = given.zeros[0] as i16;
    let a = [vec![LaneOp::max(imm)], above.ops].concat();
    let (b, offset) = match given.slopes {
        [one] if *one > 0.0 => {
            let ops = [vec![LaneOp::min(imm)], below.ops].concat();
            (ops, zero * (above.factor + below.factor))
        }
        slopes => {
            let factor = |s: &f64| (ratio * s * 2f64.powi(shift)).round() as i32;
            let mut ops = vec![LaneOp::min(imm)];
            ops.extend(centred(given.zeros[0]));
            ops.push(LaneOp::mul(slopes.iter().map(factor).collect::<Vec<_>>()));
            (ops, zero * above.factor)
        }
    };
    let offset = (i64::from(given.zeros[1]) << shift) - offset;
    let mut epilogue = round(shift, offset).ok_or_else(bad)?;
    let channels = if b.iter().any(|op| op.vector().is_some()) {
        given.slopes.len()
    } else {
        1
    };
    let sums = (0..channels).map(|c| {
        let (above, below) = (
            range(&a, 0, wide(given.range))?,
            range(&b, c, wide(given.range))?,
        );
        Ok((above.0 + below.0, above.1 + below.1))
    });
    let sums = sums.collect::<Result<Vec<Interval>, SemanticsError>>()?;
    let mut start = (0, 0);
    for sum in &sums {
        start = (start.0.min(sum.0), start.1.max(sum.1));
    }
    push_clamp(&mut epilogue, &[start], given.clamp)?;
    Ok(AddPlan { a, b, epilogue })
}

#[cfg(test)]
mod tests;
