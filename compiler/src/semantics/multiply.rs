//! The fast form: one multiplier, after a first shift.

use super::lanes::{
    Requant, Requantize, SemanticsError, push_add, push_shift, push_zero, saturate,
};
use crate::qgraph::lane::LaneOp;

/// One choice of the multiply form.
#[derive(Clone, Copy)]
struct Shifts {
    pre_shift: u32,
    shift: u32,
    clamp: bool,
    /// Largest error in steps of the output.
    error: f64,
}

/// The error, in steps of an int8, below which the fast form saves operations instead: who
/// wants less takes the precise form.
const FAST_ERROR: f64 = 0.25;
/// The largest errors, in steps of an int8, that one first shift for all channels may cost, of
/// who wants operations saved and of who doesn't.
const MAX_ERROR: [f64; 2] = [0.25, 1.0 / 128.0];
/// Half a step of a ratio so small that its channel is always zero, in steps of the sum.
const MAX_ROUNDING: f64 = (1 << 29) as f64;

/// Largest magnitude of an int16 immediate clamp.
const CLAMP: i64 = 32767;

/// The operations before the clamp to the output.
///
/// # Errors
/// [`SemanticsError::Ratio`] when no multiplier reaches the ratios without wrapping.
pub(super) fn requantize(given: &Requantize<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    let uniform = given.ratio.windows(2).all(|w| w[0] == w[1]);
    let (good, most): (f64, f64) = match given.to.requant {
        Requant::Fast => (FAST_ERROR, MAX_ERROR[0]),
        Requant::Precise => (0.0, MAX_ERROR[1]),
    };
    let [good, most] = [good, most].map(|error| error * given.to.numbers.finer());
    let forms = (0..=20).flat_map(|pre_shift| [(pre_shift, false), (pre_shift, true)]);
    let forms = forms.filter_map(|(pre_shift, clamp)| best_shift(given, pre_shift, clamp, uniform));
    // Of forms that are good enough the one with fewest operations, each worth 1/512.
    let cost = |form: &Shifts| {
        let extra_ops = u32::from(form.pre_shift > 0) + 2 * u32::from(form.clamp);
        form.error.max(good) / given.to.numbers.finer() + f64::from(extra_ops) / 512.0
    };
    let Some(form) = forms.min_by(|a, b| cost(a).total_cmp(&cost(b))) else {
        let largest = given.ratio.iter().copied().fold(0.0, f64::max);
        return Err(SemanticsError::ratio(format!("{largest:?}")));
    };
    if form.error > most {
        return spread(given);
    }
    let scale = 2f64.powi((form.pre_shift + form.shift) as i32);
    let multiplier = |c: usize| {
        if is_zero(given, c, uniform) {
            0
        } else {
            (given.ratio[c] * scale).round() as i32
        }
    };
    let multipliers: Vec<i32> = (0..given.ratio.len()).map(multiplier).collect();
    let bias = (0..given.ratio.len()).map(|c| {
        if is_zero(given, c, uniform) {
            return 0;
        }
        let dropped = ((1i64 << form.pre_shift) - 1) / 2;
        let rounding = (0.5 / given.ratio[c] + given.rest(c)).round() as i64;
        saturate(given.whole(c).saturating_add(rounding + dropped))
    });
    let mut ops = Vec::new();
    push_add(&mut ops, bias.collect());
    push_shift(&mut ops, form.pre_shift as i32);
    if form.clamp {
        ops.extend(int16_clamps(given.to.span()));
    }
    match (uniform, multipliers.first().map(|&m| i16::try_from(m))) {
        (true, Some(Ok(imm))) => ops.push(LaneOp::mul(imm)),
        _ => ops.push(LaneOp::mul(multipliers)),
    }
    push_shift(&mut ops, form.shift as i32);
    push_zero(&mut ops, given.to.zero);
    Ok(ops)
}

/// Clamps to int16 before a multiplication. Multipliers are at least 0, so a negative value stays
/// negative or becomes 0: an output that is at least its zero point gets its own lower clamp here,
/// and needs none at the end.
fn int16_clamps([low, _]: [i32; 2]) -> [LaneOp; 2] {
    let low = if low >= 0 { 0 } else { -CLAMP as i16 };
    [LaneOp::min(CLAMP as i16), LaneOp::max(low)]
}

