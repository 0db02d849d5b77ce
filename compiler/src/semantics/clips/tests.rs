use proptest::prelude::*;

use super::super::apply;
use super::*;

fn value(op: &[LaneOp], channel: usize, x: i32) -> i32 {
    let mut lanes = [x];
    op.iter()
        .for_each(|op| apply(op, channel, &mut lanes).unwrap());
    lanes[0]
}

fn joined(ops: &[LaneOp]) -> Vec<LaneOp> {
    let mut joined = ops.to_vec();
    join_clamps(&mut joined);
    joined
}

/// Clamps of two channels before operations that may decrease, wrap, or keep apart what a narrower bound joins.
fn list() -> impl Strategy<Value = Vec<LaneOp>> {
    let bound = || prop_oneof![-300i32..300, -70_000i32..70_000, any::<i32>()];
    let operand = prop_oneof![
        3 => [bound(), bound()].prop_map(|all| LaneOperand::Vec(all.to_vec())),
        1 => (-300i16..300).prop_map(LaneOperand::Imm),
    ];
    let clamp = prop_oneof![Just(LaneKind::Min), Just(LaneKind::Max)];
    let clamps = prop::collection::vec((clamp, operand), 2..4);
    let factor = || prop_oneof![3 => 0i32..600, 1 => -600i32..0];
    let factors = [factor(), factor()].prop_map(|all| LaneOp::mul(all.to_vec()));
    let behind = prop_oneof![
        2 => Just(Vec::new()),
        6 => (factors, 0i16..24).prop_map(|(mul, shift)| vec![mul, LaneOp::shr(shift)]),
    ];
    (clamps, behind).prop_map(|(clamps, behind)| {
        let clamps = clamps.into_iter().map(|(kind, y)| LaneOp::new(kind, y));
        clamps.chain(behind).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Whatever the sum is, the same comes out.
    #[test]
    fn nothing_tells_one_step_from_two(ops in list(), xs in prop::collection::vec(any::<i32>(), 4), shift in 0u32..24) {
        let joined = joined(&ops);
        prop_assume!(joined != ops);
        let bounds = ops.iter().flat_map(|op| (0..2).filter_map(|c| op.operand.of_channel(c)));
        let beside = bounds.flat_map(|b| [b.saturating_sub(1), b, b.saturating_add(1), b / 64 * 64, b - b / 4096]);
        let xs = xs.iter().flat_map(|x| [*x, x >> shift]).chain(beside);
        for x in xs {
            for channel in 0..2 {
                prop_assert_eq!(value(&ops, channel, x), value(&joined, channel, x), "{:?} as {:?}: {}", ops, joined, x);
            }
        }
    }
}

#[test]
fn clamps_of_requantize_are_one_step() {
    let precise = |low: LaneOperand| {
        vec![
            LaneOp::min(vec![63_875, 14_033]),
            LaneOp::max(low),
            LaneOp::mul(vec![2109, 9600]),
            LaneOp::shr(7),
            LaneOp::mul(vec![2036, 2036]),
            LaneOp::add(vec![8_389_626, 8_389_626]),
            LaneOp::shr(24),
        ]
    };
    for low in [0.into(), vec![-64_000, -14_060].into()] {
        let ops = precise(low);
        let one = joined(&ops);
        assert_eq!((ops.len() - 1, one[0].kind), (one.len(), LaneKind::Clip));
        assert!(one[0].vector().is_some());
    }
    let bytes = [LaneOp::shr(3), LaneOp::max(-128), LaneOp::min(127)];
    assert_eq!(
        joined(&bytes)[1..],
        [LaneOp::new(LaneKind::Clip, -128 << 8 | 127)]
    );
    // Of 32767 a byte says too little, and bounds that cross are left alone.
    for ops in [
        [LaneOp::min(32767), LaneOp::max(0)],
        [LaneOp::min(-3), LaneOp::max(4)],
    ] {
        assert_eq!(joined(&ops), ops);
    }
}
