//! Bytes that lanes are computed from and stored to: an element-wise layer.

use vta_isa::{AluOp, for_alu_op};

use super::pass::{CHUNK, Pass, chain_body, product};
use crate::kernels::Step;

/// What is computed of each byte. Steps have immediates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    /// On the sign-extended bytes.
    pub first: Vec<Step>,
    pub with: Option<With>,
    pub after: Vec<Step>,
    /// What becomes of each byte, where second operands are computed of the same bytes or there are none.
    pub table: Option<Box<[u8; 256]>>,
}

/// A step whose second operand is computed of bytes, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct With {
    pub op: AluOp,
    /// On those bytes.
    pub first: Vec<Step>,
    /// Bytes of a tile, at most [`Map::MOST_LANES`].
    pub lanes: usize,
    /// Consecutive tiles that have the same tile of those bytes.
    pub tiles: usize,
}

impl Map {
    /// Bytes of a tile whose lanes fit what is worked on at once.
    pub const MOST_LANES: usize = CHUNK;

    /// The same map of bytes that are their own second operands.
    pub fn of_each(mut self) -> Self {
        let bytes: [u8; 256] = std::array::from_fn(|byte| byte as u8);
        let mut table = Box::new([0; 256]);
        map_body(&self, [&bytes, &bytes], &mut table[..]);
        self.table = Some(table);
        self
    }

    /// Memory of its lists.
    pub fn bytes(&self) -> usize {
        self.steps().map(size_of_val).sum::<usize>() + self.table.as_deref().map_or(0, size_of_val)
    }

    /// Every step.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        let with = self.with.iter().flat_map(|with| &with.first);
        self.first.iter().chain(with).chain(&self.after)
    }
}

#[inline(always)]
pub(super) fn map_body(map: &Map, [from, with]: [&[u8]; 2], to: &mut [u8]) {
    let (mut xs, mut ys) = ([0; CHUNK], [0; CHUNK]);
    let Some(second) = &map.with else {
        for (from, to) in from.chunks(CHUNK).zip(to.chunks_mut(CHUNK)) {
            let xs = &mut xs[..from.len()];
            widen_body(from, xs);
            chain_body(&map.first, xs);
            chain_body(&map.after, xs);
            narrow_body(xs, to);
        }
        return;
    };
    if let Some(sum) = Sum::of(&map.first, second, &map.after) {
        return sum.run([from, with], to);
    }
    let (lanes, shared) = (second.lanes, second.tiles > 1);
    let chunk = CHUNK / lanes * lanes;
    let run = if shared { lanes * second.tiles } else { chunk };
    let of_run = if shared { lanes } else { chunk };
    let runs = from.chunks(run).zip(to.chunks_mut(run));
    for ((from, to), with) in runs.zip(with.chunks(of_run)) {
        widen_body(with, &mut ys);
        chain_body(&second.first, &mut ys[..with.len()]);
        if shared {
            let (first, others) = ys[..chunk].split_at_mut(lanes);
            let others = others.chunks_exact_mut(lanes).take(second.tiles - 1);
            others.for_each(|tile| tile.copy_from_slice(first));
        }
        for (from, to) in from.chunks(chunk).zip(to.chunks_mut(chunk)) {
            let xs = &mut xs[..from.len()];
            widen_body(from, xs);
            chain_body(&map.first, xs);
            let pairs = xs.iter_mut().zip(&ys);
            for_alu_op!(second.op, OP => pairs.for_each(|(x, y)| *x = OP.apply(*x, *y)));
            chain_body(&map.after, xs);
            narrow_body(xs, to);
        }
    }
}

#[inline(always)]
pub(super) fn widen_body(from: &[u8], to: &mut [i32]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = i32::from(from as i8);
    }
}

#[inline(always)]
pub(super) fn narrow_body(from: &[i32], to: &mut [u8]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = from as u8;
    }
}

#[inline(always)]
pub(super) fn saturate_body(from: &[i32], to: &mut [u8]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = from.clamp(-128, 127) as u8;
    }
}

/// A sum of two tensors, each byte of which is read and written once.
struct Sum {
    factors: [i32; 2],
    after: Pass,
}

impl Sum {
    /// A map with second operands, if it is one.
    #[inline(always)]
    fn of(first: &[Step], second: &With, after: &[Step]) -> Option<Self> {
        let (pass, count) = Pass::of(after);
        let sums = second.op == AluOp::Add && second.tiles == 1 && count == after.len();
        let factors = [product(first)?, product(&second.first)?];
        sums.then_some(Self {
            factors,
            after: pass,
        })
    }

