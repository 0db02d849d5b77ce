//! Max pools that join the convolution before them.
//!
//! Requantisation never decreases, so the maximum of requantised values is the requantised
//! maximum: the accumulators can be pooled first (`pool`), and only what is left is requantised
//! and stored.

use super::super::readers::Readers;
use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::Window;
use crate::qgraph::{NodeId, QConv, QGraph, QOp, TensorId};

/// A pool that follows a convolution.
#[derive(Clone, Copy)]
pub(in crate::lower) struct Pooling<'g> {
    pub window: &'g Window,
    /// What the pool writes.
    pub output: TensorId,
    /// The pool.
    pub node: NodeId,
}

/// The pool that a convolution can take in: the next node, alone in reading it.
pub(in crate::lower) fn fusable<'g>(
    graph: &'g QGraph,
    readers: &Readers,
    id: NodeId,
) -> Option<Pooling<'g>> {
    let conv = &graph.nodes[id.0];
    let QOp::Conv(of @ QConv { residual: None, .. }) = &conv.op else {
        return None;
    };
    let reader = NodeId(id.0 + 1);
    let next = graph.nodes.get(reader.0)?;
    let QOp::MaxPool { input, window, ops } = &next.op else {
        return None;
    };
    let added = of
        .store
        .as_ref()
        .is_some_and(|store| store.residual.is_some());
    let fits = *input == conv.output
        && !added
        && ops.is_empty()
        && readers.only(conv.output) == Some(reader)
        && of.epilogue.iter().all(LaneOp::never_decreases)
        && (0..2).all(|axis| regular(window, axis, graph, conv.output, next.output));
    fits.then_some(Pooling {
        window,
        output: next.output,
        node: reader,
    })
}

/// Whole strides cover the input, and windows reach into neighbouring strides only.
fn regular(window: &Window, axis: usize, graph: &QGraph, from: TensorId, to: TensorId) -> bool {
    let (k, s, p) = (
        window.kernel[axis],
        window.stride[axis],
        window.pads.before()[axis],
    );
    let size = |id: TensorId| graph.tensors[id.0].chw[axis + 1];
    window.dilation[axis] == 1 && p < s && p < k && k - 1 - p < s && size(from) == s * size(to)
}
