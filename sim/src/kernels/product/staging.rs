//! Inputs that are copied, with what a kernel adds to each, before products read them.
//!
//! A kernel whose instruction multiplies unsigned by signed bytes adds 128 to every input. In the loop of the products
//! that is an instruction for every four inputs of a row, beside one for each column, and CPUs whose ports for
//! vectors are as many as those that multiply lose a fifth of the products to it. Rows of a convolution share inputs,
//! and columns share rows: the lines of memory that some rows touch are few beside the products, and copied once.

use super::super::PADDING;

/// Whether this CPU gains by copies: those of Intel do, whose two ports for vectors of 64 bytes are those that
/// multiply; those of AMD have more ports than multiply and lose the time of the copies. Others count as AMD's.
pub(crate) fn gains() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let leaf = std::arch::x86_64::__cpuid(0);
        let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
        vendor.as_flattened() == b"GenuineIntel"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Bytes of a line.
pub(super) const LINE: usize = 64;
/// Lines that are copied at most: what stays in a second cache.
const MOST_LINES: usize = 1 << 13;
/// Lines that inputs may lie apart at most: bounds the table of those that are touched.
const MOST_APART: usize = 1 << 20;

/// Lines of memory that inputs lie in. Copied, they lie one behind the other, behind some of padding.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Counted from the first byte that offsets count from; ascending.
    touched: Box<[u32]>,
    /// Bytes of padding, a multiple of a line.
    padding: usize,
}

impl Lines {
    /// Those of inputs of `block` bytes, whose offsets become those among the copies; `None`, and the offsets stay, if
    /// there is none, or there are too many or too far apart.
    pub fn of(offsets: &mut [u32], block: usize) -> Option<Self> {
        let inside = || offsets.iter().copied().filter(|&o| o != PADDING);
        let end = inside().max()? as usize + block;
        let words = end.div_ceil(LINE).div_ceil(64);
        if words > MOST_APART / 64 {
            return None;
        }
        let mut bits = vec![0u64; words];
        for offset in inside() {
            let offset = offset as usize;
            for line in offset / LINE..=(offset + block - 1) / LINE {
                bits[line / 64] |= 1 << (line % 64);
            }
        }
        let count: usize = bits.iter().map(|word| word.count_ones() as usize).sum();
        if count > MOST_LINES {
            return None;
        }
        let mut touched = Vec::with_capacity(count);
        // Touched lines before each word.
        let mut before = Vec::with_capacity(words);
        for (index, &word) in bits.iter().enumerate() {
            before.push(touched.len());
            let mut rest = word;
            while rest != 0 {
                touched.push((index * 64) as u32 + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
        let padding = block.next_multiple_of(LINE);
        for offset in offsets {
            *offset = match *offset {
                PADDING => 0,
                at => {
                    let (line, byte) = (at as usize / LINE, at as usize % LINE);
                    let lower = bits[line / 64] & ((1 << (line % 64)) - 1);
                    let rank = before[line / 64] + lower.count_ones() as usize;
                    (padding + rank * LINE + byte) as u32
                }
            };
        }
        Some(Self {
            touched: touched.into(),
            padding,
        })
    }

    /// The offset that an input had which now has this one.
    pub fn offset_before(&self, offset: u32) -> u32 {
        match (offset as usize).checked_sub(self.padding) {
            None => PADDING,
            Some(at) => self.touched[at / LINE] * LINE as u32 + (at % LINE) as u32,
        }
    }

    /// Bytes of the copies.
    fn bytes(&self) -> usize {
        self.padding + self.touched.len() * LINE
    }

    /// Counted from the first byte that offsets count from; ascending.
    pub fn touched(&self) -> &[u32] {
        &self.touched
    }

    /// Room for the padding and for copies of the lines.
    #[cfg(target_arch = "x86_64")]
    pub fn room<'a>(&self, staging: &'a mut Staging) -> (&'a mut [u8], &'a mut [u8]) {
        staging.room(self.bytes()).split_at_mut(self.padding)
    }

    /// The copies that were made last, of these lines.
    pub fn copies<'a>(&self, staging: &'a Staging) -> &'a [u8] {
        staging.lines(self.bytes())
    }
}

/// Room for copies and sums, which grows to what the largest product needs.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Of each row's inputs: see [`Memory`](super::Memory).
    pub sums: Vec<i32>,
    bytes: Vec<u8>,
    /// The first byte of a line.
    start: usize,
}

impl Staging {
    /// The bytes that were written last, so many.
    pub fn lines(&self, bytes: usize) -> &[u8] {
        &self.bytes[self.start..][..bytes]
    }

    /// Room for so many bytes.
    #[cfg(target_arch = "x86_64")]
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() < bytes + LINE {
            self.bytes.resize(bytes + LINE, 0);
            // Where that isn't known they lie anywhere, which is slower.
            self.start = self.bytes.as_ptr().align_offset(LINE).min(LINE);
        }
        &mut self.bytes[self.start..][..bytes]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_input_is_among_the_copies(
            block in prop::sample::select(vec![16usize, 32, 64, 128]),
            places in prop::collection::vec(prop_oneof![4 => (0u32..40_000).prop_map(Some), 1 => Just(None)], 1..60),
        ) {
            let offsets: Vec<u32> = places.iter().map(|p| p.unwrap_or(PADDING)).collect();
            let mut moved = offsets.clone();
            let Some(lines) = Lines::of(&mut moved, block) else {
                prop_assert!(offsets.iter().all(|&o| o == PADDING) && moved == offsets);
                return Ok(());
            };
            prop_assert!(lines.touched.is_sorted_by(|a, b| a < b));
            for (&offset, &moved) in offsets.iter().zip(&moved) {
                prop_assert_eq!(lines.offset_before(moved), offset);
                prop_assert!(moved as usize + block <= lines.bytes());
                let last = (offset != PADDING).then(|| lines.offset_before(moved + block as u32 - 1));
                prop_assert!(last.is_none_or(|last| last == offset + block as u32 - 1));
            }
        }
    }

    #[test]
    fn too_many_lines_and_lines_too_far_apart_stay_where_they_are() {
        let many: Vec<u32> = (0..=MOST_LINES as u32).map(|line| line * 64).collect();
        for (offsets, fits) in [
            (many[1..].iter().map(|line| line - 64).collect(), true),
            (many, false),
            (vec![0, (MOST_APART as u32 - 1) * 64], true),
            (vec![0, MOST_APART as u32 * 64], false),
        ] {
            let mut moved = offsets.clone();
            assert_eq!(Lines::of(&mut moved, 16).is_some(), fits);
            assert_eq!(moved == offsets, !fits);
        }
    }
}
