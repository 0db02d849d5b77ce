//! Residuals, sums of two tensors, and changes of scale.

use super::lanes::{
    Interval, Join, Operand, Output, PairPlan, Requant, Scaled, SemanticsError, added, is_usable,
    log2_exact, push_clamp, push_shift, range,
};
use super::precise;
use crate::qgraph::lane::{LaneKind, LaneOp, LaneOperand};

/// The largest error, in steps of the output, that a residual's multiplier may cost before the
/// sum is left to an operation of its own.
const RESIDUAL_ERROR: f64 = 0.25;
/// A ratio, for outputs of int8, from which on all lanes but one are clamped.
const CLAMPED_RATIO: f64 = 512.0;
/// The error, in steps of an int8, from which on one multiplier of changes of scale won't do.
const FAST_FARTHEST: f64 = 0.5;
/// The error, in steps of an int8, up to which the fast form has one multiplier.
const FAST_ERROR: f64 = 0.125;

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
    // As if all were int8: a residual of int16 has more steps, as its output has.
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

/// `round((a - z_a) * ratio_a + (b - z_b) * ratio_b) + z` of two tensors, or of their difference.
pub(super) fn add(
    join: Join,
    operands: [Operand; 2],
    to: &Output,
) -> Result<PairPlan, SemanticsError> {
    let ratios = operands.map(|x| x.scale / to.scale);
    let bad = || SemanticsError::ratio(format!("{ratios:?}"));
    if !ratios.into_iter().all(is_usable) {
        return Err(bad());
    }
    let ([a, mut b], shift) = scaled(ratios, to).ok_or_else(bad)?;
    if join == Join::Difference {
        b = negated(b).ok_or_else(bad)?;
    }
    let [za, zb] = operands.map(|x| i64::from(x.zero));
    let offset = (i64::from(to.zero) << shift) - za * a.factor - zb * b.factor;
    let mut epilogue = round(shift, offset).ok_or_else(bad)?;
    let (a, b) = (a.ops, b.ops);
    let (ra, rb) = (operands[0].after(&a, 0)?, operands[1].after(&b, 0)?);
    push_clamp(&mut epilogue, &[(ra.0 + rb.0, ra.1 + rb.1)], to.clamp)?;
    Ok(PairPlan {
        is_product: false,
        a,
        b,
        epilogue,
    })
}

/// The negative of an operand: its first factor's, or one more product. `None` for a factor that has no
/// negative.
pub(super) fn negated(Scaled { mut ops, factor }: Scaled) -> Option<Scaled> {
    match ops.first_mut() {
        Some(LaneOp {
            kind: LaneKind::Mul,
            operand: LaneOperand::Imm(first),
        }) => *first = first.checked_neg()?,
        _ => ops.insert(0, LaneOp::mul(-1)),
    }
    Some(Scaled {
        ops,
        factor: -factor,
    })
}

/// Operands by their ratios, and the shift that undoes the rest of it.
pub(super) fn scaled(ratios: [f64; 2], to: &Output) -> Option<([Scaled; 2], i32)> {
    match ratios.map(log2_exact) {
        [Some(a), Some(b)] if a.min(b) >= -14 && (a - b).abs() <= 14 => Some(add_shifted([a, b])),
        _ => multiplied(ratios, to),
    }
}

/// As [`scaled`], by multipliers.
pub(super) fn multiplied(ratios: [f64; 2], to: &Output) -> Option<([Scaled; 2], i32)> {
    match to.requant {
        Requant::Precise => precise::add(ratios, to.numbers),
        Requant::Fast => add_multiplied(ratios),
    }
}

/// Operands by powers of two, and the shift that is left for the sum.
fn add_shifted([a, b]: [i32; 2]) -> ([Scaled; 2], i32) {
    let low = a.min(b).min(0);
    let shl = |k: i32| (k > 0).then_some(LaneOp::shl(k as i16));
    let operand = |k: i32| Scaled {
        ops: shl(k - low).into_iter().collect(),
        factor: 1 << (k - low),
    };
    ([operand(a), operand(b)], -low)
}

/// Operands by one multiplier each, and the shift that is left for the sum.
fn add_multiplied(ratios: [f64; 2]) -> Option<([Scaled; 2], i32)> {
    let largest = ratios[0].max(ratios[1]);
    let fits = |s: &i32| (largest * 2f64.powi(*s)).round() <= 32767.0;
    let shift = (0..=15).rev().find(fits)?;
    let multiply = |r: f64| {
        let factor = (r * 2f64.powi(shift)).round() as i16;
        Scaled {
            ops: vec![LaneOp::mul(factor)],
            factor: factor.into(),
        }
    };
    Some((ratios.map(multiply), shift))
}

/// Operations for `round((x + offset) >> shift)`, half up; `None` for an offset that moves the
/// result by more than two immediates hold. An immediate can't hold half of a large step either, so
/// that the value is first brought to 15 bits after the binary point. A zero offset loses nothing
/// by it, another half of the last of these bits.
///
/// The offset's whole steps are added after the shift, what is left of it with the half.
pub(super) fn round(shift: i32, offset: i64) -> Option<Vec<LaneOp>> {
    let dropped = (shift - 15).max(0);
    let bits = shift.clamp(0, 15);
    let offset = match dropped {
        0 => offset,
        _ => (offset + (1 << (dropped - 1))) >> dropped,
    };
    let half = if bits > 0 { 1 << (bits - 1) } else { 0 };
    let (whole, part) = ((offset + half) >> bits, (offset + half) & ((1 << bits) - 1));
    let shr = |bits: i32| Vec::from_iter((bits > 0).then_some(LaneOp::shr(bits as i16)));
    Some([shr(dropped), added(part)?, shr(bits), added(whole)?].concat())
}

