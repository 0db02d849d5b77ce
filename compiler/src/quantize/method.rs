//! How the scale of a value is chosen from what the calibration images showed of it.

use std::fmt;
use std::str::FromStr;

use super::histogram::Histogram;
use super::mode::Mode;

/// The scale of values that are all zero.
const NO_SCALE: f32 = 1.0 / 128.0;
/// Steps of int8 on each side of zero.
const STEPS: usize = 127;
/// Percentile where none is given.
const PERCENTILE: f64 = 99.99;

/// How scales are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Method {
    /// The largest magnitude is the last step: nothing is cut off.
    MinMax,
    /// So many percent of all values, from above 0 to 100, are no larger than the last step.
    Percentile(f64),
    /// The smallest mean squared error of rounding and cutting off.
    #[default]
    Mse,
    /// The smallest Kullback-Leibler divergence between the distribution of magnitudes, cut off, and
    /// what is left of it with 128 levels, as in TensorRT: "8-bit Inference with TensorRT" (Migacz,
    /// 2017). Zeros, which every scale holds exactly, aren't part of it.
    Entropy,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinMax => f.write_str("min-max"),
            Self::Percentile(percent) => write!(f, "percentile:{percent}"),
            Self::Mse => f.write_str("mse"),
            Self::Entropy => f.write_str("entropy"),
        }
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        match (name, value) {
            ("min-max", None) => Ok(Self::MinMax),
            ("mse", None) => Ok(Self::Mse),
            ("entropy", None) => Ok(Self::Entropy),
            ("percentile", None) => Ok(Self::Percentile(PERCENTILE)),
            ("percentile", Some(value)) => match value.parse() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Percentile(percent)),
                _ => Err(format!("'{value}' is no percentage above 0, up to 100")),
            },
            _ => Err(
                "it is none of min-max, percentile, percentile:99.9, mse and entropy".to_owned(),
            ),
        }
    }
}

impl Method {
    /// The scale of values.
    pub(super) fn scale(self, values: &Histogram, mode: Mode) -> f32 {
        if values.largest() == 0.0 {
            return NO_SCALE;
        }
        let threshold = match self {
            Self::MinMax => f64::from(values.largest()),
            Self::Percentile(percent) => percentile(values, percent),
            Self::Entropy => entropy(values),
            Self::Mse => {
                let candidates = candidates(values.largest(), mode);
                let errors: Vec<f64> = candidates
                    .iter()
                    .map(|s| mean_squared_error(values, *s))
                    .collect();
                return best_of(&candidates, &errors);
            }
        };
        let scale = threshold / STEPS as f64;
        match mode {
            Mode::Multiply => scale as f32,
            Mode::Shift => 2f64.powi(scale.log2().ceil() as i32) as f32,
        }
        .max(f32::MIN_POSITIVE)
    }
}

/// Scales to try for values up to a magnitude: clips from 100 % to 30 % of it in steps of 2 %, and on to
/// 2 % in steps of a twentieth, or powers of two around it. None where nothing can be measured.
fn candidates(largest: f32, mode: Mode) -> Vec<f64> {
    if largest == 0.0 || !largest.is_finite() {
        return Vec::new();
    }
    let full = f64::from(largest) / STEPS as f64;
    match mode {
        Mode::Multiply => {
            let near = (0..=35).map(|k| 1.0 - 0.02 * f64::from(k));
            let far = (1..=53).map(|k| 0.3 * 0.95f64.powi(k));
            near.chain(far).map(|part| full * part).collect()
        }
        Mode::Shift => {
            let top = full.log2().ceil() as i32;
            (top - 4..=top).rev().map(|e| 2f64.powi(e)).collect()
        }
    }
}

/// The scale with the smallest error, the first of equal ones.
fn best_of(scales: &[f64], errors: &[f64]) -> f32 {
    let Some(&first) = scales.first() else {
        return NO_SCALE;
    };
    let mut best = (f64::INFINITY, first);
    for (&error, &scale) in errors.iter().zip(scales) {
        if error < best.0 {
            best = (error, scale);
        }
    }
    (best.1 as f32).max(f32::MIN_POSITIVE)
}

/// The scale of few values, all of which are at hand, with the smallest squared error.
pub(super) fn best_scale(values: &[f32], mode: Mode) -> f32 {
    let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
    let candidates = candidates(largest, mode);
    let errors: Vec<f64> = candidates
        .iter()
        .map(|s| squared_error(values, *s))
        .collect();
    best_of(&candidates, &errors)
}

/// The squared errors of values that are rounded to steps of a scale, added up.
fn squared_error(values: &[f32], scale: f64) -> f64 {
    let one = |v: &f32| {
        let v = f64::from(*v);
        let q = (v / scale).round_ties_even().clamp(-128.0, 127.0);
        (q * scale - v).powi(2)
    };
    values.iter().map(one).sum()
}

