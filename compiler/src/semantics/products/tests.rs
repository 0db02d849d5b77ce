use proptest::prelude::*;

use super::*;
use crate::qgraph::Numbers;
use crate::qgraph::lane::LaneKind;
use crate::semantics::apply;

fn run(ops: &[LaneOp], channel: usize, x: i32) -> i32 {
    let mut lane = [x];
    for op in ops {
        apply(op, channel, &mut lane).unwrap();
    }
    lane[0]
}

/// Rounded, and whether the value is far enough from a tie for it to be certain.
fn ideal(value: f64, zero: i32, (low, high): (i16, i16), error: f64) -> (i32, bool) {
    let value = value + f64::from(zero);
    let rounded = (value + 0.5).floor().clamp(low.into(), high.into()) as i32;
    let clear = ((value + 0.5).rem_euclid(1.0) - 0.5).abs() < 0.5 - error;
    (rounded, clear)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn products_round_as_reals_do_except_beside_ties(
        ratio in 1e-4f64..0.5, a in any::<i8>(), b in any::<i8>(), zeros in [-128i32..=127, -128i32..=127, -128i32..=127],
        fast in any::<bool>(),
    ) {
        let clamp = (-128, 127);
        let requant = if fast { Requant::Fast } else { Requant::Precise };
        let [x, y] = [(ratio, zeros[0]), (1.0, zeros[1])].map(|(scale, zero)| Operand { scale, zero, range: clamp });
        let to = Output { scale: 1.0, zero: zeros[2], clamp, requant, numbers: Numbers::Int8 };
        let plan = plan_pair(Join::Product, [x, y], &to).unwrap();
        let product = run(&plan.a, 0, a.into()) * run(&plan.b, 0, b.into());
        let found = run(&plan.epilogue, 0, product);
        let real = f64::from(i32::from(a) - zeros[0]) * f64::from(i32::from(b) - zeros[1]) * ratio;
        let (expected, clear) = ideal(real, zeros[2], clamp, 1.0 / 256.0);
        prop_assert!((found - expected).abs() <= 1);
        prop_assert!(found == expected || !clear || fast, "{} for {} by {:?}", found, real, plan.epilogue);
    }

    #[test]
    fn functions_round_as_reals_do_except_beside_ties(
        scale in 0.002f64..0.5, stretch in 0.3f64..2.0, x in any::<i8>(), zeros in [-128i32..=127, -128i32..=127],
        slopes in prop::collection::vec(-1.5f64..1.5, 1..4), fast in any::<bool>(), whole in any::<bool>(),
    ) {
        let clamp = (-128, 127);
        let requant = if fast { Requant::Fast } else { Requant::Precise };
        // Steps of which 3 is a whole number, as a file has them.
        let scale = if whole { f64::from((3.0 / (3.0 / scale).round()) as f32) } else { scale };
        let out = scale * stretch;
        let operand = Operand { scale, zero: zeros[0], range: clamp };
        let to = Output { scale: out, zero: zeros[1], clamp, requant, numbers: Numbers::Int8 };
        let real = f64::from(i32::from(x) - zeros[0]) * scale;
        let plan = Curve::HardSwish.plan(&operand, &to).unwrap();
        let factors = plan.b.iter().filter(|op| op.kind == LaneKind::Mul);
        prop_assert!(!whole || factors.count() == 0, "{:?}", plan.b);
        let product = run(&plan.a, 0, x.into()) * run(&plan.b, 0, x.into());
        let found = run(&plan.epilogue, 0, product);
        let swish = real * (real / 6.0 + 0.5).clamp(0.0, 1.0) / out;
        let (expected, clear) = ideal(swish, zeros[1], clamp, 1.0 / 256.0);
        prop_assert!((found - expected).abs() <= 1, "{} for {}", found, swish);
        prop_assert!(found == expected || !clear || fast, "{} for {} by {:?}", found, swish, plan.epilogue);
        // A power of two has a shift of its own.
        let out = if fast { scale } else { out };
        let plan = Curve::Slopes(slopes.clone()).plan(&operand, &Output { scale: out, ..to }).unwrap();
        for (c, slope) in slopes.iter().enumerate() {
            let sum = run(&plan.a, c, x.into()) + run(&plan.b, c, x.into());
            let found = run(&plan.epilogue, c, sum);
            let leaky = real * if real < 0.0 { *slope } else { 1.0 } / out;
            let (expected, clear) = ideal(leaky, zeros[1], clamp, 1.0 / 256.0);
            prop_assert!((found - expected).abs() <= 1, "{} for {}", found, leaky);
            prop_assert!(found == expected || !clear || fast, "{} for {} by {:?}", found, leaky, plan.b);
        }
    }
}

