//! ALU instructions that read a tile in the step after the one that writes it.
//!
//! The ALU of the RTL writes back four cycles after issue and forwards nothing. It aborts when
//! an immediate operation's step has the destination of the step before, and when a two-operand
//! operation's `src` is the destination of the step before. Equal destinations of a two-operand
//! operation are legal there: it issues every other cycle. MOV issues every cycle, and clashes as two operands do
//! where it reads a tile.

use vta_isa::resolve::Loops;
use vta_isa::{Alu, AluOperand, Uop};

/// The first pair of steps that the RTL aborts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Clash {
    /// The step that writes, from 0; the next one reads.
    pub step: u64,
    /// The accumulator tile.
    pub tile: u16,
}

/// `start + i * outer + j * inner`: a tile index over the two loops.
#[derive(Clone, Copy)]
struct Index {
    start: i64,
    outer: i64,
    inner: i64,
}

impl Index {
    fn new(start: u16, loops: Loops) -> Self {
        let [outer, inner] = loops.factors.map(i64::from);
        Self {
            start: start.into(),
            outer,
            inner,
        }
    }

    fn at(&self, [i, j]: [i64; 2]) -> i64 {
        self.start + i * self.outer + j * self.inner
    }

    /// Moved by a number of outer and inner trips.
    fn moved(self, trips: [i64; 2]) -> Self {
        Self {
            start: self.at(trips),
            ..self
        }
    }
}

/// The first clash of an instruction whose micro-ops are all known.
pub(super) fn clash(alu: &Alu, uops: &[Uop]) -> Option<Clash> {
    let [iter_out, iter_in] = [alu.iter_out, alu.iter_in].map(i64::from);
    let (first, last) = (uops.first()?, uops.last()?);
    let written = |uop: &Uop| Index::new(uop.dst, alu.dst_loops());
    if alu.tiles_read() == 0 {
        return None;
    }
    let read = |uop: &Uop| match alu.operand {
        AluOperand::Imm(_) => written(uop),
        AluOperand::Acc => Index::new(uop.src, alu.src_loops()),
    };
    let step_of =
        |[i, j]: [i64; 2], uop: usize| ((i * iter_in + j) * uops.len() as i64 + uop as i64) as u64;
    let found = |trips: Option<[i64; 2]>, uop: usize| {
        let trips = trips?;
        Some(Clash {
            step: step_of(trips, uop),
            tile: written(&uops[uop]).at(trips) as u16,
        })
    };
    // From one micro-op to the next in the same trip.
    let within = uops.windows(2).enumerate().filter_map(|(u, pair)| {
        let trips = [0..iter_out, 0..iter_in];
        found(meet(written(&pair[0]), read(&pair[1]), trips), u)
    });
    // From the last micro-op of a trip to the first of the next inner, or next outer, trip.
    let end = uops.len() - 1;
    let inner = meet(
        written(last),
        read(first).moved([0, 1]),
        [0..iter_out, 0..iter_in - 1],
    );
    let outer = meet(
        written(last),
        read(first).moved([1, 1 - iter_in]),
        [0..iter_out - 1, iter_in - 1..iter_in],
    );
    within
        .chain(found(inner, end))
        .chain(found(outer.filter(|_| iter_in > 0), end))
        .min()
}

/// The first trips `[i, j]`, outer loop first, in which two indices are equal.
fn meet(a: Index, b: Index, [outer, inner]: [std::ops::Range<i64>; 2]) -> Option<[i64; 2]> {
    let (per_outer, per_inner) = (b.outer - a.outer, b.inner - a.inner);
    // When both move alike in a loop, its first trip speaks for all.
    let outer = if per_outer == 0 {
        outer.start..outer.end.min(outer.start + 1)
    } else {
        outer
    };
    for i in outer {
        let apart = a.start - b.start - i * per_outer;
        let j = if per_inner == 0 {
            (apart == 0).then_some(inner.start)
        } else {
            (apart % per_inner == 0).then(|| apart / per_inner)
        };
        if let Some(j) = j.filter(|j| inner.contains(j)) {
            return Some([i, j]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vta_isa::{AluOp, Deps};

    use super::*;

    /// Step by step, as the ALU would run.
    fn by_steps(alu: &Alu, uops: &[Uop]) -> Option<Clash> {
        let mut before: Option<u16> = None;
        let mut step = 0;
        for i in 0..alu.iter_out {
            for j in 0..alu.iter_in {
                for uop in uops {
                    let dst = uop.dst + i * alu.dst_factor_out + j * alu.dst_factor_in;
                    let src = uop.src + i * alu.src_factor_out + j * alu.src_factor_in;
                    let read = if alu.operand == AluOperand::Acc {
                        src
                    } else {
                        dst
                    };
                    if before == Some(read) {
                        return Some(Clash {
                            step: step - 1,
                            tile: read,
                        });
                    }
                    before = Some(dst);
                    step += 1;
                }
            }
        }
        None
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn the_first_clash_is_the_one_that_stepping_finds(
            uops in prop::collection::vec((0u16..6, 0u16..6), 0..4),
            iter in [0u16..5, 0u16..5],
            factors in [0u16..4, 0u16..4, 0u16..4, 0u16..4],
            two in any::<bool>(),
        ) {
            let uops: Vec<_> = uops.iter().map(|&(dst, src)| Uop { dst, src, wgt: 0 }).collect();
            let alu = Alu {
                deps: Deps::NONE,
                op: AluOp::Add,
                operand: if two { AluOperand::Acc } else { AluOperand::Imm(1) },
                uop_bgn: 0,
                uop_end: uops.len() as u16,
                iter_out: iter[0],
                iter_in: iter[1],
                dst_factor_out: factors[0],
                dst_factor_in: factors[1],
                src_factor_out: factors[2],
                src_factor_in: factors[3],
            };
            prop_assert_eq!(clash(&alu, &uops), by_steps(&alu, &uops));
        }
    }
}
