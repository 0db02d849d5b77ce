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
