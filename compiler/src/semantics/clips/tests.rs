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

/// Bits of the bounds of a case: of bytes, of what CLIP holds, of sums, of anything.
const SIZES: [u32; 5] = [7, 12, 17, 26, 31];

/// A clamp from both sides, of two channels: mostly one after the other, and with the lower bound below.
fn clamps(bits: u32) -> impl Strategy<Value = Vec<LaneOp>> {
    let bounds = [any::<i32>(), any::<i32>(), any::<i32>(), any::<i32>()];
    (bounds, any::<bool>(), 0..8u32).prop_map(move |(bounds, swapped, odd)| {
        let [mut low, mut high] = [[0; 2]; 2];
        for (channel, pair) in bounds.map(|b| b >> (31 - bits)).chunks(2).enumerate() {
            let (a, b) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            (low[channel], high[channel]) = if odd == 0 { (b, a) } else { (a, b) };
        }
        let operand = |all: [i32; 2]| match odd {
            1 | 2 if bits == 7 => LaneOperand::Imm(all[0] as i16),
            _ => LaneOperand::Vec(all.to_vec()),
        };
        let mut clamps = vec![
            LaneOp::new(LaneKind::Max, operand(low)),
            LaneOp::new(LaneKind::Min, operand(high)),
        ];
        if swapped {
            clamps.reverse();
        }
        if odd == 3 {
            clamps.insert(1, clamps[0].clone());
        }
        clamps
    })
}

/// Clamps before operations that may decrease, wrap, or keep apart what a narrower bound joins.
fn list() -> impl Strategy<Value = Vec<LaneOp>> {
    let size = prop::sample::select(&SIZES[..]);
    let lists = size.prop_flat_map(|bits| {
        let factor = || (any::<u32>(), 0..12u32);
        (
            Just(bits),
            clamps(bits),
            [factor(), factor()],
            0..14u32,
            0..4u32,
        )
    });
    lists.prop_map(|(bits, mut ops, factors, fewer, behind)| {
        // Of so many bits the products don't wrap, but for a factor of one bit more.
        let most = 31u32.saturating_sub(bits).max(1);
        let factors = factors.map(|(factor, odd)| {
            let factor = (factor >> (32 - most)) as i32;
            match odd {
                0 => -factor,
                1 => factor.wrapping_mul(2),
                _ => factor,
            }
        });
        if behind > 0 {
            ops.push(LaneOp::mul(factors.to_vec()));
            ops.push(LaneOp::shr(30u32.saturating_sub(fewer) as i16));
        }
        ops
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        max_global_rejects: 50_000,
        ..ProptestConfig::with_cases(5_000)
    })]

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
            LaneOp::min(vec![63_640, 13_981]),
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

/// MINs and MAXs, most with a limit of int8.
fn last() -> impl Strategy<Value = Vec<LaneOp>> {
    let kind = prop::sample::select(vec![LaneKind::Min, LaneKind::Max]);
    let bound = prop::sample::select(vec![-129, -128, -128, -128, -5, 0, 90, 127, 127, 127, 128]);
    let clamp = (kind, bound).prop_map(|(kind, bound)| LaneOp::new(kind, bound));
    prop::collection::vec(clamp, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    /// What is left, clamped to int8, is the low byte that was stored.
    #[test]
    fn clamps_that_are_left_to_stores_are_done_by_them(
        lists in prop::collection::vec((list(), last()), 1..3),
        xs in prop::collection::vec((any::<i32>(), 0..32u32), 1..20),
    ) {
        let lists: Vec<Vec<LaneOp>> = lists.into_iter().map(|(ops, last)| [ops, last].concat()).collect();
        let mut left = lists.clone();
        let any = leave_clamps(&mut left.iter_mut().collect::<Vec<_>>(), 2, Numbers::Int8);
        prop_assert_eq!(any, left != lists);
        for (ops, left) in lists.iter().zip(&left).filter(|_| any) {
            for (channel, (x, shift)) in xs.iter().enumerate() {
                let (channel, x) = (channel % 2, x >> shift);
                let stored = value(left, channel, x).clamp(-128, 127);
                prop_assert_eq!(stored, value(ops, channel, x), "{:?} of {}", ops, x);
            }
        }
    }
}
