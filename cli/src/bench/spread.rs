//! What samples count as.

/// First quartile, median and third quartile of samples; NaN without any. Of an even number, the median lies
/// between two.
pub fn quartiles(mut samples: Vec<f64>) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    let count = samples.len();
    let last = count.saturating_sub(1);
    let at = |index: usize| samples.get(index.min(last)).copied().unwrap_or(f64::NAN);
    let median = (at(last / 2) + at(count / 2)) / 2.0;
    [at(count / 4), median, at(count * 3 / 4)]
}

/// The median.
pub fn median(samples: Vec<f64>) -> f64 {
    quartiles(samples)[1]
}
