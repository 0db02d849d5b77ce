//! Steps of a chain that are done together.

use vta_isa::{AluOp, for_alu_op};

use crate::kernels::{Operand, Step};

/// int32 that a chain works on before the next step: 4 KiB, well inside the first cache.
pub(super) const CHUNK: usize = 1024;

/// The factor by which the first of the steps multiplies, and the steps behind it.
#[inline(always)]
fn factor(steps: &[Step]) -> Option<(i32, &[Step])> {
    match steps {
        [
            Step {
                op: AluOp::Mul,
                operand: Operand::Imm(y),
            },
            behind @ ..,
        ] => Some((*y, behind)),
        _ => None,
    }
}

/// The factor that all of the steps are, if they multiply alone.
#[inline(always)]
pub(super) fn product(mut steps: &[Step]) -> Option<i32> {
    let mut all = 1i32;
    while let Some((one, behind)) = factor(steps) {
        (all, steps) = (all.wrapping_mul(one), behind);
    }
    steps.is_empty().then_some(all)
}

/// Steps that lanes are read and written once for: two sums, each with a shift behind it, and two bounds, as requantising
/// takes. What isn't among the steps changes nothing.
pub(super) struct Pass {
    sums: [i32; 2],
    shifts: [u32; 2],
    most: i32,
    least: i32,
}

impl Pass {
    /// As many of the first steps as come in this order, and how many these are.
    #[inline(always)]
    pub fn of(steps: &[Step]) -> (Self, usize) {
        let mut pass = Self {
            sums: [0; 2],
            shifts: [0; 2],
            most: i32::MAX,
            least: i32::MIN,
        };
        // What may come next: a sum, its shift, the second sum, its shift, the bounds.
        let mut next = 0;
        for (count, step) in steps.iter().enumerate() {
            let Operand::Imm(y) = step.operand else {
                return (pass, count);
            };
            next = match (step.op, next) {
                (AluOp::Add, 0) => {
                    pass.sums[0] = y;
                    1
                }
                (AluOp::Add, 1 | 2) => {
                    pass.sums[1] = y;
                    3
                }
                (AluOp::Shr, 0 | 1) if y >= 0 => {
                    pass.shifts[0] = y as u32;
                    2
                }
                (AluOp::Shr, 2 | 3) if y >= 0 => {
                    pass.shifts[1] = y as u32;
                    4
                }
                (AluOp::Min, 0..=4) => {
                    pass.most = y;
                    5
                }
                (AluOp::Max, 0..=5) => {
                    pass.least = y;
                    6
                }
                _ => return (pass, count),
            };
        }
        (pass, steps.len())
    }

    #[inline(always)]
    pub fn run(&self, lanes: &mut [i32]) {
        lanes.iter_mut().for_each(|x| *x = self.of_lane(*x));
    }

    #[inline(always)]
    pub fn of_lane(&self, x: i32) -> i32 {
        let sum = x.wrapping_add(self.sums[0]).wrapping_shr(self.shifts[0]);
        let sum = sum.wrapping_add(self.sums[1]).wrapping_shr(self.shifts[1]);
        sum.min(self.most).max(self.least)
    }
}

#[inline(always)]
pub(super) fn chain_body(steps: &[Step], lanes: &mut [i32]) {
    for chunk in lanes.chunks_mut(CHUNK) {
        let mut rest = steps;
        while let [step, behind @ ..] = rest {
            let (pass, count) = Pass::of(rest);
            if count > 1 {
                pass.run(chunk);
                rest = &rest[count..];
                continue;
            }
            rest = behind;
            let Operand::Imm(mut y) = step.operand else {
                continue;
            };
            // One factor does what several do.
            if step.op == AluOp::Mul {
                while let Some((more, behind)) = factor(rest) {
                    (y, rest) = (y.wrapping_mul(more), behind);
                }
            }
            for_alu_op!(step.op, OP => chunk.iter_mut().for_each(|x| *x = OP.apply(*x, y)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::{GemmKernel, lanes::chain};

    fn step() -> impl Strategy<Value = Step> {
        let ops = prop::sample::select(AluOp::ALL.to_vec());
        let imm = prop_oneof![-40i32..40, any::<i32>()];
        // Some as the compiler has them, others as they come.
        (ops, imm, any::<bool>()).prop_map(|(op, imm, plain)| match plain {
            true => Step::immediate(op, imm),
            false => Step {
                op,
                operand: Operand::Imm(imm),
            },
        })
    }

    /// The order of requantising with some steps left out or others between.
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let usual = [
            AluOp::Mul,
            AluOp::Mul,
            AluOp::Add,
            AluOp::Shr,
            AluOp::Add,
            AluOp::Shr,
            AluOp::Min,
            AluOp::Max,
        ];
        let imms = prop::collection::vec(prop_oneof![0i32..32, any::<i32>()], usual.len());
        let usual = (
            prop::sample::subsequence((0..usual.len()).collect::<Vec<_>>(), 0..=usual.len()),
            imms,
        )
            .prop_map(move |(kept, imms)| {
                kept.into_iter()
                    .map(|at| Step::immediate(usual[at], imms[at]))
                    .collect::<Vec<_>>()
            });
        let any = || prop::collection::vec(step(), 0..6);
        (any(), usual, any()).prop_map(|(before, usual, after)| [before, usual, after].concat())
    }

    proptest! {
        #[test]
        fn chains_do_their_steps_one_after_the_other(
            steps in steps(),
            lanes in prop::collection::vec(prop_oneof![-300i32..300, any::<i32>()], 0..70),
        ) {
            let one = |x: &i32| steps.iter().fold(*x, |x, step| match step.operand {
                Operand::Imm(y) => step.op.apply(x, y),
                _ => x,
            });
            let expected: Vec<i32> = lanes.iter().map(one).collect();
            for kernel in GemmKernel::ALL.into_iter().filter(|kernel| kernel.supported()) {
                let mut found = lanes.clone();
                chain(kernel, &steps, &mut found);
                prop_assert_eq!(&found, &expected, "{:?}", kernel);
            }
        }
    }
}
