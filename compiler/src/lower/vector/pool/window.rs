//! A pool in blocks: which inputs its windows reach.

use std::ops::Range;

use crate::lower::transfer::{Area, Base};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::Window;

/// Geometry of a pool in blocks.
pub(super) struct Pool<'g> {
    pub input: Base,
    pub output: Base,
    pub window: &'g Window,
    pub size: [usize; 2],
    pub out: [usize; 2],
    /// Kernel rows worked on together.
    pub kernel_rows: usize,
    pub op: PoolOp<'g>,
}

/// A tile of a pool's outputs, and its first accumulator tile.
pub(super) struct Out {
    pub area: Area,
    pub base: usize,
}

pub(super) enum PoolOp<'g> {
    Max(&'g [LaneOp]),
    Average {
        by_count: &'g [(usize, Vec<LaneOp>)],
        include_pad: bool,
    },
}

impl Pool<'_> {
    /// Input positions that a tile's outputs reach with some taps, without padding.
    pub(super) fn reach(
        &self,
        axis: usize,
        out: &Range<usize>,
        taps: &Range<usize>,
    ) -> Range<usize> {
        let pad = self.window.pads.before()[axis];
        let (s, d) = (self.window.stride[axis], self.window.dilation[axis]);
        let first = (out.start * s + taps.start * d).saturating_sub(pad);
        let last = ((out.end - 1) * s + (taps.end - 1) * d + 1).saturating_sub(pad);
        first..last.min(self.size[axis])
    }

    /// Outputs of a range whose tap lies inside the input.
    pub(super) fn valid(&self, axis: usize, out: &Range<usize>, tap: usize) -> Range<usize> {
        let (size, outputs) = (self.size[axis], self.out[axis]);
        let valid = self.window.valid(axis, tap, size, outputs);
        valid.start.max(out.start)..valid.end.min(out.end)
    }

    /// Runs of neighbouring outputs with equally many taps inside the input.
    pub(super) fn runs(&self, axis: usize, out: &Range<usize>) -> Vec<(usize, Range<usize>)> {
        let (taps, size) = (0..self.window.kernel[axis], self.size[axis]);
        let count = |o| self.window.positions(axis, o, taps.clone(), size).count();
        let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
        for o in out.clone() {
            let n = count(o);
            match runs.last_mut() {
                Some((last, range)) if *last == n => range.end = o + 1,
                _ => runs.push((n, o..o + 1)),
            }
        }
        runs
    }
}
