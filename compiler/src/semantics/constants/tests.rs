use proptest::prelude::*;

use super::*;
use crate::qgraph::Numbers;
use crate::semantics::{Requant, apply};

/// How far results are from what a tie rounds to, over all int8 values and constants.
fn farthest(
    ops: &[LaneOp],
    (low, high): (i16, i16),
    count: usize,
    exact: impl Fn(i16, usize) -> f64,
) -> f64 {
    let mut off = 0f64;
    for x in low..=high {
        let mut lanes = vec![i32::from(x); count];
        for op in ops {
            apply(op, 0, &mut lanes).unwrap();
        }
        for (at, &lane) in lanes.iter().enumerate() {
            let exact = exact(x, at).clamp(-128.0, 127.0);
            off = off.max((f64::from(lane) - exact).abs() - 0.5);
        }
    }
    off
}

fn zero() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), -128i32..=127]
}

/// An operand whose steps are as many of the output's, and that output.
fn tensors(ratio: f64, range: (i16, i16), [from, zero]: [i32; 2]) -> (Operand, Output) {
    let x = Operand {
        scale: ratio,
        zero: from,
        range,
    };
    let to = Output {
        scale: 1.0,
        zero,
        clamp: (-128, 127),
        requant: Requant::Precise,
        numbers: Numbers::Int8,
    };
    (x, to)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sums_with_constants_round_as_reals_do(
        size in -8f64..4.0, negative in any::<bool>(), power in any::<bool>(),
        offsets in prop::collection::vec(prop_oneof![-150f64..150.0, -1e7..1e7], 2..9), zeros in [zero(), zero()],
        low in -128i16..=0,
    ) {
        let size = if power { 2f64.powi(size as i32) } else { size.exp2() };
        let ratio = if negative { -size } else { size };
        let join = if negative { Join::Difference } else { Join::Sum };
        let (x, to) = tensors(size, (low, 127), zeros);
        let ops = plan_constants(join, &offsets, 1, &x, &to).unwrap();
        let exact = |x: i16, at: usize| {
            (f64::from(x) - f64::from(zeros[0])) * ratio + offsets[at] + f64::from(zeros[1])
        };
        let off = farthest(&ops, (low, 127), offsets.len(), exact);
        prop_assert!(off <= precise::MAX_ERROR, "{} by {:?}", off, ops);
    }

    #[test]
    fn products_with_constants_round_as_reals_do(
        factors in prop::collection::vec(prop_oneof![-1.5f64..1.5, -90.0..90.0], 2..9), zeros in [zero(), zero()],
        low in -128i16..=0,
    ) {
        let (x, to) = tensors(1.0, (low, 127), zeros);
        let ops = plan_constants(Join::Product, &factors, 1, &x, &to).unwrap();
        let exact = |x: i16, at: usize| (f64::from(x) - f64::from(zeros[0])) * factors[at] + f64::from(zeros[1]);
        let off = farthest(&ops, (low, 127), factors.len(), exact);
        prop_assert!(off <= precise::MAX_ERROR, "{} by {:?}", off, ops);
    }
}

#[test]
fn constants_beyond_every_result_saturate() {
    let (x, to) = tensors(0.3, (-128, 127), [5, 100]);
    let mut lanes = [-128, 127];
    for op in plan_constants(Join::Sum, &[1e30, -1e30], 1, &x, &to).unwrap() {
        apply(&op, 0, &mut lanes).unwrap();
    }
    assert_eq!(lanes, [127, -128]);
    let (x, to) = tensors(1.0, (-128, 127), [0, -100]);
    let mut lanes = [1, 1, 1];
    for op in plan_constants(Join::Product, &[1e30, -1e30, 0.0], 1, &x, &to).unwrap() {
        apply(&op, 0, &mut lanes).unwrap();
    }
    assert_eq!(lanes, [127, -128, -100]);
}

#[test]
fn what_no_fixed_point_holds_is_refused() {
    for (ratio, offset) in [
        (0.0, 1.0),
        (f64::NAN, 1.0),
        (4096.0, 1.0),
        (1.0, f64::INFINITY),
    ] {
        let (x, to) = tensors(ratio, (-128, 127), [0, 0]);
        let plan = plan_constants(Join::Sum, &[offset], 1, &x, &to);
        assert!(
            matches!(plan, Err(SemanticsError::Ratio { .. })),
            "{ratio} {offset}"
        );
    }
    let (x, to) = tensors(1.0, (-128, 127), [0, 0]);
    assert!(matches!(
        plan_constants(Join::Product, &[f64::NAN], 1, &x, &to),
        Err(SemanticsError::Ratio { .. })
    ));
}
