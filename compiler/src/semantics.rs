//! Integer semantics: how real-valued scales become lane operations, with proofs.
//!
//! A tensor's int8 value `q` means `scale * (q - z)` with its zero point `z`, 0 where it is
//! symmetric. A convolution accumulates `A = sum x * w` in int32, and the bias takes `z_x * sum w`
//! off it; the real result in steps of the output's scale is `(A + bias) * r[c]` with
//! `r[c] = s_x * s_w[c] / s_y`. It becomes int8 by rounding half up, adding the output's zero
//! point, and clamping, in one of
//! these forms, every step one [`LaneOp`]:
//!
//! - **shift**, when every `r[c] = 2^-n`: `(A + bias + 2^(n-1)) >> n`, exact;
//! - **per-channel shift**, when every `r[c]` is a power of two: the same with a vector;
//! - **multiply**: `(((A + bias') >> a) * m[c]) >> s` with `m[c] = round(r[c] * 2^(a+s))`. The
//!   rounding constant `0.5 / r[c]` and half of what the first shift drops are folded into
//!   `bias'`. `a` and `s` are chosen to make the largest error small while every product stays
//!   below 2^31; if bounds can't prove that, the shifted sum is first clamped to int16, which
//!   can't change the result because it is far outside the output's range.
//!
//! Channels whose ratios lie too far apart for one first shift get a vector of them.
//!
//! - **precise**, when the model asks for it ([`Requant`]): two multipliers, see `precise`.
//!
//! A residual joins before the sum, aligned to the accumulator's scale: `b << k` or `b * m[c]`
//! with `m[c] = round(s_b / (s_x * s_w[c]))`. That skips a rounding of the model, so that precise
//! networks keep the sum as an operation of its own.
//!
//! ONNX rounds half to even, so results differ from it by at most one step, at ties and within
//! the multiplier's error: of a precise network 2^-8 of a step (docs/exactness.md).
//!
//! Nothing wraps: [`range`] follows the interval of every channel through all operations.

mod constants;
mod digits;
mod lanes;
mod multiply;
mod pairs;
mod precise;
mod products;
mod sums;

pub use self::constants::{Factors, Offsets, plan_factors, plan_offsets};
pub use self::digits::{Digits, plan_digit};
pub use self::lanes::{
    Interval, Requant, Requantize, SemanticsError, WeightSums, apply, log2_exact, range,
    weight_parts, whole_weights, zero_sums,
};
use self::lanes::{push_add, push_clamp, push_zero, saturate};
pub use self::products::{Function, Multiplication, plan_hard_swish, plan_mul, plan_slopes};
pub use self::sums::{AddPlan, Addition, Rescale, Sign, plan_add, plan_residual, plan_scale};
use crate::lane::LaneOp;

/// Largest magnitude of a bias that plans look at.
const BIAS: f64 = (1i64 << 40) as f64;
/// What lies between whole biases counts from here: anything nearer is what doubles are off by.
const FRACTION: f64 = 1.0 / 1024.0;

/// Lane operations that turn an int32 sum into the clamped int8 result (see the module's text
/// for the forms).
///
/// # Errors
/// [`SemanticsError::Ratio`] for a ratio that isn't positive and finite,
/// [`SemanticsError::Overflow`] when no form can be proven safe.
pub fn plan_requantize(given: &Requantize<'_>) -> Result<Vec<LaneOp>, SemanticsError> {
    for &ratio in given.ratio {
        if !(ratio.is_finite() && ratio > 0.0) {
            return Err(SemanticsError::Ratio {
                ratio: ratio.to_string(),
            });
        }
    }
    // A bias beyond int32 decides the result alone; bounded here, no sum below wraps.
    let bias = given.bias.iter().map(|b| {
        let b = b.clamp(-BIAS, BIAS);
        let whole = b.round();
        if (b - whole).abs() < FRACTION {
            whole
        } else {
            b
        }
    });
    let bias: Vec<f64> = bias.collect();
    let given = &Requantize {
        bias: &bias,
        ..*given
    };
    let shifts: Option<Vec<i32>> = given
        .ratio
        .iter()
        .map(|&r| log2_exact(r).map(|n| -n))
        .collect();
    let mut ops = match shifts {
        Some(shifts) if shifts.iter().all(|n| (0..=30).contains(n)) => {
            let joined = plan_shift(given, &shifts);
            joined
                .filter(|ops| proven(ops, given.sum))
                .unwrap_or_else(|| {
                    let bias = rounding(given, &shifts).map(saturate);
                    let mut ops = shifted(bias.collect(), &shifts);
                    push_zero(&mut ops, given.zero);
                    ops
                })
        }
        _ => match precisely(given) {
            Some(ops) => ops,
            None => multiply::requantize(given)?,
        },
    };
    push_clamp(&mut ops, given.sum, given.clamp)?;
    Ok(ops)
}

