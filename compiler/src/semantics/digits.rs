//! Sums that nothing rounds, as int8 digits to base 256.
//!
//! A sum `x` is `d[0] - z[0] + 256 * (d[1] - z[1]) + 65536 * (d[2] - z[2]) ..` with int8 digits `d`
//! and zero points `z`, of which only the last may differ from 0: sums that lie on one side of 0 need
//! no digit for it. Digit `k` is the low byte of `(x + 128 + 128 * 256 + .. ) >> 8k`, with `k` terms:
//! each of them carries what the signed digits below are short of. The store keeps low bytes.

use super::lanes::{Interval, SemanticsError, push_add, push_shift, range};
use crate::qgraph::lane::LaneOp;

/// Bits of a digit.
const BITS: usize = 8;
/// The most digits that an int32 sum has.
const MOST: usize = 4;

/// How sums are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    /// How many digits, at most 4.
    pub count: usize,
    /// The zero point of the last, from -128 to 127.
    pub zero: i32,
}

/// What the digits below a place are short of at most.
fn carried(place: usize) -> i64 {
    (0..place).map(|at| 128 << (BITS * at)).sum()
}

impl Digits {
    /// The fewest that hold every sum; `None` where int32 doesn't hold them with what is carried.
    pub fn of(sums: &[Interval]) -> Option<Self> {
        let low = sums.iter().map(|sum| sum.0).min()?;
        let high = sums.iter().map(|sum| sum.1).max()?;
        let fits = |bound: i64| i32::try_from(bound).is_ok();
        (1..=MOST).find_map(|count| {
            let place = count - 1;
            let last = |bound: i64| {
                let all = bound.checked_add(carried(place)).filter(|&x| fits(x))?;
                Some(all >> (BITS * place))
            };
            let (first, last) = (last(low)?, last(high)?);
            // The zero points with which the last digit is one.
            let (least, most) = (-128 - first, 127 - last);
            let zero = (least <= most).then(|| 0.clamp(least, most))?;
            let zero = i32::try_from(zero).ok()?;
            (-128..=127).contains(&zero).then_some(Self { count, zero })
        })
    }
}

/// The operations on a sum whose low byte is then its digit at a place, of which `zero` is the zero point.
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
) -> Result<Vec<LaneOp>, SemanticsError> {
    let place = place.min(MOST - 1);
    let more = carried(place) + (i64::from(zero) << (BITS * place));
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
        [first, ..] if added.iter().all(|&b| b == first) => shifted(first, place),
        _ => {
            let mut ops = Vec::new();
            push_add(&mut ops, added);
            push_shift(&mut ops, (BITS * place) as i32);
            ops
        }
    };
    for (channel, &sum) in sums.iter().enumerate() {
        range(&ops, channel, sum)?;
    }
    Ok(ops)
}

/// `(x + value) >> 8 * place` by immediates, which hold two digits of a value. What is left of it is
/// added behind the shift, but for multiples of 256, which the low byte doesn't show.
fn shifted(value: i32, place: usize) -> Vec<LaneOp> {
    let (mut ops, mut rest, mut left) = (Vec::new(), value, place);
    loop {
        let now = left.min(2);
        let low = match i16::try_from(rest) {
            Ok(all) => all,
            Err(_) if now == 2 => rest as i16,
            Err(_) => (rest as i8).into(),
        };
        if low != 0 {
            ops.push(LaneOp::add(low));
        }
        if now == 0 {
            return ops;
        }
        ops.push(LaneOp::shr((BITS * now) as i16));
        rest = rest.wrapping_sub(low.into()) >> (BITS * now);
        left -= now;
    }
}

#[cfg(test)]
mod tests;
