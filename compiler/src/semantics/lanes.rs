//! What every form of a requantisation starts from: lane operations, their intervals, and the
//! steps that forms share.

use std::str::FromStr;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use vta_isa::for_alu_op;

use crate::qgraph::Numbers;
use crate::qgraph::lane::{LaneKind, LaneOp};

/// How closely fixed point follows the model's real arithmetic.
///
/// A graph says which it wants in its metadata, under [`Requant::KEY`]; without, it is precise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requant {
    /// Every tensor of the model is rounded as the model rounds it, int8 within 2^-8 of a step and
    /// nearly always 2^-12, int16 within a few of its steps: labels and nearly all values are those of a runtime that
    /// computes in reals.
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

impl SemanticsError {
    /// That of a ratio.
    pub(crate) fn ratio(ratio: impl ToString) -> Self {
        Self::Ratio {
            ratio: ratio.to_string(),
        }
    }
}

/// Whether a ratio is positive and within reach of the fixed-point forms.
pub(super) fn is_usable(ratio: f64) -> bool {
    ratio > 0.0 && ratio < 4096.0
}

/// Smallest and largest value of a lane.
pub type Interval = (i64, i64);

/// What a channel of an operation lacks.
fn missing(op: &LaneOp, channel: usize) -> SemanticsError {
    let all = op.vector().or(op.plane());
    SemanticsError::Channels {
        len: all.map_or(0, <[i32]>::len),
        channel,
    }
}

/// Smallest and largest operand of an operation for a channel, or of several channels that has it.
fn operands(op: &LaneOp, channel: usize) -> Result<Interval, SemanticsError> {
    if let Some(all) = op.plane() {
        let bounds = all.iter().min().zip(all.iter().max());
        let (low, high) = bounds.ok_or_else(|| missing(op, channel))?;
        return Ok(((*low).into(), (*high).into()));
    }
    let y = op.operand.of_channel(channel);
    let y = i64::from(y.ok_or_else(|| missing(op, channel))?);
    Ok((y, y))
}

/// Applies one operation to all lanes of a channel, as the device does.
///
/// # Errors
/// [`SemanticsError::Channels`] when a vector is too short, or a plane isn't that of the lanes.
pub fn apply(op: &LaneOp, channel: usize, lanes: &mut [i32]) -> Result<(), SemanticsError> {
    let lacks = || missing(op, channel);
    if op.plane().is_some() {
        let all = op.operand.of_lanes(channel, lanes.len());
        let all = all.ok_or_else(lacks)?;
        for_alu_op!(op.kind, OP => lanes.iter_mut().zip(all).for_each(|(x, y)| *x = OP.apply(*x, *y)));
        return Ok(());
    }
    let y = op.operand.of_channel(channel).ok_or_else(lacks)?;
    for_alu_op!(op.kind, OP => lanes.iter_mut().for_each(|x| *x = OP.apply(*x, y)));
    Ok(())
}

/// The interval of a channel's lanes after the operations, with a proof that no step wraps.
///
/// # Errors
/// [`SemanticsError::Overflow`] at the first operation that could leave int32.
pub fn range(ops: &[LaneOp], channel: usize, start: Interval) -> Result<Interval, SemanticsError> {
    let mut now = fits(start, channel, "the sum")?;
    for op in ops {
        let (low, high) = operands(op, channel)?;
        let next = match op.kind {
            LaneKind::Add => (now.0 + low, now.1 + high),
            LaneKind::Mul => product(now, (low, high)),
            // Amounts that differ count modulo 32, each for itself: nothing is known.
            LaneKind::Shr | LaneKind::Shl if low != high => (i32::MIN.into(), i32::MAX.into()),
            LaneKind::Shr => shifted(now, low),
            LaneKind::Shl => shifted(now, -low),
            LaneKind::Min => (now.0.min(low), now.1.min(high)),
            LaneKind::Max => (now.0.max(low), now.1.max(high)),
            LaneKind::Mov => (low, high),
            LaneKind::Clip if low != high => (i32::MIN.into(), i32::MAX.into()),
            LaneKind::Clip => {
                let [low, high] = LaneKind::clip_bounds(low as i32).map(i64::from);
                (now.0.min(high).max(low), now.1.min(high).max(low))
            }
        };
        now = fits(next, channel, op.kind.name())?;
    }
    Ok(now)
}

