//! Nodes that stay in float: those that a user names, and what goes with them.

use super::super::calibration::Observed;
use super::super::error::QuantizeError;
use super::{Kept, rounded};
use crate::graph::{Graph, MatMulForm, Node, Op, ValueId};
use crate::operators::fields::Steps;

/// Layers that an error names.
const NAMED: usize = 6;

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

/// Nodes with weights, by their names or their outputs', or `all`, or the last ones, as `last:2`.
///
/// # Errors
/// A name of which there is no such node.
pub fn with_weights(graph: &Graph, which: &[String]) -> Result<Kept, QuantizeError> {
    let constant = |id: &ValueId| graph.values[id.0].data.is_some();
    let weighs = |node: &Node| match node.op {
        Op::Conv { .. } | Op::ConvTranspose { .. } | Op::Gemm { .. } | Op::MatMul { .. } => {
            node.inputs.get(1).is_some_and(constant)
        }
        _ => false,
    };
    let nodes = graph.nodes.iter().enumerate();
    let all: Vec<usize> = nodes.filter(|(_, n)| weighs(n)).map(|(i, _)| i).collect();
    let mut found = Kept::new();
    for which in which {
        let is_it = |index: &&usize| {
            let node = &graph.nodes[**index];
            node.name == *which || graph.values[node.output.0].name == *which
        };
        let named: Vec<usize> = all.iter().filter(is_it).copied().collect();
        let last = which.strip_prefix("last:").and_then(|n| n.parse().ok());
        let last: Option<usize> = last.or((which == "all").then_some(all.len()));
        found.extend(match last {
            _ if !named.is_empty() => &named,
            Some(count) => &all[all.len().saturating_sub(count)..],
            None => {
                let some = all.iter().rev().take(NAMED).rev();
                let names: Vec<&str> = some.map(|at| &graph.nodes[*at].name[..]).collect();
                let reason = format!(
                    "no layer with weights has this name (of {} the last are {})",
                    all.len(),
                    names.join(", ")
                );
                return Err(QuantizeError::of(which, reason));
            }
        });
    }
    Ok(found)
}

/// Adds what a kept node alone gives its values to and what needs no rounding between them.
pub fn with_activations(graph: &Graph, kept: &mut Kept) {
    let uses = graph.uses();
    let makers = graph.makers();
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

#[cfg(test)]
mod tests;
