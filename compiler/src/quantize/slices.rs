//! Weights by the scales of their slices.

use rayon::prelude::*;

/// Weights that are worth a task of their own.
pub(super) const TASK: usize = 1 << 14;

/// The steps that weights may have.
pub(super) const INT8: [f32; 2] = [-127.0, 127.0];
/// Those of weights of 4 bits.
pub(super) const INT4: [f32; 2] = [-8.0, 7.0];

/// Scales of weights: one, or one for each of the `channels` slices of an axis, of `inner` weights.
pub(super) struct Slices {
    pub scale: Vec<f32>,
    pub axis: usize,
    pub channels: usize,
    pub inner: usize,
    /// The least and the largest step.
    pub range: [f32; 2],
}

impl Slices {
    /// That of a slice, counted over all that the weights have.
    pub(super) fn of(&self, slice: usize) -> f32 {
        let own = slice % self.channels.max(1);
        self.scale[if self.scale.len() == 1 { 0 } else { own }]
    }

    /// Weights in steps, the nearest, halves to even, within the range.
    pub(super) fn rounded(&self, weights: &[f32]) -> Vec<i8> {
        let (inner, [low, high]) = (self.inner.max(1), self.range);
        let mut rounded = vec![0; weights.len()];
        let slices = rounded.par_chunks_mut(inner).zip(weights.par_chunks(inner));
        let slices = slices.with_min_len((TASK / inner).max(1)).enumerate();
        slices.for_each(|(slice, (rounded, weights))| {
            let s = self.of(slice);
            for (rounded, w) in rounded.iter_mut().zip(weights) {
                *rounded = nearest((w / s).clamp(low, high)) as i8;
            }
        });
        rounded
    }

    /// How far weights from an index on are from what stands for them: rounded, in units of their
    /// scale, less themselves.
    pub(super) fn errors(&self, rounded: &[i8], weights: &[f32], first: usize, to: &mut [f64]) {
        let inner = self.inner.max(1);
        let mut at = 0;
        while at < to.len() {
            let slice = (first + at) / inner;
            let len = ((slice + 1) * inner - (first + at)).min(to.len() - at);
            let s = f64::from(self.of(slice));
            let (rounded, weights) = (&rounded[first + at..][..len], &weights[first + at..][..len]);
            for (to, (r, w)) in to[at..][..len].iter_mut().zip(rounded.iter().zip(weights)) {
                *to = f64::from(*r) * s - f64::from(*w);
            }
            at += len;
        }
    }
}

/// The whole number that is nearest to one of a magnitude below 2^22, halves to even.
#[inline]
fn nearest(value: f32) -> f32 {
    // To a float of this size none but whole numbers are added: no call for each value.
    const WHOLE: f32 = (3 << 22) as f32;
    value + WHOLE - WHOLE
}

/// Whether no value is infinite or not a number.
pub(super) fn are_finite(values: &[f32]) -> bool {
    // What isn't finite is larger than what is.
    let chunks = values.par_chunks(TASK);
    chunks.all(|values| largest(values) < f32::INFINITY)
}

/// The largest magnitude of finite values.
pub(super) fn largest(values: &[f32]) -> f32 {
    // Without their signs they are ordered as their bits are.
    let bits = values.iter().map(|w| w.abs().to_bits());
    f32::from_bits(bits.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Weights are what their quotients round to, ties to even, within the range.
        #[test]
        fn weights_round_to_the_nearest_step(
            weights in prop::collection::vec(-200f32..200.0, 1..60), halves in prop::collection::vec(-300i16..300, 12),
            scale in prop::collection::vec(0.01f32..8.0, 1..4), inner in 1usize..7, int4 in any::<bool>(),
        ) {
            let channels = scale.len();
            let ties = halves.iter().map(|&half| f32::from(half) / 2.0 * scale[0]);
            let weights: Vec<f32> = weights.into_iter().chain(ties).collect();
            let range = if int4 { INT4 } else { INT8 };
            let slices = Slices { scale: scale.clone(), axis: 0, channels, inner, range };
            let [low, high] = if int4 { [-8.0, 7.0] } else { [-127.0, 127.0] };
            let wanted = weights.iter().enumerate().map(|(i, w)| {
                (w / scale[i / inner % channels]).round_ties_even().clamp(low, high) as i8
            });
            prop_assert_eq!(slices.rounded(&weights), wanted.collect::<Vec<i8>>());
            let rounded = slices.rounded(&weights);
            let error = |i: usize| {
                let s = scale[i / inner % channels];
                f64::from(rounded[i]) * f64::from(s) - f64::from(weights[i])
            };
            for first in 0..weights.len() {
                let mut errors = vec![0.0; (weights.len() - first).div_ceil(2)];
                slices.errors(&rounded, &weights, first, &mut errors);
                let wanted: Vec<f64> = (first..first + errors.len()).map(error).collect();
                prop_assert_eq!(errors, wanted);
            }
            prop_assert!(are_finite(&weights));
            for wrong in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
                let all: Vec<f32> = weights.iter().copied().chain([wrong, 1.0]).collect();
                prop_assert!(!are_finite(&all));
            }
            let most = weights.iter().fold(0f32, |m, w| m.max(w.abs()));
            prop_assert_eq!(largest(&weights), most);
        }
    }
}