/// To the right, to the left by negative amounts, which count modulo 32 as on the device.
fn shifted((lo, hi): Interval, amount: i64) -> Interval {
    let bits = amount.unsigned_abs() % 32;
    match amount {
        0.. => (lo >> bits, hi >> bits),
        _ => (lo << bits, hi << bits),
    }
}

pub(super) fn product((lo, hi): Interval, (low, high): Interval) -> Interval {
    let all = [lo * low, lo * high, hi * low, hi * high];
    let bounds = all.into_iter().min().zip(all.into_iter().max());
    bounds.unwrap_or((0, 0))
}

fn fits(range: Interval, channel: usize, op: &'static str) -> Result<Interval, SemanticsError> {
    for value in [range.0, range.1] {
        if i32::try_from(value).is_err() {
            return Err(SemanticsError::Overflow { channel, op, value });
        }
    }
    Ok(range)
}

/// Weights as parts that int8 holds, one behind the other: as many as the farthest of the `count` weights
/// needs. Those of one weight have its sign, so that no sum of some is farther from 0 than it is.
pub fn weight_parts(count: usize, weight: impl Fn(usize) -> i32) -> Vec<i8> {
    let mut parts = Vec::with_capacity(count);
    for before in 0.. {
        let mut left = false;
        // Nearly all weights are one part, which takes no more memory than they do.
        parts.reserve_exact(count);
        parts.extend((0..count).map(|i| {
            let rest = beyond(weight(i), before);
            let part = rest.clamp(-128, 127);
            left |= part != rest;
            part as i8
        }));
        if !left {
            break;
        }
    }
    parts
}

/// What so many parts leave of a weight.
fn beyond(weight: i32, parts: i32) -> i32 {
    match weight {
        0.. => weight.saturating_sub(parts.saturating_mul(127)).max(0),
        _ => weight.saturating_add(parts.saturating_mul(128)).min(0),
    }
}

/// The sums of weights' parts, of which each has `count` values.
pub fn whole_weights(parts: &[i8], count: usize) -> Vec<i32> {
    let mut parts = parts.chunks(count.max(1));
    let first = parts.next().unwrap_or(&[]);
    let mut whole: Vec<i32> = first.iter().map(|&w| w.into()).collect();
    for part in parts {
        whole
            .iter_mut()
            .zip(part)
            .for_each(|(sum, &w)| *sum += i32::from(w));
    }
    whole
}

/// The most immediates that are added one after another.
const MOST_ADDED: usize = 6;
/// Weights that are worth a task of their own.
const TASK: usize = 1 << 16;

/// What bounds the sums of an output channel: the sum of its weights above 0, and of those below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightSums {
    above: i64,
    below: i64,
}

impl WeightSums {
    /// Those of each channel, of weights in parts ([`weight_parts`]) of `count` values each.
    pub fn of(parts: &[i8], channels: usize, count: usize) -> Vec<Self> {
        let row = (count / channels.max(1)).max(1);
        let mut sums = vec![Self::default(); count.div_ceil(row)];
        for part in parts.chunks(count.max(1)) {
            let rows = sums.par_iter_mut().zip(part.par_chunks(row));
            let least = (TASK / row).max(1);
            rows.with_min_len(least)
                .for_each(|(sums, row)| sums.add(row));
        }
        sums
    }

    fn add(&mut self, row: &[i8]) {
        // So many fit an int32.
        for weights in row.chunks(1 << 16) {
            let above: i32 = weights.iter().map(|&w| i32::from(w.max(0))).sum();
            let below: i32 = weights.iter().map(|&w| i32::from(w.min(0))).sum();
            self.above += i64::from(above);
            self.below += i64::from(below);
        }
    }

    /// Bounds of `sum x * w`, over every partial sum in any order and any padding: terms that can't be
    /// positive don't raise the upper bound.
    pub fn bounds(&self, input: (i16, i16)) -> Interval {
        let (low, high) = (i64::from(input.0.min(0)), i64::from(input.1.max(0)));
        let Self { above, below } = self;
        (low * above + high * below, high * above + low * below)
    }

