//! Who reads a tensor.

use crate::qgraph::{NodeId, QGraph, TensorId};

/// The nodes that read each tensor, and `None` for each of the network's outputs that it is.
pub(super) struct Readers(Vec<Vec<Option<NodeId>>>);

impl Readers {
    pub fn of(graph: &QGraph) -> Self {
        let mut readers = vec![Vec::new(); graph.tensors.len()];
        for (reader, node) in graph.ids() {
            for id in node.op.inputs() {
                readers[id.0].push(Some(reader));
            }
        }
        for id in &graph.outputs {
            readers[id.0].push(None);
        }
        Self(readers)
    }

    /// The node that reads a tensor, if it does so once and nothing else does.
    pub fn only(&self, id: TensorId) -> Option<NodeId> {
        match self.0[id.0][..] {
            [reader] => reader,
            _ => None,
        }
    }
}
