//! How the multiplication of a residual that the matrix unit adds is divided.
//!
//! A residual `r` joins the sums as `a + m[c] * r`, before the epilogue's first shift by `n`.
//! Diagonal weight tiles multiply it: one step for each digit of at most 127. Large multipliers
//! are divided by the shift. With `m = high * 2^j + low`, exactly,
//!
//! `(a + m * r) >> n == (((a + low * r) >> j) + high * r) >> (n - j)`
//!
//! for every `j <= n`, since `high * r * 2^j` has no bits below `j`. The form with the fewest
//! operations is taken, if it has no more than loading the residual into the accumulators (two
//! beats a tile) and multiplying there, or the machine can't load int8 there. No step wraps: `low`
//! and `high` aren't negative, so each partial sum lies between sums that were proven to fit.

use std::ops::Range;

use super::super::emit::count_vectors;
use crate::qgraph::lane::{LaneKind, LaneOp, LaneOperand};

/// Largest diagonal weight.
const DIGIT: i32 = 127;

/// Most digits of a multiplier: as many as 2048 needs, far beyond what is cheaper than a start of
/// the sums.
const MAX_DIGITS: usize = 17;

/// The cost of a multiplier with more.
const OUT_OF_REACH: usize = 1000;

/// How the residual's multiplication is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Lane operations between the low and the high digits.
    pub before: Vec<LaneOp>,
    /// Lane operations after the high digits.
    pub after: Vec<LaneOp>,
    /// By digit and channel; one entry where all channels have the same.
    low: Vec<Vec<i8>>,
    high: Vec<Vec<i8>>,
}

impl Division {
    /// Diagonal weight tiles for `co` output blocks.
    pub fn tiles(&self, co: usize) -> usize {
        self.digits().count() * if self.uniform() { 1 } else { co }
    }

    /// Steps of the matrix unit for each tile.
    pub fn steps(&self) -> usize {
        self.digits().count()
    }

    /// Which of the steps add the low digits.
    pub fn low(&self) -> Range<usize> {
        0..self.low.len()
    }

    /// Which of the steps add the high digits.
    pub fn high(&self) -> Range<usize> {
        self.low.len()..self.steps()
    }

    fn digits(&self) -> impl Iterator<Item = &Vec<i8>> {
        self.low.iter().chain(&self.high)
    }

    /// Whether all channels have the same digits.
    pub fn uniform(&self) -> bool {
        self.digits().all(|d| d.len() == 1)
    }

    /// `[CO/B][digit][B out][B in]`, or without blocks where all channels have the same.
    pub fn pack(&self, co: usize, block: usize) -> Vec<u8> {
        let digits: Vec<&Vec<i8>> = self.digits().collect();
        let mut packed = vec![0u8; self.tiles(co) * block * block];
        for (tile, packed) in packed.chunks_exact_mut(block * block).enumerate() {
            let digit = digits[tile % digits.len()];
            for lane in 0..block {
                let channel = match digit.len() {
                    1 => 0,
                    _ => tile / digits.len() * block + lane,
                };
                // Lanes beyond the channels are zero.
                let weight = digit.get(channel).copied().unwrap_or(0);
                packed[lane * (block + 1)] = weight as u8;
            }
        }
        packed
    }
}

/// When the matrix unit adds a residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Where it costs no more than a start of the sums.
    Cheap,
    /// Always: the machine can't load int8 into the accumulators.
    Always,
}

/// The cheapest division, if the residual's lane operations multiply by values that aren't
/// negative, and it is wanted.
pub(super) fn divide_residual(
    prologue: &[LaneOp],
    epilogue: &[LaneOp],
    when: When,
) -> Option<Division> {
    let multipliers = multipliers(prologue)?;
    let adds = epilogue.first().is_some_and(|op| op.kind == LaneKind::Add);
    let (add, rest) = epilogue.split_at(usize::from(adds));
    let (shift, rest) = match rest {
        [
            LaneOp {
                kind: LaneKind::Shr,
                operand: LaneOperand::Imm(n @ 0..=31),
            },
            rest @ ..,
        ] => (*n, rest),
        rest => (0, rest),
    };
    let divided = (0..=shift.min(30)).map(|j| divide(&multipliers, j, shift));
    // Of equals the one with the latest digits: the residual is needed later.
    let (cost, j, low, high) = divided.min_by_key(|d| (d.0, std::cmp::Reverse(d.1)))?;
    let vectors = count_vectors(prologue);
    // A start loads two beats and needs no reset. Of equals the one with fewer weights wins.
    let start = 2 + prologue.len() + vectors;
    let uniform = multipliers.len() == 1;
    let cheap = cost + 1 < start || (cost + 1 == start && uniform);
    if cost >= OUT_OF_REACH || (when == When::Cheap && !cheap) {
        return None;
    }
    let shr = |n: i16| (n > 0).then(|| LaneOp::shr(n));
    let (add, rest) = (add.iter().cloned(), rest.iter().cloned());
    let (before, after) = if j == 0 {
        (Vec::new(), add.chain(shr(shift)).chain(rest).collect())
    } else {
        let after = shr(shift - j).into_iter().chain(rest);
        (add.chain(shr(j)).collect(), after.collect())
    };
    Some(Division {
        before,
        after,
        low,
        high,
    })
}

/// The factor of each channel, or of all.
fn multipliers(prologue: &[LaneOp]) -> Option<Vec<i32>> {
    let all = match prologue {
        [] => vec![1],
        [op] => match (op.kind, &op.operand) {
            (LaneKind::Shl, LaneOperand::Imm(k @ 0..31)) => vec![1 << k],
            (LaneKind::Mul, LaneOperand::Imm(m)) => vec![i32::from(*m)],
            (LaneKind::Mul, LaneOperand::Vec(m)) => m.clone(),
            _ => return None,
        },
        _ => return None,
    };
    (!all.is_empty() && all.iter().all(|&m| m >= 0)).then_some(all)
}

/// Operations for a division at `j`, and the digits.
fn divide(multipliers: &[i32], j: i16, shift: i16) -> (usize, i16, Vec<Vec<i8>>, Vec<Vec<i8>>) {
    let parts = |part: &dyn Fn(i32) -> i32| -> Vec<Vec<i8>> {
        let mut rest: Vec<i32> = multipliers.iter().map(|&m| part(m)).collect();
        let mut digits = Vec::new();
        while rest.iter().any(|&m| m > 0) && digits.len() < MAX_DIGITS {
            digits.push(rest.iter().map(|&m| m.min(DIGIT) as i8).collect());
            rest.iter_mut().for_each(|m| *m -= (*m).min(DIGIT));
        }
        if rest.iter().any(|&m| m > 0) {
            digits.resize(OUT_OF_REACH, Vec::new());
        }
        digits
    };
    let low = parts(&|m| m - (m >> j << j));
    let mut high = parts(&|m| m >> j);
    if high.is_empty() {
        high.push(vec![0; multipliers.len()]);
    }
    let extra = usize::from(0 < j && j < shift);
    (low.len() + high.len() + extra, j, low, high)
}

#[cfg(test)]
mod tests;
