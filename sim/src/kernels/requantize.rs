//! What a STORE that requantises makes of sums.

use std::array::from_fn;

use vta_isa::{Requantize, Rounding, factor};

/// Lanes that are worked on at once, where tiles have as many.
const WIDE: usize = 16;

/// Where the constants and residuals of some sums lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requantizing {
    /// First int32 of the entry, and how many there are.
    pub entry: usize,
    pub entry_len: usize,
    /// int32 from a sum to its residual.
    pub residual: Option<usize>,
    /// int32 of a tile.
    pub lanes: usize,
}

impl Requantizing {
    /// Those of a row of a STORE, of tiles of so many lanes.
    pub fn of(how: &Requantize, row: usize, lanes: usize) -> Self {
        Self {
            entry: how.entry(row) * lanes,
            entry_len: how.entry_tiles() * lanes,
            residual: how.distance().map(|tiles| tiles * lanes),
            lanes,
        }
    }
}

/// The constants of N lanes, widened.
struct Constants<const N: usize> {
    offset: [i64; N],
    multiplier: [i32; N],
    shift: [i64; N],
    low: [i64; N],
    high: [i64; N],
}

impl<const N: usize> Constants<N> {
    /// Of three words a lane, each a tile behind the other.
    #[inline(always)]
    fn of(words: &[i32], lanes: usize) -> Self {
        let of = |i: usize| Rounding::of(from_fn(|word| words[word * lanes + i]));
        Self {
            offset: from_fn(|i| of(i).offset),
            multiplier: from_fn(|i| of(i).multiplier as i32),
            shift: from_fn(|i| of(i).shift.into()),
            low: from_fn(|i| of(i).low.into()),
            high: from_fn(|i| of(i).high.into()),
        }
    }

    /// Rounds products.
    #[inline(always)]
    fn finish(&self, product: [i64; N]) -> [i64; N] {
        from_fn(|i| {
            let value = (product[i] + self.offset[i]) >> (self.shift[i] & 63);
            value.min(self.high[i]).max(self.low[i])
        })
    }

    #[inline(always)]
    fn scale(&self, sums: [i32; N]) -> [i64; N] {
        from_fn(|i| i64::from(sums[i]) * i64::from(self.multiplier[i]))
    }
}

/// Rounds the sums from int32 `from` on, as many as there are bytes.
#[inline(always)]
pub(super) fn requantize_body(how: Requantizing, from: usize, acc: &[i32], to: &mut [u8]) {
    if [how.lanes, from, to.len()]
        .iter()
        .all(|n| n.is_multiple_of(WIDE))
    {
        columns::<WIDE>(how, from, acc, to);
    } else {
        columns::<1>(how, from, acc, to);
    }
}

/// N lanes of all tiles, then the next N, so that constants are taken apart once.
#[inline(always)]
fn columns<const N: usize>(how: Requantizing, from: usize, acc: &[i32], to: &mut [u8]) {
    let lanes = how.lanes;
    for column in (0..lanes.min(to.len())).step_by(N) {
        let entry = &acc[how.entry + (from + column) % lanes..];
        let first = Constants::<N>::of(entry, lanes);
        let sums = |at: usize| from_fn(|i| acc[at + i]);
        let tiles = (column..to.len()).step_by(lanes);
        let Some(distance) = how.residual else {
            for at in tiles {
                let rounded = first.finish(first.scale(sums(from + at)));
                put(&mut to[at..at + N], rounded);
            }
            continue;
        };
        let more = &entry[Rounding::WORDS * lanes..];
        let second = Constants::<N>::of(more, lanes);
        let factors: [i32; N] = from_fn(|i| factor(more[Rounding::WORDS * lanes + i]) as i32);
        for at in tiles {
            let rounded = first.finish(first.scale(sums(from + at)));
            let residual: [i32; N] = sums(from + at + distance);
            let both = from_fn(|i| {
                let residual = i64::from(residual[i] as i8) * i64::from(factors[i]);
                rounded[i] * i64::from(second.multiplier[i]) + residual
            });
            put(&mut to[at..at + N], second.finish(both));
        }
    }
}

#[inline(always)]
fn put<const N: usize>(to: &mut [u8], from: [i64; N]) {
    to.iter_mut()
        .zip(from)
        .for_each(|(to, from)| *to = from as u8);
}
