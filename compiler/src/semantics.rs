//! Integer semantics: how real-valued scales become lane operations, with proofs.
//!
//! A tensor's int8 value `q` means `scale * q`. A convolution accumulates `A = sum x * w` in
//! int32; the real result in steps of the output's scale is `(A + bias) * r[c]` with
//! `r[c] = s_x * s_w[c] / s_y`. It becomes int8 by rounding half up and clamping, in one of
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
//! the multiplier's error.
//!
//! Nothing wraps: [`range`] follows the interval of every channel through all operations.

mod precise;

use std::str::FromStr;

use thiserror::Error;

use crate::qgraph::LaneOp;

/// How closely fixed point follows the model's real arithmetic.
///
/// A graph says which it wants in its metadata, under [`Requant::KEY`]; without, it is precise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Requant {
    /// Every int8 tensor of the model is rounded as the model rounds it, within 2^-12 of a step:
    /// labels and nearly all values are those of a runtime that computes in reals.
    #[default]
    Precise,
    /// Fewest operations: one multiplier, residuals joined before rounding. Values may differ
    /// from the model's by a step.
    Fast,
}

impl Requant {
    /// The key in a graph's metadata.
    pub const KEY: &'static str = "requant";

    /// Its name, as in metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Precise => "precise",
            Self::Fast => "fast",
        }
    }
}

impl FromStr for Requant {
    type Err = SemanticsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "precise" => Ok(Self::Precise),
            "fast" => Ok(Self::Fast),
            _ => Err(SemanticsError::Requant {
                name: text.to_owned(),
            }),
        }
    }
}

/// Why no plan exists.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SemanticsError {
    /// An intermediate could leave int32.
    #[error("channel {channel}: {op} could reach {value}, outside int32")]
    Overflow {
        /// The output channel.
        channel: usize,
        /// The operation.
        op: &'static str,
        /// The extreme value.
        value: i64,
    },
    /// A scale ratio isn't positive and finite, or is out of reach of the fixed-point forms.
    #[error("scale ratio {ratio} can't be expressed in fixed point")]
    Ratio {
        /// The ratio, as text.
        ratio: String,
    },
    /// An unknown name of a [`Requant`].
    #[error("no requantisation '{name}' (there are precise and fast)")]
    Requant {
        /// The name.
        name: String,
    },
    /// A lane vector doesn't have an entry for the channel.
    #[error("a lane operation has {len} entries, but there is a channel {channel}")]
    Channels {
        /// Entries.
        len: usize,
        /// The channel without one.
        channel: usize,
    },
}

/// Largest magnitude of a bias that plans look at.
const BIAS: i64 = 1 << 40;

/// Smallest and largest value of a lane.
pub type Range = (i64, i64);

/// The largest error, in steps of the output, that a residual's multiplier may cost before the
/// sum is left to an operation of its own.
const RESIDUAL_ERROR: f64 = 0.25;

/// Applies one operation to all lanes of a channel, as the device does.
///
/// # Errors
/// [`SemanticsError::Channels`] when a vector is too short.
pub fn apply(op: &LaneOp, channel: usize, lanes: &mut [i32]) -> Result<(), SemanticsError> {
    let lane = |v: &[i32]| {
        v.get(channel).copied().ok_or(SemanticsError::Channels {
            len: v.len(),
            channel,
        })
    };
    match op {
        LaneOp::AddVec(v) => {
            let y = lane(v)?;
            lanes.iter_mut().for_each(|x| *x = x.wrapping_add(y));
        }
        LaneOp::AddImm(imm) => lanes
            .iter_mut()
            .for_each(|x| *x = x.wrapping_add((*imm).into())),
        LaneOp::MulVec(v) => {
            let y = lane(v)?;
            lanes.iter_mut().for_each(|x| *x = x.wrapping_mul(y));
        }
        LaneOp::MulImm(imm) => lanes
            .iter_mut()
            .for_each(|x| *x = x.wrapping_mul((*imm).into())),
        LaneOp::ShrImm(n) => lanes.iter_mut().for_each(|x| *x >>= n & 31),
        LaneOp::ShlImm(n) => lanes.iter_mut().for_each(|x| *x <<= n & 31),
        LaneOp::ShrVec(v) => {
            let y = lane(v)?;
            lanes
                .iter_mut()
                .for_each(|x| *x = vta_isa::AluOp::Shr.apply(*x, y));
        }
        LaneOp::MinImm(imm) => lanes.iter_mut().for_each(|x| *x = (*x).min((*imm).into())),
        LaneOp::MaxImm(imm) => lanes.iter_mut().for_each(|x| *x = (*x).max((*imm).into())),
        LaneOp::MinVec(v) => {
            let y = lane(v)?;
            lanes.iter_mut().for_each(|x| *x = (*x).min(y));
        }
        LaneOp::MaxVec(v) => {
            let y = lane(v)?;
            lanes.iter_mut().for_each(|x| *x = (*x).max(y));
        }
    }
    Ok(())
}

