use proptest::prelude::*;

use super::*;

fn step() -> impl Strategy<Value = Step> {
    let op = prop::sample::select(AluOp::ALL.to_vec());
    let lanes = prop_oneof![any::<[i32; COLUMN]>(), Just([21; COLUMN])];
    let of_lanes = prop::sample::select(vec![
        AluOp::Mul,
        AluOp::Mul,
        AluOp::Add,
        AluOp::Min,
        AluOp::Max,
    ]);
    let of_lanes = (of_lanes, lanes).prop_map(|(op, lanes)| Step {
        op,
        operand: Operand::Lanes([lanes].into()),
    });
    let scale = any::<[i32; COLUMN]>().prop_map(|factors| Step {
        op: AluOp::Add,
        operand: Operand::Scaled([factors].into()),
    });
    prop_oneof![
        3 => (op, -200i32..200).prop_map(|(op, imm)| Step::immediate(op, imm)),
        1 => Just(Step::immediate(AluOp::Min, 127)),
        1 => Just(Step::immediate(AluOp::Max, 0)),
        3 => of_lanes,
        1 => scale,
    ]
}

/// Steps of a requantisation in two steps, some of which end in bytes whatever the sum is.
fn requantization() -> impl Strategy<Value = Vec<Step>> {
    let factor = || prop_oneof![-40i32..40, any::<i32>()];
    let bounds = (-1000i32..1000, 0i32..1000);
    let steps = (
        bounds,
        factor(),
        0i32..8,
        factor(),
        -5000i32..5000,
        0i32..16,
    );
    steps.prop_map(|((low, more), first, shift, factor, added, last)| {
        let lanes = |op, v: i32| Step {
            op,
            operand: Operand::Lanes([[v; COLUMN]].into()),
        };
        vec![
            lanes(AluOp::Max, low),
            lanes(AluOp::Min, low + more),
            lanes(AluOp::Mul, first),
            Step::immediate(AluOp::Shr, shift),
            lanes(AluOp::Mul, factor),
            lanes(AluOp::Add, added),
            Step::immediate(AluOp::Shr, last),
        ]
    })
}

const RESIDUAL: i32 = -77;

fn apply(steps: &[Step], mut x: i32) -> i32 {
    for step in steps {
        let y = match &step.operand {
            Operand::Imm(imm) => *imm,
            Operand::Lanes(lanes) => lanes[0][0],
            Operand::Scaled(factors) => factors[0][0].wrapping_mul(RESIDUAL),
            Operand::Tiles(_) => unreachable!("none is made"),
        };
        x = step.op.apply(x, y);
    }
    x
}

proptest! {
    #[test]
    fn the_parts_do_what_the_list_does(
        list in prop_oneof![prop::collection::vec(step(), 0..9), requantization()],
        x in prop_oneof![any::<i32>(), -3000i32..3000],
    ) {
        let steps = Steps::new(list);
        let (before, end) = steps.parts();
        let mut sum = apply(before, x);
        if let Some(digits) = &end.residual {
            sum = sum.wrapping_add(digits.high[0][0].wrapping_mul(RESIDUAL)) >> digits.shift;
            sum = sum.wrapping_add(digits.low[0][0].wrapping_mul(RESIDUAL));
        }
        let lane = |place: usize| steps.lanes()[place].0[0];
        if let Some([low, high]) = end.bounds {
            sum = sum.clamp(lane(low), lane(high));
        }
        if let Some(factors) = end.first {
            sum = sum.wrapping_mul(lane(factors));
        }
        sum = (sum >> end.shift).clamp(end.clamp[0], end.clamp[1]);
        if let Some(factors) = end.factors {
            sum = sum.wrapping_mul(lane(factors));
        }
        if let Some(added) = end.added {
            sum = sum.wrapping_add(lane(added));
        }
        sum = (sum >> end.last_shift).max(end.last_clamp[0]);
        if let Some([low, high]) = end.bytes {
            let saturated = sum.clamp(-128, 127) as i8;
            let clamped = i32::from(saturated.max(low).min(high));
            prop_assert_eq!(clamped, sum.min(end.last_clamp[1]));
        }
        prop_assert_eq!(sum.min(end.last_clamp[1]), apply(steps.list(), x));
    }
}

