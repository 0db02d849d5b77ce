//! The precise forms: every tensor of the model is rounded as the model rounds it, int8 within
//! 2^-8 of a step and nearly always 2^-12, so that a result differs from real arithmetic only beside a
//! tie. Steps of int16 are 256 times finer, of which the same bits leave a few; the shifts below are those of int8, and
//! eight less for int16.
//!
//! A sum's product with its ratio needs about 23 bits after the binary point, more than one
//! multiplier has room for. It is taken in two:
//! `(((clamp(A + bias) * m[c]) >> a) * n[c] + h[c]) >> 24`, with `m[c] * n[c]` as close to
//! `r[c] * 2^(a + 24)` as a search over `n[c]` finds. The clamp goes first: it can't change the result,
//! because it lies a quarter of a step inside the output's outermost values, and it bounds every
//! product. Values of few bits are multiplied by two immediates instead, whose product is the
//! multiplier.
//!
//! Values are counted from the output's zero point until they are rounded. Where they may be
//! farther from it than int8 reaches, the last shift is 23, so that products twice as large fit.
//! The zero point is part of `h[c]`, and so is what rounding the bias to a step of the sum took off it.
//! Ratios above an eighth, whose sums have steps too large for a clamp that changes nothing, are clamped a step
//! outside instead, and after the last shift again.
//!
//! Values of more bits (products, sums of large windows) are multiplied by an immediate, shifted, and
//! multiplied by another.

use super::lanes::{Interval, Requantize, Scaled, log2_exact, push_add, saturate};
pub(super) use super::pairs::MAX_ERROR;
use super::pairs::{Pair, multipliers};
use crate::qgraph::Numbers;
use crate::qgraph::lane::{LaneOp, LaneOperand};

/// The second shift and the bits of outputs: 127.75 * 2^24 is still an int32.
const SECOND: u32 = 32;
/// Ratios up to this have a sum's value within a quarter of a step of every clamp.
const FINE_RATIO: f64 = 0.125;
/// The largest ratio.
const MAX_RATIO: f64 = 4096.0;
/// Bits of a value and of the multiplier that two immediates hold for it.
const PAIR_BITS: i32 = 30;

/// The two-multiplier form; `None` where it isn't precise.
pub(super) fn requantize(given: &Requantize<'_>) -> Option<Vec<LaneOp>> {
    if given.ratio.iter().any(|&r| r > MAX_RATIO) {
        return None;
    }
    let channels = || 0..given.ratio.len();
    let bias: Vec<i32> = channels().map(|c| saturate(given.whole(c))).collect();
    let biased: Vec<Interval> = given
        .sum
        .iter()
        .zip(&bias)
        .map(|(&(lo, hi), &b)| (lo + i64::from(b), hi + i64::from(b)))
        .collect();
    let second = second_shift(given);
    let (low, high) = clamps(given);
    let largest = |c: usize| {
        let clamped = |x: i64| x.max(low[c]).min(high[c]).saturating_abs();
        clamped(biased[c].0).max(clamped(biased[c].1))
    };
    let (first, pairs) = multipliers(given, &largest, second)?;
    let mut ops = Vec::new();
    push_add(&mut ops, bias);
    if biased.iter().zip(&high).any(|(b, &high)| b.1 > high) {
        ops.push(LaneOp::min(limit(&high)?));
    }
    if biased.iter().zip(&low).any(|(b, &low)| b.0 < low) {
        ops.push(LaneOp::max(limit(&low)?));
    }
    ops.push(LaneOp::mul(
        pairs.iter().map(|p| p.first).collect::<Vec<_>>(),
    ));
    ops.push(LaneOp::shr(first as i16));
    ops.push(LaneOp::mul(
        pairs.iter().map(|p| p.second).collect::<Vec<_>>(),
    ));
    // Half a step, half of what the first shift drops, what the bias lacks, and the zero point.
    let half = |(c, p): (usize, &Pair)| {
        let rest = given.rest(c) * given.ratio[c] * 2f64.powi(second as i32);
        let zero = i64::from(given.to.zero) << second;
        i32::try_from((1i64 << (second - 1)) + i64::from(p.second / 2) + rest.round() as i64 + zero)
    };
    let halves = pairs.iter().enumerate().map(half);
    push_add(&mut ops, halves.collect::<Result<_, _>>().ok()?);
    ops.push(LaneOp::shr(second as i16));
    Some(ops)
}

