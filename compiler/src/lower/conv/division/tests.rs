use proptest::prelude::*;

use super::*;
use crate::semantics::apply;

fn sum(digits: &[Vec<i8>], channel: usize) -> i32 {
    let at = |d: &Vec<i8>| i32::from(if d.len() == 1 { d[0] } else { d[channel] });
    digits.iter().map(at).sum()
}

proptest! {
    #[test]
    fn divided_multiplications_are_exact(
        m in prop::collection::vec(0i32..5000, 1..5), shift in 0i16..14, add in any::<i16>(),
        form in 0usize..3, always in any::<bool>(), a in -4_000_000i32..4_000_000, r in any::<i8>(),
    ) {
        let prologue = match form {
            0 => vec![LaneOp::mul(m.clone())],
            1 => vec![LaneOp::shl((m[0] % 14) as i16)],
            _ => vec![LaneOp::mul(m[0] as i16)],
        };
        let mut epilogue = vec![LaneOp::add(add)];
        if shift > 0 {
            epilogue.push(LaneOp::shr(shift));
        }
        epilogue.push(LaneOp::min(500));
        let when = if always { When::Always } else { When::Cheap };
        let Some(plan) = divide_residual(&prologue, &epilogue, when) else { return Ok(()); };
        for c in 0..m.len() {
            let run = |ops: &[LaneOp], x: i32| {
                let mut lane = [x];
                ops.iter().for_each(|op| apply(op, c, &mut lane).unwrap());
                lane[0]
            };
            let expected = run(&epilogue, a + run(&prologue, r.into()));
            let r = i32::from(r);
            let low = run(&plan.before, a + sum(&plan.low, c) * r);
            prop_assert_eq!(run(&plan.after, low + sum(&plan.high, c) * r), expected, "{:?}", plan);
        }
    }
}

#[test]
fn the_cheapest_division_is_taken() {
    let shl = |k: i16| [LaneOp::shl(k)];
    let steps = |k: i16, n: i16| {
        let plan =
            divide_residual(&shl(k), &[LaneOp::add(1), LaneOp::shr(n)], When::Cheap).unwrap();
        (plan.before.len(), plan.after.len(), plan.steps())
    };
    // The whole multiplier, after the whole shift, and between two shifts.
    assert_eq!(steps(3, 9), (0, 2, 1));
    assert_eq!(steps(3, 3), (2, 0, 1));
    assert_eq!(steps(10, 10), (2, 0, 1));
    assert_eq!(steps(12, 8), (2, 0, 1));
    assert_eq!(steps(11, 13), (2, 1, 1));
    let epilogue = [LaneOp::add(1), LaneOp::shr(4), LaneOp::mul(3)];
    let plan_of = |m: &[i32]| divide_residual(&[LaneOp::mul(m.to_vec())], &epilogue, When::Cheap);
    let two = plan_of(&[1512, 1995]).unwrap();
    assert_eq!(
        (two.steps(), &two.low, &two.high),
        (2, &vec![vec![8, 11]], &vec![vec![94, 124]])
    );
    // Four digits cost more than loading and multiplying in the accumulators.
    assert_eq!(plan_of(&[9000, 20]), None);
    assert_eq!(plan_of(&[-1]), None);
    // Without a load into the accumulators there is no choice.
    let shl = [LaneOp::shl(11)];
    assert_eq!(divide_residual(&shl, &[], When::Cheap), None);
    assert_eq!(
        divide_residual(&shl, &[], When::Always).unwrap().steps(),
        MAX_DIGITS
    );
    assert_eq!(divide_residual(&[LaneOp::shl(12)], &[], When::Always), None);
}

#[test]
fn diagonals_hold_their_channels_digits() {
    let plan = divide_residual(
        &[LaneOp::mul(vec![3, 5, 7])],
        &[LaneOp::min(1)],
        When::Cheap,
    )
    .unwrap();
    assert_eq!(plan.pack(2, 2), [3, 0, 0, 5, 7, 0, 0, 0]);
    let plan = divide_residual(&[], &[LaneOp::min(1)], When::Cheap).unwrap();
    assert_eq!((plan.pack(9, 2), plan.tiles(9)), (vec![1, 0, 0, 1], 1));
}
