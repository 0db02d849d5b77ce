//! Each method against its definition, computed slowly from the values themselves.

use proptest::prelude::*;

use super::*;

/// What QuantizeLinear cuts off at.
const INT8: [f32; 2] = [-128.0, 127.0];

/// Values of a distribution by a seed: bells, long tails, one-sided ones, a few far away.
fn values(kind: u32, seed: u32, count: usize) -> Vec<f32> {
    let mut state = u64::from(seed) * 2 + 1;
    let mut uniform = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let one = |i: usize| {
        let bell = (0..6).map(|_| uniform()).sum::<f32>() - 3.0;
        match kind % 5 {
            0 => bell,
            1 => bell.powi(3),
            2 => bell.max(0.0),
            3 if i % 500 == 7 => bell * 20.0,
            3 => bell * 0.25,
            _ => uniform() - 0.1,
        }
    };
    (0..count).map(one).collect()
}

/// The step of values without a zero point.
fn symmetric(method: Method, values: &Histogram, mode: Mode) -> f32 {
    let scale = method.scale(values, mode, Zero::Middle);
    assert_eq!(scale.zero, 0);
    scale.step
}

/// The squared errors of values as QuantizeLinear and DequantizeLinear give them.
fn error(values: &[f32], scale: Scale) -> f64 {
    let (step, zero) = (f64::from(scale.step), f64::from(scale.zero));
    let one = |v: &f32| {
        let q = (f64::from(*v) / step).round_ties_even() + zero;
        ((q.clamp(-128.0, 127.0) - zero) * step - f64::from(*v)).powi(2)
    };
    values.iter().map(one).sum()
}

/// KL divergence as TensorRT has it, on explicit distributions.
fn slow_divergence(counts: &[u64], bins: usize) -> f64 {
    let mut p: Vec<f64> = counts[..bins].iter().map(|c| *c as f64).collect();
    let reference = p.clone();
    p[bins - 1] += counts[bins..].iter().sum::<u64>() as f64;
    let mut q = vec![0.0; bins];
    for level in 0..128 {
        let held: Vec<usize> = (0..bins)
            .filter(|bin| *bin >= level * bins / 128 && *bin < (level + 1) * bins / 128)
            .collect();
        let sum: f64 = held.iter().map(|bin| reference[*bin]).sum();
        let filled: Vec<usize> = held.into_iter().filter(|bin| p[*bin] > 0.0).collect();
        for bin in &filled {
            q[*bin] = sum.max(0.5) / filled.len() as f64;
        }
    }
    let (all, kept) = (p.iter().sum::<f64>(), reference.iter().sum::<f64>());
    let term = |(p, q): (&f64, &f64)| {
        if *p > 0.0 {
            p / all * ((p / all) / (q / kept)).ln()
        } else {
            0.0
        }
    };
    p.iter().zip(&q).map(term).sum()
}

#[test]
fn methods_have_names() {
    for text in ["min-max", "percentile:99.9", "mse", "entropy"] {
        assert_eq!(
            text.parse::<Method>().map(|m| m.to_string()),
            Ok(text.to_owned())
        );
    }
    assert_eq!("percentile".parse(), Ok(Method::Percentile(PERCENTILE)));
    for text in [
        "",
        "max",
        "mse:1",
        "percentile:",
        "percentile:0",
        "percentile:101",
        "percentile:nan",
    ] {
        assert!(text.parse::<Method>().is_err(), "{text}");
    }
}