/// The interval of a channel's lanes after the operations, with a proof that no step wraps.
///
/// # Errors
/// [`SemanticsError::Overflow`] at the first operation that could leave int32.
pub fn range(ops: &[LaneOp], channel: usize, start: Range) -> Result<Range, SemanticsError> {
    let mut now = fits(start, channel, "the sum")?;
    for op in ops {
        let lane = |v: &[i32]| {
            let len = v.len();
            v.get(channel)
                .map(|&y| i64::from(y))
                .ok_or(SemanticsError::Channels { len, channel })
        };
        let shift = |(lo, hi): Range, n: i64| match n {
            0.. => (lo >> n, hi >> n),
            _ => (lo << -n, hi << -n),
        };
        let (name, next) = match op {
            LaneOp::AddVec(v) => ("add", (now.0 + lane(v)?, now.1 + lane(v)?)),
            LaneOp::AddImm(imm) => ("add", (now.0 + i64::from(*imm), now.1 + i64::from(*imm))),
            LaneOp::MulVec(v) => ("mul", product(now, lane(v)?)),
            LaneOp::MulImm(imm) => ("mul", product(now, (*imm).into())),
            LaneOp::ShrImm(n) => ("shr", shift(now, i64::from(*n & 31))),
            LaneOp::ShlImm(n) => ("shl", shift(now, -i64::from(*n & 31))),
            LaneOp::ShrVec(v) => ("shr", shift(now, lane(v)?.clamp(-31, 31))),
            LaneOp::MinImm(imm) => ("min", (now.0.min((*imm).into()), now.1.min((*imm).into()))),
            LaneOp::MaxImm(imm) => ("max", (now.0.max((*imm).into()), now.1.max((*imm).into()))),
            LaneOp::MinVec(v) => ("min", (now.0.min(lane(v)?), now.1.min(lane(v)?))),
            LaneOp::MaxVec(v) => ("max", (now.0.max(lane(v)?), now.1.max(lane(v)?))),
        };
        now = fits(next, channel, name)?;
    }
    Ok(now)
}

fn product((lo, hi): Range, y: i64) -> Range {
    let (a, b) = (lo * y, hi * y);
    (a.min(b), a.max(b))
}

fn fits(range: Range, channel: usize, op: &'static str) -> Result<Range, SemanticsError> {
    for value in [range.0, range.1] {
        if i32::try_from(value).is_err() {
            return Err(SemanticsError::Overflow { channel, op, value });
        }
    }
    Ok(range)
}

/// Bounds of `sum x * w` for each output channel, over every partial sum in any order and any
/// padding: terms that can't be positive don't raise the upper bound.
pub fn sum_bounds(weights: &[i8], channels: usize, input: (i8, i8)) -> Vec<Range> {
    let per_channel = weights.len() / channels.max(1);
    let (low, high) = (i64::from(input.0.min(0)), i64::from(input.1.max(0)));
    let bound = |row: &[i8]| {
        row.iter().fold((0, 0), |(lo, hi), &w| {
            let (a, b) = (low * i64::from(w), high * i64::from(w));
            (lo + a.min(b), hi + a.max(b))
        })
    };
    weights.chunks(per_channel.max(1)).map(bound).collect()
}