    /// What the sum is where every input is `zero`: the part of `sum x * w` that isn't
    /// `sum (x - zero) * w`.
    ///
    /// # Errors
    /// [`SemanticsError::Overflow`] of the `channel` for a part beyond a quarter of int32, which leaves no
    /// room for the rest.
    pub fn at_zero(&self, channel: usize, zero: i32) -> Result<i64, SemanticsError> {
        let value = (self.above + self.below) * i64::from(zero);
        let op = "the zero point's part of the sum";
        if value.abs() <= 1 << 29 {
            Ok(value)
        } else {
            Err(SemanticsError::Overflow { channel, op, value })
        }
    }
}

/// A range that has a zero point, too.
pub fn wider((low, high): (i16, i16), zero: i32) -> (i16, i16) {
    let zero = zero.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
    (low.min(zero), high.max(zero))
}

/// `Some(n)` when the value is exactly `2^n`.
pub fn log2_exact(value: f64) -> Option<i32> {
    let n = value.log2().round();
    (value > 0.0 && n.abs() < 1000.0 && 2f64.powi(n as i32) == value).then_some(n as i32)
}

/// A tensor that is read: `real = scale * (value - zero)`.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// Real value of one step.
    pub scale: f64,
    /// The zero point.
    pub zero: i32,
    /// Smallest and largest value.
    pub range: (i16, i16),
}

impl Operand {
    /// The interval of its values.
    pub const fn interval(&self) -> Interval {
        (self.range.0 as i64, self.range.1 as i64)
    }

    /// The interval of a channel's values after some operations.
    pub(super) fn after(&self, ops: &[LaneOp], channel: usize) -> Result<Interval, SemanticsError> {
        range(ops, channel, self.interval())
    }
}

/// The tensor that results are rounded to.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Real value of one step. Ratios that are given are in these steps.
    pub scale: f64,
    /// The zero point: added after rounding.
    pub zero: i32,
    /// Smallest and largest value.
    pub clamp: (i16, i16),
    /// How closely results are rounded.
    pub requant: Requant,
    /// What it is made of.
    pub numbers: Numbers,
}

impl Output {
    /// Smallest and largest value, counted from the zero point.
    pub(super) fn span(&self) -> [i32; 2] {
        [self.clamp.0, self.clamp.1].map(|bound| i32::from(bound) - self.zero)
    }

    /// The farthest that a value may be from the zero point.
    pub(super) fn reach(&self) -> i32 {
        let [low, high] = self.span();
        low.abs().max(high.abs())
    }
}

/// How two operands become one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// They are added.
    Sum,
    /// The second is taken off the first.
    Difference,
    /// They are multiplied.
    Product,
}

/// Operations of two operands that are joined: for each of them and behind.
pub struct PairPlan {
    /// Whether lanes are multiplied, and not added.
    pub is_product: bool,
    /// On the first operand.
    pub a: Vec<LaneOp>,
    /// On the second operand.
    pub b: Vec<LaneOp>,
    /// On what they are joined to.
    pub epilogue: Vec<LaneOp>,
}

/// What a requantisation starts from.
pub struct Requantize<'a> {
    /// `s_x * s_w[c] / s_y`, one for each channel, positive.
    pub ratio: &'a [f64],
    /// Added to the sum, in its steps. What lies between them counts, too.
    pub bias: &'a [f64],
    /// Bounds of the sum without bias.
    pub sum: &'a [Interval],
    /// What it is rounded to.
    pub to: Output,
}

impl Requantize<'_> {
    /// The nearest whole bias.
    pub(super) fn whole(&self, c: usize) -> i64 {
        self.bias[c].round() as i64
    }

    /// What the whole bias lacks.
    pub(super) fn rest(&self, c: usize) -> f64 {
        self.bias[c] - self.bias[c].round()
    }
}

/// A multiplication: its operations, and the factor that they really multiply by.
pub(super) struct Scaled {
    pub ops: Vec<LaneOp>,
    pub factor: i64,
}

/// A bias beyond a quarter of int32 decides the result alone; keeping it there leaves room for
/// the sum. Whether the sum really fits is proven afterwards.
pub(super) fn saturate(bias: i64) -> i32 {
    bias.clamp(-(1 << 30), 1 << 30) as i32
}

