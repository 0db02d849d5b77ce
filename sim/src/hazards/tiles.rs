//! Sets of scratchpad tiles, and the sets that affine loops over micro-ops touch.

use std::ops::Range;

const WORDS: usize = 32;

/// The most tiles that a scratchpad of GEMM and ALU operands can have (11-bit indices).
pub(super) const MAX_TILES: usize = WORDS * 64;

/// A set of tiles of one scratchpad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TileSet([u64; WORDS]);

impl TileSet {
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Consecutive tiles; what lies beyond [`MAX_TILES`] is left out.
    pub fn range(tiles: Range<usize>) -> Self {
        let mut set = Self::EMPTY;
        for word in tiles.start / 64..tiles.end.min(MAX_TILES).div_ceil(64) {
            let low = tiles.start.saturating_sub(word * 64).min(64);
            let high = (tiles.end - word * 64).min(64);
            let below = |n: usize| if n == 64 { u64::MAX } else { (1 << n) - 1 };
            set.0[word] = below(high) & !below(low);
        }
        set
    }

    pub fn insert(&mut self, tile: u16) {
        if let Some(word) = self.0.get_mut(usize::from(tile) / 64) {
            *word |= 1 << (tile % 64);
        }
    }

    /// Adds the set shifted up by `tiles`; what leaves the scratchpad is dropped.
    fn add_shifted(&mut self, tiles: usize) {
        let (words, bits) = (tiles / 64, tiles % 64);
        for to in (words..WORDS).rev() {
            let from = to - words;
            let mut word = self.0[from] << bits;
            if bits > 0 && from > 0 {
                word |= self.0[from - 1] >> (64 - bits);
            }
            self.0[to] |= word;
        }
    }

    /// The union of the set shifted by `0, step, .. (count - 1) * step`, by doubling: a loop of
    /// any length costs at most a few dozen steps.
    pub fn repeat(&mut self, count: u16, step: u16) {
        let (count, step) = (usize::from(count), usize::from(step));
        if count == 0 {
            *self = Self::EMPTY;
        }
        let mut covered = 1;
        while step > 0 && covered < count && covered * step < MAX_TILES {
            let more = covered.min(count - covered);
            self.add_shifted(more * step);
            covered += more;
        }
    }

    /// The tiles in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

/// The two loops of a GEMM or ALU around one index of its micro-ops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine {
    /// Trips of the outer and the inner loop.
    pub iter: [u16; 2],
    /// Tiles per outer and per inner trip.
    pub factor: [u16; 2],
}

impl Affine {
    /// The tiles that the loops reach from the micro-ops' `starts`; `None` when one of them is
    /// not below `depth`.
    pub fn tiles(&self, starts: impl Iterator<Item = u16>, depth: usize) -> Option<TileSet> {
        let mut set = TileSet::EMPTY;
        let mut highest = None;
        for start in starts {
            set.insert(start);
            highest = highest.max(Some(start));
        }
        let last = |i: usize| u64::from(self.iter[i].saturating_sub(1)) * u64::from(self.factor[i]);
        let reach = u64::from(highest.unwrap_or(0)) + last(0) + last(1);
        let runs = highest.is_some() && self.iter.iter().all(|n| *n > 0);
        if runs && reach >= depth as u64 {
            return None;
        }
        self.iter
            .iter()
            .zip(self.factor)
            .for_each(|(&n, f)| set.repeat(n, f));
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_hold_their_tiles() {
        for range in [0..0, 0..1, 63..65, 64..128, 5..2048, 2047..2048, 100..3000] {
            let expected: Vec<_> = range.clone().filter(|t| *t < MAX_TILES).collect();
            let found: Vec<_> = TileSet::range(range.clone()).iter().collect();
            assert_eq!(found, expected, "{range:?}");
        }
    }

    #[test]
    fn loops_that_leave_the_scratchpad_are_refused_and_loops_that_never_run_touch_nothing() {
        let affine = |iter, factor| Affine { iter, factor };
        let starts = || [7u16, 3].into_iter();
        assert!(
            affine([2, 3], [4, 2])
                .tiles(starts(), 16)
                .is_some_and(|s| s.iter().max() == Some(15))
        );
        assert_eq!(affine([2, 3], [4, 2]).tiles(starts(), 15), None);
        assert_eq!(
            affine([0, 9999], [2047, 2047]).tiles(starts(), 2048),
            Some(TileSet::EMPTY)
        );
        assert_eq!(
            affine([9, 9], [9, 9]).tiles(std::iter::empty(), 1),
            Some(TileSet::EMPTY)
        );
    }

    proptest! {
        #[test]
        fn doubling_finds_what_the_loops_touch(
            starts in prop::collection::vec(0u16..2048, 0..20),
            iter in [0u16..70, 0u16..70],
            factor in [0u16..40, 0u16..40],
            depth in prop::sample::select(vec![64usize, 777, 2048]),
        ) {
            let mut expected = BTreeSet::new();
            for i in 0..usize::from(iter[0]) {
                for j in 0..usize::from(iter[1]) {
                    let offset = i * usize::from(factor[0]) + j * usize::from(factor[1]);
                    expected.extend(starts.iter().map(|s| usize::from(*s) + offset));
                }
            }
            let found = Affine { iter, factor }.tiles(starts.into_iter(), depth);
            let legal = expected.iter().all(|t| *t < depth);
            prop_assert_eq!(legal, found.is_some());
            if let Some(found) = found {
                prop_assert_eq!(found.iter().collect::<BTreeSet<_>>(), expected);
            }
        }
    }
}
