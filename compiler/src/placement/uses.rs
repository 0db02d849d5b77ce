//! Who writes and reads each tensor, what a placement copies, and what that costs.

use std::collections::BTreeSet;

use super::target::{PlacementError, TargetId};
use crate::qgraph::{NodeId, QGraph, QTensor, TensorId};

/// A tensor that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TensorCopy {
    /// The tensor.
    pub tensor: TensorId,
    /// The target that writes it.
    pub from: TargetId,
    /// The target that reads it.
    pub to: TargetId,
}

/// Who writes and who reads each tensor, by its index.
pub(super) struct Uses {
    /// `None` for the network's inputs.
    pub(super) writer: Vec<Option<NodeId>>,
    /// Ascending, each once.
    pub(super) readers: Vec<Vec<NodeId>>,
    /// What it costs to copy each: one [`COPY`] and its values.
    pub(super) cost: Vec<u128>,
}

/// More than all values of a network.
const COPY: u128 = 1 << 72;

impl Uses {
    pub(super) fn of(graph: &QGraph) -> Result<Self, PlacementError> {
        let cost = |t: &QTensor| {
            let values = t.chw.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            COPY + values.map_or(u128::from(u64::MAX), |n| n as u128)
        };
        let n = graph.tensors.len();
        let mut uses = Self {
            writer: vec![None; n],
            readers: vec![Vec::new(); n],
            cost: graph.tensors.iter().map(cost).collect(),
        };
        let mut known = vec![false; n];
        for input in &graph.inputs {
            if let Some(known) = known.get_mut(input.0) {
                *known = true;
            }
        }
        for (id, node) in graph.ids() {
            let order = || PlacementError::Order {
                node: node.name.clone(),
            };
            for input in node.op.inputs() {
                if !known.get(input.0).is_some_and(|known| *known) {
                    return Err(order());
                }
                let readers = &mut uses.readers[input.0];
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
            let known = known.get_mut(node.output.0).ok_or_else(order)?;
            if std::mem::replace(known, true) {
                return Err(order());
            }
            uses.writer[node.output.0] = Some(id);
        }
        Ok(uses)
    }

    /// Other devices than the writer's that read a tensor; for an input all that read it.
    pub(super) fn elsewhere(&self, tensor: TensorId, placed: &[TargetId]) -> BTreeSet<TargetId> {
        let readers = self.readers[tensor.0].iter().map(|r| placed[r.0]);
        let home = self.writer[tensor.0].map(|w| placed[w.0]);
        readers.filter(|d| Some(*d) != home).collect()
    }

    pub(super) fn copies(&self, placed: &[TargetId]) -> Vec<TensorCopy> {
        let mut copies = Vec::new();
        for (tensor, writer) in self.writer.iter().enumerate() {
            let Some(writer) = writer else { continue };
            let (tensor, from) = (TensorId(tensor), placed[writer.0]);
            for to in self.elsewhere(tensor, placed) {
                copies.push(TensorCopy { tensor, from, to });
            }
        }
        copies
    }

    /// What placements are compared by: copies, and places that an input is written to beyond
    /// the first.
    pub(super) fn cost(&self, placed: &[TargetId]) -> u128 {
        let cost = |(tensor, writer): (usize, &Option<NodeId>)| {
            let places = self.elsewhere(TensorId(tensor), placed).len();
            let paid = places - usize::from(writer.is_none() && places > 0);
            paid as u128 * self.cost[tensor]
        };
        self.writer.iter().enumerate().map(cost).sum()
    }
}
