//! Sets of accumulator tiles.

use vta_isa::Config;

/// Accumulator tiles that a scratchpad can have at most.
const MOST_TILES: usize = Config::MAX_ACC_DEPTH as usize;

/// A set of accumulator tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tiles([u64; MOST_TILES / 64]);

impl Tiles {
    pub const NONE: Self = Self([0; MOST_TILES / 64]);
    pub const ALL: Self = Self([u64::MAX; MOST_TILES / 64]);

    /// Adds a tile; whether it is new.
    pub fn insert(&mut self, tile: usize) -> bool {
        let (word, bit) = (tile / 64 % self.0.len(), 1 << (tile % 64));
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    pub fn contains(&self, tile: usize) -> bool {
        self.0[tile / 64 % self.0.len()] & 1 << (tile % 64) != 0
    }

    pub fn range(first: usize, len: usize) -> Self {
        let mut tiles = Self::NONE;
        for tile in first..first + len {
            tiles.insert(tile);
        }
        tiles
    }

    /// Whether every tile of the other set is in this one.
    pub fn includes(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| b & !a == 0)
    }

    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    pub fn add(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    pub fn remove(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a &= !b;
        }
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Runs of neighbouring tiles: first and how many.
    pub fn runs(&self) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for tile in (0..MOST_TILES).filter(|&t| self.contains(t)) {
            match runs.last_mut() {
                Some((first, len)) if *first + *len == tile => *len += 1,
                _ => runs.push((tile, 1)),
            }
        }
        runs
    }
}
