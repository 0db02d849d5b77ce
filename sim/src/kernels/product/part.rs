//! Parts of products: some of the rows, with offsets that count from elsewhere.
//!
//! Offsets of a product count from the first byte of a region. Whoever lends a part of the region
//! only needs offsets that count from there.

use std::ops::Range;

use super::super::{Inputs, PADDING, Stretch};

impl Stretch {
    /// Some of the blocks, counted over both stretches; rows count from the first of them.
    fn cut(stretches: [Self; 2], blocks: &Range<usize>) -> [Self; 2] {
        let [a, b] = stretches;
        let first = blocks.start.min(a.blocks)..blocks.end.min(a.blocks);
        let second = blocks.start.max(a.blocks)..blocks.end.max(a.blocks);
        let a = Self {
            first: 0,
            blocks: first.len(),
            rows: a.rows,
            rows_after: if second.is_empty() { 0 } else { b.rows },
        };
        let b = Self {
            first: a.blocks * a.rows,
            blocks: second.len(),
            rows: b.rows,
            rows_after: 0,
        };
        [a, b]
    }
}

impl Inputs {
    /// Blocks of rows that a kernel takes together.
    pub fn blocks(&self) -> usize {
        self.stretches.iter().map(|s| s.blocks).sum()
    }

    /// The rows of some blocks.
    pub fn rows_of(&self, blocks: &Range<usize>) -> Range<usize> {
        let [a, b] = self.stretches;
        let row = |block: usize| match block.checked_sub(a.blocks) {
            None => block * a.rows,
            Some(more) => b.first + more * b.rows,
        };
        row(blocks.start)..row(blocks.end).min(self.rows)
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
        let stretches = Stretch::cut(self.stretches, blocks);
        Self::ordered(offsets, shape, stretches, self.bundles)
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
            let ranges: Vec<Range<usize>> = (whole.stretches.into_iter())
                .flat_map(Stretch::ranges)
                .collect();
            assert_eq!(ranges.len(), whole.blocks());
            for first in 0..ranges.len() {
                for end in first + 1..=ranges.len() {
                    let part = whole.part(&(first..end), 1000);
                    let expected = ranges[first].start..ranges[end - 1].end;
                    assert_eq!(whole.rows_of(&(first..end)), expected);
                    assert_eq!(part.rows, expected.len());
                    let own = part.stretches.into_iter().flat_map(Stretch::ranges);
                    let moved = ranges[first..end].iter();
                    let moved = moved.map(|r| r.start - expected.start..r.end - expected.start);
                    assert!(own.eq(moved));
                    let all = whole.offsets_of(&(first..end));
                    assert!(all.map(|o| o - 1000).eq(part.offsets.iter().copied()));
                    assert_eq!(part.most, part.offsets.iter().copied().max().unwrap());
                    let [a, b] = part.stretches;
                    let after = if a.blocks > 0 && b.blocks > 0 {
                        b.rows
                    } else {
                        0
                    };
                    assert!(a.blocks == 0 || a.rows_after == after);
                }
            }
        }
    }
}
