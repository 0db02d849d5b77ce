//! How values are distributed, in memory that doesn't grow with their number.
//!
//! Bins have a width that is a power of two and lie on both sides of zero. Where a value lies beyond
//! the last one, the width doubles and neighbours join, which is exact: the histogram of many values
//! is the same in whatever order and in whatever parts they come.

/// Bins on each side of zero. Between half of them and all are in use: eight or more for each of 128 steps.
pub(super) const BINS: usize = 2048;
/// Values whose bins are worked out together.
const CHUNK: usize = 1024;
/// Values that 32 bits count.
const PART: usize = 1 << 31;
/// Slots of the bins, and behind them those of zeros and of what is not finite.
const ZERO: usize = 2 * BINS;
const OTHER: usize = 2 * BINS + 1;
const SLOTS: usize = 2 * BINS + 2;
/// Exponents of the range: widths and their inverses are normal floats.
const EXPONENTS: std::ops::RangeInclusive<i32> = -100..=128;

/// Counts of values; zeros apart, as every scale holds them exactly. What isn't finite isn't counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    /// Magnitudes are below two to this; none without values other than zero.
    exponent: Option<i32>,
    /// Of values below zero, by magnitude.
    negative: Vec<u64>,
    /// Of values above zero, by magnitude.
    positive: Vec<u64>,
    zeros: u64,
    largest: f32,
}

impl Histogram {
    /// That of no values.
    pub const fn new() -> Self {
        Self {
            exponent: None,
            negative: Vec::new(),
            positive: Vec::new(),
            zeros: 0,
            largest: 0.0,
        }
    }

    /// That of some values.
    pub fn of(values: &[f32]) -> Self {
        let largest = largest(values);
        let exponent = (largest > 0.0).then(|| exponent(largest));
        let inverse = 2f32.powi(bits() - exponent.unwrap_or(0));
        let mut histogram = Self::new();
        let mut slots = [0u16; CHUNK];
        for part in values.chunks(PART) {
            // Two counts, so that equal values in a row don't wait for each other's.
            let mut both = vec![[0u32; 2]; SLOTS];
            for chunk in part.chunks(CHUNK) {
                for (slot, value) in slots.iter_mut().zip(chunk) {
                    *slot = slot_of(*value, inverse, largest);
                }
                for pair in slots[..chunk.len()].chunks(2) {
                    both[usize::from(pair[0])][0] += 1;
                    if let Some(other) = pair.get(1) {
                        both[usize::from(*other)][1] += 1;
                    }
                }
            }
            let count = |both: &[u32; 2]| u64::from(both[0]) + u64::from(both[1]);
            let side = |slots: &[_]| exponent.map(|_| slots.iter().map(count).collect());
            histogram.merge(Self {
                exponent,
                negative: side(&both[..BINS]).unwrap_or_default(),
                positive: side(&both[BINS..ZERO]).unwrap_or_default(),
                zeros: count(&both[ZERO]),
                largest,
            });
        }
        histogram
    }

    /// Counts those of another, too.
    pub fn merge(&mut self, mut other: Self) {
        match (self.exponent, other.exponent) {
            (Some(own), Some(others)) => {
                let exponent = own.max(others);
                self.widen(exponent);
                other.widen(exponent);
                let sides = [
                    (&mut self.negative, &other.negative),
                    (&mut self.positive, &other.positive),
                ];
                for (own, others) in sides {
                    own.iter_mut().zip(others).for_each(|(a, b)| *a += b);
                }
            }
            (None, Some(_)) => {
                self.exponent = other.exponent;
                self.negative = other.negative;
                self.positive = other.positive;
            }
            (_, None) => {}
        }
        self.zeros += other.zeros;
        self.largest = self.largest.max(other.largest);
    }

    /// Joins neighbours until the range is that of an exponent, no smaller than its own.
    fn widen(&mut self, exponent: i32) {
        let by = exponent - self.exponent.unwrap_or(exponent);
        self.exponent = Some(exponent);
        if by == 0 {
            return;
        }
        // All bins join the first where the range is as many times theirs.
        let joined = 1usize << by.min(bits());
        for side in [&mut self.negative, &mut self.positive] {
            let bins = side.len() / joined;
            for bin in 0..bins {
                side[bin] = side[bin * joined..][..joined].iter().sum();
            }
            side[bins..].fill(0);
        }
    }

    /// The largest magnitude; zero without values.
    pub const fn largest(&self) -> f32 {
        self.largest
    }

    /// How many values there were, zeros among them.
    pub fn count(&self) -> u64 {
        self.zeros + self.negative.iter().chain(&self.positive).sum::<u64>()
    }

    /// Zeros.
    pub const fn zeros(&self) -> u64 {
        self.zeros
    }

    /// The width of a bin.
    pub fn width(&self) -> f64 {
        2f64.powi(self.exponent.unwrap_or(0) - bits())
    }

    /// Values below zero and above, by magnitude: bin `k` holds magnitudes from `k` widths to `k + 1`.
    /// Empty without values other than zero.
    pub fn sides(&self) -> [&[u64]; 2] {
        [&self.negative, &self.positive]
    }

