//! Between layers: what the next layer may touch before this one is over.
//!
//! Each layer finds two tokens in compute->load and two in store->compute, and leaves as many: `EarlyMultiplied`,
//! `LastMultiplied`, `EarlyStored` and `LastStored` of [`Done`](super::tokens::Done).
//!
//! So constants are loaded while the layer before ends: weights after the first token where
//! they don't touch what it reads, the bias after the second. The first sums are cleared while
//! its last outputs are stored. Its outputs are read after the last token, which the compute
//! module hands on to the load module; where STOREs round, those outputs that are in memory by
//! the first token are read after that. A layer that the load module has no part in leaves the
//! tokens in compute->load as they are: the scratchpads that they speak of are as they were.

use std::ops::Range;

use super::transfer::{Run, Transfer};

/// Tokens that a layer finds in each of the two queues.
pub(super) const TOKENS: u32 = 2;

/// Scratchpad tiles that the layer before uses to its end. Nothing, at the start of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seam {
    /// Weight tiles that are read after the first token.
    pub wgt: Vec<Range<usize>>,
    /// Input tiles that are read after the first token.
    pub inp: Range<usize>,
    /// Accumulator tiles that are stored after the first token.
    pub acc: Range<usize>,
    /// What may not be in memory when the first token in compute->load comes; `None` where that isn't known.
    pub unstored: Option<Vec<Run>>,
    /// About how many cycles the last STORE takes.
    pub storing: usize,
}

impl Seam {
    /// Whether all that transfers read is in memory when the first token in compute->load comes.
    pub fn is_stored(&self, transfers: &[Transfer]) -> bool {
        let Some(unstored) = &self.unstored else {
            return false;
        };
        let meets = |a: &Run, b: &Run| a.buffer == b.buffer && meet(&a.tiles, &b.tiles);
        let mut reads = transfers.iter().copied().flat_map(Transfer::runs);
        reads.all(|run| !unstored.iter().any(|other| meets(other, &run)))
    }
}

/// Whether ranges of tiles have one in common.
pub(super) fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_where_they_share_a_tile() {
        for (a, b, expected) in [
            (0..4, 4..8, false),
            (0..5, 4..8, true),
            (4..8, 0..5, true),
            (2..3, 0..9, true),
            (0..9, 2..3, true),
            (3..3, 0..9, false),
        ] {
            assert_eq!(meet(&a, &b), expected, "{a:?} {b:?}");
        }
    }
}
