//! Grouped convolutions in blocks: which input blocks an output block reads.
//!
//! Weight tiles of a grouped convolution are block-diagonal: an output block reads only the
//! input blocks that its channels' groups touch. For a depthwise convolution that is the block of
//! the same channels, and its weight tiles are diagonal: one step of the matrix unit for each tap,
//! where the ALU would take four (a MUL into another tile and an ADD, each with two operands).
//! Every output block gets the same number of weight tiles, [`Groups::span`], from the first
//! block that it reads on; those that would be all zeros are loaded, but no step visits them.

use std::ops::Range;

/// A convolution's groups, and how they lie in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// Input channels of each group.
    pub inputs: usize,
    /// Output channels of each group.
    pub outputs: usize,
    /// How many there are.
    pub count: usize,
    /// Channels in a block.
    pub block: usize,
}

impl Groups {
    /// The groups of a convolution in blocks of `block` channels; `None` for one group, where
    /// every output block reads every input block.
    pub(in crate::lower) fn new(group: usize, [co, ci]: [usize; 2], block: usize) -> Option<Self> {
        (group > 1).then_some(Self {
            inputs: ci / group,
            outputs: co / group,
            count: group,
            block,
        })
    }

    /// Input blocks whose channels an output block's groups touch.
    pub(in crate::lower) fn touched(&self, co: usize) -> Range<usize> {
        let channels = self.outputs * self.count;
        let last = ((co + 1) * self.block).min(channels).max(1) - 1;
        let first = (co * self.block).min(last) / self.outputs;
        let end = (last / self.outputs + 1) * self.inputs;
        first * self.inputs / self.block..end.div_ceil(self.block)
    }

    /// The most input blocks that an output block reads.
    pub(in crate::lower) fn span(&self) -> usize {
        let blocks = (self.outputs * self.count).div_ceil(self.block);
        let spans = (0..blocks).map(|co| self.touched(co).len());
        spans.max().unwrap_or(1)
    }

    /// The first of the `span` input blocks that an output block has weight tiles for. It never
    /// decreases from block to block.
    pub(in crate::lower) fn first(&self, co: usize, span: usize) -> usize {
        let blocks = (self.inputs * self.count).div_ceil(self.block);
        self.touched(co).start.min(blocks.saturating_sub(span))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn groups(count: usize, inputs: usize, outputs: usize) -> Groups {
        Groups {
            inputs,
            outputs,
            count,
            block: 16,
        }
    }

    #[test]
    fn depthwise_blocks_read_themselves() {
        let depthwise = groups(100, 1, 1);
        assert_eq!(depthwise.span(), 1);
        assert!((0..7).all(|co| depthwise.touched(co) == (co..co + 1)));
        // Twice as many outputs: two blocks read the same.
        let doubled = groups(100, 1, 2);
        assert_eq!(doubled.span(), 1);
        assert!((0..12).all(|co| doubled.first(co, 1) == co / 2));
    }

    #[test]
    fn aligned_groups_read_their_own_blocks() {
        let wide = groups(4, 32, 32);
        assert_eq!(wide.span(), 2);
        let first: Vec<_> = (0..8).map(|co| wide.first(co, 2)).collect();
        assert_eq!(first, [0, 0, 2, 2, 4, 4, 6, 6]);
        // Groups smaller than a block share one.
        assert_eq!(groups(32, 4, 4).span(), 1);
    }

    #[test]
    fn groups_across_blocks_read_all_that_they_touch() {
        let odd = groups(3, 24, 24);
        let touched: Vec<_> = (0..5).map(|co| odd.touched(co)).collect();
        assert_eq!(touched, [0..2, 0..3, 1..3, 3..5, 3..5]);
        assert_eq!(odd.span(), 3);
        // The last blocks' tiles begin early enough to end with the input.
        let first: Vec<_> = (0..5).map(|co| odd.first(co, 3)).collect();
        assert_eq!(first, [0, 0, 1, 2, 2]);
    }

    proptest! {
        #[test]
        fn every_weight_lies_in_a_tile(count in 2usize..40, inputs in 1usize..40, outputs in 1usize..40) {
            let groups = groups(count, inputs, outputs);
            let span = groups.span();
            for o in 0..outputs * count {
                for c in 0..inputs {
                    let (block, from) = ((o / outputs * inputs + c) / 16, groups.first(o / 16, span));
                    prop_assert!(groups.touched(o / 16).contains(&block));
                    prop_assert!((from..from + span).contains(&block));
                }
                prop_assert!(groups.first(o / 16, span) + span <= (inputs * count).div_ceil(16));
            }
            let blocks = (outputs * count).div_ceil(16);
            prop_assert!((1..blocks).all(|co| groups.first(co - 1, span) <= groups.first(co, span)));
        }
    }
}