/// `Some(n)` when the value is exactly `2^n`.
pub fn log2_exact(value: f64) -> Option<i32> {
    let n = value.log2().round();
    (value > 0.0 && n.abs() < 1000.0 && 2f64.powi(n as i32) == value).then_some(n as i32)
}

/// What a requantisation starts from.
pub struct Requantize<'a> {
    /// `s_x * s_w[c] / s_y`, one for each channel, positive.
    pub ratio: &'a [f64],
    /// Added to the sum, in its steps.
    pub bias: &'a [i64],
    /// Bounds of the sum without bias.
    pub sum: &'a [Range],
    /// Bounds of the output.
    pub clamp: (i8, i8),
    /// How closely.
    pub requant: Requant,
}

/// Lane operations that turn an int32 sum into the clamped int8 result (see the module's text
/// for the forms).
///
/// # Errors
/// [`SemanticsError::Ratio`] for a ratio that isn't positive and finite,
/// [`SemanticsError::Overflow`] when no form can be proven safe.
pub fn plan_requantize(given: &Requantize<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    for &ratio in given.ratio {
        if !(ratio.is_finite() && ratio > 0.0) {
            return Err(SemanticsError::Ratio {
                ratio: ratio.to_string(),
            });
        }
    }
    // A bias beyond int32 decides the result alone; bounded here, no sum below wraps.
    let bias: Vec<i64> = given
        .bias
        .iter()
        .map(|b| b.clamp(&-BIAS, &BIAS))
        .copied()
        .collect();
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
        Some(shifts) if shifts.iter().all(|n| (0..=30).contains(n)) => plan_shift(given, &shifts),
        _ => match precisely(given) {
            Some(ops) => ops,
            None => plan_multiply(given)?,
        },
    };
    push_clamp(&mut ops, given.sum, given.clamp)?;
    Ok(ops)
}

/// The precise form, if it is wanted and proven not to wrap.
fn precisely(given: &Requantize<'_>) -> Option<Vec<LaneOp>> {
    let ops = match given.requant {
        Requant::Precise => precise::requantize(given)?,
        Requant::Fast => return None,
    };
    let mut sums = given.sum.iter().enumerate();
    let proven = sums.all(|(c, &sum)| range(&ops, c, sum).is_ok());
    proven.then_some(ops)
}

fn plan_shift(given: &Requantize<'_>, shifts: &[i32]) -> Vec<LaneOp> {
    let half = |n: i32| if n > 0 { 1i64 << (n - 1) } else { 0 };
    let bias = given
        .bias
        .iter()
        .zip(shifts)
        .map(|(&b, &n)| saturate(b + half(n)));
    let mut ops = Vec::new();
    push_add(&mut ops, bias.collect());
    match shifts.first() {
        Some(&n) if shifts.iter().all(|&m| m == n) => {
            if n > 0 {
                ops.push(LaneOp::ShrImm(n as u8));
            }
        }
        _ => ops.push(LaneOp::ShrVec(shifts.to_vec())),
    }
    ops
}

/// A bias beyond a quarter of int32 decides the result alone; keeping it there leaves room for
/// the sum. Whether the sum really fits is proven afterwards.
fn saturate(bias: i64) -> i32 {
    bias.clamp(-(1 << 30), 1 << 30) as i32
}

/// Adds nothing, an immediate, or a vector: whatever is cheapest.
fn push_add(ops: &mut Vec<LaneOp>, bias: Vec<i32>) {
    match bias.first() {
        Some(&first) if bias.iter().all(|&b| b == first) => match i16::try_from(first) {
            Ok(0) => {}
            Ok(imm) => ops.push(LaneOp::AddImm(imm)),
            Err(_) => ops.push(LaneOp::AddVec(bias)),
        },
        _ => ops.push(LaneOp::AddVec(bias)),
    }
}

