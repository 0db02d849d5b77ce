//! How the scale of a value is chosen from what the calibration images showed of it.

use std::fmt;
use std::str::FromStr;

use super::histogram::Histogram;
use super::mode::{Mode, Scale};
use crate::qgraph::Numbers as Activations;

/// The scale of values that are all zero.
const NO_SCALE: f32 = 1.0 / 128.0;
/// Steps of int8 on each side of zero.
const STEPS: usize = 127;
/// All steps of int8.
const ALL_STEPS: f64 = 255.0;
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

/// Where the zero point of values lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    /// At 0.
    Middle,
    /// At 0, of int16.
    Wide,
    /// Where the values on both sides of it have the steps that they need.
    Anywhere,
}

impl Method {
    /// The scale of values.
    pub(super) fn scale(self, values: &Histogram, mode: Mode, zero: Zero) -> Scale {
        if values.largest() == 0.0 {
            return Scale::symmetric(NO_SCALE);
        }
        let bounds = values.bounds();
        let threshold = match self {
            Self::MinMax => f64::from(values.largest()),
            Self::Percentile(percent) => percentile(values, percent),
            Self::Entropy => entropy(values),
            Self::Mse => {
                let candidates = candidates(full(bounds, zero), mode).into_iter();
                let scales = candidates.map(|step| of_step(step, bounds, zero));
                let errors = Errors::new(values);
                return best_of(scales, |scale| match zero {
                    Zero::Wide => errors.within(
                        scale.step,
                        Activations::Int16.last(),
                        Activations::Int16.last(),
                    ),
                    Zero::Middle | Zero::Anywhere => errors.mean(scale),
                });
            }
        };
        within(bounds.map(|bound| bound.min(threshold)), mode, zero)
    }
}

/// The scale whose steps reach just as far as values do below zero and above.
pub(super) fn within(bounds: [f64; 2], mode: Mode, zero: Zero) -> Scale {
    let full = full(bounds, zero);
    let step = match mode {
        Mode::Multiply => full,
        Mode::Shift => 2f64.powi(full.log2().ceil() as i32),
    };
    of_step(step, bounds, zero)
}

/// The least step with which int8, or int16, reaches as far as values do below zero and above.
fn full([low, high]: [f64; 2], zero: Zero) -> f64 {
    match zero {
        Zero::Middle => low.max(high) / STEPS as f64,
        Zero::Wide => low.max(high) / Activations::Int16.last(),
        Zero::Anywhere => (low + high) / ALL_STEPS,
    }
}

/// A step with its zero point: the side that reaches less far is held whole, if half of the steps are enough for it.
fn of_step(step: f64, bounds: [f64; 2], zero: Zero) -> Scale {
    let step = (step as f32).max(f32::MIN_POSITIVE);
    let [low, high] = bounds.map(|bound| (bound / f64::from(step)).round());
    let zero = match zero {
        Zero::Middle | Zero::Wide => 0.0,
        Zero::Anywhere if low + high <= ALL_STEPS => -128.0 + low,
        Zero::Anywhere if low <= high => -128.0 + low.min(128.0),
        Zero::Anywhere => 127.0 - high.min(127.0),
    };
    Scale {
        step,
        zero: zero.clamp(-128.0, 127.0) as i8,
    }
}

/// Steps to try where `full` is the least that cuts nothing off: from 100 % to 30 % of it in steps of 2 %, and on to
/// 2 % in steps of a twentieth, or powers of two around it. None where nothing can be measured.
fn candidates(full: f64, mode: Mode) -> Vec<f64> {
    if full == 0.0 || !full.is_finite() {
        return Vec::new();
    }
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
fn best_of(scales: impl Iterator<Item = Scale>, error: impl Fn(Scale) -> f64) -> Scale {
    let mut best = (f64::INFINITY, None);
    for scale in scales {
        let error = error(scale);
        if error < best.0 || best.1.is_none() {
            best = (error, Some(scale));
        }
    }
    best.1.unwrap_or(Scale::symmetric(NO_SCALE))
}

/// The scale of few values, all of which are at hand, with the smallest squared error where steps are within a range.
pub(super) fn best_scale(values: &[f32], mode: Mode, range: [f32; 2]) -> f32 {
    let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
    let candidates = candidates(f64::from(largest) / f64::from(range[1]), mode).into_iter();
    let scales = candidates.map(|step| of_step(step, [0.0; 2], Zero::Middle));
    let error = |scale: Scale| squared_error(values, scale.step.into(), range);
    best_of(scales, error).step
}

/// The squared errors of values that are rounded to steps of a scale within a range, added up.
fn squared_error(values: &[f32], scale: f64, range: [f32; 2]) -> f64 {
    let [low, high] = range.map(f64::from);
    let one = |v: &f32| {
        let v = f64::from(*v);
        let q = (v / scale).round_ties_even().clamp(low, high);
        (q * scale - v).powi(2)
    };
    values.iter().map(one).sum()
}

/// The squared errors that values are to expect of scales, the values of a bin spread evenly over it.
pub(super) struct Errors {
    /// Of values below zero and above, by magnitude, up to the last bin that holds any.
    sides: [Vec<f64>; 2],
    width: f64,
    count: f64,
}

impl Errors {
    pub fn new(values: &Histogram) -> Self {
        let side = |counts: &[u64]| {
            let used = counts.iter().rposition(|c| *c > 0);
            let used = used.map_or(0, |last| last + 1);
            counts[..used].iter().map(|c| *c as f64).collect()
        };
        Self {
            sides: values.sides().map(side),
            width: values.width(),
            count: values.count().max(1) as f64,
        }
    }

    /// The mean of all values.
    pub fn mean(&self, scale: Scale) -> f64 {
        let zero = f64::from(scale.zero);
        self.within(scale.step, 128.0 + zero, 127.0 - zero)
    }

    /// The mean with so many steps below zero and above.
    fn within(&self, step: f32, below: f64, above: f64) -> f64 {
        let step = f64::from(step);
        let [negative, positive] = &self.sides;
        let bin = self.width / step;
        let error = side(negative, bin, below) + side(positive, bin, above);
        // From twelfths to whole ones and from steps to values, and from sums over a bin to means.
        error / 12.0 * step.powi(3) / self.width / self.count
    }
}

/// Bins whose ends are worked out together.
const TOGETHER: usize = 128;

/// Twelve times the squared errors of the values of bins, each so many steps wide, with steps up to `last`.
fn side(counts: &[f64], bin: f64, last: f64) -> f64 {
    let mut sums = [0f64; 4];
    let mut up_to = [0f64; TOGETHER + 1];
    for (first, counts) in (0i32..).step_by(TOGETHER).zip(counts.chunks(TOGETHER)) {
        for (at, up_to) in (first..).zip(&mut up_to) {
            *up_to = error_up_to(f64::from(at) * bin, last);
        }
        for (at, count) in counts.iter().enumerate() {
            sums[at % 4] += count * (up_to[at + 1] - up_to[at]);
        }
    }
    sums.iter().sum()
}

/// Twelve times the squared distance to the nearest of the steps up to `last`, integrated from 0 to `end`.
fn error_up_to(end: f64, last: f64) -> f64 {
    // Beside it a float has no fraction: far faster than `round`, and halfway between two steps both give the same.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let nearest = ((end + WHOLE) - WHOLE).min(last);
    // From one step to the next the distance is 1 / 12, from a step on a third of the cube.
    let beyond = end - nearest;
    nearest + 4.0 * beyond * beyond * beyond
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
