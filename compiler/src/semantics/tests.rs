use proptest::prelude::*;

use super::*;
use crate::qgraph::Numbers;

fn run(ops: &[LaneOp], channel: usize, x: i32) -> i64 {
    let mut lane = [x];
    for op in ops {
        apply(op, channel, &mut lane).unwrap();
    }
    lane[0].into()
}

/// An output whose steps are 1.
fn to(zero: i32, clamp: (i16, i16), requant: Requant) -> Output {
    Output {
        scale: 1.0,
        zero,
        clamp,
        requant,
        numbers: Numbers::Int8,
    }
}

fn modes() -> impl Strategy<Value = Requant> {
    prop_oneof![Just(Requant::Fast), Just(Requant::Precise)]
}

fn ideal(value: f64, zero: i32, (low, high): (i16, i16)) -> f64 {
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
        to: to(0, (-128, 127), Requant::Fast),
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
        to: to(0, (0, 127), Requant::Fast),
    };
    assert_eq!(
        plan_requantize(&given).unwrap(),
        [LaneOp::add(8), LaneOp::shr(4)]
    );
}

/// A change of scale of lanes within some thousands.
fn scale(
    ratio: f64,
    [from, zero]: [i64; 2],
    requant: Requant,
) -> Result<Vec<LaneOp>, SemanticsError> {
    plan_scale(
        ratio,
        (-6272, 6272),
        from,
        &to(zero as i32, (-128, 127), requant),
    )
}

fn addition(
    ratios: [f64; 2],
    [za, zb, zero]: [i32; 3],
    requant: Requant,
) -> Result<PairPlan, SemanticsError> {
    let operand = |scale: f64, zero: i32| Operand {
        scale,
        zero,
        range: (-128, 127),
    };
    let operands = [operand(ratios[0], za), operand(ratios[1], zb)];
    plan_pair(Join::Sum, operands, &to(zero, (-128, 127), requant))
}

#[test]
fn a_zero_point_is_added_after_rounding() {
    let given = Requantize {
        ratio: &[1.0 / 256.0],
        bias: &[100.0],
        sum: &[(-40_000, 40_000)],
        to: to(-3, (-3, 127), Requant::Fast),
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
        to: to(127, (-3, 127), Requant::Fast),
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
                let plan = addition(ratios, zeros, requant).unwrap();
                let sum = run(&plan.a, 0, zeros[0]) + run(&plan.b, 0, zeros[1]);
                assert_eq!(
                    run(&plan.epilogue, 0, sum as i32),
                    i64::from(zeros[2]),
                    "{ratios:?} {zeros:?}"
                );
                let [from, to, _] = zeros.map(i64::from);
                let ops = scale(ratios[0], [from * 49, to], requant).unwrap();
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
            to: to(0, (0, 1), Requant::Fast),
        };
        assert!(plan_requantize(&given).is_err());
        assert!(scale(ratio, [0, 0], Requant::Fast).is_err());
        assert!(addition([ratio, 1.0], [0; 3], Requant::Precise).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn requantization_is_within_one_step_and_never_wraps(
        channels in prop::collection::vec((1e-5f64..0.3, -200_000f64..200_000.0, 1i64..30_000_000), 1..6),
        relu in any::<bool>(), at in 0.0f64..1.0, requant in modes(), zero in zeros(),
    ) {
        let clamp = if relu { (zero as i16, 127) } else { (-128, 127) };
        let ratio: Vec<_> = channels.iter().map(|c| c.0).collect();
        let bias: Vec<_> = channels.iter().map(|c| c.1).collect();
        let sum: Vec<_> = channels.iter().map(|c| (-c.2, c.2)).collect();
        let ops = plan_requantize(&Requantize { ratio: &ratio, bias: &bias, sum: &sum, to: to(zero, clamp, requant) }).unwrap();
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
        let given = Requantize { ratio: &ratio, bias: &bias, sum: &sum, to: to(zero, (-128, 127), requant) };
        if let Ok(ops) = plan_requantize(&given) {
            for (c, &sum) in sum.iter().enumerate() {
                prop_assert!(range(&ops, c, sum).is_ok());
            }
        }
        let _ = plan_residual(&ratio, &ratio);
        let _ = plan_scale(ratio[0], sum[0], bias[0] as i64, &to(zero, (-128, 127), requant));
        let _ = addition([ratio[0], ratio[ratio.len() - 1]], [zero; 3], requant);
    }

    #[test]
    fn sums_and_scales_are_within_one_step(
        ra in 0.01f64..4.0, rb in 0.01f64..4.0, a in any::<i8>(), b in any::<i8>(), x in -6000i32..6000, r in 0.001f64..2.0,
        requant in modes(), zeros in [zeros(), zeros(), zeros()],
    ) {
        let clamp = (-128, 127);
        let [za, zb, zero] = zeros;
        let plan = addition([ra, rb], zeros, requant).unwrap();
        let sum = run(&plan.a, 0, a.into()) + run(&plan.b, 0, b.into());
        let got = run(&plan.epilogue, 0, sum as i32) as f64;
        let exact = (f64::from(a) - f64::from(za)) * ra + (f64::from(b) - f64::from(zb)) * rb;
        prop_assert!((got - ideal(exact, zero, clamp)).abs() <= 1.0, "{} {}", got, exact);
        let from = i64::from(za) * 40;
        let ops = scale(r, [from, zero.into()], requant).unwrap();
        let got = run(&ops, 0, x) as f64;
        let exact = (i64::from(x) - from) as f64 * r;
        prop_assert!((got - ideal(exact, zero, clamp)).abs() <= 1.0, "{} {} {:?}", x, r, ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Sums of int16 are up to 2^30: what shifts drop, and one for each channel, is two steps and a half at most.
    #[test]
    fn requantization_to_int16_is_within_a_step(
        channels in prop::collection::vec((14f64..30.0, -1.5f64..1.0, -0.5f64..0.5), 1..6), at in -1.0f64..1.0,
        zero in prop_oneof![Just(0), Just(-32768), Just(32767), -32768i32..=32767],
    ) {
        let clamp = Numbers::Int16.bounds();
        let to = Output { numbers: Numbers::Int16, ..to(zero, clamp, Requant::Precise) };
        let sum: Vec<Interval> = channels.iter().map(|c| c.0.exp2() as i64).map(|most| (-most, most)).collect();
        // The largest sums are a third of the output's range to twice it.
        let ratio: Vec<f64> = channels.iter().map(|c| (15.0 + c.1 - c.0).exp2().min(1.0)).collect();
        let bias: Vec<f64> = channels.iter().map(|c| c.2 * c.0.exp2()).collect();
        let ops = plan_requantize(&Requantize { ratio: &ratio, bias: &bias, sum: &sum, to }).unwrap();
        for c in 0..channels.len() {
            prop_assert!(range(&ops, c, sum[c]).is_ok());
            let most = sum[c].1 as f64;
            for x in [at * most, most, -most, 0.0] {
                let exact = (x.trunc() + bias[c]) * ratio[c] + f64::from(zero);
                let exact = exact.clamp(clamp.0.into(), clamp.1.into());
                let off = (run(&ops, c, x as i32) as f64 - exact).abs();
                prop_assert!(off <= 3.0, "{} off {} by {:?}", off, exact, ops);
            }
        }
    }
}