/// Clamps to the output's bounds, leaving out what the interval proves unnecessary.
fn push_clamp(
    ops: &mut Vec<LaneOp>,
    start: &[Range],
    (low, high): (i8, i8),
) -> Result<(), SemanticsError> {
    let (mut lo, mut hi) = (i64::MAX, i64::MIN);
    for (channel, &start) in start.iter().enumerate() {
        let now = range(ops, channel, start)?;
        (lo, hi) = (lo.min(now.0), hi.max(now.1));
    }
    if hi > i64::from(high) {
        ops.push(LaneOp::MinImm(high.into()));
    }
    if lo < i64::from(low) {
        ops.push(LaneOp::MaxImm(low.into()));
    }
    Ok(())
}

/// One choice of the multiply form.
#[derive(Clone, Copy)]
struct Form {
    pre_shift: u32,
    shift: u32,
    clamp: bool,
    /// Largest error in steps of the output.
    error: f64,
}

/// The error, in steps of the output, below which the fast form saves operations instead: who
/// wants less takes the precise form.
const FAST_ERROR: f64 = 0.25;
/// The largest error, in steps of the output, that one first shift for all channels may cost.
const MAX_ERROR: f64 = 0.25;
/// Half a step of a ratio so small that its channel is always zero, in steps of the sum.
const MAX_ROUNDING: f64 = (1 << 29) as f64;

/// Largest magnitude of an int16 immediate clamp.
const CLAMP: i64 = 32767;

fn plan_multiply(given: &Requantize<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    let uniform = given.ratio.windows(2).all(|w| w[0] == w[1]);
    let mut best: Option<(f64, Form)> = None;
    for pre_shift in 0..=20 {
        for clamp in [false, true] {
            let Some(form) = best_shift(given, pre_shift, clamp, uniform) else {
                continue;
            };
            // Of forms that are good enough the one with fewest operations, each worth 1/512.
            let extra_ops = u32::from(pre_shift > 0) + 2 * u32::from(clamp);
            let cost = form.error.max(FAST_ERROR) + f64::from(extra_ops) / 512.0;
            if best.is_none_or(|(c, _)| cost < c) {
                best = Some((cost, form));
            }
        }
    }
    let Some((_, form)) = best else {
        let ratio = format!("{:?}", given.ratio.iter().copied().fold(0.0, f64::max));
        return Err(SemanticsError::Ratio { ratio });
    };
    if form.error > MAX_ERROR {
        return plan_spread(given);
    }
    let multipliers: Vec<i32> = multipliers(given, form, uniform).collect();
    let bias = (0..given.ratio.len()).map(|c| {
        if is_zero(given, c, uniform) {
            return 0;
        }
        let dropped = ((1i64 << form.pre_shift) - 1) / 2;
        saturate(given.bias[c].saturating_add((0.5 / given.ratio[c]).round() as i64 + dropped))
    });
    let mut ops = Vec::new();
    push_add(&mut ops, bias.collect());
    if form.pre_shift > 0 {
        ops.push(LaneOp::ShrImm(form.pre_shift as u8));
    }
    if form.clamp {
        ops.extend(int16_clamps(given.clamp));
    }
    match (uniform, multipliers.first().map(|&m| i16::try_from(m))) {
        (true, Some(Ok(imm))) => ops.push(LaneOp::MulImm(imm)),
        _ => ops.push(LaneOp::MulVec(multipliers)),
    }
    if form.shift > 0 {
        ops.push(LaneOp::ShrImm(form.shift as u8));
    }
    Ok(ops)
}

/// Clamps to int16 before a multiplication. Multipliers are at least 0, so a negative value stays
/// negative or becomes 0: an output that is at least 0 gets its own lower clamp here, and needs
/// none at the end.
fn int16_clamps((low, _): (i8, i8)) -> [LaneOp; 2] {
    let low = if low >= 0 { 0 } else { -CLAMP as i16 };
    [LaneOp::MinImm(CLAMP as i16), LaneOp::MaxImm(low)]
}

