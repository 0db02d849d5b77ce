//! Hash tables of the planner, whose keys are tiles and long lists of numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash table that is quick on numbers. Nothing goes through it in its order.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Words>>;

/// Hashes eight bytes at a time.
#[derive(Default)]
pub(crate) struct Words(u64);

/// Odd, with as many ones as zeros: the golden ratio's first 64 bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Words {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    fn write_u16(&mut self, word: u16) {
        self.add(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.add(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }

    /// Tables take the low bits and the highest ones: both depend on every word.
    fn finish(&self) -> u64 {
        (self.0 ^ self.0 >> 32).wrapping_mul(FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hash;

    use super::*;

    fn hash(value: &impl Hash) -> u64 {
        let mut words = Words::default();
        value.hash(&mut words);
        words.finish()
    }

    #[test]
    fn lists_that_differ_in_one_number_have_other_hashes() {
        let list: Vec<u32> = (0..1000).map(|i| 16 * i).collect();
        let mut hashes = HashSet::from([hash(&list)]);
        for at in 0..list.len() {
            let mut other = list.clone();
            other[at] += 16;
            assert!(hashes.insert(hash(&other)), "{at}");
        }
        assert!(hashes.insert(hash(&list[1..].to_vec())));
    }

    #[test]
    fn low_and_high_bits_spread() {
        let tiles = || (0..2048u16).map(|tile| hash(&tile));
        let low: HashSet<u64> = tiles().map(|h| h % 2048).collect();
        let high: HashSet<u64> = tiles().map(|h| h >> 57).collect();
        assert!(
            low.len() > 1000 && high.len() == 128,
            "{} {}",
            low.len(),
            high.len()
        );
    }
}
