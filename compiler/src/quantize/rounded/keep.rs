//! Nodes that stay in float: those that a user names, and groups of them that are worth it.

use std::collections::BTreeMap;

use super::super::calibration::Observed;
use super::super::error::QuantizeError;
use super::super::report::{LayerError, Report};
use super::super::{Calibrated, Quantized};
use super::{Kept, rounded};
use crate::graph::{Graph, MatMulForm, Node, Op, ValueId};
use crate::operators::fields::Steps;

/// A node that is named, and what it gives.
pub type Named = Vec<(String, ValueId)>;

/// The nodes of some names, or of outputs of these names.
///
/// # Errors
/// A name that there isn't.
pub fn named(graph: &Graph, names: &[String]) -> Result<Named, QuantizeError> {
    let mut all = Named::new();
    for name in names {
        let is_it = |node: &&Node| node.name == *name || graph.values[node.output.0].name == *name;
        let before = all.len();
        let found = graph.nodes.iter().filter(is_it);
        all.extend(found.map(|node| (node.name.clone(), node.output)));
        if all.len() == before {
            return Err(QuantizeError::of(name, "there is no such node or output"));
        }
    }
    Ok(all)
}

/// Named nodes in a graph whose normalisations are folded, each with its activation function.
pub fn found(graph: &Graph, named: &Named) -> Kept {
    let is_it = |node: &Node| {
        let mut all = named.iter();
        all.any(|(name, output)| node.output == *output || node.name == *name)
    };
    let nodes = graph.nodes.iter().enumerate();
    let mut kept: Kept = nodes.filter(|(_, n)| is_it(n)).map(|(i, _)| i).collect();
    with_activations(graph, &mut kept);
    kept
}

/// Adds what a kept node alone gives its values to and what needs no rounding between them.
fn with_activations(graph: &Graph, kept: &mut Kept) {
    let uses = graph.uses();
    let makers: BTreeMap<ValueId, usize> = graph.nodes.iter().map(|n| n.output).zip(0..).collect();
    for (index, node) in graph.nodes.iter().enumerate() {
        let product = |maker: usize| {
            let form = [
                MatMulForm::Left,
                MatMulForm::Right,
                MatMulForm::RightTransposed,
            ];
            form.iter()
                .any(|form| graph.nodes[maker].op == Op::MatMul { form: *form })
        };
        let follows = node.inputs.iter().any(|id| {
            let maker = makers.get(id).filter(|maker| kept.contains(maker));
            let joins = |maker: &usize| {
                node.op.facts().steps == Steps::Activation || node.op == Op::Add && product(*maker)
            };
            uses.get(id) == Some(&1) && maker.is_some_and(joins)
        });
        if follows {
            kept.insert(index);
        }
    }
}

/// Adds what goes with kept nodes, and takes out those, but for `named` ones, for which a value would be rounded that no
/// calibration has seen.
pub fn settle(graph: &Graph, observed: &Observed, named: &Kept, kept: &mut Kept) {
    with_activations(graph, kept);
    loop {
        let rounded = rounded(graph, kept);
        let unseen = |id: &ValueId| rounded[id.0] && observed.histogram(*id).is_none();
        let before = kept.len();
        kept.retain(|index| {
            named.contains(index) || !graph.nodes[*index].inputs.iter().any(unseen)
        });
        if kept.len() == before {
            return;
        }
    }
}

impl Calibrated {
    /// Names and multiply-adds and values for one image of nodes that stay in float.
    pub fn kept<'a>(&'a self, kept: &'a Kept) -> impl Iterator<Item = (&'a str, u64, u64)> {
        let graph = self.float();
        let node = |index: &usize| {
            let node = &graph.nodes[*index];
            (
                &node.name[..],
                graph.node_macs(node),
                graph.node_values(node),
            )
        };
        kept.iter().map(node)
    }
}

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
        let group = |(value, _): (ValueId, &LayerError)| {
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
        };
        layers.into_iter().map(group).collect()
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

#[cfg(test)]
mod tests;