/// The multiply form for ratios too far apart for one first shift: a vector of them leaves steps
/// of about 1/128 of the output's, which int16 clamps hold with room; multipliers have at most 16
/// bits, so no product wraps.
fn plan_spread(given: &Requantize<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    let channels = || 0..given.ratio.len();
    let pre = |c: usize| (-7.0 - given.ratio[c].log2()).ceil().clamp(0.0, 31.0) as i32;
    let step = |c: usize| given.ratio[c] * 2f64.powi(pre(c));
    let widest = channels().map(step).fold(0.0, f64::max);
    let shift = (65_535.0 / widest).log2().floor().clamp(0.0, 22.0) as i32;
    let multiplier = |c: usize| (step(c) * 2f64.powi(shift)).round() as i32;
    let bias = channels().map(|c| {
        let dropped = ((1i64 << pre(c)) - 1) / 2;
        let rounding = (0.5 / given.ratio[c]).min(MAX_ROUNDING).round() as i64;
        saturate(given.bias[c].saturating_add(rounding + dropped))
    });
    let mut ops = Vec::new();
    push_add(&mut ops, bias.collect());
    ops.push(LaneOp::ShrVec(channels().map(pre).collect()));
    ops.extend(int16_clamps(given.clamp));
    ops.push(LaneOp::MulVec(channels().map(multiplier).collect()));
    if shift > 0 {
        ops.push(LaneOp::ShrImm(shift as u8));
    }
    Ok(ops)
}

/// Bounds of a channel's sum with bias and rounding.
fn biased(given: &Requantize<'_>, c: usize) -> i64 {
    let (lo, hi) = given.sum[c];
    let bias = i64::from(saturate(given.bias[c]));
    let extreme = (lo + bias).abs().max((hi + bias).abs());
    extreme.saturating_add((0.5 / given.ratio[c]).min(1e15) as i64)
}

/// A channel whose extreme values still round to zero needs no multiplier. Channels of one
/// common ratio share theirs anyway.
fn is_zero(given: &Requantize<'_>, c: usize, uniform: bool) -> bool {
    if uniform {
        return false;
    }
    let (lo, hi) = given.sum[c];
    let extreme = (lo + given.bias[c]).abs().max((hi + given.bias[c]).abs());
    extreme as f64 * given.ratio[c] < 0.5
}

fn multipliers(given: &Requantize<'_>, form: Form, uniform: bool) -> impl Iterator<Item = i32> {
    let scale = 2f64.powi((form.pre_shift + form.shift) as i32);
    (0..given.ratio.len()).map(move |c| {
        if is_zero(given, c, uniform) {
            0
        } else {
            (given.ratio[c] * scale).round() as i32
        }
    })
}