/// The second shift: as large as leaves room for the output that is farthest from its zero point, and
/// where ratios are large for another step of the sum.
fn second_shift(given: &Requantize<'_>) -> u32 {
    let numbers = given.to.numbers;
    let [nearest, farthest] = given.to.span();
    let (least, most) = numbers.bounds();
    // Where outputs lie farther from their zero point, 255.75 * 2^23 is an int32.
    let far = nearest < least.into() || farthest > most.into();
    let widest = given.ratio.iter().copied().fold(0.0, f64::max);
    if widest <= FINE_RATIO {
        return SECOND - numbers.bits() - u32::from(far);
    }
    let half = 128.0 * numbers.finer();
    let reach = if far { 2.0 * half - 1.0 } else { half } + 1.5 * widest + 1.0;
    (31.0 - reach.log2()).ceil() as u32 - 1
}

/// Bounds of each channel's biased sum that lie a quarter of a step inside the outermost values
/// of the output, all counted from its zero point, or where the sum's steps are too large for that at
/// most one of them outside. A lower bound of 0 is 0 for every channel of small steps.
fn clamps(given: &Requantize<'_>) -> (Vec<i64>, Vec<i64>) {
    let [low, high] = given.to.span().map(f64::from);
    let coarse = |c: usize| given.ratio[c] > FINE_RATIO;
    let lower = |c: usize| match given.ratio[c] {
        r if coarse(c) => (low / r - given.rest(c)).floor() as i64,
        _ if low == 0.0 => 0,
        r => ((low + 0.25) / r).ceil() as i64,
    };
    let upper = |c: usize| match given.ratio[c] {
        r if coarse(c) => (high / r - given.rest(c)).ceil() as i64,
        r => ((high - 0.25) / r).floor() as i64,
    };
    let channels = || 0..given.ratio.len();
    (
        channels().map(lower).collect(),
        channels().map(upper).collect(),
    )
}

/// Bounds of a clamp as an immediate where all channels have the same, else as a vector; `None`
/// without channels.
fn limit(bounds: &[i64]) -> Option<LaneOperand> {
    let first = *bounds.first()?;
    if let Ok(imm) = i16::try_from(first)
        && bounds.iter().all(|&b| b == first)
    {
        return Some(imm.into());
    }
    // Beyond int32 nothing is clamped.
    let kept = |&b: &i64| b.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    Some(bounds.iter().map(kept).collect::<Vec<_>>().into())
}

/// Two immediates whose product is closest to a multiplier.
fn factors(multiplier: f64) -> [i16; 2] {
    let widest = f64::from(i16::MAX);
    let mut best = ([1, multiplier.round().min(widest) as i16], f64::INFINITY);
    for first in 1..=i16::MAX {
        let second = (multiplier / f64::from(first)).round();
        // Larger first factors only repeat the pairs.
        if second < f64::from(first) {
            break;
        }
        let error = (second * f64::from(first) - multiplier).abs();
        if second <= widest && error < best.1 {
            best = ([first, second as i16], error);
        }
    }
    best.0
}

/// Operations that multiply by a value below 2^30, and what they really multiply by.
pub(super) fn multiply(multiplier: f64) -> (Vec<LaneOp>, i64) {
    let [first, second] = factors(multiplier);
    let product = i64::from(first) * i64::from(second);
    let first = (first != 1).then_some(LaneOp::mul(first));
    let ops = first.into_iter().chain([LaneOp::mul(second)]);
    (ops.collect(), product)
}

