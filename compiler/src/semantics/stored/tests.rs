use proptest::prelude::*;

use super::*;
use crate::qgraph::Numbers;
use crate::semantics::{
    Curve, Join, Operand, Output, Requant, Requantize, plan_pair, plan_requantize, plan_scale,
};

fn run(ops: &[LaneOp], x: i64) -> i64 {
    let mut lane = [i32::try_from(x).unwrap()];
    ops.iter().for_each(|op| apply(op, 0, &mut lane).unwrap());
    lane[0].into()
}

/// What reals are rounded to, and whether they are farther from a tie than so much.
fn ideal(value: f64, to: &Output, error: f64) -> (i64, bool) {
    let rounded = (value + 0.5).floor() + f64::from(to.zero);
    let [low, high] = [to.clamp.0, to.clamp.1].map(f64::from);
    let clear = ((value + 0.5).fract().abs() - 0.5).abs() < 0.5 - error;
    (rounded.clamp(low, high) as i64, clear)
}

fn output(zero: i32, relu: bool) -> Output {
    Output {
        scale: 1.0,
        zero,
        clamp: if relu {
            (zero as i16, 127)
        } else {
            (-128, 127)
        },
        requant: Requant::Precise,
        numbers: Numbers::Int8,
    }
}

#[test]
fn what_is_no_rounding_stays_operations() {
    let sums = (-1000, 1000);
    for ops in [
        // The low byte is stored.
        vec![LaneOp::add(7)],
        vec![LaneOp::shr(1)],
        // What was rounded is multiplied.
        vec![LaneOp::shr(8), LaneOp::mul(3)],
        // It decreases.
        vec![LaneOp::mul(-1), LaneOp::shr(4)],
        vec![LaneOp::new(LaneKind::Mov, 3)],
        // Channels have several values.
        vec![
            LaneOp::shr(8),
            LaneOp::add(std::sync::Arc::<[i32]>::from([0, 1])),
        ],
    ] {
        assert_eq!(plan_store(&ops, 0, sums), None, "{ops:?}");
    }
    assert!(plan_store(&[LaneOp::shr(4)], 0, sums).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn sums_are_rounded_as_reals_are_except_beside_ties(
        (ratio, bias, reach) in (-9.2f64..2.0, -200_000f64..200_000.0, 1i64..30_000_000),
        relu in any::<bool>(), fast in any::<bool>(), shift in 0..3, at in -2.2f64..2.2,
        zero in prop_oneof![Just(0), -128..=127],
    ) {
        let power = 2f64.powi((ratio / 2f64.ln()) as i32);
        let ratio = [if shift == 0 { power.min(1.0) } else { ratio.exp() }];
        let requant = if fast { Requant::Fast } else { Requant::Precise };
        let to = Output { requant, ..output(zero, relu) };
        let bias = [bias.round()];
        let sum = [(-reach, reach)];
        let ops = plan_requantize(&Requantize { ratio: &ratio, bias: &bias, sum: &sum, to }).unwrap();
        let Some(rounding) = plan_store(&ops, 0, sum[0]) else {
            // Only a bias far beyond what is stored leaves too few bits.
            prop_assert!((bias[0] * ratio[0]).abs() > 5000.0, "{ops:?}");
            return Ok(());
        };
        prop_assert_eq!(Rounding::of(rounding.words()), rounding);
        let target = (128.0 / ratio[0] * at) as i64 - bias[0] as i64;
        for x in [target.clamp(-reach, reach), -reach, reach] {
            let exact = (x as f64 + bias[0]) * ratio[0];
            let got = i64::from(rounding.apply(x as i32));
            let lanes = run(&ops, x);
            // Powers of two are exact. The fast form is off itself.
            if shift == 0 || fast {
                let most = i64::from(shift > 0);
                prop_assert!((got - lanes).abs() <= most, "{} for {} by {:?}, {:?}", got, lanes, ops, rounding);
            } else {
                let (expected, clear) = ideal(exact, &to, 1.0 / 128.0);
                prop_assert!(got == expected || !clear, "{} for {} by {:?}, {:?}", got, exact, ops, rounding);
            }
        }
    }

    #[test]
    fn pairs_are_added_as_reals_are_except_beside_ties(
        ra in 0.01f64..4.0, rb in 0.01f64..4.0, a in any::<i8>(), b in any::<i8>(), relu in any::<bool>(),
        zeros in prop_oneof![Just([0; 3]), prop::array::uniform3(-128..=127)],
    ) {
        let [za, zb, zero] = zeros;
        let to = output(zero, relu);
        let operands = [(ra, za), (rb, zb)].map(|(scale, zero)| Operand { scale, zero, range: (-128, 127) });
        let intervals = operands.map(|x| x.interval());
        let of = |join| {
            let plan = plan_pair(join, operands, &to).unwrap();
            plan_store_sum([(&plan.a, intervals[0]), (&plan.b, intervals[1])], &plan.epilogue)
        };
        let (factor, rounding) = of(Join::Sum).unwrap();
        let exact = (f64::from(a) - f64::from(za)) * ra + (f64::from(b) - f64::from(zb)) * rb;
        let (expected, clear) = ideal(exact, &to, 1.0 / 128.0);
        let got = i64::from(rounding.add(a, b, factor));
        prop_assert!(got == expected || !clear, "{} for {} by {:?}", got, exact, rounding);
        // A difference has a factor below 0.
        prop_assert!(of(Join::Difference).is_none());
    }

    #[test]
    fn what_operands_are_joined_to_is_rounded_as_reals_are_except_beside_ties(
        ra in 1e-4f64..0.5, rb in 0.01f64..4.0, scale in 0.002f64..0.5, stretch in 0.3f64..2.0, a in any::<i8>(), b in any::<i8>(),
        relu in any::<bool>(), zeros in prop_oneof![Just([0; 3]), prop::array::uniform3(-128..=127)],
    ) {
        let [za, zb, zero] = zeros;
        let centred = |x: i8, zero: i32| f64::from(x) - f64::from(zero);
        let operand = |scale, zero| Operand { scale, zero, range: (-128, 127) };
        let of = |scale| Output { scale, ..output(zero, relu) };
        let swish = |x: f64| x * (x / 6.0 + 0.5).clamp(0.0, 1.0);
        let pairs = [[operand(ra, za), operand(1.0, zb)], [operand(rb, za), operand(0.7, zb)], [operand(scale, za); 2]];
        let cases = [
            (plan_pair(Join::Product, pairs[0], &of(1.0)), centred(a, za) * centred(b, zb) * ra, true, of(1.0)),
            (plan_pair(Join::Difference, pairs[1], &of(1.0)), centred(a, za) * rb - centred(b, zb) * 0.7, false, of(1.0)),
            (
                Curve::HardSwish.plan(&pairs[2][0], &of(scale * stretch)),
                swish(centred(a, za) * scale) / (scale * stretch), true, of(scale * stretch),
            ),
        ];
        for ((plan, exact, is_product, to), [x, y]) in cases.into_iter().zip(pairs) {
            let plan = plan.unwrap();
            prop_assert_eq!(plan.is_product, is_product);
            let operands = [(&plan.a[..], x.interval()), (&plan.b[..], y.interval())];
            let rounding = plan_store_joined(operands, is_product, &plan.epilogue).unwrap();
            // HardSwish is a product of a tensor by itself.
            let second = if x.scale == y.scale { a } else { b };
            let [x, y] = [run(&plan.a, a.into()), run(&plan.b, second.into())];
            let joined = if is_product { x * y } else { x + y };
            let got = i64::from(rounding.apply(joined as i32));
            let (expected, clear) = ideal(exact, &to, 1.0 / 128.0);
            prop_assert!(got == expected || !clear, "{} for {} by {:?}, {:?}", got, exact, plan.epilogue, rounding);
        }
    }

    #[test]
    fn changes_of_scale_are_rounded_as_reals_are_except_beside_ties(
        x in -6000i64..6000, r in 0.001f64..2.0, from in -128i64..128, zero in -128..=127,
    ) {
        let to = output(zero, false);
        let from = 40 * from;
        let ops = plan_scale(r, (-6272, 6272), from, &to).unwrap();
        let rounding = plan_store(&ops, 0, (-6272, 6272)).unwrap();
        let (expected, clear) = ideal((x - from) as f64 * r, &to, 1.0 / 128.0);
        prop_assert!(i64::from(rounding.apply(x as i32)) == expected || !clear, "{} * {}: {:?}", x, r, ops);
    }
}