/// Adds nothing, an immediate, or a vector: whatever is cheapest.
pub(super) fn push_add(ops: &mut Vec<LaneOp>, bias: Vec<i32>) {
    match bias.first() {
        Some(&first) if bias.iter().all(|&b| b == first) => match i16::try_from(first) {
            Ok(0) => {}
            Ok(imm) => ops.push(LaneOp::add(imm)),
            Err(_) => ops.push(LaneOp::add(bias)),
        },
        _ => ops.push(LaneOp::add(bias)),
    }
}

/// Shifts to the right by an amount that isn't 0.
pub(super) fn push_shift(ops: &mut Vec<LaneOp>, amount: i32) {
    if amount > 0 {
        ops.push(LaneOp::shr(amount as i16));
    }
}

/// Adds a value by immediates: none, one, or a few, as zero points of int16 may need; `None` for one that a vector would
/// add in fewer cycles.
pub(super) fn added(value: i64) -> Option<Vec<LaneOp>> {
    let (mut ops, mut rest) = (Vec::new(), value);
    while rest != 0 && ops.len() < MOST_ADDED {
        let part = rest.clamp(i16::MIN.into(), i16::MAX.into());
        ops.push(LaneOp::add(part as i16));
        rest -= part;
    }
    (rest == 0).then_some(ops)
}

/// Adds a zero point to what is rounded.
pub(super) fn push_zero(ops: &mut Vec<LaneOp>, zero: i32) {
    if zero != 0 {
        ops.push(LaneOp::add(zero as i16));
    }
}

/// Clamps to the output's bounds, leaving out what the interval proves unnecessary.
pub(super) fn push_clamp(
    ops: &mut Vec<LaneOp>,
    start: &[Interval],
    (low, high): (i16, i16),
) -> Result<(), SemanticsError> {
    let (mut lo, mut hi) = (i64::MAX, i64::MIN);
    for (channel, &start) in start.iter().enumerate() {
        let now = range(ops, channel, start)?;
        (lo, hi) = (lo.min(now.0), hi.max(now.1));
    }
    if hi > i64::from(high) {
        ops.push(LaneOp::min(high));
    }
    if lo < i64::from(low) {
        ops.push(LaneOp::max(low));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Parts have the sign of their weight and add up to it; the last of several is needed.
        #[test]
        fn parts_add_up(weights in prop::collection::vec(-700i32..700, 1..40)) {
            let count = weights.len();
            let parts = weight_parts(count, |i| weights[i]);
            prop_assert_eq!(whole_weights(&parts, count), weights.clone());
            for (i, &part) in parts.iter().enumerate() {
                prop_assert!(i32::from(part) * weights[i % count] >= 0);
            }
            let last = &parts[parts.len() - count..];
            prop_assert!(parts.len() == count || last.iter().any(|&part| part != 0));
        }

        /// The bounds are those of the sums themselves, term by term.
        #[test]
        fn sums_of_weights_bound_products(
            rows in prop::collection::vec(prop::collection::vec(-300i32..300, 7), 1..5),
            low in -128i8..=127, high in -128i8..=127, zero in -128i32..128,
        ) {
            let weights = rows.concat();
            let parts = weight_parts(weights.len(), |i| weights[i]);
            let sums = WeightSums::of(&parts, rows.len(), weights.len());
            prop_assert_eq!(sums.len(), rows.len());
            let input = (i16::from(low.min(high)), i16::from(low.max(high)));
            for (row, sums) in rows.iter().zip(&sums) {
                let with_padding = [i64::from(input.0.min(0)), i64::from(input.1.max(0))];
                let products = row.iter().map(|&w| with_padding.map(|x| x * i64::from(w)));
                let bounds = products.fold((0, 0), |(low, high), [a, b]| (low + a.min(b), high + a.max(b)));
                prop_assert_eq!(sums.bounds(input), bounds);
                let at_zero: i64 = row.iter().map(|&w| i64::from(w) * i64::from(zero)).sum();
                prop_assert_eq!(sums.at_zero(0, zero), Ok(at_zero));
            }
        }
    }

    #[test]
    fn the_part_of_a_zero_point_leaves_room() {
        let parts = vec![127; 1 << 16];
        let sums = WeightSums::of(&parts, 1, parts.len());
        assert!(matches!(
            sums[0].at_zero(3, 127),
            Err(SemanticsError::Overflow { channel: 3, .. })
        ));
        assert_eq!(sums[0].at_zero(3, -64), Ok(-64 * (127 << 16)));
    }
}
