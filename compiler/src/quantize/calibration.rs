//! What scales cost over many images, of which a few are held at a time.
//!
//! The scales that are worth trying depend on the largest magnitude, which is known only when all
//! images have been seen. Samples are kept up to a limit meanwhile; images beyond it are run a
//! second time. Either way the errors are the same sums in the same order.

use std::ops::Range;

use rayon::prelude::*;

use crate::float::FloatError;

/// Bytes of samples that are kept for the second pass.
const KEPT_BYTES: usize = 128 << 20;
/// Images for each thread that are held at a time.
const IMAGES_PER_THREAD: usize = 4;
/// The scale of values that are all zero.
const NO_SCALE: f32 = 1.0 / 128.0;

/// An image that can't be calibrated with.
#[derive(Debug)]
pub(super) enum Fault {
    /// It can't be read, and why.
    Image(String),
    /// It can't be run.
    Float(FloatError),
}

/// Images to calibrate with: preprocessed, float32, NCHW.
pub trait Calibration: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Some of them. Ranges go from the first image to the last, and may do so twice.
    ///
    /// # Errors
    /// Why an image can't be read, in words.
    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String>;
}

impl Calibration for &[Vec<f32>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
        Ok(self[range].to_vec())
    }
}

/// Samples of every value of a network on one image.
type Samples = Vec<Vec<f32>>;
/// Runs a network on an image.
type Sample<'a> = dyn Fn(&Vec<f32>) -> Result<Samples, FloatError> + Sync + 'a;

/// What scales cost, for every value of a network.
pub(super) struct Errors<'a> {
    images: &'a dyn Calibration,
    sample: &'a Sample<'a>,
    /// Largest magnitudes.
    largest: Vec<f32>,
    /// Of the first images.
    kept: Vec<Samples>,
    /// Scales that are tried, and the squared error of each.
    scales: Vec<(Vec<f64>, Vec<f64>)>,
}

impl<'a> Errors<'a> {
    /// Sees all images once.
    ///
    /// # Errors
    /// An image that can't be read or run.
    pub fn new(
        images: &'a dyn Calibration,
        sample: &'a Sample<'a>,
        values: usize,
    ) -> Result<Self, Fault> {
        let mut errors = Self {
            images,
            sample,
            largest: vec![0.0; values],
            kept: Vec::new(),
            scales: Vec::new(),
        };
        let mut kept_bytes = 0;
        for range in ranges(0..images.count()) {
            for samples in errors.samples(range)? {
                for (largest, values) in errors.largest.iter_mut().zip(&samples) {
                    *largest = values.iter().fold(*largest, |m, v| m.max(v.abs()));
                }
                let bytes: usize = samples.iter().map(|v| size_of_val(&v[..])).sum();
                kept_bytes += bytes;
                // Without gaps: what is beyond the limit is run again.
                if kept_bytes <= KEPT_BYTES {
                    errors.kept.push(samples);
                }
            }
        }
        Ok(errors)
    }

    /// The largest magnitude of each value.
    pub fn largest(&self) -> &[f32] {
        &self.largest
    }

    /// Adds up what scales cost that are chosen by the largest magnitude.
    ///
    /// # Errors
    /// An image that can't be read or run a second time.
    pub fn try_scales(&mut self, choose: impl Fn(f32) -> Vec<f64>) -> Result<(), Fault> {
        let none = |scales: Vec<f64>| (vec![0.0; scales.len()], scales);
        let chosen = self.largest.iter().map(|largest| none(choose(*largest)));
        self.scales = chosen.map(|(errors, scales)| (scales, errors)).collect();
        let kept = std::mem::take(&mut self.kept);
        self.add(&kept);
        for range in ranges(kept.len()..self.images.count()) {
            let samples = self.samples(range)?;
            self.add(&samples);
        }
        Ok(())
    }

    /// The scale of a value that costs the least, the first of equal ones.
    pub fn best(&self, value: usize) -> f32 {
        let (scales, errors) = &self.scales[value];
        best_of(scales, errors)
    }

    fn samples(&self, range: Range<usize>) -> Result<Vec<Samples>, Fault> {
        let images = self.images.images(range).map_err(Fault::Image)?;
        let samples = images.par_iter().map(self.sample);
        samples.collect::<Result<_, _>>().map_err(Fault::Float)
    }

    fn add(&mut self, images: &[Samples]) {
        let all = self.scales.par_iter_mut().enumerate();
        all.for_each(|(value, (scales, errors))| {
            for samples in images {
                add_errors(errors, scales, &samples[value]);
            }
        });
    }
}

/// A range in pieces that are held at a time.
fn ranges(all: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let step = IMAGES_PER_THREAD * rayon::current_num_threads();
    let end = all.end;
    all.step_by(step)
        .map(move |first| first..end.min(first + step))
}

/// Adds the squared errors of values that are rounded to steps of each scale.
pub(super) fn add_errors(errors: &mut [f64], scales: &[f64], values: &[f32]) {
    for (error, scale) in errors.iter_mut().zip(scales) {
        let one = |v: &f32| {
            let v = f64::from(*v);
            let q = (v / scale).round_ties_even().clamp(-128.0, 127.0);
            (q * scale - v).powi(2)
        };
        *error = values.iter().map(one).fold(*error, |sum, e| sum + e);
    }
}

/// The scale with the smallest error, the first of equal ones.
pub(super) fn best_of(scales: &[f64], errors: &[f64]) -> f32 {
    let Some(&first) = scales.first() else {
        return NO_SCALE;
    };
    let mut best = (f64::INFINITY, first);
    for (&error, &scale) in errors.iter().zip(scales) {
        if error < best.0 {
            best = (error, scale);
        }
    }
    best.1 as f32
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Images of two values each, larger ones later.
    struct Counted {
        count: usize,
        read: AtomicUsize,
    }

    impl Calibration for Counted {
        fn count(&self) -> usize {
            self.count
        }

        fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
            self.read.fetch_add(range.len(), Ordering::Relaxed);
            Ok(range.map(|i| vec![i as f32 * 0.37, -1.0]).collect())
        }
    }

    #[test]
    fn samples_beyond_the_limit_are_taken_again_with_the_same_sums() {
        // A network of one value with many samples, so that a few images reach the limit.
        let many = KEPT_BYTES / 4 / 40;
        let sample = |image: &Vec<f32>| -> Result<Samples, FloatError> {
            Ok(vec![
                (0..many).map(|i| image[i % 2] * (i % 7) as f32).collect(),
            ])
        };
        let images = Counted {
            count: 64,
            read: AtomicUsize::new(0),
        };
        let mut errors = Errors::new(&images, &sample, 1).unwrap();
        assert!(errors.kept.len() < 64 && !errors.kept.is_empty());
        let again = 64 - errors.kept.len();
        let choose = |largest: f32| vec![f64::from(largest) / 127.0, f64::from(largest) / 200.0];
        errors.try_scales(choose).unwrap();
        assert_eq!(images.read.load(Ordering::Relaxed), 64 + again);
        let (scales, found) = &errors.scales[0];
        let mut expected = vec![0.0; 2];
        for image in images.images(0..64).unwrap() {
            add_errors(&mut expected, scales, &sample(&image).unwrap()[0]);
        }
        assert_eq!(found, &expected);
        assert_eq!(errors.best(0), best_of(scales, &expected));
    }
}