/// The precise form, if it is wanted and proven not to wrap.
fn precisely(given: &Requantize<'_>) -> Option<Vec<LaneOp>> {
    let ops = match given.requant {
        Requant::Precise => precise::requantize(given)?,
        Requant::Fast => return None,
    };
    proven(&ops, given.sum).then_some(ops)
}

/// Whether no channel's operations wrap.
fn proven(ops: &[LaneOp], sums: &[Interval]) -> bool {
    let mut sums = sums.iter().enumerate();
    sums.all(|(c, &sum)| range(ops, c, sum).is_ok())
}

/// The bias that rounds what is shifted, in the sum's steps: no fraction of it changes the result.
fn rounding(given: &Requantize<'_>, shifts: &[i32]) -> impl Iterator<Item = i64> {
    let half = |n: i32| 2f64.powi(n - 1);
    let bias = given.bias.iter().zip(shifts);
    bias.map(move |(&b, &n)| (b + half(n)).floor() as i64)
}

/// Shifts whose bias rounds, and has the zero point in it; `None` where it is too large for that.
fn plan_shift(given: &Requantize<'_>, shifts: &[i32]) -> Option<Vec<LaneOp>> {
    let zero = |n: &i32| i64::from(given.zero) << n;
    let bias = rounding(given, shifts)
        .zip(shifts)
        .map(|(b, n)| b + zero(n));
    let exact = |b: i64| i32::try_from(b).ok().filter(|&exact| exact == saturate(b));
    let bias: Option<Vec<i32>> = bias.map(exact).collect();
    Some(shifted(bias?, shifts))
}

