//! Parts of products: some of the rows, with offsets that count from elsewhere.
//!
//! Offsets of a product count from the first byte of a region. Whoever lends a part of the region
//! only needs offsets that count from there.

use std::ops::Range;

use super::super::{Inputs, PADDING, Stretch};

impl Stretch {
    /// Some of the blocks, counted over all stretches; rows count from the first of them.
    fn cut(stretches: &[Self], blocks: &Range<usize>) -> Box<[Self]> {
        let (mut before, mut first) = (0, 0);
        let mut cut: Vec<Self> = Vec::with_capacity(stretches.len());
        for stretch in stretches {
            let end = before + stretch.blocks;
            let of = blocks.start.max(before)..blocks.end.min(end);
            before = end;
            let part = Self {
                first,
                blocks: of.len(),
                rows_after: 0,
                ..*stretch
            };
            if let (Some(last), 1..) = (cut.last_mut(), part.blocks) {
                last.rows_after = part.rows;
            }
            first += part.blocks * part.rows;
            cut.extend((part.blocks > 0).then_some(part));
        }
        cut.into()
    }
}

impl Inputs {
    /// Blocks of rows that a kernel takes together.
    pub fn blocks(&self) -> usize {
        self.stretches.iter().map(|s| s.blocks).sum()
    }

    /// The rows of some blocks.
    pub fn rows_of(&self, blocks: &Range<usize>) -> Range<usize> {
        let row = |block: usize| {
            let mut before = 0;
            let rows = self.stretches.iter().map(|stretch| {
                let blocks = block.saturating_sub(before).min(stretch.blocks);
                before += stretch.blocks;
                blocks * stretch.rows
            });
            rows.sum()
        };
        row(blocks.start)..row(blocks.end)
    }

    /// Offsets of some blocks' rows in what is read or copied, padding among them.
    pub fn offsets_of(&self, blocks: &Range<usize>) -> impl Iterator<Item = u32> + use<'_> {
        let rows = self.rows_of(blocks);
        let offsets = self.offsets[rows.start * self.taps..rows.end * self.taps].iter();
        offsets.map(|&offset| match &self.lines {
            Some(lines) => lines.offset_before(offset),
            None => offset,
        })
    }

    /// Some blocks, with offsets that count from `base`, at or below the least of them.
    pub fn part(&self, blocks: &Range<usize>, base: u32) -> Self {
        let moved = |offset: u32| match offset {
            PADDING => PADDING,
            offset => offset.saturating_sub(base),
        };
        let offsets = self.offsets_of(blocks).map(moved).collect();
        let shape = [self.rows_of(blocks).len(), self.taps, self.block];
        let stretches = Stretch::cut(&self.stretches, blocks);
        let windows = self
            .patches
            .as_ref()
            .map(|patches| (patches.window, patches.step));
        Self::ordered(offsets, shape, stretches, self.bundles, windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_blocks_of_the_whole() {
        for (rows, most) in [(1, 6), (5, 6), (13, 6), (49, 6), (12, 3), (100, 12)] {
            let taps = 3;
            let offsets: Vec<u32> = (0..rows * taps).map(|i| 1000 + i as u32).collect();
            let whole = Inputs::new(&offsets, rows, most, None);
            let ranges: Vec<Range<usize>> =
                whole.stretches.iter().flat_map(|s| s.ranges()).collect();
            assert_eq!(ranges.len(), whole.blocks());
            for first in 0..ranges.len() {
                for end in first + 1..=ranges.len() {
                    let part = whole.part(&(first..end), 1000);
                    let expected = ranges[first].start..ranges[end - 1].end;
                    assert_eq!(whole.rows_of(&(first..end)), expected);
                    assert_eq!(part.rows, expected.len());
                    let own = part.stretches.iter().flat_map(|s| s.ranges());
                    let moved = ranges[first..end].iter();
                    let moved = moved.map(|r| r.start - expected.start..r.end - expected.start);
                    assert!(own.eq(moved));
                    let all = whole.offsets_of(&(first..end));
                    assert!(all.map(|o| o - 1000).eq(part.offsets.iter().copied()));
                    assert_eq!(part.most, part.offsets.iter().copied().max().unwrap());
                    let after = part.stretches.iter().skip(1).map(|s| s.rows);
                    let found = part.stretches.iter().map(|s| s.rows_after);
                    assert!(found.eq(after.chain([0])));
                }
            }
        }
    }
}