    /// How far values reach below zero and above: the ends of the last bins that hold any.
    pub fn bounds(&self) -> [f64; 2] {
        let end = |side: &[u64]| {
            let bins = side.iter().rposition(|c| *c > 0).map_or(0, |last| last + 1);
            (bins as f64 * self.width()).min(self.largest.into())
        };
        self.sides().map(end)
    }

    /// The mean of the values' squares, those of a bin being in its middle.
    pub fn mean_square(&self) -> f64 {
        let magnitudes = self.magnitudes().into_iter().enumerate();
        let square = |bin: usize| ((bin as f64 + 0.5) * self.width()).powi(2);
        let sum: f64 = magnitudes
            .map(|(bin, count)| count as f64 * square(bin))
            .sum();
        sum / self.count().max(1) as f64
    }

    /// Counts by magnitude.
    pub fn magnitudes(&self) -> Vec<u64> {
        let both = self.negative.iter().zip(&self.positive);
        both.map(|(a, b)| a + b).collect()
    }
}

/// The exponent of the number of bins.
const fn bits() -> i32 {
    BINS.ilog2() as i32
}

/// The least exponent whose power is above a magnitude.
fn exponent(largest: f32) -> i32 {
    let mut exponent = largest.log2().floor() as i32 + 1;
    // The logarithm is rounded.
    while 2f64.powi(exponent) <= f64::from(largest) {
        exponent += 1;
    }
    while 2f64.powi(exponent - 1) > f64::from(largest) {
        exponent -= 1;
    }
    exponent.clamp(*EXPONENTS.start(), *EXPONENTS.end())
}

fn largest(values: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    let chunks = values.chunks_exact(16);
    let rest = chunks.remainder();
    let finite = |v: f32| {
        if v.abs() < f32::INFINITY {
            v.abs()
        } else {
            0.0
        }
    };
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = lane.max(finite(*value));
        }
    }
    let rest = rest.iter().map(|v| finite(*v));
    lanes.into_iter().chain(rest).fold(0.0, f32::max)
}

/// Where a value is counted.
fn slot_of(value: f32, inverse: f32, largest: f32) -> u16 {
    let magnitude = value.abs();
    let bin = ((magnitude * inverse) as i32).min(BINS as i32 - 1) as u16;
    let side = if value > 0.0 { bin + BINS as u16 } else { bin };
    let slot = if value == 0.0 { ZERO as u16 } else { side };
    if magnitude <= largest {
        slot
    } else {
        OTHER as u16
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values of very different sizes, some zero, some not finite.
    fn values() -> impl Strategy<Value = Vec<f32>> {
        let value = prop_oneof![
            -1.0f32..1.0,
            (-130i32..130, -2.0f32..2.0).prop_map(|(e, m)| m * 2f32.powi(e)),
            Just(0.0),
            Just(-0.0),
            Just(f32::INFINITY),
            Just(f32::NAN),
            (-4i32..4).prop_map(|e| 2f32.powi(e)),
        ];
        proptest::collection::vec(value, 0..3000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn counts_are_those_of_looking_at_each_bin(values in values()) {
            let histogram = Histogram::of(&values);
            let finite: Vec<f64> = values.iter().filter(|v| v.is_finite()).map(|&v| v.into()).collect();
            prop_assert_eq!(histogram.count(), finite.len() as u64);
            prop_assert_eq!(histogram.zeros(), finite.iter().filter(|v| **v == 0.0).count() as u64);
            let largest = finite.iter().fold(0f64, |m, v| m.max(v.abs()));
            prop_assert_eq!(f64::from(histogram.largest()), largest);
            // The range is no more than twice what is needed, where floats allow it.
            let width = histogram.width();
            let range = width * BINS as f64;
            prop_assert!(largest < range || largest == 0.0);
            prop_assert!(largest >= range / 2.0 || largest < 2f64.powi(-99));
            for (sign, side) in [-1.0, 1.0].into_iter().zip(histogram.sides()) {
                for (bin, &count) in side.iter().enumerate() {
                    let within = |v: &&f64| {
                        let m = **v * sign;
                        m > 0.0 && m >= bin as f64 * width && m < (bin + 1) as f64 * width
                    };
                    prop_assert_eq!(count, finite.iter().filter(within).count() as u64);
                }
            }
        }

        #[test]
        fn parts_in_any_order_are_the_whole(values in values(), cuts in proptest::collection::vec(0usize..3000, 0..4)) {
            let whole = Histogram::of(&values);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c % (values.len() + 1)).collect();
            cuts.extend([0, values.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[f32]> = cuts.windows(2).map(|c| &values[c[0]..c[1]]).collect();
            let [mut there, mut back] = [Histogram::new(), Histogram::new()];
            parts.iter().for_each(|part| there.merge(Histogram::of(part)));
            parts.iter().rev().for_each(|part| back.merge(Histogram::of(part)));
            prop_assert_eq!(&there, &whole);
            prop_assert_eq!(&back, &whole);
        }
    }
}
