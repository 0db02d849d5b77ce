//! How sums end in the products of the tests.

use proptest::prelude::*;

use super::super::product::steps::{Operand, Steps};
use super::*;

/// Steps of all columns.
pub(super) struct End(Vec<Step>);

impl End {
    /// Nothing, a shift with bounds, or a requantisation in two multiplications.
    pub fn of(case: &Case) -> Self {
        let mut numbers = Numbers(case.seed ^ 2);
        match case.seed >> 8 & 3 {
            0 => Self(Vec::new()),
            1 => {
                let end = [(AluOp::Shr, 3), (AluOp::Min, 90), (AluOp::Max, -100)];
                Self(end.map(|(op, imm)| Step::immediate(op, imm)).into())
            }
            _ => Self::precise(case.columns, &mut numbers),
        }
    }

    /// A residual before the end, in one or two digits, or none.
    pub fn residual(case: &Case) -> Self {
        let mut numbers = Numbers(case.seed ^ 4);
        let mut digit = || {
            let mut lane = || numbers.next() as i32 >> 20;
            let mut column = || std::array::from_fn(|_| lane());
            let factors = (0..case.columns).map(|_| column()).collect();
            Step {
                op: AluOp::Add,
                operand: Operand::Scaled(factors),
            }
        };
        let shift = Step::immediate(AluOp::Shr, (case.seed >> 13 & 7) as i32);
        Self(match case.seed >> 10 & 7 {
            0 => vec![digit()],
            1 => vec![digit(), shift, digit()],
            _ => Vec::new(),
        })
    }

    /// As the compiler's precise form has it; now and then with numbers that it wouldn't take.
    fn precise(columns: usize, numbers: &mut Numbers) -> Self {
        let shift = [7, 7, 7, 7, 8, 9, 10, 0][numbers.below(8)];
        let rectified = numbers.below(2) == 0;
        let highest = if rectified { 0 } else { 127 };
        let zero = [0, -128, highest, numbers.below(256) as i32 - 128][numbers.below(4)];
        let far = i32::from(zero != 0);
        let last = [24 - far, 24 - far, 24 - far, 24 - far, 24, 20][numbers.below(6)];
        // How many lanes in a thousand have a number that is another.
        let wild = [0, 0, 0, 0, 20, 200][numbers.below(6)];
        let largest = [3.0, 3.0, 3.0, 3.0, 3.0, 13.0, 17.0, -5.0][numbers.below(8)];
        let mut all = [const { Vec::new() }; 5];
        for _ in 0..columns {
            let lanes: [[i32; 5]; COLUMN] = std::array::from_fn(|_| {
                let ratio = 2f64.powf(-largest - numbers.below(9000) as f64 / 1000.0);
                let factor = (1 << shift) + numbers.below(3 << shift) as i32;
                let first = ratio * 2f64.powi(shift + last) / f64::from(factor);
                let first = first.round().min(f64::from(1 << 21)) as i32;
                let low = if rectified { 0 } else { -128 - zero };
                let bound = |steps: f64| (steps / ratio) as i32;
                let low = if low == 0 {
                    0
                } else {
                    bound(f64::from(low) + 0.25)
                };
                let added = (zero << last) + (1 << (last - 1)) + factor / 2;
                let added = added.wrapping_add(numbers.below(2000) as i32 - 1000);
                let mut lane = [
                    bound(f64::from(127 - zero) - 0.25),
                    low,
                    first,
                    factor,
                    added,
                ];
                if numbers.below(1000) < wild {
                    let other = numbers.next() as i32;
                    let at = numbers.below(5);
                    let others = [
                        0,
                        1,
                        lane[at].wrapping_neg(),
                        lane[at] / 2,
                        lane[at] ^ 1,
                        other,
                    ];
                    lane[at] = others[numbers.below(6)];
                    if numbers.below(4) == 0 {
                        (lane[2], lane[4]) = (0, (other % 128) << last);
                    }
                }
                lane
            });
            for (at, all) in all.iter_mut().enumerate() {
                all.push(lanes.map(|lane| lane[at]));
            }
        }
        let Self(mut steps) =
            Self::of_lanes(all.map(|all| Operand::Lanes(all.into())), [shift, last]);
        if numbers.below(8) == 0 {
            let bounds = [(AluOp::Min, numbers.below(1 << 24)), (AluOp::Max, 0)];
            let bounds = bounds.map(|(op, imm)| Step::immediate(op, imm as i32));
            steps.splice(4..4, bounds);
        }
        if numbers.below(4) == 0 {
            let [low, high] = [-(numbers.below(160) as i32), numbers.below(160) as i32];
            let bounds = [(AluOp::Min, high), (AluOp::Max, low)];
            steps.extend(bounds.map(|(op, imm)| Step::immediate(op, imm)));
        }
        Self(steps)
    }

