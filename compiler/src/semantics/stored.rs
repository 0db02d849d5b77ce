//! Lane operations as what a STORE that requantises does, for machines that have REQUANT.
//!
//! Operations that end in int8 are a product, a shift and clamps of the sum, in whatever steps: `floor(sum * m + b)`
//! within bounds. The factor and the offset are taken from the operations as real numbers, a shift on the way as the
//! division that it stands for, and given to [`Rounding`] with 24 and 48 bits. That is nearer to what the model says
//! than the operations are, and exact where they are. A bound is what the operations behind it make of it.

use vta_isa::Rounding;

use super::lanes::{Interval, apply, product, range};
use crate::qgraph::lane::{LaneKind, LaneOp};

/// What the words of a rounding may be wrong by, in steps of the output.
const MAX_ERROR: f64 = 1.0 / 512.0;

/// `value * factor + offset`, and the bounds of the result so far.
#[derive(Clone, Copy)]
struct Affine {
    factor: f64,
    offset: f64,
    bounds: [i32; 2],
}

impl Affine {
    /// What some operations make of a channel's values; `None` for what is no increasing line within bounds. The last
    /// shift rounds down where `rounds` says so.
    fn of(ops: &[LaneOp], channel: usize, rounds: bool) -> Option<Self> {
        let mut now = Self {
            factor: 1.0,
            offset: 0.0,
            bounds: [i32::MIN, i32::MAX],
        };
        let shifts = |op: &LaneOp| op.kind == LaneKind::Shr;
        let last = ops.iter().rposition(shifts).filter(|_| rounds);
        for (at, op) in ops.iter().enumerate() {
            let y = op.operand.of_channel(channel)?;
            let mut scale = |by: f64| {
                now.factor *= by;
                now.offset *= by;
            };
            match op.kind {
                LaneKind::Add => now.offset += f64::from(y),
                // What is rounded down isn't multiplied again.
                LaneKind::Mul if y >= 0 && last.is_none_or(|last| at < last) => scale(y.into()),
                LaneKind::Shr if (0..32).contains(&y) => {
                    scale(2f64.powi(-y));
                    if Some(at) != last {
                        now.offset -= 0.5 - 2f64.powi(-y - 1);
                    }
                }
                LaneKind::Shr if (-31..0).contains(&y) => scale(2f64.powi(-y)),
                LaneKind::Shl if (0..32).contains(&y) => scale(2f64.powi(y)),
                LaneKind::Min | LaneKind::Max | LaneKind::Clip => {
                    let [low, high] = match op.kind {
                        LaneKind::Min => [None, Some(y)],
                        LaneKind::Max => [Some(y), None],
                        _ => LaneKind::clip_bounds(y).map(Some),
                    };
                    let end = |bound: i32| {
                        let mut lane = [bound];
                        let behind = ops[at + 1..].iter();
                        behind
                            .into_iter()
                            .try_for_each(|op| apply(op, channel, &mut lane))
                            .ok()?;
                        Some(lane[0])
                    };
                    if let Some(low) = low {
                        now.bounds[0] = now.bounds[0].max(end(low)?);
                    }
                    if let Some(high) = high {
                        now.bounds[1] = now.bounds[1].min(end(high)?);
                    }
                }
                LaneKind::Mul | LaneKind::Shr | LaneKind::Shl | LaneKind::Mov => return None,
            }
        }
        Some(now)
    }

