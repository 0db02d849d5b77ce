//! Max pooling joined to the convolution before it.
//!
//! Requantisation never decreases, so the maximum of requantised values is the requantised
//! maximum: the accumulators are pooled first and only what is left is requantised and stored.
//!
//! The matrix unit writes a tile's positions sorted by their phase, the remainder of row and
//! column divided by the pool's stride: `[block][row phase][column phase][pooled row][pooled
//! column]`. A window's position with offset `d` from the one that the pooled position falls on
//! is then at the same place in phase `d mod stride`, or one place earlier if `d < 0`, so that
//! two-operand MAX runs over whole rows and the result is one run of tiles, ready for STORE.
//! Columns come first. Rows of the tile above are still in the other half of the accumulators.

use vta_isa::{AluOp, AluOperand, Uop};

use super::super::LowerError;
use super::super::emit::{Emitter, Loops};
use super::super::readers::Readers;
use super::work::Work;
use super::{Acc, Conv};
use crate::qgraph::{LaneOp, QGraph, QOp, TensorId, Window};

/// A pool that follows a convolution.
#[derive(Clone, Copy)]
pub(super) struct Pooling<'g> {
    pub window: &'g Window,
    /// What the pool writes.
    pub output: TensorId,
    /// The pool's name.
    pub name: &'g str,
}

/// The pool that the convolution at `index` can take in: the next node, alone in reading it.
pub(super) fn fusable<'g>(
    graph: &'g QGraph,
    readers: &Readers,
    index: usize,
) -> Option<Pooling<'g>> {
    let conv = &graph.nodes[index];
    let QOp::Conv {
        residual: None,
        epilogue,
        ..
    } = &conv.op
    else {
        return None;
    };
    let next = graph.nodes.get(index + 1)?;
    let QOp::MaxPool { input, window, ops } = &next.op else {
        return None;
    };
    let fits = *input == conv.output
        && ops.is_empty()
        && readers.only(conv.output) == Some(index + 1)
        && epilogue.iter().all(never_decreases)
        && (0..2).all(|axis| regular(window, axis, graph, conv.output, next.output));
    fits.then_some(Pooling {
        window,
        output: next.output,
        name: &next.name,
    })
}

fn never_decreases(op: &LaneOp) -> bool {
    match op {
        LaneOp::MulVec(v) => v.iter().all(|&m| m >= 0),
        LaneOp::MulImm(m) => *m >= 0,
        LaneOp::AddVec(_)
        | LaneOp::AddImm(_)
        | LaneOp::ShrImm(_)
        | LaneOp::ShlImm(_)
        | LaneOp::ShrVec(_)
        | LaneOp::MinImm(_)
        | LaneOp::MaxImm(_)
        | LaneOp::MinVec(_)
        | LaneOp::MaxVec(_) => true,
    }
}

/// Whole strides cover the input, and windows reach into neighbouring strides only.
fn regular(window: &Window, axis: usize, graph: &QGraph, from: TensorId, to: TensorId) -> bool {
    let (k, s, p) = (window.kernel[axis], window.stride[axis], window.pads[axis]);
    let size = |id: TensorId| graph.tensors[id.0].chw[axis + 1];
    window.dilation[axis] == 1 && p < s && p < k && k - 1 - p < s && size(from) == s * size(to)
}

/// Offsets of a window's other positions along an axis: their phase, and whether they lie in the
/// stride before.
fn offsets(window: &Window, axis: usize) -> impl Iterator<Item = (usize, bool)> {
    let (k, s, p) = (window.kernel[axis], window.stride[axis], window.pads[axis]);
    (0..k)
        .filter(move |&tap| tap != p)
        .map(move |tap| ((tap + s - p) % s, tap < p))
}

impl Conv<'_> {
    /// Pools a tile's sums in place: afterwards the first `kept` tiles of each block count.
    pub(super) fn pool_sums(
        &self,
        e: &mut Emitter<'_, '_>,
        window: &Window,
        work: &Work,
        acc: &Acc,
        above: usize,
    ) -> Result<(), LowerError> {
        self.pool_columns(e, window, work, acc)?;
        let [s0, s1] = window.stride;
        let (cols, blocks) = (work.cols.len() / s1, work.co.len());
        for (phase, before) in offsets(window, 0) {
            let source = phase * s1 * acc.kept;
            let lag = usize::from(before) * cols;
            if acc.kept > lag {
                let uop = |b: usize| [lag, source].map(|o| acc.base + b * acc.pitch + o);
                maximum(e, (0..blocks).map(uop), [1, acc.kept - lag], 0)?;
            }
            if before && work.rows.start > 0 {
                // The last row of a whole tile in the other half.
                let kept = self.tile.output[0] / s0 * cols;
                let last = above + phase * s1 * kept + kept - cols;
                let pitch = s0 * s1 * kept;
                let uop = |b: usize| [acc.base + b * acc.pitch, last + b * pitch];
                maximum(e, (0..blocks).map(uop), [1, cols], 0)?;
            }
        }
        Ok(())
    }

    fn pool_columns(
        &self,
        e: &mut Emitter<'_, '_>,
        window: &Window,
        work: &Work,
        acc: &Acc,
    ) -> Result<(), LowerError> {
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
            maximum(
                e,
                (0..work.co.len() * s0).map(uop),
                [rows, cols - lag],
                cols,
            )?;
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
    let uop = |[dst, src]: [usize; 2]| Uop {
        dst: dst as u16,
        src: src as u16,
        wgt: 0,
    };
    let loops = Loops {
        iter,
        dst: [pitch, 1],
        src: [pitch, 1],
    };
    e.alu(AluOp::Max, AluOperand::Acc, pairs.map(uop).collect(), loops)
}
