//! Values of a network with fusions, compared with those of its model without.

use std::collections::HashMap;

use super::{Eval, ReferenceError};
use crate::passes::Unfused;
use crate::qgraph::{QGraph, TensorId};

/// A value that fusions changed by more than they may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The node.
    pub node: String,
    /// Which of its values.
    pub at: usize,
    /// With fusions.
    pub found: i16,
    /// Without.
    pub expected: i16,
}

/// Computes every tensor of a network from those before it as the model says it, and gives of each the value
/// that `values`, which [`run`](super::run) gave, has farthest from it. Tensors are known by their names; what the
/// model has and the network hasn't is computed, too.
///
/// # Errors
/// [`ReferenceError`] for a graph that contradicts itself, or `values` of another network.
pub fn compare(
    graph: &QGraph,
    values: &[Vec<i16>],
    unfused: &Unfused,
) -> Result<Vec<Deviation>, ReferenceError> {
    let Unfused { graph: model, most } = unfused;
    let mut kept: HashMap<&str, Option<&Vec<i16>>> = HashMap::new();
    let written = graph.nodes.iter().map(|node| &node.output);
    for id in graph.inputs.iter().chain(written) {
        // A name that two tensors have says nothing.
        let found = kept.entry(&graph.tensors[id.0].name);
        found
            .and_modify(|known| *known = None)
            .or_insert(values.get(id.0));
    }
    let of_network = |id: TensorId| kept.get(&model.tensors[id.0].name[..]).copied().flatten();
    let mut given: Vec<Vec<i16>> = vec![Vec::new(); model.tensors.len()];
    for id in &model.inputs {
        given[id.0] = of_network(*id).cloned().unwrap_or_default();
    }
    let (mut computed, mut deviations) = (None, Vec::new());
    for node in &model.nodes {
        let eval = Eval {
            graph: model,
            node,
            values: &given,
        };
        let expected = eval.value(&mut computed)?;
        given[node.output.0] = match of_network(node.output) {
            None => expected,
            Some(found) => {
                let far = |at: &usize| found[*at].abs_diff(expected[*at]);
                let farthest = (0..found.len().min(expected.len())).max_by_key(far);
                if let Some(at) = farthest.filter(|at| far(at) > *most) {
                    deviations.push(Deviation {
                        node: node.name.clone(),
                        at,
                        found: found[at],
                        expected: expected[at],
                    });
                }
                found.clone()
            }
        };
    }
    Ok(deviations)
}
