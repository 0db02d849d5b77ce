use proptest::prelude::*;

use super::*;
use crate::qgraph::Numbers;
use crate::semantics::pairs::GOOD_ERROR;
use crate::semantics::{
    Join, Operand, Output, Requant, apply, plan_pair, plan_requantize, plan_scale, range,
};

fn run(ops: &[LaneOp], channel: usize, x: i64) -> i64 {
    let mut lane = [i32::try_from(x).unwrap()];
    for op in ops {
        apply(op, channel, &mut lane).unwrap();
    }
    lane[0].into()
}

/// Rounded and clamped, and whether it is farther from a tie than forms may be wrong.
fn ideal(value: f64, zero: i32, (low, high): (i16, i16), error: f64) -> (i64, bool) {
    let rounded = (value + 0.5).floor() + f64::from(zero);
    (
        rounded.clamp(low.into(), high.into()) as i64,
        ((value + 0.5).fract().abs() - 0.5).abs() < 0.5 - error,
    )
}

/// A precise output whose steps are 1.
fn to(zero: i32, clamp: (i16, i16)) -> Output {
    Output {
        scale: 1.0,
        zero,
        clamp,
        requant: Requant::Precise,
        numbers: Numbers::Int8,
    }
}

#[test]
fn one_channel_has_the_form_of_the_text() {
    let given = Requantize {
        ratio: &[0.001],
        bias: &[7.0],
        sum: &[(-9_000_000, 9_000_000)],
        to: to(0, (0, 127)),
    };
    let ops = plan_requantize(&given).unwrap();
    let names: Vec<String> = ops.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "add 7", "min[1]", "max 0", "mul[1]", "shr 7", "mul[1]", "add[1]", "shr 24"
        ]
    );
    for (x, y) in [
        (-9_000_000, 0),
        (491, 0),
        (495, 1),
        (126_492, 126),
        (9_000_000, 127),
    ] {
        assert_eq!(run(&ops, 0, x), y, "{x}");
    }
}

#[test]
fn large_ratios_take_the_fast_form() {
    let given = Requantize {
        ratio: &[5000.0],
        bias: &[0.0],
        sum: &[(-1000, 1000)],
        to: to(0, (-128, 127)),
    };
    assert!(requantize(&given).is_none());
    assert!(plan_requantize(&given).is_ok());
}

#[test]
fn factors_come_close_to_any_multiplier() {
    for multiplier in [1.0, 5.0, 32767.0, 32768.0, 99_991.0, 1e6, 4_194_303.0, 1e9] {
        let [a, b] = factors(multiplier);
        let product = f64::from(a) * f64::from(b);
        assert!(
            (product - multiplier).abs() <= 2f64.max(2e-6 * multiplier),
            "{multiplier}: {a} * {b}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn sums_round_as_reals_do_except_beside_ties(
        channels in prop::collection::vec((-9.2f64..2.0, -200_000f64..200_000.0, 1i64..30_000_000), 1..4),
        relu in any::<bool>(), at in -2.2f64..2.2, zero in prop_oneof![Just(0), -128..=127],
    ) {
        let clamp = if relu { (zero as i16, 127) } else { (-128, 127) };
        let ratio: Vec<_> = channels.iter().map(|c| c.0.exp()).collect();
        // Outputs far from their zero point have a bit less, as those of large ratios.
        let widest = ratio.iter().copied().fold(0.0, f64::max);
        let bound = GOOD_ERROR * if zero == 0 && widest <= FINE_RATIO { 1.0 } else { 4.0 };
        let bias: Vec<_> = channels.iter().map(|c| c.1).collect();
        let sum: Vec<_> = channels.iter().map(|c| (-c.2, c.2)).collect();
        let given = Requantize { ratio: &ratio, bias: &bias, sum: &sum, to: to(zero, clamp) };
        let ops = requantize(&given).unwrap();
        for c in 0..channels.len() {
            prop_assert!(range(&ops, c, sum[c]).is_ok());
            let target = (128.0 / ratio[c] * at) as i64 - bias[c] as i64;
            for x in [target.clamp(sum[c].0, sum[c].1), sum[c].0, sum[c].1] {
                let exact = (x as f64 + bias[c]) * ratio[c];
                let (expected, clear) = ideal(exact, zero, clamp, bound);
                let got = run(&ops, c, x).clamp(clamp.0.into(), clamp.1.into());
                prop_assert!(got == expected || !clear, "{} for {} by {:?}", got, exact, ops);
            }
        }
    }

    #[test]
    fn additions_and_scales_round_as_reals_do_except_beside_ties(
        ra in 0.01f64..4.0, rb in 0.01f64..4.0, a in any::<i8>(), b in any::<i8>(),
        x in -6000i64..6000, r in 0.001f64..2.0, zeros in prop_oneof![Just([0; 3]), prop::array::uniform3(-128..=127)],
    ) {
        let clamp = (-128, 127);
        let [za, zb, zero] = zeros;
        for (join, factor) in [(Join::Sum, 1.0), (Join::Difference, -1.0)] {
            let operands = [(ra, za), (rb, zb)].map(|(scale, zero)| Operand { scale, zero, range: clamp });
            let plan = plan_pair(join, operands, &to(zero, clamp)).unwrap();
            let sum = run(&plan.a, 0, a.into()) + run(&plan.b, 0, b.into());
            let exact = (f64::from(a) - f64::from(za)) * ra + factor * (f64::from(b) - f64::from(zb)) * rb;
            let (expected, clear) = ideal(exact, zero, clamp, MAX_ERROR);
            prop_assert!(run(&plan.epilogue, 0, sum) == expected || !clear, "{}", exact);
        }
        let from = 40 * i64::from(za);
        let ops = plan_scale(r, (-6272, 6272), from, &to(zero, clamp)).unwrap();
        let (expected, clear) = ideal((x - from) as f64 * r, zero, clamp, MAX_ERROR);
        prop_assert!(run(&ops, 0, x) == expected || !clear, "{} * {}: {:?}", x, r, ops);
    }
}