/// The squared error that values are to expect, the values of a bin spread evenly over it.
fn mean_squared_error(values: &Histogram, scale: f64) -> f64 {
    let width = values.width();
    let side = |counts: &[u64], last: f64| -> f64 {
        let used = counts
            .iter()
            .rposition(|c| *c > 0)
            .map_or(0, |last| last + 1);
        let mut before = 0.0;
        let mut error = 0.0;
        for (bin, &count) in counts[..used].iter().enumerate() {
            let up_to = error_up_to((bin + 1) as f64 * width / scale, last);
            error += count as f64 * (up_to - before);
            before = up_to;
        }
        error
    };
    let [negative, positive] = values.sides();
    let error = side(negative, STEPS as f64 + 1.0) + side(positive, STEPS as f64);
    // From steps to values, and from sums over a bin to means.
    error * scale.powi(3) / width / values.count().max(1) as f64
}

/// The squared distance to the nearest of the steps up to `last`, integrated from 0 to `end`.
fn error_up_to(end: f64, last: f64) -> f64 {
    // It isn't negative: far faster than `round`, and halfway between two steps both give the same.
    let nearest = ((end + 0.5) as u64 as f64).min(last);
    // From one step to the next it is 1 / 12, from a step on a third of the cube.
    nearest / 12.0 + (end - nearest).powi(3) / 3.0
}

/// The end of the first bin up to which so many percent of the values lie, no larger than the largest.
pub(super) fn percentile(values: &Histogram, percent: f64) -> f64 {
    let wanted = values.count() as f64 * (percent / 100.0);
    let mut found = values.zeros() as f64;
    let largest = f64::from(values.largest());
    for (bin, count) in values.magnitudes().into_iter().enumerate() {
        found += count as f64;
        if found >= wanted {
            return ((bin + 1) as f64 * values.width()).min(largest);
        }
    }
    largest
}

/// The end of the bins that are kept where the divergence is smallest, no larger than the largest value.
fn entropy(values: &Histogram) -> f64 {
    let counts = values.magnitudes();
    let used = counts
        .iter()
        .rposition(|c| *c > 0)
        .map_or(0, |last| last + 1);
    let sums = Sums::of(&counts[..used]);
    let mut best = (f64::INFINITY, used);
    for bins in (STEPS + 1..=used).rev() {
        let divergence = divergence(&sums, bins);
        if divergence < best.0 {
            best = (divergence, bins);
        }
    }
    (best.1 as f64 * values.width()).min(f64::from(values.largest()))
}

/// Sums over the bins before each, so that a level takes no longer with more bins.
struct Sums {
    counts: Vec<u64>,
    /// Of counts.
    count: Vec<f64>,
    /// Of bins that hold something.
    filled: Vec<usize>,
    /// Of `c * ln c`.
    entropy: Vec<f64>,
}

impl Sums {
    fn of(counts: &[u64]) -> Self {
        let mut sums = Self {
            counts: counts.to_vec(),
            count: vec![0.0],
            filled: vec![0],
            entropy: vec![0.0],
        };
        for (bin, &count) in counts.iter().enumerate() {
            let c = count as f64;
            sums.count.push(sums.count[bin] + c);
            sums.filled.push(sums.filled[bin] + usize::from(count > 0));
            sums.entropy.push(sums.entropy[bin] + c * c.max(1.0).ln());
        }
        sums
    }
}

/// The divergence of the first bins, the last of which stands for all behind it, from what 128 levels
/// leave of them: each bin that holds something has the same share of its level. A level may hold nothing
/// where the last bin holds what was cut off alone; then that share is half of a value.
fn divergence(sums: &Sums, bins: usize) -> f64 {
    let all = sums.count.last().copied().unwrap_or(0.0);
    let kept = sums.count[bins];
    if kept == 0.0 {
        return f64::INFINITY;
    }
    let last = sums.counts[bins - 1] as f64;
    let cut = all - kept;
    let x_ln_x = |x: f64| if x > 0.0 { x * x.ln() } else { 0.0 };
    // The sum of p ln p - p ln q, of counts: their totals follow.
    let mut sum = sums.entropy[bins] - x_ln_x(last) + x_ln_x(last + cut);
    for level in 0..=STEPS {
        let [start, end] = [level, level + 1].map(|l| l * bins / (STEPS + 1));
        let mut held = sums.count[end] - sums.count[start];
        let mut share = sums.filled[end] - sums.filled[start];
        let mut own = held;
        if level == STEPS && cut > 0.0 {
            own += cut;
            share += usize::from(last == 0.0);
            held = held.max(0.5);
        }
        if own > 0.0 {
            sum -= own * (held / share as f64).ln();
        }
    }
    sum / all + (kept / all).ln()
}

#[cfg(test)]
mod tests;
