//! The channels of a value: their means and largest magnitudes.

/// Values added up at a time.
const LANES: usize = 8;

/// Sums over images and positions, for each channel.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::quantize) struct Channels {
    sums: Vec<f64>,
    largest: Vec<f32>,
    /// Values of each channel.
    count: u64,
}

impl Channels {
    /// Of values channel by channel, so many of each.
    pub fn of(values: &[f32], each: usize) -> Self {
        let rows = values.chunks(each.max(1));
        let (sums, largest) = rows.map(row).unzip();
        Self {
            sums,
            largest,
            count: each as u64,
        }
    }

    /// Adds those of another image.
    pub fn merge(&mut self, other: &Self) {
        let sums = self.sums.iter_mut().zip(&other.sums);
        sums.for_each(|(a, b)| *a += b);
        let largest = self.largest.iter_mut().zip(&other.largest);
        largest.for_each(|(a, b)| *a = a.max(*b));
        self.count += other.count;
    }

    /// Means.
    pub fn means(&self) -> Vec<f64> {
        let count = self.count.max(1) as f64;
        self.sums.iter().map(|sum| sum / count).collect()
    }

    /// Values of each channel.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Largest magnitudes.
    pub fn largest(&self) -> &[f32] {
        &self.largest
    }
}

/// The sum and the largest magnitude of values, of which those that aren't finite count as 0.
fn row(values: &[f32]) -> (f64, f32) {
    let finite = |v: f32| if v.abs() < f32::INFINITY { v } else { 0.0 };
    let mut sums = [0f64; LANES];
    let mut largest = [0f32; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = finite(chunk[lane]);
            sums[lane] += f64::from(value);
            largest[lane] = largest[lane].max(value.abs());
        }
    }
    let rest = rest.iter().map(|v| finite(*v));
    let most = rest.clone().map(f32::abs);
    (
        sums.into_iter().chain(rest.map(f64::from)).sum(),
        largest.into_iter().chain(most).fold(0.0, f32::max),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_those_of_one_at_a_time() {
        let value = |i: usize| match i % 97 {
            13 => f32::NAN,
            14 => f32::NEG_INFINITY,
            _ => ((i * 7919) % 1000) as f32 - 499.5,
        };
        let images: Vec<Vec<f32>> = (0..3)
            .map(|k| (0..3 * 45).map(|i| value(i + 31 * k)).collect())
            .collect();
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
            let largest = own.iter().fold(0f64, |m, v| m.max(v.abs()));
            assert_eq!(f64::from(all.largest()[channel]), largest);
        }
    }
}