/// A sum with its bias, shifted.
fn shifted(bias: Vec<i32>, shifts: &[i32]) -> Vec<LaneOp> {
    let mut ops = Vec::new();
    push_add(&mut ops, bias);
    match shifts.first() {
        Some(&n) if shifts.iter().all(|&m| m == n) => {
            if n > 0 {
                ops.push(LaneOp::shr(n as i16));
            }
        }
        _ => ops.push(LaneOp::shr(shifts.to_vec())),
    }
    ops
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(ops: &[LaneOp], channel: usize, x: i32) -> i64 {
        let mut lane = [x];
        for op in ops {
            apply(op, channel, &mut lane).unwrap();
        }
        lane[0].into()
    }

    fn modes() -> impl Strategy<Value = Requant> {
        prop_oneof![Just(Requant::Fast), Just(Requant::Precise)]
    }

    fn ideal(value: f64, zero: i32, (low, high): (i8, i8)) -> f64 {
        let rounded = (value + 0.5).floor() + f64::from(zero);
        rounded.clamp(low.into(), high.into())
    }

    /// 0, or anything that int8 holds.
    fn zeros() -> impl Strategy<Value = i32> {
        prop_oneof![Just(0), -128..=127, Just(-128), Just(127)]
    }

    #[test]
    fn powers_of_two_become_one_shift() {
        let given = Requantize {
            ratio: &[1.0 / 256.0; 2],
            bias: &[100.0, -7.0],
            sum: &[(-40_000, 40_000); 2],
            zero: 0,
            clamp: (-128, 127),
            requant: Requant::Fast,
        };
        let expected = [
            LaneOp::add(vec![228, 121]),
            LaneOp::shr(8),
            LaneOp::min(127),
            LaneOp::max(-128),
        ];
        assert_eq!(plan_requantize(&given).unwrap(), expected);
    }

    #[test]
    fn clamps_that_bounds_prove_unnecessary_are_left_out() {
        let given = Requantize {
            ratio: &[1.0 / 16.0],
            bias: &[0.0],
            sum: &[(0, 1000)],
            zero: 0,
            clamp: (0, 127),
            requant: Requant::Fast,
        };
        assert_eq!(
            plan_requantize(&given).unwrap(),
            [LaneOp::add(8), LaneOp::shr(4)]
        );
    }

    fn scale(ratio: f64, zeros: [i64; 2], requant: Requant) -> Rescale {
        Rescale {
            ratio,
            range: (-6272, 6272),
            zeros,
            clamp: (-128, 127),
            requant,
        }
    }

    fn addition(ratios: [f64; 2], [za, zb, zero]: [i32; 3], requant: Requant) -> Addition {
        Addition {
            sign: Sign::Plus,
            ratios,
            ranges: [(-128, 127); 2],
            zeros: [za, zb],
            zero,
            clamp: (-128, 127),
            requant,
        }
    }

    #[test]
    fn a_zero_point_is_added_after_rounding() {
        let given = Requantize {
            ratio: &[1.0 / 256.0],
            bias: &[100.0],
            sum: &[(-40_000, 40_000)],
            zero: -3,
            clamp: (-3, 127),
            requant: Requant::Fast,
        };
        let ops = [
            LaneOp::add(100 + 128 - 3 * 256),
            LaneOp::shr(8),
            LaneOp::min(127),
            LaneOp::max(-3),
        ];
        assert_eq!(plan_requantize(&given).unwrap(), ops);
        // A bias that has no room for it leaves it behind the shift.
        let given = Requantize {
            ratio: &[2f64.powi(-24)],
            bias: &[0.0],
            sum: &[(-1 << 30, 1 << 30)],
            zero: 127,
            ..given
        };
        let ops = [
            LaneOp::add(vec![1 << 23]),
            LaneOp::shr(24),
            LaneOp::add(127),
        ];
        let ops = ops.into_iter().chain([LaneOp::min(127)]);
        assert_eq!(plan_requantize(&given).unwrap(), ops.collect::<Vec<_>>());
    }

    #[test]
    fn zeros_stay_zeros() {
        for requant in [Requant::Fast, Requant::Precise] {
            for ratios in [[0.3, 0.7], [0.25, 2.0], [1.0, 1.0], [3.9, 0.011]] {
                for zeros in [[0, 0, 9], [-128, -128, -128], [5, -77, 127], [-128, 127, 0]] {
                    let plan = plan_add(&addition(ratios, zeros, requant)).unwrap();
                    let sum = run(&plan.a, 0, zeros[0]) + run(&plan.b, 0, zeros[1]);
                    assert_eq!(
                        run(&plan.epilogue, 0, sum as i32),
                        i64::from(zeros[2]),
                        "{ratios:?} {zeros:?}"
                    );
                    let [from, to, _] = zeros.map(i64::from);
                    let ops = plan_scale(&scale(ratios[0], [from * 49, to], requant)).unwrap();
                    assert_eq!(run(&ops, 0, zeros[0] * 49), to, "{} {zeros:?}", ratios[0]);
                }
            }
        }
    }

    #[test]
    fn bad_ratios_are_refused() {
        for ratio in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let sum = [(0, 1)];
            let given = Requantize {
                ratio: &[ratio],
                bias: &[0.0],
                sum: &sum,
                zero: 0,
                clamp: (0, 1),
                requant: Requant::Fast,
            };
            assert!(plan_requantize(&given).is_err());
            assert!(plan_scale(&scale(ratio, [0, 0], Requant::Fast)).is_err());
            assert!(plan_add(&addition([ratio, 1.0], [0; 3], Requant::Precise)).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn requantization_is_within_one_step_and_never_wraps(
            channels in prop::collection::vec((1e-5f64..0.3, -200_000f64..200_000.0, 1i64..30_000_000), 1..6),
            relu in any::<bool>(), at in 0.0f64..1.0, requant in modes(), zero in zeros(),
        ) {
            let clamp = if relu { (zero as i8, 127) } else { (-128, 127) };
            let ratio: Vec<_> = channels.iter().map(|c| c.0).collect();
            let bias: Vec<_> = channels.iter().map(|c| c.1).collect();
            let sum: Vec<_> = channels.iter().map(|c| (-c.2, c.2)).collect();
            let ops = plan_requantize(&Requantize { ratio: &ratio, bias: &bias, sum: &sum, zero, clamp, requant }).unwrap();
            for c in 0..channels.len() {
                let (lo, hi) = range(&ops, c, sum[c]).unwrap();
                prop_assert!(lo >= clamp.0.into() && hi <= clamp.1.into());
                let useful = (400.0 / ratio[c]).min(sum[c].1 as f64);
                for x in [at * useful, -at * useful, sum[c].1 as f64, sum[c].0 as f64] {
                    let exact = (x.trunc() + bias[c]) * ratio[c];
                    let got = run(&ops, c, x as i32) as f64;
                    prop_assert!((got - ideal(exact, zero, clamp)).abs() <= 1.0, "{} for {} by {:?}", got, exact, ops);
                }
            }
        }

        #[test]
        fn any_numbers_get_a_plan_or_an_error(
            channels in prop::collection::vec((any::<f64>(), any::<f64>(), -(1i64 << 50)..0, 0i64..1 << 50), 1..4),
            requant in modes(), zero in any::<i8>(),
        ) {
            let zero = i32::from(zero);
            let ratio: Vec<_> = channels.iter().map(|c| c.0.abs()).collect();
            let bias: Vec<_> = channels.iter().map(|c| c.1).collect();
            let sum: Vec<_> = channels.iter().map(|c| (c.2, c.3)).collect();
            let given = Requantize { ratio: &ratio, bias: &bias, sum: &sum, zero, clamp: (-128, 127), requant };
            if let Ok(ops) = plan_requantize(&given) {
                for (c, &sum) in sum.iter().enumerate() {
                    prop_assert!(range(&ops, c, sum).is_ok());
                }
            }
            let _ = plan_residual(&ratio, &ratio);
            let _ = plan_scale(&Rescale { range: sum[0], ..scale(ratio[0], [bias[0] as i64, zero.into()], requant) });
            let _ = plan_add(&addition([ratio[0], ratio[ratio.len() - 1]], [zero; 3], requant));
        }

        #[test]
        fn sums_and_scales_are_within_one_step(
            ra in 0.01f64..4.0, rb in 0.01f64..4.0, a in any::<i8>(), b in any::<i8>(), x in -6000i32..6000, r in 0.001f64..2.0,
            requant in modes(), zeros in [zeros(), zeros(), zeros()],
        ) {
            let clamp = (-128, 127);
            let [za, zb, zero] = zeros;
            let plan = plan_add(&addition([ra, rb], zeros, requant)).unwrap();
            let sum = run(&plan.a, 0, a.into()) + run(&plan.b, 0, b.into());
            let got = run(&plan.epilogue, 0, sum as i32) as f64;
            let exact = (f64::from(a) - f64::from(za)) * ra + (f64::from(b) - f64::from(zb)) * rb;
            prop_assert!((got - ideal(exact, zero, clamp)).abs() <= 1.0, "{} {}", got, exact);
            let from = i64::from(za) * 40;
            let ops = plan_scale(&scale(r, [from, zero.into()], requant)).unwrap();
            let got = run(&ops, 0, x) as f64;
            let exact = (i64::from(x) - from) as f64 * r;
            prop_assert!((got - ideal(exact, zero, clamp)).abs() <= 1.0, "{} {} {:?}", x, r, ops);
        }
    }
}
