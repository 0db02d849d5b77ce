//! Sums that nothing rounds, as int8 digits to base 256.
//!
//! A sum `x` is `d[0] - z[0] + 256 * (d[1] - z[1]) + 65536 * (d[2] - z[2]) ..` with int8 digits `d`
//! and zero points `z`, of which only the last may differ from 0: sums that lie on one side of 0 need
//! no digit for it. Digit `k` is the low byte of `(x + 128 + 128 * 256 + .. ) >> 8k`, with `k` terms:
//! each of them carries what the signed digits below are short of. The store keeps low bytes.

use super::lanes::{Interval, SemanticsError, push_add, range};
use crate::lane::LaneOp;

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
const fn carried(place: usize) -> i64 {
    let (mut sum, mut at) = (0, 0);
    while at < place {
        sum += 128 << (BITS * at);
        at += 1;
    }
    sum
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
            if place > 0 {
                ops.push(LaneOp::shr((BITS * place) as i16));
            }
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
mod tests {
    use proptest::prelude::*;

    use super::super::apply;
    use super::*;

    /// A sum with its bias, from its digits.
    fn told(digits: Digits, biases: &[i64], sum: Interval, x: i64) -> i64 {
        let digit = |place: usize| {
            let zero = match place + 1 == digits.count {
                true => digits.zero,
                false => 0,
            };
            let ops = plan_digit(place, zero, biases, &[sum; 2][..biases.len()]).unwrap();
            let mut lane = [x as i32];
            for op in &ops {
                apply(op, 0, &mut lane).unwrap();
            }
            // As a store keeps it.
            (i64::from(lane[0] as i8) - i64::from(zero)) << (BITS * place)
        };
        (0..digits.count).map(digit).sum()
    }

    #[test]
    fn sums_have_as_few_digits_as_hold_them() {
        let of = |low: i64, high: i64| Digits::of(&[(low, high)]).map(|d| (d.count, d.zero));
        assert_eq!(of(-128, 127), Some((1, 0)));
        assert_eq!(of(0, 255), Some((1, -128)));
        assert_eq!(of(0, 256), Some((2, 0)));
        // A mean of 13x13 values of uint8.
        assert_eq!(of(0, 43_095), Some((2, -41)));
        assert_eq!(of(-32_896, 32_639), Some((2, 0)));
        assert_eq!(of(-32_896, 32_640), Some((3, 0)));
        assert_eq!(of(100_000, 100_001), Some((3, 0)));
        assert_eq!(of(-(1 << 31), 0), Some((4, 0)));
        assert_eq!(of(0, (1 << 31) - 1), None);
        assert_eq!(of(i64::MIN, i64::MAX), None);
        assert_eq!(Digits::of(&[]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn digits_tell_the_sum(
            size in 0u32..31, ends in [-1.0f64..1.0, -1.0f64..1.0], at in 0.0f64..=1.0, bias in -40_000i64..40_000,
        ) {
            let far = f64::from(size).exp2();
            let [a, b] = ends.map(|end| (end * far) as i64);
            let (low, high) = (a.min(b), a.max(b));
            let x = low + ((high - low) as f64 * at) as i64;
            let Some(digits) = Digits::of(&[(low + bias, high + bias)]) else { return Ok(()); };
            for x in [x, low, high] {
                prop_assert_eq!(told(digits, &[bias], (low, high), x), x + bias, "{:?}", digits);
            }
            // Of several channels with biases of their own.
            let Some(both) = Digits::of(&[(low + bias, high + bias), (low, high)]) else { return Ok(()); };
            prop_assert_eq!(told(both, &[bias, 0], (low, high), x), x + bias, "{:?}", both);
            // Fewer hold fewer values than there are.
            let fewer = 1i64 << (BITS * (digits.count - 1));
            let wide = high - low > fewer - (fewer >> BITS);
            prop_assert!(digits.count == 1 || wide || low + bias > 0 || high + bias < 0);
        }

        #[test]
        fn any_sums_get_digits_or_none(low in any::<i64>(), high in any::<i64>(), place in 0usize..9, zero in any::<i8>(), bias in any::<i64>()) {
            let sum = (low.min(high), low.max(high));
            let _ = Digits::of(&[sum]);
            let small = (sum.0 >> 33, sum.1 >> 33);
            let _ = plan_digit(place, zero.into(), &[bias, bias >> 32], &[small; 2]);
        }
    }
}
