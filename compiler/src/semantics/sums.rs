//! Residuals, sums of two tensors, and changes of scale.

use super::lanes::{Interval, Requant, SemanticsError, log2_exact, push_clamp, range};
use super::precise;
use crate::lane::LaneOp;

/// The largest error, in steps of the output, that a residual's multiplier may cost before the
/// sum is left to an operation of its own.
const RESIDUAL_ERROR: f64 = 0.25;

/// Lane operations that align a residual to the accumulator's scale. `ratio[c]` is
/// `s_b / (s_x * s_w[c])`, `step[c]` the accumulator's step in steps of the output.
/// `None` when the multiplier would cost more than a quarter of a step.
pub fn plan_residual(ratio: &[f64], step: &[f64]) -> Option<Vec<LaneOp>> {
    let shifts: Option<Vec<i32>> = ratio.iter().map(|&r| log2_exact(r)).collect();
    if let Some(shifts) = shifts {
        let &first = shifts.first()?;
        if shifts.iter().all(|&k| k == first) && (0..=22).contains(&first) {
            return Some(if first == 0 {
                vec![]
            } else {
                vec![LaneOp::shl(first as i16)]
            });
        }
    }
    let error = |(&r, &s): (&f64, &f64)| (r.round() - r).abs() * 128.0 * s;
    let safe = ratio
        .iter()
        .all(|r| r.is_finite() && *r >= 1.0 && *r < f64::from(1 << 22));
    if !safe || ratio.iter().zip(step).map(error).fold(0.0, f64::max) > RESIDUAL_ERROR {
        return None;
    }
    Some(vec![LaneOp::mul(
        ratio.iter().map(|r| r.round() as i32).collect::<Vec<_>>(),
    )])
}

/// The operations of a standalone sum: for each operand and after the sum.
pub struct AddPlan {
    /// On the first operand.
    pub a: Vec<LaneOp>,
    /// On the second operand.
    pub b: Vec<LaneOp>,
    /// On the sum.
    pub epilogue: Vec<LaneOp>,
}

/// `round(a * ratio_a + b * ratio_b)` of two int8 tensors, the ratios `s / s_y`.
///
/// # Errors
/// [`SemanticsError::Ratio`] for ratios outside fixed point.
pub fn plan_add(
    ratios: [f64; 2],
    ranges: [(i8, i8); 2],
    clamp: (i8, i8),
    requant: Requant,
) -> Result<AddPlan, SemanticsError> {
    let bad = || SemanticsError::Ratio {
        ratio: format!("{ratios:?}"),
    };
    if ratios
        .iter()
        .any(|r| !(r.is_finite() && *r > 0.0 && *r < 4096.0))
    {
        return Err(bad());
    }
    let logs = ratios.map(log2_exact);
    let (operand, mut epilogue) = match logs {
        [Some(a), Some(b)] if a.min(b) >= -14 && (a - b).abs() <= 14 => add_shifted([a, b]),
        _ if requant == Requant::Precise => precise::add(ratios).ok_or_else(bad)?,
        _ => add_multiplied(ratios).ok_or_else(bad)?,
    };
    let [a, b] = operand;
    let wide = |(lo, hi): (i8, i8)| (i64::from(lo), i64::from(hi));
    let (ra, rb) = (
        range(&a, 0, wide(ranges[0]))?,
        range(&b, 0, wide(ranges[1]))?,
    );
    push_clamp(&mut epilogue, &[(ra.0 + rb.0, ra.1 + rb.1)], clamp)?;
    Ok(AddPlan { a, b, epilogue })
}

/// Operands by powers of two, and the rounding after the sum.
fn add_shifted([a, b]: [i32; 2]) -> ([Vec<LaneOp>; 2], Vec<LaneOp>) {
    let low = a.min(b).min(0);
    let shl = |k: i32| (k > 0).then_some(LaneOp::shl(k as i16));
    let operand = |k: i32| shl(k - low).into_iter().collect();
    ([operand(a), operand(b)], halves_up(-low))
}

/// Operands by one multiplier each, and the rounding after the sum.
fn add_multiplied(ratios: [f64; 2]) -> Option<([Vec<LaneOp>; 2], Vec<LaneOp>)> {
    let largest = ratios[0].max(ratios[1]);
    let fits = |s: &i32| (largest * 2f64.powi(*s)).round() <= 32767.0;
    let shift = (0..=15).rev().find(fits)?;
    let multiply = |r: f64| vec![LaneOp::mul((r * 2f64.powi(shift)).round() as i16)];
    Some((ratios.map(multiply), halves_up(shift)))
}

/// A shift, at most 15, that rounds half up.
fn halves_up(shift: i32) -> Vec<LaneOp> {
    if shift == 0 {
        return Vec::new();
    }
    vec![LaneOp::add(1 << (shift - 1)), LaneOp::shr(shift as i16)]
}

/// `round(x * ratio)` of lanes within `start`, clamped: pooling sums and changes of scale.
///
/// # Errors
/// [`SemanticsError::Ratio`] for ratios outside fixed point.
pub fn plan_scale(
    ratio: f64,
    start: Interval,
    clamp: (i8, i8),
    requant: Requant,
) -> Result<Vec<LaneOp>, SemanticsError> {
    if !(ratio.is_finite() && ratio > 0.0 && ratio < 4096.0) {
        return Err(SemanticsError::Ratio {
            ratio: ratio.to_string(),
        });
    }
    if requant == Requant::Precise
        && let Some(mut ops) = precise::scale(ratio, start)
    {
        push_clamp(&mut ops, &[start], clamp)?;
        return Ok(ops);
    }
    let mut ops = Vec::new();
    match log2_exact(ratio) {
        Some(0) => {}
        Some(n) if (-15..0).contains(&n) => {
            ops.extend([LaneOp::add(1 << (-n - 1)), LaneOp::shr(-n as i16)]);
        }
        _ => {
            let extreme = start.0.abs().max(start.1.abs()) as f64 + 1.0;
            // Rounding is added before the product where a step is fine, else after it.
            let before = 0.5 / ratio;
            let early = (16.0..=32767.0).contains(&before);
            let top = if early { 30 } else { 15 };
            let extreme = if early { extreme + before } else { extreme };
            let fits = |s: &i32| {
                let m = (ratio * 2f64.powi(*s)).round();
                m <= 32767.0 && (m + 1.0) * extreme < f64::from(i32::MAX) / 2.0
            };
            let shift = (0..=top).rev().find(fits);
            let shift = shift.ok_or(SemanticsError::Ratio {
                ratio: ratio.to_string(),
            })?;
            let multiply = LaneOp::mul((ratio * 2f64.powi(shift)).round() as i16);
            match (early, shift) {
                (true, _) => ops.extend([LaneOp::add(before.round() as i16), multiply]),
                (false, 0) => ops.push(multiply),
                (false, _) => ops.extend([multiply, LaneOp::add(1 << (shift - 1))]),
            }
            if shift > 0 {
                ops.push(LaneOp::shr(shift as i16));
            }
        }
    }
    push_clamp(&mut ops, &[start], clamp)?;
    Ok(ops)
}
