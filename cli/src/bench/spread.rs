//! What samples count as.

/// First quartile, median and third quartile of samples; NaN without any.
pub fn quartiles(mut samples: Vec<f64>) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    let at = |n: usize| samples.get((samples.len() * n / 4).min(last));
    [1, 2, 3].map(|n| at(n).copied().unwrap_or(f64::NAN))
}

/// The median.
pub fn median(samples: Vec<f64>) -> f64 {
    quartiles(samples)[1]
}
