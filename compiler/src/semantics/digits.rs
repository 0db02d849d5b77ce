//! Sums that nothing rounds, as digits to base 256, or 65536 where tensors are int16.
//!
//! A sum `x` is `d[0] - z[0] + 256 * (d[1] - z[1]) + 65536 * (d[2] - z[2]) ..` with int8 digits `d`
//! and zero points `z`, of which only the last may differ from 0: sums that lie on one side of 0 need
//! no digit for it. Digit `k` is the low byte of `(x + 128 + 128 * 256 + .. ) >> 8k`, with `k` terms:
//! each of them carries what the signed digits below are short of. The store keeps low bits.

use super::lanes::{Interval, SemanticsError, push_add, push_shift, range};
use crate::qgraph::Numbers;
use crate::qgraph::lane::LaneOp;

/// Bits of an int32 sum.
const BITS: u32 = 32;

/// How sums are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    /// How many digits, at most 4.
    pub count: usize,
    /// The zero point of the last.
    pub zero: i32,
}

/// What the digits below a place are short of at most.
fn carried(place: u32, bits: u32) -> i64 {
    (0..place).map(|at| 1 << (bits * (at + 1) - 1)).sum()
}

impl Digits {
    /// The fewest that hold every sum; `None` where int32 doesn't hold them with what is carried.
    pub fn of(sums: &[Interval], numbers: Numbers) -> Option<Self> {
        let (least, most) = numbers.bounds();
        let [least, most]: [i64; 2] = [least, most].map(i64::from);
        let bits = numbers.bits();
        let low = sums.iter().map(|sum| sum.0).min()?;
        let high = sums.iter().map(|sum| sum.1).max()?;
        let fits = |bound: i64| i32::try_from(bound).is_ok();
        (1..=BITS / bits).find_map(|count| {
            let place = count - 1;
            let last = |bound: i64| {
                let all = bound
                    .checked_add(carried(place, bits))
                    .filter(|&x| fits(x))?;
                Some(all >> (bits * place))
            };
            let (first, last) = (last(low)?, last(high)?);
            // The zero points with which the last digit is one.
            let (lowest, highest) = (least - first, most - last);
            let zero = (lowest <= highest).then(|| 0.clamp(lowest, highest))?;
            let count = count as usize;
            let fits = (least..=most).contains(&zero);
            fits.then_some(Self {
                count,
                zero: zero as i32,
            })
        })
    }
}

/// The operations on a sum whose low bits are then its digit at a place, of which `zero` is the zero point.
/// `bias` is added to the sum, one for each channel, before anything else; one for all becomes
/// immediates.
///
/// # Errors
/// [`SemanticsError::Overflow`] for sums that with their bias and what is carried leave int32.
pub fn plan_digit(
    place: usize,
    zero: i32,
    bias: &[i64],
    sums: &[Interval],
    numbers: Numbers,
) -> Result<Vec<LaneOp>, SemanticsError> {
    let bits = numbers.bits();
    let place = (place as u32).min(BITS / bits - 1);
    let more = carried(place, bits) + (i64::from(zero) << (bits * place));
    let added = |(channel, &bias): (usize, &i64)| {
        let value = bias.saturating_add(more);
        i32::try_from(value).map_err(|_| SemanticsError::Overflow {
            channel,
            op: "what is added to the sum",
            value,
        })
    };
    let added = bias.iter().enumerate().map(added);
    let added: Vec<i32> = added.collect::<Result<_, _>>()?;
    let ops = match added[..] {
        [first, ..] if added.iter().all(|&b| b == first) => shifted(first, place, numbers),
        _ => {
            let mut ops = Vec::new();
            push_add(&mut ops, added);
            push_shift(&mut ops, (bits * place) as i32);
            ops
        }
    };
    for (channel, &sum) in sums.iter().enumerate() {
        range(&ops, channel, sum)?;
    }
    Ok(ops)
}

/// `(x + value) >> bits * place` by immediates, which hold 16 bits of a value. What is left of it is
/// added behind the shift, but for what the low bits don't show.
fn shifted(value: i32, place: u32, numbers: Numbers) -> Vec<LaneOp> {
    let (mut ops, mut rest, mut left) = (Vec::new(), value, numbers.bits() * place);
    loop {
        let now = left.min(16);
        let low = match i16::try_from(rest) {
            Ok(all) => all,
            Err(_) if now == 16 => rest as i16,
            Err(_) => numbers.stored(rest, false),
        };
        if low != 0 {
            ops.push(LaneOp::add(low));
        }
        if now == 0 {
            return ops;
        }
        ops.push(LaneOp::shr(now as i16));
        rest = rest.wrapping_sub(low.into()) >> now;
        left -= now;
    }
}

#[cfg(test)]
mod tests;
