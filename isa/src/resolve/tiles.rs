//! Sets of scratchpad tiles.

use std::ops::Range;

use crate::Uop;

/// The most tiles that a scratchpad of GEMM and ALU operands can have: what a micro-op's widest
/// index (`dst`) reaches.
pub const MAX_TILES: usize = Uop::DST.max() as usize + 1;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = MAX_TILES / WORD_BITS;
const _: () = assert!(WORDS == u32::BITS as usize);

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
pub struct TileSet {
    words: [u64; WORDS],
    /// A bit for each word that has a tile: most sets have few, and others are passed over.
    used: u32,
}

impl TileSet {
    /// No tile.
    pub const EMPTY: Self = Self {
        words: [0; WORDS],
        used: 0,
    };
    /// Every tile.
    pub const ALL: Self = Self {
        words: [u64::MAX; WORDS],
        used: u32::MAX,
    };

    /// Consecutive tiles; what lies beyond [`MAX_TILES`] is left out.
    pub fn range(tiles: Range<usize>) -> Self {
        let mut set = Self::EMPTY;
        let end = tiles.end.min(MAX_TILES);
        for word in tiles.start / WORD_BITS..end.div_ceil(WORD_BITS) {
            let first = word * WORD_BITS;
            let low = tiles.start.saturating_sub(first).min(WORD_BITS);
            set.put(word, below((end - first).min(WORD_BITS)) & !below(low));
        }
        set
    }

    /// Adds the tiles of a word.
    #[inline]
    fn put(&mut self, word: usize, tiles: u64) {
        self.words[word] |= tiles;
        self.used |= u32::from(tiles != 0) << word;
    }

    /// The words that are among some, each with its number.
    #[inline]
    fn words(&self, among: u32) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mut left = self.used & among;
        std::iter::from_fn(move || {
            let word = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some((word, self.words[word]))
        })
    }

    /// Adds a tile, unless it is beyond [`MAX_TILES`]; whether it is new.
    #[inline]
    pub fn insert(&mut self, tile: usize) -> bool {
        let new = tile < MAX_TILES && !self.contains(tile);
        if new {
            self.put(tile / WORD_BITS, 1 << (tile % WORD_BITS));
        }
        new
    }

    /// Whether the tile is in the set.
    #[inline]
    pub fn contains(&self, tile: usize) -> bool {
        let word = self.words.get(tile / WORD_BITS);
        word.is_some_and(|word| word & 1 << (tile % WORD_BITS) != 0)
    }

    /// Whether every tile of the other set is in this one.
    pub fn includes(&self, other: &Self) -> bool {
        let mut words = other.words(u32::MAX);
        words.all(|(at, word)| word & !self.words[at] == 0)
    }

    /// Whether the two have a tile in common.
    #[inline]
    pub fn meets(&self, other: &Self) -> bool {
        let mut words = other.words(self.used);
        words.any(|(at, word)| word & self.words[at] != 0)
    }

    /// Adds the tiles of another set.
    pub fn add(&mut self, other: &Self) {
        for (at, word) in other.words(u32::MAX) {
            self.put(at, word);
        }
    }

    /// Takes the tiles of another set out.
    pub fn remove(&mut self, other: &Self) {
        for (at, word) in other.words(self.used) {
            self.words[at] &= !word;
            self.used &= !(u32::from(self.words[at] == 0) << at);
        }
    }

    /// How many tiles there are.
    pub fn len(&self) -> usize {
        let words = self.words(u32::MAX);
        words.map(|(_, word)| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The tiles in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words(u32::MAX).flat_map(|(index, word)| {
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
        for (index, word) in self.words.iter().enumerate().skip(first) {
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
        let mut covered = 1;
        while step > 0 && covered < count && covered * step < MAX_TILES {
            let more = covered.min(count - covered);
            self.add_shifted(more * step);
            covered += more;
        }
    }

    /// Adds the set shifted up by so many tiles; what leaves it is dropped.
    fn add_shifted(&mut self, tiles: usize) {
        let (words, bits) = (tiles / WORD_BITS, tiles % WORD_BITS);
        // From the top down: a word is read before it gets new bits.
        let mut left = self.used;
        while left != 0 {
            let from = left.ilog2() as usize;
            left &= !(1 << from);
            let word = self.words[from];
            let to = from + words;
            if bits > 0 && to + 1 < WORDS {
                self.put(to + 1, word >> (WORD_BITS - bits));
            }
            if to < WORDS {
                self.put(to, word << bits);
            }
        }
    }
}

impl Default for TileSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<T: Into<usize>> Extend<T> for TileSet {
    fn extend<I: IntoIterator<Item = T>>(&mut self, tiles: I) {
        for tile in tiles.into_iter().map(Into::into) {
            if tile < MAX_TILES {
                self.put(tile / WORD_BITS, 1 << (tile % WORD_BITS));
            }
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
            base in prop::sample::select(vec![0, 1000, MAX_TILES - 200]),
            (count, step) in (0u16..40, 0u16..90),
        ) {
            // Words at both ends, and between.
            let [a, b] = [a, b].map(|set| set.into_iter().map(|t| t + base).collect::<BTreeSet<_>>());
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.meets(&y), !a.is_disjoint(&b));
            prop_assert_eq!(x.includes(&y), a.is_superset(&b));
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert!((0..MAX_TILES + 99).all(|t| x.contains(t) == a.contains(&t)));
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