/// The largest second shift whose products are proven to fit, for a first shift.
fn best_shift(given: &Requantize<'_>, pre_shift: u32, clamp: bool, uniform: bool) -> Option<Form> {
    let live: Vec<usize> = (0..given.ratio.len())
        .filter(|&c| !is_zero(given, c, uniform))
        .collect();
    let lane = |c: usize| {
        let value = (biased(given, c) >> pre_shift) + 1;
        if clamp { value.min(CLAMP) } else { value }
    };
    // Clamping must not touch values that the output can still tell apart.
    let reach = |c: usize| CLAMP as f64 * 2f64.powi(pre_shift as i32) * given.ratio[c];
    if clamp && live.iter().any(|&c| lane(c) == CLAMP && reach(c) < 130.0) {
        return None;
    }
    if live.iter().any(|&c| biased(given, c) > i64::from(i32::MAX)) {
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
        let largest = (biased(given, c) as f64 * ratio).min(128.0);
        let rounding = (m / scale - ratio).abs() / ratio * largest;
        rounding + ratio * (2f64.powi(pre_shift as i32) - 1.0) / 2.0
    });
    let error = error.fold(0.0, f64::max);
    Some(Form {
        pre_shift,
        shift,
        clamp,
        error,
    })
}

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
                vec![LaneOp::ShlImm(first as u8)]
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
    Some(vec![LaneOp::MulVec(
        ratio.iter().map(|r| r.round() as i32).collect(),
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
    let shl = |k: i32| (k > 0).then_some(LaneOp::ShlImm(k as u8));
    let operand = |k: i32| shl(k - low).into_iter().collect();
    ([operand(a), operand(b)], halves_up(-low))
}

/// Operands by one multiplier each, and the rounding after the sum.
fn add_multiplied(ratios: [f64; 2]) -> Option<([Vec<LaneOp>; 2], Vec<LaneOp>)> {
    let largest = ratios[0].max(ratios[1]);
    let fits = |s: &i32| (largest * 2f64.powi(*s)).round() <= 32767.0;
    let shift = (0..=15).rev().find(fits)?;
    let multiply = |r: f64| vec![LaneOp::MulImm((r * 2f64.powi(shift)).round() as i16)];
    Some((ratios.map(multiply), halves_up(shift)))
}

/// A shift, at most 15, that rounds half up.
fn halves_up(shift: i32) -> Vec<LaneOp> {
    if shift == 0 {
        return Vec::new();
    }
    vec![
        LaneOp::AddImm(1 << (shift - 1)),
        LaneOp::ShrImm(shift as u8),
    ]
}

/// `round(x * ratio)` of lanes within `start`, clamped: pooling sums and changes of scale.
///
/// # Errors
/// [`SemanticsError::Ratio`] for ratios outside fixed point.
pub fn plan_scale(
    ratio: f64,
    start: Range,
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
            ops.extend([LaneOp::AddImm(1 << (-n - 1)), LaneOp::ShrImm(-n as u8)]);
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
            let multiply = LaneOp::MulImm((ratio * 2f64.powi(shift)).round() as i16);
            match (early, shift) {
                (true, _) => ops.extend([LaneOp::AddImm(before.round() as i16), multiply]),
                (false, 0) => ops.push(multiply),
                (false, _) => ops.extend([multiply, LaneOp::AddImm(1 << (shift - 1))]),
            }
            if shift > 0 {
                ops.push(LaneOp::ShrImm(shift as u8));
            }
        }
    }
    push_clamp(&mut ops, &[start], clamp)?;
    Ok(ops)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(ops: &[LaneOp], channel: usize, x: i32) -> i64 {
        let mut lane = [x];
        for op in ops {
            apply(op, channel, &mut lane).unwrap();
        }
        lane[0].into()
    }

    fn modes() -> impl Strategy<Value = Requant> {
        prop_oneof![Just(Requant::Fast), Just(Requant::Precise)]
    }

    fn ideal(value: f64, (low, high): (i8, i8)) -> f64 {
        (value + 0.5).floor().clamp(low.into(), high.into())
    }

    #[test]
    fn powers_of_two_become_one_shift() {
        let given = Requantize {
            ratio: &[1.0 / 256.0; 2],
            bias: &[100, -7],
            sum: &[(-40_000, 40_000); 2],
            clamp: (-128, 127),
            requant: Requant::Fast,
        };
        let expected = [
            LaneOp::AddVec(vec![228, 121]),
            LaneOp::ShrImm(8),
            LaneOp::MinImm(127),
            LaneOp::MaxImm(-128),
        ];
        assert_eq!(plan_requantize(&given).unwrap(), expected);
    }

    #[test]
    fn clamps_that_bounds_prove_unnecessary_are_left_out() {
        let given = Requantize {
            ratio: &[1.0 / 16.0],
            bias: &[0],
            sum: &[(0, 1000)],
            clamp: (0, 127),
            requant: Requant::Fast,
        };
        assert_eq!(
            plan_requantize(&given).unwrap(),
            [LaneOp::AddImm(8), LaneOp::ShrImm(4)]
        );
    }

    #[test]
    fn bad_ratios_are_refused() {
        for ratio in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let sum = [(0, 1)];
            let given = Requantize {
                ratio: &[ratio],
                bias: &[0],
                sum: &sum,
                clamp: (0, 1),
                requant: Requant::Fast,
            };
            assert!(plan_requantize(&given).is_err());
            assert!(plan_scale(ratio, (0, 1), (0, 1), Requant::Fast).is_err());
            assert!(plan_add([ratio, 1.0], [(0, 1); 2], (0, 1), Requant::Precise).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn requantisation_is_within_one_step_and_never_wraps(
            channels in prop::collection::vec((1e-5f64..0.3, -200_000i64..200_000, 1i64..30_000_000), 1..6),
            relu in any::<bool>(), at in 0.0f64..1.0, requant in modes(),
        ) {
            let clamp = if relu { (0, 127) } else { (-128, 127) };
            let ratio: Vec<_> = channels.iter().map(|c| c.0).collect();
            let bias: Vec<_> = channels.iter().map(|c| c.1).collect();
            let sum: Vec<_> = channels.iter().map(|c| (-c.2, c.2)).collect();
            let ops = plan_requantize(&Requantize { ratio: &ratio, bias: &bias, sum: &sum, clamp, requant }).unwrap();
            for c in 0..channels.len() {
                let (lo, hi) = range(&ops, c, sum[c]).unwrap();
                prop_assert!(lo >= clamp.0.into() && hi <= clamp.1.into());
                let useful = (200.0 / ratio[c]).min(sum[c].1 as f64);
                for x in [at * useful, -at * useful, sum[c].1 as f64, sum[c].0 as f64] {
                    let exact = (x.trunc() + bias[c] as f64) * ratio[c];
                    let got = run(&ops, c, x as i32) as f64;
                    prop_assert!((got - ideal(exact, clamp)).abs() <= 1.0, "{} for {} by {:?}", got, exact, ops);
                }
            }
        }

        #[test]
        fn any_numbers_get_a_plan_or_an_error(
            channels in prop::collection::vec((any::<f64>(), any::<i64>(), -(1i64 << 50)..0, 0i64..1 << 50), 1..4),
            requant in modes(),
        ) {
            let ratio: Vec<_> = channels.iter().map(|c| c.0.abs()).collect();
            let bias: Vec<_> = channels.iter().map(|c| c.1).collect();
            let sum: Vec<_> = channels.iter().map(|c| (c.2, c.3)).collect();
            let given = Requantize { ratio: &ratio, bias: &bias, sum: &sum, clamp: (-128, 127), requant };
            if let Ok(ops) = plan_requantize(&given) {
                for (c, &sum) in sum.iter().enumerate() {
                    prop_assert!(range(&ops, c, sum).is_ok());
                }
            }
            let _ = plan_residual(&ratio, &ratio);
            let _ = plan_scale(ratio[0], sum[0], (-128, 127), requant);
            let _ = plan_add([ratio[0], ratio[ratio.len() - 1]], [(-128, 127); 2], (-128, 127), requant);
        }

        #[test]
        fn sums_and_scales_are_within_one_step(
            ra in 0.01f64..4.0, rb in 0.01f64..4.0, a in any::<i8>(), b in any::<i8>(), x in -6000i32..6000, r in 0.001f64..2.0,
            requant in modes(),
        ) {
            let clamp = (-128, 127);
            let plan = plan_add([ra, rb], [(-128, 127); 2], clamp, requant).unwrap();
            let sum = run(&plan.a, 0, a.into()) + run(&plan.b, 0, b.into());
            let got = run(&plan.epilogue, 0, sum as i32) as f64;
            prop_assert!((got - ideal(f64::from(a) * ra + f64::from(b) * rb, clamp)).abs() <= 1.0);
            let ops = plan_scale(r, (-6272, 6272), clamp, requant).unwrap();
            let got = run(&ops, 0, x) as f64;
            prop_assert!((got - ideal(f64::from(x) * r, clamp)).abs() <= 1.0, "{} {} {:?}", x, r, ops);
        }
    }
}