/// `round((x - from) * ratio) + z` of lanes within a range, of which `from` stands for 0, clamped: pooling
/// sums and changes of scale. `ratio` is `s_x / s_y`, for a mean divided by the number of values.
///
/// # Errors
/// [`SemanticsError::Ratio`] for ratios outside fixed point.
pub fn plan_scale(
    ratio: f64,
    range: Interval,
    from: i64,
    to: &Output,
) -> Result<Vec<LaneOp>, SemanticsError> {
    let bad = || SemanticsError::ratio(ratio);
    if !(ratio > 0.0 && ratio.is_finite()) {
        return Err(bad());
    }
    // Beyond the output's numbers on both sides of its zero point a step of the input is clamped, however large it is.
    let ratio = ratio.min(CLAMPED_RATIO * to.numbers.finer());
    // It is a lane, too.
    i32::try_from(from).map_err(|_| bad())?;
    let offset = |factor: i64, shift: i32| (i64::from(to.zero) << shift) - from * factor;
    let symmetric = (from, to.zero) == (0, 0);
    // One multiplier alone hasn't the bits for sums that are far from 0.
    let one = precise::scale(ratio, range);
    if let Some(mut ops) = twofold(ratio, range, from, to, one.as_ref()) {
        push_clamp(&mut ops, &[range], to.clamp)?;
        return Ok(ops);
    }
    let is_fast = symmetric && (to.requant == Requant::Fast || one.is_none());
    let fast = scale_fast(ratio, range, to).filter(|_| is_fast);
    let exact = log2_exact(ratio).filter(|n| one.is_none() && (-15..=0).contains(n));
    let mut ops = match (exact, fast, one) {
        (Some(n), ..) => round(-n, offset(1, -n)).ok_or_else(bad)?,
        (None, Some(ops), _) => ops,
        (None, None, Some((scaled, shift))) => {
            let rounding = round(shift, offset(scaled.factor, shift)).ok_or_else(bad)?;
            scaled.ops.into_iter().chain(rounding).collect()
        }
        (None, None, None) => return Err(bad()),
    };
    push_clamp(&mut ops, &[range], to.clamp)?;
    Ok(ops)
}

/// A change of scale by two multipliers with a shift between, where one alone is too far off.
fn twofold(
    ratio: f64,
    lanes: Interval,
    from: i64,
    to: &Output,
    one: Option<&(Scaled, i32)>,
) -> Option<Vec<LaneOp>> {
    let reach = f64::from(to.reach() + 1);
    let extreme = [lanes.0, lanes.1].map(|lane| (lane as f64 - from as f64).abs());
    let (scaled, shift) = one?;
    let off = scaled.factor as f64 / 2f64.powi(*shift) - ratio;
    let error = precise::error(off, ratio, extreme[0].max(extreme[1]), reach);
    let most = match to.requant {
        Requant::Precise => precise::MAX_ERROR,
        Requant::Fast => FAST_ERROR,
    };
    if error <= most * to.numbers.finer() {
        return None;
    }
    let wide = precise::scale_wide(ratio, lanes, reach)?;
    let zero = (from as f64 * wide.factor).round() as i64;
    let rounding = round(
        wide.last,
        (i64::from(to.zero) << wide.last) - zero + wide.half,
    )?;
    let ops = [wide.ops, rounding].concat();
    let fits = range(&ops, 0, lanes).is_ok();
    (fits && wide.error < error).then_some(ops)
}

/// `round(x * ratio)` by one multiplier; `None` where it is off by half a step of the output, as where products are large and
/// their ratio is small.
fn scale_fast(ratio: f64, range: Interval, to: &Output) -> Option<Vec<LaneOp>> {
    let largest = range.0.abs().max(range.1.abs()) as f64;
    let extreme = largest + 1.0;
    // Rounding is added before the product where a step is fine, else after it.
    let before = 0.5 / ratio;
    let early = (16.0..=32767.0).contains(&before);
    let top = if early { 30 } else { 15 };
    let extreme = if early { extreme + before } else { extreme };
    let fits = |s: &i32| {
        let m = (ratio * 2f64.powi(*s)).round();
        m <= 32767.0 && (m + 1.0) * extreme < f64::from(i32::MAX) / 2.0
    };
    let shift = (0..=top).rev().find(fits)?;
    let factor = (ratio * 2f64.powi(shift)).round();
    let off = factor / 2f64.powi(shift) - ratio;
    if precise::error(off, ratio, largest, f64::from(to.reach() + 1))
        > FAST_FARTHEST * to.numbers.finer()
    {
        return None;
    }
    let multiply = LaneOp::mul(factor as i16);
    let mut ops = Vec::new();
    match (early, shift) {
        (true, _) => ops.extend([LaneOp::add(before.round() as i16), multiply]),
        (false, 0) => ops.push(multiply),
        (false, _) => ops.extend([multiply, LaneOp::add(1 << (shift - 1))]),
    }
    push_shift(&mut ops, shift);
    Some(ops)
}