    /// Bounds, two multiplications and what is added behind them, with shifts.
    fn of_lanes([high, low, first, factors, added]: [Operand; 5], shifts: [i32; 2]) -> Self {
        let step = |op, operand| Step { op, operand };
        let [shift, last] = shifts.map(|places| Step::immediate(AluOp::Shr, places));
        Self(vec![
            step(AluOp::Min, high),
            step(AluOp::Max, low),
            step(AluOp::Mul, first),
            shift,
            step(AluOp::Mul, factors),
            step(AluOp::Add, added),
            last,
        ])
    }

    /// The steps of some columns.
    pub fn of_columns(&self, columns: &[usize]) -> Vec<Step> {
        let of = |step: &Step| {
            let some = |all: &[[i32; COLUMN]]| columns.iter().map(|&column| all[column]).collect();
            let operand = match &step.operand {
                Operand::Lanes(lanes) => Operand::Lanes(some(lanes)),
                Operand::Scaled(factors) => Operand::Scaled(some(factors)),
                Operand::Imm(_) | Operand::Tiles(_) => step.operand.clone(),
            };
            Step { operand, ..*step }
        };
        self.0.iter().map(of).collect()
    }

    /// What a sum ends as, by the definition of each operation.
    pub fn apply(&self, place: [usize; 2], x: i32) -> i32 {
        self.apply_to(place, x, 0)
    }

    /// The same of a sum whose residual is a byte.
    pub fn apply_to(&self, [column, lane]: [usize; 2], x: i32, byte: u8) -> i32 {
        let operand = |step: &Step| match &step.operand {
            Operand::Imm(imm) => *imm,
            Operand::Lanes(lanes) => lanes[column][lane],
            Operand::Scaled(factors) => factors[column][lane].wrapping_mul(i32::from(byte as i8)),
            Operand::Tiles(_) => unreachable!("none is made"),
        };
        let steps = self.0.iter();
        steps.fold(x, |x, step| step.op.apply(x, operand(step)))
    }