/// The multiply form for ratios too far apart for one first shift: a vector of them leaves steps
/// of about 1/128 of the output's, or two of an int16, which int16 clamps hold with room; multipliers have at most 16
/// bits, so no product wraps.
fn spread(given: &Requantize<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    let channels = || 0..given.ratio.len();
    let least = given.to.numbers.finer().log2() - 7.0;
    let pre = |c: usize| (least - given.ratio[c].log2()).ceil().clamp(0.0, 31.0) as i32;
    let step = |c: usize| given.ratio[c] * 2f64.powi(pre(c));
    let widest = channels().map(step).fold(0.0, f64::max);
    let shift = (65_535.0 / widest).log2().floor().clamp(0.0, 22.0) as i32;
    let multiplier = |c: usize| (step(c) * 2f64.powi(shift)).round() as i32;
    let bias = channels().map(|c| {
        let dropped = ((1i64 << pre(c)) - 1) / 2;
        let rounding = (0.5 / given.ratio[c]).min(MAX_ROUNDING) + given.rest(c);
        saturate(
            given
                .whole(c)
                .saturating_add(rounding.round() as i64 + dropped),
        )
    });
    let mut ops = Vec::new();
    push_add(&mut ops, bias.collect());
    ops.push(LaneOp::shr(channels().map(pre).collect::<Vec<_>>()));
    ops.extend(int16_clamps(given.to.span()));
    ops.push(LaneOp::mul(channels().map(multiplier).collect::<Vec<_>>()));
    push_shift(&mut ops, shift);
    push_zero(&mut ops, given.to.zero);
    Ok(ops)
}

/// Bounds of a channel's sum with bias and rounding.
fn biased(given: &Requantize<'_>, c: usize) -> i64 {
    let (lo, hi) = given.sum[c];
    let bias = i64::from(saturate(given.whole(c)));
    let extreme = (lo + bias).abs().max((hi + bias).abs());
    extreme.saturating_add((0.5 / given.ratio[c]).min(1e15) as i64)
}

/// A channel whose extreme values still round to zero needs no multiplier. Channels of one
/// common ratio share theirs anyway.
pub(super) fn is_zero(given: &Requantize<'_>, c: usize, uniform: bool) -> bool {
    if uniform {
        return false;
    }
    let (lo, hi) = given.sum[c];
    let extreme = |sum: i64| (sum as f64 + given.bias[c]).abs();
    extreme(lo).max(extreme(hi)) * given.ratio[c] < 0.5
}

/// The largest second shift whose products are proven to fit, for a first shift.
fn best_shift(
    given: &Requantize<'_>,
    pre_shift: u32,
    clamp: bool,
    uniform: bool,
) -> Option<Shifts> {
    let live: Vec<usize> = (0..given.ratio.len())
        .filter(|&c| !is_zero(given, c, uniform))
        .collect();
    let lane = |c: usize| {
        let value = (biased(given, c) >> pre_shift) + 1;
        if clamp { value.min(CLAMP) } else { value }
    };
    // Clamping must not touch values that the output can still tell apart.
    let reach = |c: usize| CLAMP as f64 * 2f64.powi(pre_shift as i32) * given.ratio[c];
    // 128 for symmetric outputs of 8 bits.
    let farthest = f64::from(given.to.reach()).max(128.0 * given.to.numbers.finer());
    let told = |c: usize| clamp && lane(c) == CLAMP && reach(c) < farthest + 2.0;
    if (live.iter()).any(|&c| told(c) || biased(given, c) > i64::from(i32::MAX)) {
        return None;
    }
    let fits = |shift: u32| {
        let scale = 2f64.powi((pre_shift + shift) as i32);
        live.iter().all(|&c| {
            let m = (given.ratio[c] * scale).round();
            m * lane(c) as f64 <= f64::from(i32::MAX) && (!uniform || m <= 32767.0)
        })
    };
    let shift = (0..=31).rev().find(|&shift| fits(shift))?;
    let scale = 2f64.powi((pre_shift + shift) as i32);
    let error = live.iter().map(|&c| {
        let ratio = given.ratio[c];
        let m = (ratio * scale).round();
        let largest = (biased(given, c) as f64 * ratio).min(farthest);
        let rounding = (m / scale - ratio).abs() / ratio * largest;
        rounding + ratio * (2f64.powi(pre_shift as i32) - 1.0) / 2.0
    });
    let error = error.fold(0.0, f64::max);
    Some(Shifts {
        pre_shift,
        shift,
        clamp,
        error,
    })
}
