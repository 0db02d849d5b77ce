//! Groups of nodes that are worth it to stay in float.

use super::super::Quantized;
use super::super::rounded::keep::with_activations;
use super::super::rounded::{Kept, beside_inputs};
use super::{LayerError, Report};
use crate::graph::ValueId;
use crate::operators::fields::Steps;

impl Quantized {
    /// What would bring a layer's loss to nothing, for each that loses something, those first that cost the outputs
    /// most: what computes its values stays in float, and what reads them.
    pub fn groups(&self, report: &Report) -> Vec<Kept> {
        let graph = &self.stage.source;
        let is_layer = |id: &ValueId| self.rounded[id.0].is_some();
        let made = graph.nodes.iter().map(|node| node.output);
        let values = graph.inputs.iter().copied().chain(made).filter(is_layer);
        let layers = values.zip(&report.layers);
        let mut layers: Vec<(ValueId, &LayerError)> = layers
            .filter(|(_, layer)| layer.output_db.is_finite())
            .collect();
        layers.sort_by(|(_, a), (_, b)| a.output_db.total_cmp(&b.output_db));
        layers
            .into_iter()
            .map(|(value, _)| self.without(value))
            .collect()
    }

    /// These nodes, and those that let inputs which only they read stay floats, too.
    pub fn with_inputs(&self, mut kept: Kept) -> Kept {
        loop {
            let before = kept.len();
            for value in beside_inputs(&self.stage.source, &kept) {
                kept.append(&mut self.without(value));
            }
            if kept.len() == before {
                return kept;
            }
        }
    }

    /// The nodes that compute and read a value, for it to stay a float.
    fn without(&self, value: ValueId) -> Kept {
        let graph = &self.stage.source;
        let mut kept = self.makers(value);
        let mut open = vec![value];
        while let Some(id) = open.pop() {
            let readers = graph.nodes.iter().enumerate();
            for (index, node) in readers.filter(|(_, n)| n.inputs.contains(&id)) {
                if kept.insert(index) && node.op.facts().steps == Steps::Input {
                    open.push(node.output);
                }
            }
        }
        with_activations(graph, &mut kept);
        kept
    }

    /// The nodes that compute a rounded value of others.
    fn makers(&self, value: ValueId) -> Kept {
        let (mut kept, mut open) = (Kept::new(), vec![value]);
        while let Some(id) = open.pop() {
            let nodes = self.stage.source.nodes.iter().enumerate();
            for (index, node) in nodes.filter(|(_, node)| node.output == id) {
                kept.insert(index);
                let floats = node.inputs.iter().filter(|id| self.rounded[id.0].is_none());
                open.extend(floats);
            }
        }
        kept
    }
}
