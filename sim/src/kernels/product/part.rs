//! Parts of products: some of the rows, with offsets that count from elsewhere.
//!
//! Offsets of a product count from the first byte of a region. Whoever lends a part of the region
//! only needs offsets that count from there.

use std::ops::Range;

use vta_isa::resolve::merge;

use super::super::source::Runs;
use super::super::{Inputs, PADDING, Stretch};
use super::staging::LINE;

/// Bytes between two runs that are read as if they were inputs: a footprint of fewer runs is compared sooner.
const GAP: u32 = 256;
/// Runs of inputs at most. Others are read from the first to the last byte.
const MOST_RUNS: usize = 128;

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

    /// The same, knowing which bytes are read of so many, where those from the first to the last are more. Inputs have
    /// `block` bytes.
    pub fn in_runs(mut self, block: usize, bytes: usize) -> Self {
        // Of more, ends of runs may not be offsets.
        let Some(bytes) = u32::try_from(bytes).ok().filter(|&bytes| bytes < 1 << 31) else {
            return self;
        };
        let mut runs: Vec<Range<u32>> = Vec::new();
        // Gaps that count as inputs lie behind each; neighbours mostly follow each other.
        let mut add = |start: u32, size: usize| {
            let end = start + size as u32 + GAP;
            match runs.last_mut() {
                Some(last) if (last.start..=last.end).contains(&start) => {
                    last.end = last.end.max(end)
                }
                _ => runs.push(start..end),
            }
        };
        match &self.lines {
            Some(lines) => (lines.touched().iter()).for_each(|line| add(line * LINE as u32, LINE)),
            None => {
                let inside = self.offsets.iter().filter(|&&offset| offset != PADDING);
                inside.for_each(|&offset| add(offset, block));
            }
        }
        merge(&mut runs);
        runs.iter_mut()
            .for_each(|run| run.end = (run.end - GAP).min(bytes));
        if (2..=MOST_RUNS).contains(&runs.len()) {
            self.runs = Runs::new(runs);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vta_driver::Span;

    use super::*;
    use crate::kernels::{Format, GemmKernel, Way};

    proptest! {
        #[test]
        fn every_input_lies_in_a_run_and_long_gaps_in_none(
            starts in prop::collection::vec(0u32..40_000, 1..40), block in prop::sample::select(vec![4usize, 16, 64]),
            staged in any::<bool>(), more in 0usize..200,
        ) {
            let end = starts.iter().max().map_or(0, |&o| o as usize) + block;
            let inputs = Inputs::new(&starts, starts.len(), 1, None);
            let way = Way { kernel: GemmKernel::Avx512Vnni, format: Format::Biased };
            let inputs = if staged { inputs.staged_for(way, block) } else { inputs };
            let bytes = end + more;
            let inputs = inputs.in_runs(block, bytes);
            let whole = Span { region: 3, start: 1000, len: bytes };
            let reads: Vec<Span> = inputs.runs().of(whole).collect();
            prop_assert!(reads.iter().all(|r| r.region == 3 && 1000 <= r.start && r.start + r.len <= 1000 + bytes));
            prop_assert!(reads.windows(2).all(|r| r[0].start + r[0].len + (GAP as usize) < r[1].start));
            for &start in &starts {
                let start = 1000 + start as usize;
                let holds = |r: &&Span| r.start <= start && start + block <= r.start + r.len;
                prop_assert!(reads.iter().any(|r| holds(&r)), "{} of {:?}", start, reads);
            }
            // A gap of a run or more, and what lines of copies and units that aren't aligned take of it.
            let mut sorted = starts.clone();
            sorted.sort_unstable();
            let far = |pair: &[u32]| pair[1] - pair[0] > block as u32 + GAP + 2 * 64;
            let gaps = sorted.windows(2).filter(|pair| far(pair)).count();
            prop_assert!(reads.len() > gaps, "{} runs with {} gaps", reads.len(), gaps);
        }
    }

    #[test]
    fn many_runs_are_read_from_the_first_to_the_last_byte() {
        let whole = |len| Span {
            region: 0,
            start: 0,
            len,
        };
        for (runs, expected) in [(1, 1), (2, 2), (MOST_RUNS, MOST_RUNS), (MOST_RUNS + 1, 1)] {
            let starts: Vec<u32> = (0..runs as u32).map(|run| run * 1024).collect();
            let bytes = runs * 1024;
            let inputs = Inputs::new(&starts, runs, 1, None).in_runs(16, bytes);
            let reads: Vec<Span> = inputs.runs().of(whole(bytes)).collect();
            assert_eq!(reads.len(), expected);
            // One run, like many, is all.
            let all = reads.iter().map(|read| read.len).sum::<usize>();
            assert_eq!(all == bytes, expected == 1);
        }
    }

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
