//! Real numbers as a network's inputs have them.

/// Whole steps of a scale, counted from a zero point.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// What a step is, in the numbers' own unit.
    pub scale: f32,
    /// The step of 0.0.
    pub zero: i16,
    /// The least and the most step.
    pub bounds: [i16; 2],
}

/// Numbers near it are one apart, and its last bits are zero.
const WHOLE: f32 = 1.5 * (1 << 23) as f32;

/// Numbers that are looked at and rounded while they are in the first cache.
const PIECE: usize = 1024;

#[inline(always)]
pub(super) fn round_body(
    rounding: Rounding,
    values: &[f32],
    steps: &mut [i16],
    are_finite: &mut bool,
) {
    let Rounding {
        scale,
        zero,
        bounds: [low, high],
    } = rounding;
    let [none, low, high] = [0, low, high].map(|step| f32::from(step) - f32::from(zero));
    for (steps, values) in steps.chunks_mut(PIECE).zip(values.chunks(PIECE)) {
        // By their bits: under valgrind, comparisons that vectors of floats become hold for what is no number.
        let most = values.iter().fold(0, |most, v| v.abs().to_bits().max(most));
        *are_finite &= most < f32::INFINITY.to_bits();
        for (step, &v) in steps.iter_mut().zip(values) {
            let v = if v.is_nan() { none } else { v / scale };
            let v = if v > low { v } else { low };
            let v = if v < high { v } else { high };
            // The last bits of such a sum are the whole number that is nearest, the even one of two.
            *step = ((v + WHOLE).to_bits() as i16).wrapping_add(zero);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::round;
    use super::*;
    use crate::GemmKernel;

    #[test]
    fn every_kernel_rounds_half_to_even() {
        let definition = |v: f32, how: Rounding| {
            let steps = (v / how.scale).round_ties_even() + f32::from(how.zero);
            let [low, high] = how.bounds.map(f32::from);
            steps.clamp(low, high) as i16
        };
        let mut values = Vec::new();
        for eighth in -4200..4200 {
            let value = eighth as f32 / 8.0;
            values.extend([value, value.next_up(), value.next_down()]);
        }
        values.extend([f32::MAX, -0.0]);
        let finite = values.len();
        values.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
        let (int8, int16) = ([-128, 127], [i16::MIN, i16::MAX]);
        for (scale, zero, bounds) in [
            (1.0, 0, int8),
            (0.25, -128, int8),
            (0.013, 127, int8),
            (3.7, 5, int8),
            (0.013, 0, int16),
            (0.008, i16::MIN, int16),
            (0.004, i16::MAX, int16),
        ] {
            let how = Rounding {
                scale,
                zero,
                bounds,
            };
            let expected: Vec<i16> = values.iter().map(|&v| definition(v, how)).collect();
            for kernel in GemmKernel::ALL
                .into_iter()
                .filter(|kernel| kernel.supported())
            {
                // One that isn't finite may be anywhere, or nowhere.
                for end in finite..=values.len() {
                    let (mut steps, mut are_finite) = (vec![0; end], true);
                    round(kernel, how, &values[..end], &mut steps, &mut are_finite);
                    assert_eq!(steps, expected[..end], "{kernel:?} {how:?}");
                    assert_eq!(are_finite, end == finite, "{kernel:?}");
                }
            }
        }
    }
}
