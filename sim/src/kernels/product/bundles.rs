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

/// Where the rows of all bundles lie, block by block as a kernel takes them.
#[derive(Debug)]
pub(in crate::kernels) struct JoinedRows {
    /// `[block][bundle][row of the block]`.
    pub rows: Box<[Joined]>,
    /// For each bundle, which four bytes are inside the inputs in some row.
    #[cfg(target_arch = "x86_64")]
    pub masks: Box<[u16]>,
    /// How each block may be read.
    #[cfg(target_arch = "x86_64")]
    pub blocks: Box<[Reach]>,
}

/// How the rows of a block may be read.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) enum Reach {
    /// By masks of their own.
    Masked,
    /// By those of the bundles: no tap is padding for some rows alone.
    Inside,
    /// The same, and every second row lies a tap behind the row before it.
    Pairs,
}

impl JoinedRows {
    /// From offsets `[block][tap][row of the block]` and the rows of each block; `None` if some rows aren't joined.
    pub fn of(
        offsets: &[u32],
        ranges: &[Range<usize>],
        taps: usize,
        bundles: Bundles,
    ) -> Option<Self> {
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
        let rows = joined.into_boxed_slice();
        #[cfg(target_arch = "x86_64")]
        return Some(Self::reached(rows, ranges, taps, bundles));
        #[cfg(not(target_arch = "x86_64"))]
        Some(Self { rows })
    }

    #[cfg(target_arch = "x86_64")]
    fn reached(rows: Box<[Joined]>, ranges: &[Range<usize>], taps: usize, of: Bundles) -> Self {
        let bundles = taps / of.taps;
        // The rows of each bundle, block by block.
        let by_block = || {
            ranges.iter().map(|range| {
                let of_block = &rows[range.start * bundles..range.end * bundles];
                of_block.chunks(range.len())
            })
        };
        let mut masks = vec![0; bundles];
        for (mask, rows) in by_block().flat_map(|block| (0..bundles).zip(block)) {
            masks[mask] |= rows.iter().fold(0, |mask, row| mask | row.mask());
        }
        let behind = |pair: &[Joined]| match pair {
            [a, b] => b.start() - a.start() == of.tap_bytes as isize,
            _ => true,
        };
        let reach = by_block().map(|mut block| {
            let mut inside = block.clone().zip(&masks);
            if !inside.all(|(rows, mask)| rows.iter().all(|row| row.mask() == *mask)) {
                return Reach::Masked;
            }
            if block.all(|rows| rows.chunks(2).all(behind)) {
                Reach::Pairs
            } else {
                Reach::Inside
            }
        });
        let reach = reach.collect();
        Self {
            rows,
            masks: masks.into(),
            blocks: reach,
        }
    }
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

    #[test]
    fn blocks_are_read_by_pairs_where_every_second_row_lies_a_tap_behind() {
        let bundles = Bundles {
            taps: 2,
            tap_bytes: 16,
        };
        // Two taps of a bundle for four and three rows.
        let of = |a: [[u32; 4]; 2], b: [[u32; 3]; 2]| {
            let offsets = [a.as_flattened(), b.as_flattened()].concat();
            let found = JoinedRows::of(&offsets, &[0..4, 4..7], 2, bundles).unwrap();
            (found.masks[0], found.blocks.to_vec())
        };
        let near = [[0, 16, 320, 336], [16, 32, 336, 352]];
        let apart = [[0, 32, 64], [16, 48, 80]];
        assert_eq!(of(near, apart), (0xff, vec![Reach::Pairs, Reach::Inside]));
        let border = [[PADDING, 0, 16], [0, 16, 32]];
        assert_eq!(of(near, border), (0xff, vec![Reach::Pairs, Reach::Masked]));
        let odd = [[0, 16, 320], [16, 32, 336]];
        assert_eq!(of(near, odd), (0xff, vec![Reach::Pairs, Reach::Pairs]));
    }
}
