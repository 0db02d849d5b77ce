//! Sets of scratchpad tiles.

use std::ops::Range;

use crate::Uop;

/// The most tiles that a scratchpad of GEMM and ALU operands can have: what a micro-op's widest
/// index (`dst`) reaches.
pub const MAX_TILES: usize = Uop::DST.max() as usize + 1;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = MAX_TILES / WORD_BITS;

/// A set of tiles of one scratchpad, each below [`MAX_TILES`].
///
/// ```
/// use vta_isa::resolve::TileSet;
///
/// let mut tiles = TileSet::range(4..8);
/// assert!(tiles.insert(9) && !tiles.insert(5));
/// assert_eq!(tiles.runs().collect::<Vec<_>>(), [4..8, 9..10]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileSet([u64; WORDS]);

impl TileSet {
    /// No tile.
    pub const EMPTY: Self = Self([0; WORDS]);
    /// Every tile.
    pub const ALL: Self = Self([u64::MAX; WORDS]);

    /// Consecutive tiles; what lies beyond [`MAX_TILES`] is left out.
    pub fn range(tiles: Range<usize>) -> Self {
        let mut set = Self::EMPTY;
        let end = tiles.end.min(MAX_TILES);
        for word in tiles.start / WORD_BITS..end.div_ceil(WORD_BITS) {
            let first = word * WORD_BITS;
            let low = tiles.start.saturating_sub(first).min(WORD_BITS);
            set.0[word] = below((end - first).min(WORD_BITS)) & !below(low);
        }
        set
    }

    /// Adds a tile, unless it is beyond [`MAX_TILES`]; whether it is new.
    pub fn insert(&mut self, tile: usize) -> bool {
        let Some(word) = self.0.get_mut(tile / WORD_BITS) else {
            return false;
        };
        let bit = 1 << (tile % WORD_BITS);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Whether the tile is in the set.
    pub fn contains(&self, tile: usize) -> bool {
        let word = self.0.get(tile / WORD_BITS);
        word.is_some_and(|word| word & 1 << (tile % WORD_BITS) != 0)
    }

    /// Whether every tile of the other set is in this one.
    pub fn includes(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| b & !a == 0)
    }

    /// Whether the two have a tile in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    /// Adds the tiles of another set.
    pub fn add(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    /// Takes the tiles of another set out.
    pub fn remove(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a &= !b;
        }
    }

    /// How many tiles there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The tiles in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(index * WORD_BITS + bit)
            })
        })
    }

    /// Runs of neighbouring tiles, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, 0)?;
            at = self.next(start, u64::MAX).unwrap_or(MAX_TILES);
            Some(start..at)
        })
    }

    /// The first tile from `from` on whose bit, flipped by `flip`, is set.
    fn next(&self, from: usize, flip: u64) -> Option<usize> {
        let first = from / WORD_BITS;
        let mut mask = !below(from % WORD_BITS);
        for (index, word) in self.0.iter().enumerate().skip(first) {
            let word = (word ^ flip) & mask;
            if word != 0 {
                return Some(index * WORD_BITS + word.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The union of the set shifted up by `0, step, .. (count - 1) * step`, without what leaves
    /// the set; empty for a `count` of 0. It doubles what it has, so that a loop of any length
    /// costs a few dozen steps at most.
    pub fn repeat(&mut self, count: u16, step: u16) {
        let (count, step) = (usize::from(count), usize::from(step));
        if count == 0 {
            *self = Self::EMPTY;
        }
        let Some(mut last) = self.0.iter().rposition(|word| *word != 0) else {
            return;
        };
        let mut covered = 1;
        while step > 0 && covered < count && covered * step < MAX_TILES {
            let more = covered.min(count - covered);
            last = self.add_shifted(more * step, last);
            covered += more;
        }
    }

    /// Adds the set, whose last word that has a tile is given, shifted up by `tiles`; what leaves it is dropped. The
    /// last word that has a tile then, at most.
    fn add_shifted(&mut self, tiles: usize, last: usize) -> usize {
        let (words, bits) = (tiles / WORD_BITS, tiles % WORD_BITS);
        let end = (last + words + usize::from(bits > 0)).min(WORDS - 1);
        // From the top down: a word is read before it gets new bits.
        for to in (words..=end).rev() {
            let from = to - words;
            let mut word = self.0[from] << bits;
            if bits > 0 && from > 0 {
                word |= self.0[from - 1] >> (WORD_BITS - bits);
            }
            self.0[to] |= word;
        }
        end
    }
}

impl Default for TileSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<T: Into<usize>> Extend<T> for TileSet {
    fn extend<I: IntoIterator<Item = T>>(&mut self, tiles: I) {
        for tile in tiles {
            self.insert(tile.into());
        }
    }
}

impl<T: Into<usize>> FromIterator<T> for TileSet {
    fn from_iter<I: IntoIterator<Item = T>>(tiles: I) -> Self {
        let mut set = Self::EMPTY;
        set.extend(tiles);
        set
    }
}

/// A word with the lowest `n` bits set, of 0 to 64.
const fn below(n: usize) -> u64 {
    if n == WORD_BITS {
        u64::MAX
    } else {
        (1 << n) - 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of(tiles: &BTreeSet<usize>) -> TileSet {
        let mut set = TileSet::EMPTY;
        tiles.iter().for_each(|&t| assert!(set.insert(t)));
        assert_eq!(set, tiles.iter().copied().collect());
        set
    }

    #[test]
    fn ranges_hold_their_tiles() {
        for range in [0..0, 0..1, 63..65, 64..128, 5..2048, 2047..2048, 100..3000] {
            let expected: Vec<_> = range.clone().filter(|t| *t < MAX_TILES).collect();
            let set = TileSet::range(range.clone());
            assert_eq!(set.iter().collect::<Vec<_>>(), expected, "{range:?}");
        }
        assert!(TileSet::range(3000..4000).is_empty());
        assert_eq!(TileSet::range(0..MAX_TILES), TileSet::ALL);
    }

    #[test]
    fn what_lies_beyond_is_no_tile() {
        let mut set = TileSet::EMPTY;
        assert!(!set.insert(MAX_TILES) && !set.contains(MAX_TILES) && set.is_empty());
    }

    proptest! {
        #[test]
        fn sets_do_what_sets_of_numbers_do(
            a in prop::collection::btree_set(0usize..200, 0..60),
            b in prop::collection::btree_set(0usize..200, 0..20),
            (count, step) in (0u16..40, 0u16..90),
        ) {
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.meets(&y), !a.is_disjoint(&b));
            prop_assert_eq!(x.includes(&y), a.is_superset(&b));
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert!((0..300).all(|t| x.contains(t) == a.contains(&t)));
            let runs: Vec<_> = x.runs().collect();
            prop_assert!(runs.windows(2).all(|w| w[0].end < w[1].start));
            prop_assert_eq!(runs.into_iter().flatten().collect::<BTreeSet<_>>(), a.clone());
            let mut sum = x.clone();
            sum.add(&y);
            prop_assert_eq!(sum, of(&a.union(&b).copied().collect()));
            let mut rest = x.clone();
            rest.remove(&y);
            prop_assert_eq!(rest, of(&a.difference(&b).copied().collect()));
            let mut repeated = x;
            repeated.repeat(count, step);
            let shifts = (0..usize::from(count)).map(|i| i * usize::from(step));
            let all = shifts.flat_map(|s| a.iter().map(move |t| t + s));
            prop_assert_eq!(repeated, of(&all.filter(|t| *t < MAX_TILES).collect()));
        }
    }
}