    #[inline(always)]
    fn run(&self, [from, with]: [&[u8]; 2], to: &mut [u8]) {
        let [f, g] = self.factors;
        for ((x, y), to) in from.iter().zip(with).zip(to) {
            let [x, y] = [*x, *y].map(|byte| i32::from(byte as i8));
            let sum = x.wrapping_mul(f).wrapping_add(y.wrapping_mul(g));
            *to = self.after.of_lane(sum) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::{GemmKernel, Operand};

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let ops = prop::sample::select(AluOp::ALL.to_vec());
        let step = (ops, -200i32..200).prop_map(|(op, imm)| Step::immediate(op, imm));
        prop::collection::vec(step, 0..5)
    }

    /// Those of a sum of two tensors, some of them or not.
    fn sums() -> impl Strategy<Value = [Vec<Step>; 3]> {
        let factors = || {
            prop::collection::vec(
                (-300i32..300).prop_map(|y| Step::immediate(AluOp::Mul, y)),
                0..3,
            )
        };
        let usual = [AluOp::Shr, AluOp::Add, AluOp::Shr, AluOp::Min, AluOp::Max];
        let after = prop::collection::vec(0i32..40, usual.len());
        let after = after.prop_map(move |ys| {
            usual
                .into_iter()
                .zip(ys)
                .map(|(op, y)| Step::immediate(op, y))
                .collect::<Vec<_>>()
        });
        let after = after.prop_flat_map(|all| prop::sample::subsequence(all, 0..=5));
        (factors(), factors(), after).prop_map(|(f, g, after)| [f, g, after])
    }

    fn applied(steps: &[Step], x: i32) -> i32 {
        steps.iter().fold(x, |x, step| match step.operand {
            Operand::Imm(y) => step.op.apply(x, y),
            _ => x,
        })
    }

    proptest! {
        #[test]
        fn maps_do_their_steps_byte_by_byte(
            [first, of_second, after] in prop_oneof![sums(), [steps(), steps(), steps()]],
            op in prop_oneof![Just(AluOp::Add), prop::sample::select(AluOp::ALL.to_vec())],
            lanes in prop::sample::select(vec![1usize, 4, 16, 24, 64, 1024]),
            tiles in prop_oneof![Just(1usize), 2usize..90],
            runs in 1usize..5,
            has_second in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let byte = |at: usize| (seed.wrapping_mul(at as u64 * 2 + 1) >> 23) as u8;
            let from: Vec<u8> = (0..lanes * tiles * runs).map(byte).collect();
            let with: Vec<u8> = (0..lanes * runs).map(|at| byte(at + 7777)).collect();
            let second = With { op, first: of_second, lanes, tiles };
            let map = Map { first, with: has_second.then_some(second), after, table: None };
            let expected: Vec<u8> = (0..from.len()).map(|at| {
                let x = applied(&map.first, i32::from(from[at] as i8));
                let x = map.with.as_ref().map_or(x, |second| {
                    let tile = at / lanes / tiles;
                    let y = with[tile * lanes + at % lanes];
                    op.apply(x, applied(&second.first, i32::from(y as i8)))
                });
                applied(&map.after, x) as u8
            }).collect();
            for kernel in GemmKernel::ALL.into_iter().filter(|kernel| kernel.supported()) {
                let mut found = vec![0; from.len()];
                map.run(kernel, [&from, &with], &mut found);
                prop_assert_eq!(&found, &expected, "{:?}", kernel);
            }
        }

        #[test]
        fn maps_of_each_byte_are_looked_up(
            [first, of_second, after] in [steps(), steps(), steps()],
            op in prop::sample::select(AluOp::ALL.to_vec()),
            has_second in any::<bool>(),
            from in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let second = With { op, first: of_second, lanes: 16, tiles: 1 };
            let map = Map { first, with: has_second.then_some(second), after, table: None };
            let mut expected = vec![0; from.len()];
            map.run(GemmKernel::Scalar, [&from, &from], &mut expected);
            let map = map.of_each();
            for kernel in GemmKernel::ALL.into_iter().filter(|kernel| kernel.supported()) {
                let mut found = vec![0; from.len()];
                map.run(kernel, [&from, &from], &mut found);
                prop_assert_eq!(&found, &expected, "{:?}", kernel);
            }
        }
    }
}
