//! CIFAR-10 images and labels of the shared models.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

/// An array of an npz archive, flat.
///
/// # Panics
/// When the file can't be read: a test can't go on.
pub fn array<T: npyz::Deserialize>(path: &Path, name: &str) -> Vec<T> {
    let file = std::fs::File::open(path).unwrap();
    let mut archive = npyz::npz::NpzArchive::new(std::io::BufReader::new(file)).unwrap();
    archive.by_name(name).unwrap().unwrap().into_vec().unwrap()
}

/// Index of the largest value, the first of equal ones.
pub fn argmax<T: PartialOrd + Copy>(values: &[T]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// How a model wants its pixels: `(x * unit - mean) / std`.
pub struct Recipe {
    /// Real value of one step of a pixel.
    pub unit: f32,
    /// Of each channel.
    pub mean: [f32; 3],
    /// Of each channel.
    pub std: [f32; 3],
}

/// ImageNet's statistics.
pub const IMAGENET: Recipe = Recipe {
    unit: 1.0 / 255.0,
    mean: [0.485, 0.456, 0.406],
    std: [0.229, 0.224, 0.225],
};
/// CIFAR-10's statistics.
pub const CIFAR: Recipe = Recipe {
    unit: 1.0 / 255.0,
    mean: [0.4914, 0.4822, 0.4465],
    std: [0.2470, 0.2435, 0.2616],
};
/// Pixels as they are.
pub const RAW: Recipe = Recipe {
    unit: 1.0,
    mean: [0.0; 3],
    std: [1.0; 3],
};

impl Recipe {
    /// A 32x32 image, NCHW, normalised and resized (bilinear, half-pixel centres, edges clamped).
    pub fn input(&self, image: &[u8], size: usize) -> Vec<f32> {
        let pixel = |c: usize, y: usize, x: usize| {
            (f32::from(image[(c * 32 + y) * 32 + x]) * self.unit - self.mean[c]) / self.std[c]
        };
        let axis = |i: usize| {
            let at = ((i as f32 + 0.5) * 32.0 / size as f32 - 0.5).clamp(0.0, 31.0);
            (at as usize, (at as usize + 1).min(31), at.fract())
        };
        let mut out = Vec::with_capacity(3 * size * size);
        for c in 0..3 {
            for (top, bottom, fy) in (0..size).map(axis) {
                for (left, right, fx) in (0..size).map(axis) {
                    let row = |y| pixel(c, y, left) * (1.0 - fx) + pixel(c, y, right) * fx;
                    let value = row(top) * (1.0 - fy) + row(bottom) * fy;
                    out.push(value);
                }
            }
        }
        out
    }
}

/// Values in steps of a scale, as QuantizeLinear rounds them.
pub fn to_int8(values: &[f32], scale: f32) -> Vec<i16> {
    let round = |v: &f32| (v / scale).round_ties_even().clamp(-128.0, 127.0) as i16;
    values.iter().map(round).collect()
}

/// How many predictions are right.
pub fn right(predictions: &[usize], labels: &[u8]) -> usize {
    let pairs = predictions.iter().zip(labels);
    pairs.filter(|(p, l)| **p == usize::from(**l)).count()
}