/// A zero point of int16, often at one of its ends as those of uint16 are.
fn wide_zero() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), Just(-32768), Just(32767), -32768i32..=32767]
}

/// A value of int16, often one of the ends.
fn wide_value() -> impl Strategy<Value = i16> {
    prop_oneof![Just(i16::MIN), Just(i16::MAX), any::<i16>()]
}

/// What int16 results may be from the reals, in their steps: half of one for rounding, and what multipliers of 14 bits
/// lose; of sums of two what they lose of both, at four times the distance.
const WIDE: f64 = 2.5;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn int16_is_within_a_step_of_the_reals(
        x in wide_value(), y in wide_value(), zeros in [wide_zero(), wide_zero(), wide_zero()],
        ratios in [-2f64..1.0, -2f64..1.0], small in -18f64..-14.0, join in 0usize..3, swish in 1e-4f64..3e-3,
    ) {
        let clamp = Numbers::Int16.bounds();
        let to = |scale| Output { scale, zero: zeros[2], clamp, requant: Requant::Precise, numbers: Numbers::Int16 };
        let operand = |scale, zero| Operand { scale, zero, range: clamp };
        let lanes = |plan: &PairPlan, x: i16, y: i16| {
            let (low, high) = (operand(1.0, 0).after(&plan.a, 0).unwrap(), operand(1.0, 0).after(&plan.b, 0).unwrap());
            let all = if plan.is_product { product(low, high) } else { (low.0 + high.0, low.1 + high.1) };
            // Nothing wraps, whatever is joined.
            assert!(range(&plan.epilogue, 0, all).is_ok(), "{:?}", plan.epilogue);
            let (x, y) = (run(&plan.a, 0, x.into()), run(&plan.b, 0, y.into()));
            run(&plan.epilogue, 0, if plan.is_product { x * y } else { x + y })
        };
        let centred = |x: i16, zero: i32| f64::from(x) - f64::from(zero);
        let check = |found: i32, real: f64, most: f64| {
            let real = (real + f64::from(zeros[2])).clamp(clamp.0.into(), clamp.1.into());
            let off = (f64::from(found) - real).abs();
            prop_assert!(off <= most, "{} for {}, {} off", found, real, off);
            Ok(())
        };
        let (a, b) = (centred(x, zeros[0]), centred(y, zeros[1]));
        let join = [Join::Sum, Join::Difference, Join::Product][join];
        let (scales, real) = match join {
            Join::Product => ([small.exp2(), 1.0], a * b * small.exp2()),
            _ => {
                let [ra, rb] = ratios.map(f64::exp2);
                ([ra, rb], if join == Join::Sum { a * ra + b * rb } else { a * ra - b * rb })
            }
        };
        let operands = [operand(scales[0], zeros[0]), operand(scales[1], zeros[1])];
        check(lanes(&plan_pair(join, operands, &to(1.0)).unwrap(), x, y), real, 4.0 * WIDE)?;
        let real = a * swish;
        let plan = Curve::HardSwish.plan(&operand(swish, zeros[0]), &to(swish)).unwrap();
        check(lanes(&plan, x, x), real * (real / 6.0 + 0.5).clamp(0.0, 1.0) / swish, WIDE)?;
        let plan = Curve::Slopes(vec![0.1]).plan(&operand(1.0, zeros[0]), &to(1.0)).unwrap();
        check(lanes(&plan, x, x), if a < 0.0 { a * 0.1 } else { a }, WIDE)?;
        let ratio = ratios[0].exp2();
        let ops = plan_scale(ratio, (clamp.0.into(), clamp.1.into()), zeros[0].into(), &to(1.0)).unwrap();
        check(run(&ops, 0, x.into()), a * ratio, WIDE)?;
    }
}