    /// A sum that is beside one with another end, if there is one between the bounds.
    pub fn near(&self, place: [usize; 2], numbers: &mut Numbers) -> i32 {
        let bound = |at: usize| match self.0.get(at).map(|step| &step.operand) {
            Some(Operand::Lanes(lanes)) => lanes[place[0]][place[1]],
            _ => 1000 * (1 - 2 * at as i32),
        };
        let (mut low, mut high) = (bound(1), bound(0));
        match numbers.below(8) {
            0 => return numbers.next() as i32,
            1 => return [low, high, i32::MIN, i32::MAX, 1 << 24][numbers.below(5)],
            2 => {
                return [low.wrapping_sub(1), high.wrapping_add(1), (1 << 24) + 1]
                    [numbers.below(3)];
            }
            _ => {}
        }
        let steps = self.apply(place, high).abs_diff(self.apply(place, low));
        let least = self.apply(place, low);
        let least = least.saturating_add(numbers.below(steps.min(255) as usize + 1) as i32);
        while low < high {
            let middle = (i64::from(low) + i64::from(high)).div_euclid(2) as i32;
            match self.apply(place, middle) >= least {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low.wrapping_sub(numbers.below(2) as i32)
    }
}

/// The nearest float that isn't above `a * b + c`.
fn multiply_add_down([a, b, c]: [f32; 3]) -> f32 {
    // A whole number and an exponent of two.
    let parts = |x: f32| {
        let exponent = (x.to_bits() >> 23 & 255).max(1) as i32 - 150;
        ((f64::from(x) / 2f64.powi(exponent)) as i128, exponent)
    };
    let ([a, b, c], mut sum, mut exponent) = ([a, b, c].map(parts), 0, 0);
    for (whole, places) in [(a.0 * b.0, a.1 + b.1), c] {
        if whole != 0 && sum == 0 {
            (sum, exponent) = (whole, places);
        } else if whole != 0 {
            let least = exponent.min(places);
            sum = (sum << (exponent - least)) + (whole << (places - least));
            exponent = least;
        }
    }
    let dropped = (128 - 24 - sum.unsigned_abs().leading_zeros() as i32).max(0);
    (sum >> dropped) as f32 * 2f32.powi(exponent + dropped)
}

/// Whether sums of a lane end in floats as the steps say, by arithmetic on whole numbers, whatever this CPU has. Steps
/// that have no floats do.
fn floats_agree(end: &End, lane: usize, x: i32) -> bool {
    let steps = Steps::new(end.of_columns(&[0]));
    let (before, requantize) = steps.parts();
    let (Some(floors), Some(bytes)) = (&requantize.floors, requantize.bytes) else {
        return true;
    };
    let of = |place: usize| f32::from_bits(steps.lanes()[place].0[lane] as u32);
    let sum = multiply_add_down([x as f32, of(floors.first), of(floors.before)]);
    let sum = if floors.inner { sum.floor() } else { sum };
    let sum = multiply_add_down([sum, of(floors.second), of(floors.after)]).floor();
    // As the CPU has what doesn't fit.
    let sum = if sum.abs() < 2f32.powi(31) {
        sum as i32
    } else {
        i32::MIN
    };
    let byte = sum.clamp(-128, 127).clamp(bytes[0].into(), bytes[1].into());
    before.is_empty() && byte == end.apply([0, lane], x)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn floats_end_sums_as_the_steps_do(seed: u64) {
        let mut numbers = Numbers(seed);
        let end = End::precise(1, &mut numbers);
        for at in 0..COLUMN * 20 {
            let x = end.near([0, at % COLUMN], &mut numbers);
            prop_assert!(floats_agree(&end, at % COLUMN, x), "sum {} of {:?}", x, end.0);
        }
    }
}

/// Each would differ by the sum that stands behind it.
#[test]
fn some_ends_are_no_floats() {
    let lane = |low, high, first, factor, added| [high, low, first, factor, added];
    let usual = lane(0, 8128, 128, 128, 0);
    // Shifts, lanes, and a sum of the second one.
    for (shifts, lanes, x) in [
        // Sums that a float doesn't hold.
        ([7, 16], [lane(0, (1 << 30) - 1, 1, 1, 0); 2], (1 << 29) - 1),
        // Ends that an int32 doesn't hold.
        ([0, 0], [lane(0, 1, 100, 1, 0); 2], 1 << 30),
        // A lane that always ends elsewhere.
        ([7, 13], [usual, lane(0, 8128, 0, 128, -5 << 13)], 0),
        // Another bound.
        ([7, 13], [usual, lane(0, 6400, 128, 128, 0)], 8000),
        // An order that is turned round.
        ([7, 13], [lane(0, 8128, -128, 128, 0); 2], 9000),
    ] {
        let all = std::array::from_fn(|at| {
            Operand::Lanes([std::array::from_fn(|of| lanes[usize::from(of == 1)][at])].into())
        });
        let end = End::of_lanes(all, shifts);
        assert!(floats_agree(&end, 1, x), "{lanes:?}");
        assert!(Steps::new(end.0).parts().1.floors.is_none(), "{lanes:?}");
    }
}

#[test]
fn ends_of_the_compiler_are_floats() {
    let kinds = (0..2000).map(|seed| {
        let end = End::precise(1, &mut Numbers(seed));
        let steps = Steps::new(end.0);
        steps.parts().1.floors.as_ref().map(|floors| floors.inner)
    });
    let mut counts = [0; 3];
    kinds.for_each(|kind| counts[kind.map_or(0, |inner| 1 + usize::from(inner))] += 1);
    assert!(counts.iter().all(|&count| count > 200), "{counts:?}");
}