#[test]
fn a_step_many_times_is_one_step() {
    let immediates = [
        0, 1, -1, 2, -2, 3, 15, 16, 31, 32, -31, -32, 100, 32767, -32768,
    ];
    let numbers = [
        0,
        1,
        -1,
        5,
        100,
        -77,
        0x1234_5678,
        i32::MAX,
        i32::MIN,
        -0x1234_5679,
    ];
    for op in AluOp::ALL {
        for imm in immediates {
            let mut expected = numbers;
            for times in 1..70 {
                expected.iter_mut().for_each(|x| *x = op.apply(*x, imm));
                let step = [Step::immediate_times(op, imm, times)];
                let found = numbers.map(|x| apply(&step, x));
                assert_eq!(found, expected, "{op:?} {imm} {times} times");
            }
        }
    }
    let step = Step::immediate_times(AluOp::Shl, 31, u32::MAX);
    assert_eq!(apply(&[step], -1), 0);
}

#[test]
fn a_requantization_is_an_end() {
    let lanes = |v: i32| Operand::Lanes([[v; COLUMN]].into());
    let list = vec![
        Step::immediate(AluOp::Add, 7),
        Step::immediate(AluOp::Shr, 3),
        Step::immediate(AluOp::Min, 32767),
        Step::immediate(AluOp::Max, 0),
        Step {
            op: AluOp::Mul,
            operand: lanes(21),
        },
        Step::immediate(AluOp::Shr, 9),
        Step::immediate(AluOp::Min, 127),
    ];
    let steps = Steps::new(list);
    let (before, end) = steps.parts();
    assert_eq!(before.len(), 1);
    assert_eq!((end.shift, end.clamp), (3, [0, 32767]));
    assert_eq!((end.last_shift, end.last_clamp), (9, [i32::MIN, 127]));
    assert_eq!(end.bytes, Some([0, 127]));
}

#[test]
fn a_requantization_in_two_steps_is_an_end() {
    let lanes = |op, v: i32| Step {
        op,
        operand: Operand::Lanes([[v; COLUMN]].into()),
    };
    let list = |low| {
        vec![
            lanes(AluOp::Min, 1000),
            Step::immediate(AluOp::Max, low),
            lanes(AluOp::Mul, 21),
            Step::immediate(AluOp::Shr, 7),
            lanes(AluOp::Mul, 33),
            lanes(AluOp::Add, 5),
            Step::immediate(AluOp::Shr, 23),
        ]
    };
    let steps = Steps::new(list(0));
    let (before, end) = steps.parts();
    assert!(before.is_empty() && end.bounds.is_some() && end.first.is_some());
    // From 0 to 1000 all sums have the same end.
    assert_eq!((end.shift, end.last_shift), (7, 23));
    assert_eq!(end.bytes, Some([0, 0]));
    // Bytes are bounded by what is left of a clamp. A lane with another bound keeps the end from being floats.
    for (low, high, bytes) in [
        (-300, 90, Some([-128, 90])),
        (-9, 300, Some([-9, 127])),
        (128, 300, None),
    ] {
        let mut bound = [1 << 21; COLUMN];
        bound[3] = 1000;
        let mut list = list(-1 << 14);
        list[0].operand = Operand::Lanes([bound].into());
        list[6] = Step::immediate(AluOp::Shr, 17);
        list.extend([
            Step::immediate(AluOp::Min, high),
            Step::immediate(AluOp::Max, low),
        ]);
        assert_eq!(Steps::new(list).parts().1.bytes, bytes);
    }
    // Bounds that cross are steps.
    assert_eq!(Steps::new(list(2000)).parts().0.len(), 2);
}