#[test]
fn values_that_are_all_zero_have_some_scale() {
    for method in [
        Method::MinMax,
        Method::Percentile(99.0),
        Method::Mse,
        Method::Entropy,
    ] {
        for mode in [Mode::Multiply, Mode::Shift] {
            for zero in [Zero::Middle, Zero::Anywhere] {
                assert_eq!(
                    method.scale(&Histogram::of(&[0.0, f32::NAN]), mode, zero),
                    Scale::symmetric(NO_SCALE)
                );
                // The least and the largest there are.
                for value in [f32::from_bits(1), f32::MAX, f32::MIN] {
                    let scale = method.scale(&Histogram::of(&[value; 9]), mode, zero);
                    assert!(
                        scale.step.is_normal() && scale.step > 0.0,
                        "{method} {mode:?} {value:e}: {scale:?}"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn min_max_cuts_nothing_off(kind in 0u32..5, seed: u32) {
        let values = values(kind, seed, 3000);
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let histogram = Histogram::of(&values);
        let step = |mode: Mode| symmetric(Method::MinMax, &histogram, mode);
        prop_assert_eq!(step(Mode::Multiply), largest / 127.0);
        let shift = step(Mode::Shift);
        prop_assert!(shift.log2().fract() == 0.0 && shift >= largest / 127.0 && shift / 2.0 < largest / 127.0);
    }

    #[test]
    fn a_percentile_is_that_of_the_sorted_values(kind in 0u32..5, seed: u32, percent in 50.0f64..100.0) {
        let values = values(kind, seed, 5000);
        let histogram = Histogram::of(&values);
        let threshold = f64::from(symmetric(Method::Percentile(percent), &histogram, Mode::Multiply)) * 127.0;
        let mut sorted: Vec<f64> = values.iter().map(|v| f64::from(v.abs())).collect();
        sorted.sort_by(f64::total_cmp);
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        let exact = sorted[rank.clamp(1, sorted.len()) - 1];
        // The end of the bin that it lies in.
        prop_assert!(threshold >= exact * (1.0 - 1e-6), "{threshold} {exact}");
        prop_assert!(threshold <= exact + histogram.width() * 1.001, "{threshold} {exact}");
    }

    #[test]
    fn mse_is_the_smallest_of_the_errors_of_all_values(kind in 0u32..5, seed: u32) {
        let values = values(kind, seed, 20_000);
        for mode in [Mode::Multiply, Mode::Shift] {
            let step = symmetric(Method::Mse, &Histogram::of(&values), mode);
            let [found, least] = [step, best_scale(&values, mode, INT8)].map(|s| squared_error(&values, s.into(), INT8));
            prop_assert!(found <= least * 1.01, "{kind} {mode:?}: {found} for {least}");
        }
    }

    #[test]
    fn the_expected_error_is_that_of_values_all_over_each_bin(
        kind in 0u32..5, seed: u32, part in 0.05f64..1.0, zero in prop_oneof![Just(0i8), any::<i8>()],
    ) {
        let histogram = Histogram::of(&values(kind, seed, 200));
        let step = f64::from(histogram.largest()) / 127.0 * part;
        let scale = Scale { step: step as f32, zero };
        let mut sum = 0.0;
        for (sign, side) in [-1.0, 1.0].into_iter().zip(histogram.sides()) {
            for (bin, &count) in side.iter().enumerate().filter(|(_, c)| **c > 0) {
                let within = |k: u32| (sign * (bin as f64 + (f64::from(k) + 0.5) / 1000.0) * histogram.width()) as f32;
                let points: Vec<f32> = (0..1000).map(within).collect();
                sum += count as f64 * error(&points, scale) / 1000.0;
            }
        }
        let expected = sum / histogram.count() as f64;
        let found = Errors::new(&histogram).mean(scale);
        prop_assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
    }

    #[test]
    fn entropy_has_the_smallest_divergence(kind in 0u32..5, seed: u32) {
        let values = values(kind, seed, 20_000);
        let histogram = Histogram::of(&values);
        let mut counts = histogram.magnitudes();
        counts.truncate(counts.iter().rposition(|c| *c > 0).unwrap() + 1);
        let sums = Sums::of(&counts);
        let used = counts.len();
        for bins in [128, 129, 200, 555, used - 1, used] {
            let (fast, slow) = (divergence(&sums, bins), slow_divergence(&counts, bins));
            prop_assert!((fast - slow).abs() < 1e-9 * slow.abs().max(1.0), "{bins}: {fast} {slow}");
        }
        let threshold = f64::from(symmetric(Method::Entropy, &histogram, Mode::Multiply)) * 127.0;
        // The scale is rounded to a float.
        let bins = (threshold / histogram.width() * (1.0 - 1e-6)).ceil() as usize;
        let found = slow_divergence(&counts, bins.min(used));
        for other in (128..=used).step_by(37) {
            prop_assert!(found <= slow_divergence(&counts, other) + 1e-9);
        }
    }

    /// What reaches as far on both sides has half of the steps on each; what lies on one side has all.
    #[test]
    fn zero_points_give_both_sides_the_steps_that_they_need(
        kind in 0u32..5, seed: u32, turned: bool, shift: bool,
    ) {
        let mut values = values(kind, seed, 3000);
        if turned {
            values.iter_mut().for_each(|v| *v = -*v);
        }
        let mode = if shift { Mode::Shift } else { Mode::Multiply };
        let histogram = Histogram::of(&values);
        let [low, high] = [f32::min, f32::max].map(|of| f64::from(values.iter().copied().fold(0f32, of)));
        let scale = Method::MinMax.scale(&histogram, mode, Zero::Anywhere);
        let (step, zero) = (f64::from(scale.step), f64::from(scale.zero));
        // Nothing is cut off but what rounding the zero point to a step takes.
        prop_assert!(low / step + zero >= -128.5 - 1e-3 && high / step + zero <= 127.5 + 1e-3, "{scale:?}");
        let full = (high - low) / 255.0;
        let most = if shift { 2.01 } else { 1.01 };
        prop_assert!(step >= full * 0.999 && step <= full * most, "{step} {full}");
        if low == 0.0 {
            prop_assert_eq!(scale.zero, -128);
        }
        if high == 0.0 && !shift {
            prop_assert_eq!(scale.zero, 127);
        }
    }

    /// A zero point never makes more of the error of all values, and takes three quarters off that of one side.
    #[test]
    fn zero_points_make_the_error_smaller(kind in 0u32..5, seed: u32) {
        let values = values(kind, seed, 20_000);
        let histogram = Histogram::of(&values);
        let of = |zero: Zero| error(&values, Method::Mse.scale(&histogram, Mode::Multiply, zero));
        let [with, without] = [of(Zero::Anywhere), of(Zero::Middle)];
        prop_assert!(with <= without * 1.05, "{with} {without}");
        if kind % 5 == 2 {
            prop_assert!(with < without * 0.4, "{with} {without}");
        }
    }
}
