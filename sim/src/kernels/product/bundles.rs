//! Bundles: taps of a product that one instruction multiplies together.
//!
//! A row of a bundle is the inputs of its taps, one after the other. Mostly they lie so in memory, too: taps of a
//! convolution that are neighbours in a row of the image are. Then the row is one stretch of bytes, of which those
//! of taps in the padding are left out.

use std::ops::Range;

/// The offset of a tap in the padding: the input is zero.
pub(crate) const PADDING: u32 = u32::MAX;

/// How many taps make a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bundles {
    /// Taps of each, at least one.
    pub taps: usize,
    /// Bytes of a tap's input: BLOCK.
    pub tap_bytes: usize,
}

impl Bundles {
    /// Bytes of a row.
    #[cfg(target_arch = "x86_64")]
    pub fn bytes(self) -> usize {
        self.taps * self.tap_bytes
    }
}

/// Where a row of a bundle lies whose taps lie side by side: the byte of its first tap, which is not inside the
/// inputs if that tap is padding, and a bit for each four bytes that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined(i64);

impl Joined {
    /// From the offsets of the taps; `None` if they don't lie side by side.
    pub fn of(offsets: impl Iterator<Item = u32>, tap_bytes: usize) -> Option<Self> {
        let (mut first, mut mask, mut at) = (None, 0u64, 0usize);
        for offset in offsets {
            if offset != PADDING {
                let start = i64::from(offset) - at as i64;
                if *first.get_or_insert(start) != start {
                    return None;
                }
                mask |= ((1 << (tap_bytes / 4)) - 1) << (at / 4);
            }
            at += tap_bytes;
        }
        // 64 bytes at most, so that 16 bits are enough.
        Some(Self(first.unwrap_or(0) << 16 | mask as i64))
    }

    /// Bytes from the first input to the row.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn start(self) -> isize {
        (self.0 >> 16) as isize
    }

    /// Which four bytes are inside the inputs.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn mask(self) -> u16 {
        self.0 as u16
    }
}

/// Where the rows of all bundles lie, `[block][bundle][row of the block]`, from offsets `[block][tap][row of the block]`
/// and the rows of each block; `None` if some rows aren't joined.
pub(in crate::kernels) fn joined_rows(
    offsets: &[u32],
    ranges: impl Iterator<Item = Range<usize>>,
    taps: usize,
    bundles: Bundles,
) -> Option<Box<[Joined]>> {
    let mut joined = Vec::with_capacity(offsets.len() / bundles.taps);
    for range in ranges {
        let of_block = &offsets[range.start * taps..range.end * taps];
        for bundle in of_block.chunks(bundles.taps * range.len()) {
            for row in 0..range.len() {
                let taps = bundle.iter().skip(row).step_by(range.len());
                joined.push(Joined::of(taps.copied(), bundles.tap_bytes)?);
            }
        }
    }
    Some(joined.into())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn rows_are_joined_where_taps_lie_side_by_side() {
        let of = |offsets: &[u32], bytes| Joined::of(offsets.iter().copied(), bytes);
        let found = |offsets: &[u32], bytes| of(offsets, bytes).map(|j| (j.start(), j.mask()));
        assert_eq!(found(&[32, 48, 64], 16), Some((32, 0x0fff)));
        assert_eq!(found(&[PADDING, 0, 16, 32], 16), Some((-16, 0xfff0)));
        assert_eq!(found(&[0, PADDING, 32], 16), Some((0, 0x0f0f)));
        assert_eq!(found(&[PADDING; 4], 16), Some((0, 0)));
        assert_eq!(found(&[u32::MAX - 64], 64), Some((0xffff_ffbf, 0xffff)));
        assert_eq!(found(&[PADDING, 5], 32), Some((-27, 0xff00)));
        assert_eq!(found(&[0, 17], 16), None);
        assert_eq!(found(&[16, 0], 16), None);
        assert_eq!(found(&[0, PADDING, 16], 16), None);
    }
}
