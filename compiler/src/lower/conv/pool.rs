//! The maxima of a pool that joined its convolution, in the accumulators.
//!
//! The matrix unit writes a tile's positions sorted by their phase, the remainder of row and
//! column divided by the pool's stride: `[block][row phase][column phase][pooled row][pooled
//! column]`. A window's position with offset `d` from the one that the pooled position falls on
//! is then at the same place in phase `d mod stride`, or one place earlier if `d < 0`, so that
//! two-operand MAX runs over whole rows and the result is one run of tiles, ready for STORE.
//! Columns come first. Rows of the tile above are still in the other half of the accumulators.

use vta_isa::AluOp;

use super::super::LowerError;
use super::super::emit::{Emitter, Loops};
use super::layer::{Acc, Conv, Walk};
use super::work::Work;
use crate::qgraph::window::Window;

/// Offsets of a window's other positions along an axis: their phase, and whether they lie in the
/// stride before.
fn offsets(window: &Window, axis: usize) -> impl Iterator<Item = (usize, bool)> {
    let (k, s, p) = (
        window.kernel[axis],
        window.stride[axis],
        window.pads.before()[axis],
    );
    (0..k)
        .filter(move |&tap| tap != p)
        .map(move |tap| ((tap + s - p) % s, tap < p))
}

impl Conv<'_> {
    /// Whether a tile's windows reach into the tile above, which comes right before it.
    pub(super) fn reads_above(&self, work: &Work) -> bool {
        self.pool.is_some_and(|window| window.pads.before()[0] > 0) && work.rows.start > 0
    }
}

impl Walk<'_, '_, '_> {
    /// Pools a tile's sums in place: afterwards the first `kept` tiles of each block count.
    pub(super) fn pool_sums(
        &mut self,
        window: &Window,
        work: &Work,
        acc: &Acc,
        above: usize,
    ) -> Result<(), LowerError> {
        self.pool_columns(window, work, acc)?;
        let [s0, s1] = window.stride;
        let (cols, blocks) = (work.cols.len() / s1, work.co.len());
        for (phase, before) in offsets(window, 0) {
            let source = phase * s1 * acc.kept;
            let lag = usize::from(before) * cols;
            if acc.kept > lag {
                let uop = |b: usize| [lag, source].map(|o| acc.base + b * acc.pitch + o);
                maximum(&mut self.e, (0..blocks).map(uop), [1, acc.kept - lag], 0)?;
            }
            if before && self.conv.reads_above(work) {
                // The last row of a whole tile in the other half.
                let kept = self.conv.tile.output[0] / s0 * cols;
                let last = above + phase * s1 * kept + kept - cols;
                let pitch = s0 * s1 * kept;
                let uop = |b: usize| [acc.base + b * acc.pitch, last + b * pitch];
                maximum(&mut self.e, (0..blocks).map(uop), [1, cols], 0)?;
            }
        }
        Ok(())
    }

    fn pool_columns(&mut self, window: &Window, work: &Work, acc: &Acc) -> Result<(), LowerError> {
        let [s0, s1] = window.stride;
        let (rows, cols) = (work.rows.len() / s0, work.cols.len() / s1);
        for (phase, before) in offsets(window, 1) {
            let lag = usize::from(before);
            if cols == lag {
                continue;
            }
            let uop = |i: usize| {
                let first = acc.base + i / s0 * acc.pitch + i % s0 * s1 * acc.kept;
                [first + lag, first + phase * acc.kept]
            };
            let pairs = (0..work.co.len() * s0).map(uop);
            maximum(&mut self.e, pairs, [rows, cols - lag], cols)?;
        }
        Ok(())
    }
}

/// `dst = max(dst, src)` for each pair, over rows of tiles `pitch` apart.
fn maximum(
    e: &mut Emitter<'_, '_>,
    pairs: impl Iterator<Item = [usize; 2]>,
    iter: [usize; 2],
    pitch: usize,
) -> Result<(), LowerError> {
    let loops = Loops {
        iter,
        dst: [pitch, 1],
        src: [pitch, 1],
    };
    e.join(AluOp::Max, pairs, loops)
}
