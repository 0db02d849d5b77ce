//! The order in which a kernel takes the rows of a product.

use std::ops::Range;

/// Outputs that are worked on together: some above each other, each with its neighbours to the right, and as many again
/// of other columns. So the rows of a product are in the order of columns, outputs above each other, and neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) struct Patch {
    pub columns: usize,
    pub above: usize,
    /// Two outputs that share lines, or one.
    pub side_by_side: usize,
}

/// Rows in blocks of at most `most`, which are about even: stretches of blocks that have equally
/// many rows.
pub(in crate::kernels) fn blocks(rows: usize, most: usize) -> Box<[Stretch]> {
    let count = rows.div_ceil(most.max(1)).max(1);
    let (few, larger) = (rows / count, rows % count);
    let first = Stretch {
        first: 0,
        blocks: larger,
        rows: few + 1,
        // Blocks of no rows are no blocks.
        rows_after: few,
        patch: None,
    };
    let second = Stretch {
        first: larger * (few + 1),
        blocks: if few == 0 { 0 } else { count - larger },
        rows: few,
        rows_after: 0,
        patch: None,
    };
    [first, second].into()
}

/// Blocks of equally many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) struct Stretch {
    /// The first row.
    pub(in crate::kernels) first: usize,
    pub(in crate::kernels) blocks: usize,
    /// Rows of each block.
    pub(in crate::kernels) rows: usize,
    /// Rows of the block after the last; 0 if there is none.
    pub(in crate::kernels) rows_after: usize,
    /// What each block is, if its rows lie as those of one.
    pub(in crate::kernels) patch: Option<Patch>,
}

impl Stretch {
    /// The rows of each block.
    pub(in crate::kernels) fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        let range = move |block: usize| {
            let first = self.first + block * self.rows;
            first..first + self.rows
        };
        (0..self.blocks).map(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_rows_evenly() {
        for (rows, most) in (0..60).flat_map(|rows| (1..13).map(move |most| (rows, most))) {
            let stretches = blocks(rows, most);
            let ranges: Vec<_> = stretches.iter().flat_map(|s| s.ranges()).collect();
            assert!(ranges.iter().all(|r| !r.is_empty() && r.len() <= most));
            assert!(
                ranges.iter().cloned().flatten().eq(0..rows),
                "{rows} {most}"
            );
            assert_eq!(ranges.len(), rows.div_ceil(most));
            let [first, second] = stretches[..].try_into().unwrap();
            if first.blocks > 0 && second.blocks > 0 {
                assert_eq!(first.rows_after, second.rows);
            } else {
                assert!(first.blocks == 0 || first.rows_after == 0);
            }
        }
    }
}
