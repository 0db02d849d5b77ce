//! What needs no rounding of its own: BatchNormalization and constants that scale or move channels become weights and
//! biases of the convolution before them, and a HardSwish that a file has in parts becomes one operator.

mod constants;
mod hard_swish;

use std::collections::BTreeMap;

pub(super) use constants::scaled_by_one;

use super::error::QuantizeError;
use crate::graph::{Data, Graph, Node, Op, ValueId};
use constants::constants;

/// Folds every BatchNormalization, and every Mul, Div, Add and Sub of a constant for all channels or one for each, into
/// the convolution before it, if it alone reads that; and joins the parts of each HardSwish.
///
/// # Errors
/// [`QuantizeError::Node`] for parameters that aren't float constants.
pub fn fold(graph: &Graph) -> Result<Graph, QuantizeError> {
    let mut graph = graph.clone();
    hard_swish::join(&mut graph);
    let uses = graph.uses();
    let mut makers: BTreeMap<ValueId, usize> = BTreeMap::new();
    for norm in std::mem::take(&mut graph.nodes) {
        let conv = scaled(&graph, &norm).filter(|id| uses.get(id) == Some(&1));
        let conv = conv.and_then(|id| makers.get(&id).copied()).filter(|&c| {
            matches!(
                graph.nodes[c].op,
                Op::Conv { .. } | Op::ConvTranspose { .. }
            )
        });
        if let Some(conv) = conv {
            fold_into(&mut graph, &uses, conv, &norm)?;
            makers.insert(norm.output, conv);
        } else {
            makers.insert(norm.output, graph.nodes.len());
            graph.nodes.push(norm);
        }
    }
    Ok(graph)
}

/// Folds a node into the convolution at a place.
fn fold_into(
    graph: &mut Graph,
    uses: &BTreeMap<ValueId, usize>,
    conv: usize,
    norm: &Node,
) -> Result<(), QuantizeError> {
    let channels = graph.values[norm.output.0].shape.get(1).copied();
    let channels = channels.unwrap_or(0);
    // What nothing else reads is needed no more.
    let mut data = |id: ValueId| {
        let data = &mut graph.values[id.0].data;
        let data = match uses.get(&id) {
            Some(1) => data.take(),
            _ => data.clone(),
        };
        match data {
            Some(Data::F32(data)) => Ok(data),
            _ => Err(QuantizeError::of(
                &norm.name,
                "a parameter is not a float constant",
            )),
        }
    };
    let inputs = graph.nodes[conv].inputs.clone();
    let mut weights = data(inputs[1])?;
    let mut bias = match inputs.get(2) {
        Some(id) => data(*id)?,
        None => vec![0.0; channels],
    };
    let (factors, shift, mean) = if let Op::BatchNormalization { epsilon } = norm.op {
        let [scale, shift, mean, var] = [1, 2, 3, 4].map(|i| data(norm.inputs[i]));
        let factors = scale?.into_iter().zip(var?);
        let factors = factors.map(|(scale, var)| scale / (var + epsilon).sqrt());
        (factors.collect::<Vec<f32>>(), shift?, mean?)
    } else {
        let constants = norm
            .inputs
            .iter()
            .find_map(|id| constants(graph, norm, *id));
        let constants = constants
            .unwrap_or_default()
            .iter()
            .copied()
            .cycle()
            .take(channels);
        let (ones, zeros) = (vec![1.0; channels], vec![0.0; channels]);
        match norm.op {
            Op::Mul => (constants.collect(), zeros.clone(), zeros),
            Op::Div => (constants.map(f32::recip).collect(), zeros.clone(), zeros),
            Op::Sub => (ones, zeros, constants.collect()),
            _ => (ones, constants.collect(), zeros),
        }
    };
    let shape = graph.values[inputs[1].0].shape.clone();
    // Weights of a channel follow each other, or lie beside those of the others of its group.
    let (inner, group) = match graph.nodes[conv].op {
        Op::ConvTranspose { group, .. } => (shape[2..].iter().product(), group),
        _ => (weights.len() / factors.len().max(1), 1),
    };
    let per_group = factors.len() / group.max(1);
    let inputs_of_group = weights.len() / (inner * factors.len()).max(1);
    for (slice, weights) in weights.chunks_mut(inner.max(1)).enumerate() {
        let group = slice / per_group.max(1) / inputs_of_group.max(1);
        let channel = group * per_group + slice % per_group.max(1);
        weights.iter_mut().for_each(|w| *w *= factors[channel]);
    }
    for c in 0..factors.len() {
        bias[c] = (bias[c] - mean[c]) * factors[c] + shift[c];
    }
    let mut define = |suffix: &str, shape: Vec<usize>, data: Vec<f32>| {
        let name = format!("{}.{suffix}", graph.nodes[conv].name);
        graph.value(name, shape, Some(Data::F32(data)))
    };
    let folded = [
        define("folded_weight", shape, weights),
        define("folded_bias", vec![bias.len()], bias),
    ];
    let node = &mut graph.nodes[conv];
    node.inputs = vec![inputs[0], folded[0], folded[1]];
    node.output = norm.output;
    Ok(())
}

/// Whether a graph has anything to fold.
pub(super) fn is_possible(graph: &Graph) -> bool {
    let scales = |node: &Node| scaled(graph, node).is_some();
    graph.nodes.iter().any(scales) || !hard_swish::found(graph).is_empty()
}

/// The value whose channels a node scales or moves by constants, as a convolution before it could.
fn scaled(graph: &Graph, node: &Node) -> Option<ValueId> {
    let (x, by) = match node.op {
        Op::BatchNormalization { .. } => return node.inputs.first().copied(),
        Op::Mul | Op::Add => [(0, 1), (1, 0)].into_iter().find_map(|(x, by)| {
            let (x, by) = (node.inputs[x], node.inputs[by]);
            constants(graph, node, by).map(|_| (x, by))
        })?,
        Op::Div | Op::Sub => (node.inputs[0], node.inputs[1]),
        _ => return None,
    };
    constants(graph, node, by).map(|_| x)
}

#[cfg(test)]
mod tests;
