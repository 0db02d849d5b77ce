//! Pairs of multipliers: what the precise form takes the product with a ratio in.

use std::ops::RangeInclusive;

use rayon::prelude::*;

use super::lanes::Requantize;
use super::multiply::is_zero;
use crate::qgraph::Numbers;

/// First shifts of int8 and of int16, best first: a larger one has multipliers of more bits for small ratios, as sums
/// of int16 have, and drops more.
const FIRST: [RangeInclusive<u32>; 2] = [7..=10, 7..=15];
/// The error, in steps of an int8, that is aimed at.
pub(super) const GOOD_ERROR: f64 = 1.0 / 4096.0;
/// The largest error, in the same steps, of a form that is called precise: channels of very small ratios, whose
/// outputs hardly leave zero, may need it.
pub(super) const MAX_ERROR: f64 = 1.0 / 256.0;
/// Channels that are worth a task of their own.
const TASK: usize = 16;

/// Multipliers of a channel and what they may be wrong by, in steps of the output.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub first: i32,
    pub second: i32,
    error: f64,
}

/// The first shift and the channels' pairs for values up to `largest`: the first good ones, else
/// the best. `None` when none is precise.
pub(super) fn multipliers(
    given: &Requantize<'_>,
    largest: &(dyn Fn(usize) -> i64 + Sync),
    second: u32,
) -> Option<(u32, Vec<Pair>)> {
    let mut best: Option<(f64, u32, Vec<Pair>)> = None;
    let shifts = match given.to.numbers {
        Numbers::Int8 => &FIRST[0],
        Numbers::Int16 => &FIRST[1],
    };
    for first in shifts.clone() {
        let channels = (0..given.ratio.len()).into_par_iter().with_min_len(TASK);
        let pairs = channels.map(|c| pair(given, c, largest(c), [first, second]));
        let Some(pairs) = pairs.collect::<Option<Vec<Pair>>>() else {
            continue;
        };
        let error = pairs.iter().map(|p| p.error).fold(0.0, f64::max);
        if best.as_ref().is_none_or(|b| error < b.0) {
            best = Some((error, first, pairs));
        }
        if error <= GOOD_ERROR * given.to.numbers.finer() {
            break;
        }
    }
    let (error, first, pairs) = best?;
    (error <= MAX_ERROR * given.to.numbers.finer()).then_some((first, pairs))
}

/// A channel's best multipliers for values up to `largest`; `None` when products can't fit.
fn pair(given: &Requantize<'_>, c: usize, largest: i64, [shift, last]: [u32; 2]) -> Option<Pair> {
    if is_zero(given, c, false) {
        return Some(Pair {
            first: 0,
            second: 0,
            error: 0.0,
        });
    }
    let ratio = given.ratio[c];
    let [scale, unit] = [1, -1].map(|sign| 2f64.powi(sign * (shift + last) as i32));
    let half = 2f64.powi(-(last as i32 + 1));
    let largest = largest as f64;
    let mut best: Option<Pair> = None;
    // A smaller second multiplier has products by the first that don't fit, a larger one leaves
    // the first with fewer bits.
    for second in 1 << shift..4 << shift {
        // Half of what the first shift drops.
        let dropped = f64::from(second) * half;
        if best.is_some_and(|best| dropped >= best.error) {
            break; // It grows with the second multiplier.
        }
        let first = nearest(ratio * scale / f64::from(second));
        let error = (first * f64::from(second) * unit - ratio).abs() * largest + dropped;
        let fits = first * largest.max(1.0) <= f64::from(i32::MAX);
        if fits && best.is_none_or(|best| error < best.error) {
            best = Some(Pair {
                first: first as i32,
                second,
                error,
            });
        }
    }
    best
}

/// `value.round()` of values from 0 to 2^62, which needs no call.
fn nearest(value: f64) -> f64 {
    let whole = value as i64 as f64;
    whole + f64::from(u8::from(value - whole >= 0.5))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::semantics::{Output, Requant};

    /// The pair of all that fit with the least error, the first of several.
    fn searched(given: &Requantize<'_>, largest: i64, [shift, last]: [u32; 2]) -> Option<Pair> {
        let (ratio, largest) = (given.ratio[0], largest as f64);
        let scale = 2f64.powi((shift + last) as i32);
        let choice = |second: i32| {
            let first = (ratio * scale / f64::from(second)).round();
            let error = (first * f64::from(second) / scale - ratio).abs() * largest
                + f64::from(second) / 2f64.powi(last as i32 + 1);
            let fits = first * largest.max(1.0) <= f64::from(i32::MAX);
            let first = first as i32;
            fits.then_some(Pair {
                first,
                second,
                error,
            })
        };
        let all = (1 << shift..4 << shift).filter_map(choice);
        all.min_by(|a, b| a.error.total_cmp(&b.error))
    }

    proptest! {
        #[test]
        fn pairs_are_the_best_of_all(
            exponent in -30f64..12.0, reach in 1i64..1 << 31, shift in 7u32..=10, last in 18u32..=24,
        ) {
            let ratio = 2f64.powf(exponent);
            // Half of the values fill the output.
            let largest = if reach % 2 == 0 { reach } else { (128.0 / ratio) as i64 + 1 };
            let given = Requantize {
                ratio: &[ratio],
                bias: &[0.0],
                sum: &[(-largest, largest)],
                to: Output {
                    scale: 1.0,
                    zero: 0,
                    clamp: (-128, 127),
                    requant: Requant::Precise,
                    numbers: Numbers::Int8,
                },
            };
            prop_assume!(!is_zero(&given, 0, false));
            let facts = |pair: Option<Pair>| pair.map(|p| (p.first, p.second, p.error));
            let found = facts(pair(&given, 0, largest, [shift, last]));
            prop_assert_eq!(found, facts(searched(&given, largest, [shift, last])));
        }

        #[test]
        fn the_nearest_is_what_round_gives(value in 0f64..(1u64 << 62) as f64, small in 0f64..1e6) {
            for value in [value, small, small.floor() + 0.5, 0.5f64.next_down(), small.floor()] {
                prop_assert_eq!(nearest(value), value.round());
            }
        }
    }
}
