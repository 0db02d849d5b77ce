//! Who reads a tensor.

use crate::qgraph::{NodeId, QGraph, TensorId};

/// Which nodes read each tensor.
pub(super) struct Readers {
    /// How often nodes and the network's outputs read it.
    count: Vec<usize>,
    /// The last node that reads it.
    node: Vec<Option<NodeId>>,
}

impl Readers {
    pub fn of(graph: &QGraph) -> Self {
        let mut readers = Self {
            count: vec![0; graph.tensors.len()],
            node: vec![None; graph.tensors.len()],
        };
        for (reader, node) in graph.ids() {
            for id in node.op.inputs() {
                readers.count[id.0] += 1;
                readers.node[id.0] = Some(reader);
            }
        }
        for id in &graph.outputs {
            readers.count[id.0] += 1;
        }
        readers
    }

    /// The node that reads a tensor, if it does so once and nothing else does.
    pub fn only(&self, id: TensorId) -> Option<NodeId> {
        self.node[id.0].filter(|_| self.count[id.0] == 1)
    }
}
