//! The means of a value's channels.

/// Values added up at a time.
const LANES: usize = 8;

/// Sums over images and positions, for each channel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Channels {
    sums: Vec<f64>,
    /// Values of each channel.
    count: u64,
}

impl Channels {
    /// Of values channel by channel, so many of each.
    pub fn of(values: &[f32], each: usize) -> Self {
        Self {
            sums: values.chunks(each.max(1)).map(sum).collect(),
            count: each as u64,
        }
    }

    /// Adds those of another image.
    pub fn merge(&mut self, other: &Self) {
        let sums = self.sums.iter_mut().zip(&other.sums);
        sums.for_each(|(a, b)| *a += b);
        self.count += other.count;
    }

    /// Means.
    pub fn means(&self) -> Vec<f64> {
        let count = self.count.max(1) as f64;
        self.sums.iter().map(|sum| sum / count).collect()
    }
}

/// The sum of values, of which those that aren't finite count as 0.
fn sum(values: &[f32]) -> f64 {
    let finite = |v: &f32| f64::from(if v.abs() < f32::INFINITY { *v } else { 0.0 });
    let mut sums = [0f64; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += finite(value);
        }
    }
    sums.into_iter().chain(rest.iter().map(finite)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_one_channel_at_a_time() {
        let value = |i: usize| match i % 97 {
            13 => f32::NAN,
            14 => f32::NEG_INFINITY,
            _ => ((i * 7919) % 1000) as f32 - 499.5,
        };
        let image = |k: usize| (0..3 * 45).map(|i| value(i + 31 * k)).collect();
        let images: Vec<Vec<f32>> = (0..3).map(image).collect();
        let mut all = Channels::of(&images[0], 45);
        images[1..]
            .iter()
            .for_each(|image| all.merge(&Channels::of(image, 45)));
        for channel in 0..3 {
            let own = images.iter().flat_map(|image| &image[channel * 45..][..45]);
            let own: Vec<f64> = own
                .map(|&v| if v.is_finite() { v.into() } else { 0.0 })
                .collect();
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            assert!((all.means()[channel] - mean).abs() < 1e-9);
        }
    }
}