/// Multiplications of both operands of a sum, and the shift that undoes them.
pub(super) fn add(ratios: [f64; 2], numbers: Numbers) -> Option<([Scaled; 2], i32)> {
    let bits = PAIR_BITS - numbers.bits() as i32;
    let shift = shift_for(ratios[0].max(ratios[1]), bits)?;
    let operand = |r: f64| {
        let (ops, factor) = multiply(r * 2f64.powi(shift));
        Scaled { ops, factor }
    };
    Some((ratios.map(operand), shift))
}

/// The multiplication of values within `start` by a ratio, and the shift that undoes the rest of
/// it; `None` where a shift alone does.
pub(super) fn scale(ratio: f64, start: Interval) -> Option<(Scaled, i32)> {
    if log2_exact(ratio).is_some_and(|n| (-15..=0).contains(&n)) {
        return None;
    }
    let extreme = start.0.abs().max(start.1.abs()).max(1) as f64;
    let bits = 30 - extreme.log2().ceil() as i32;
    let shift = shift_for(ratio, bits.min(29))?;
    let (ops, factor) = multiply(ratio * 2f64.powi(shift));
    Some((Scaled { ops, factor }, shift))
}

/// What a multiplication may be wrong by, in steps of the output: `off` is what its factor is wrong
/// by. What lies beyond `reach`, in the same steps, is clamped whatever it is.
pub(super) fn error(off: f64, ratio: f64, extreme: f64, reach: f64) -> f64 {
    off.abs() * extreme.min(reach / ratio)
}

/// The multiplication of values that have too many bits for one multiplier.
pub(super) struct Wide {
    /// A multiplier, a shift, another multiplier.
    pub ops: Vec<LaneOp>,
    /// What they multiply by.
    pub factor: f64,
    /// The shift that undoes the rest.
    pub last: i32,
    /// Half of what the first shift drops.
    pub half: i64,
    /// What the result may be wrong by, in steps of the output.
    pub error: f64,
}

/// The multiplication of values within `start` by a ratio in two steps, the best for outputs that are
/// at most `reach` from their zero point; `None` where no two immediates fit.
pub(super) fn scale_wide(ratio: f64, start: Interval, reach: f64) -> Option<Wide> {
    let extreme = start.0.abs().max(start.1.abs()).max(1) as f64;
    // The result has room for what lies beyond the output's numbers, since it is clamped last.
    let bits = (extreme * ratio).max(1.0).log2().ceil() as i32;
    let last = (29 - bits).clamp(0, 28);
    let most = (f64::from(i32::MAX) / extreme).min(i16::MAX.into());
    let choice = |first_shift: i32, second: i32| {
        let scale = 2f64.powi(first_shift + last);
        let first = (ratio * scale / f64::from(second)).round();
        let off = first * f64::from(second) / scale - ratio;
        let dropped = f64::from(second) / 2f64.powi(last + 1);
        let error = error(off, ratio, extreme, reach) + dropped;
        let fits = (1.0..=most).contains(&first);
        fits.then_some((error, first as i16, first_shift, second as i16))
    };
    let shifts = (6..=13).flat_map(|shift| (1 << (shift - 2)..4 << shift).map(move |m| (shift, m)));
    let all = shifts.filter(|(_, second)| *second <= i32::from(i16::MAX));
    let all = all.filter_map(|(shift, second)| choice(shift, second));
    let (error, first, shift, second) = all.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let ops = vec![
        LaneOp::mul(first),
        LaneOp::shr(shift as i16),
        LaneOp::mul(second),
    ];
    Some(Wide {
        ops,
        factor: f64::from(first) * f64::from(second) / 2f64.powi(shift),
        last,
        half: i64::from(second) / 2,
        error,
    })
}

/// The largest shift for which a ratio's multiplier stays below `2^bits`.
fn shift_for(ratio: f64, bits: i32) -> Option<i32> {
    (0..=30)
        .rev()
        .find(|&shift| ratio * 2f64.powi(shift) < 2f64.powi(bits))
}

#[cfg(test)]
mod tests;