    /// The words for factors of values that are at most so far from 0; `None` where they would be too far off.
    fn rounding<const N: usize>(&self, factors: [(f64, f64); N]) -> Option<(Rounding, [u32; N])> {
        let fits = |shift: i32| {
            let scale = 2f64.powi(shift);
            let offset = (self.offset * scale).abs() < Rounding::MAX_OFFSET as f64;
            let all = |&(factor, _): &(f64, f64)| {
                (factor * scale).round() <= f64::from(Rounding::MAX_MULTIPLIER)
            };
            offset && factors.iter().all(all)
        };
        let shift = (0..=i32::from(Rounding::MAX_SHIFT))
            .rev()
            .find(|&shift| fits(shift))?;
        let scale = 2f64.powi(shift);
        let words = factors.map(|(factor, _)| (factor * scale).round() as u32);
        let off = words.iter().zip(&factors);
        let off =
            off.map(|(&word, (factor, reach))| (f64::from(word) / scale - factor).abs() * reach);
        let bounds = self.bounds.map(|bound| bound.clamp(-128, 127) as i8);
        let rounding = Rounding {
            offset: (self.offset * scale).round() as i64,
            multiplier: words[0],
            shift: shift as u8,
            low: bounds[0],
            high: bounds[1],
        };
        (off.sum::<f64>() <= MAX_ERROR).then_some((rounding, words))
    }
}

/// The operations on a channel's sums, which lie within bounds, as one rounding; `None` where they are none.
pub fn plan_store(ops: &[LaneOp], channel: usize, sum: Interval) -> Option<Rounding> {
    let (low, high) = range(ops, channel, sum).ok()?;
    if low < -128 || high > 127 {
        return None;
    }
    let line = Affine::of(ops, channel, true)?;
    // Beyond a step outside int8 a sum is clamped, whatever it is wrong by.
    let told = (line.offset.abs() + 129.0) / line.factor;
    let reach = (sum.0.unsigned_abs().max(sum.1.unsigned_abs()) as f64).min(told);
    let (rounding, _) = line.rounding([(line.factor, reach)])?;
    Some(rounding)
}

/// The operations on the sum or the product of two operands as one rounding, the same for all channels; `None` where
/// they are none, or nothing.
pub fn plan_store_joined(
    operands: [(&[LaneOp], Interval); 2],
    is_product: bool,
    ops: &[LaneOp],
) -> Option<Rounding> {
    let lists = operands.iter().map(|(ops, _)| *ops).chain([ops]);
    let alike = |op: &LaneOp| op.vector().or(op.plane()).is_none();
    if ops.is_empty() || !lists.flatten().all(alike) {
        return None;
    }
    let [a, b] = operands.map(|(ops, interval)| range(ops, 0, interval));
    let (a, b) = (a.ok()?, b.ok()?);
    let joined = if is_product {
        product(a, b)
    } else {
        (a.0 + b.0, a.1 + b.1)
    };
    plan_store(ops, 0, joined)
}

/// The operations on two int8 operands and on their sum as one rounding, behind the factor of the second operand.
pub fn plan_store_sum(
    operands: [(&[LaneOp], Interval); 2],
    ops: &[LaneOp],
) -> Option<(u32, Rounding)> {
    let mut bounds = (0, 0);
    let mut lines = [None, None];
    for (line, (ops, interval)) in lines.iter_mut().zip(operands) {
        let (low, high) = range(ops, 0, interval).ok()?;
        bounds = (bounds.0 + low, bounds.1 + high);
        *line = Affine::of(ops, 0, false).filter(|line| line.bounds == [i32::MIN, i32::MAX]);
    }
    let (low, high) = range(ops, 0, bounds).ok()?;
    let alike = |op: &LaneOp| op.vector().is_none();
    let all = operands.iter().flat_map(|(ops, _)| *ops).chain(ops);
    if low < -128 || high > 127 || !all.into_iter().all(alike) {
        return None;
    }
    let ([Some(a), Some(b)], line) = (lines, Affine::of(ops, 0, true)?) else {
        return None;
    };
    let joined = Affine {
        offset: line.offset + (a.offset + b.offset) * line.factor,
        ..line
    };
    let factors = [a, b].map(|operand| (operand.factor * line.factor, 128.0));
    let (rounding, [_, factor]) = joined.rounding(factors)?;
    Some((factor, rounding))
}

#[cfg(test)]
mod tests;
