//! BatchNormalization folded into the convolution before it; elsewhere it stays.

use std::collections::BTreeMap;

use super::error::QuantizeError;
use crate::graph::{Data, Graph, Node, Op, ValueId};

/// Folds every BatchNormalization into the convolution before it, if it alone reads that.
///
/// # Errors
/// [`QuantizeError::Node`] for parameters that aren't float constants.
pub fn fold_batchnorm(graph: &Graph) -> Result<Graph, QuantizeError> {
    let mut graph = graph.clone();
    let uses = graph.uses();
    let mut makers: BTreeMap<ValueId, usize> = BTreeMap::new();
    for norm in std::mem::take(&mut graph.nodes) {
        let name = norm.name.clone();
        let Op::BatchNormalization { epsilon } = norm.op else {
            makers.insert(norm.output, graph.nodes.len());
            graph.nodes.push(norm);
            continue;
        };
        let conv = makers.get(&norm.inputs[0]).copied();
        let conv = conv.filter(|&c| {
            matches!(
                graph.nodes[c].op,
                Op::Conv { .. } | Op::ConvTranspose { .. }
            )
        });
        let conv = conv.filter(|_| uses.get(&norm.inputs[0]) == Some(&1));
        let Some(conv) = conv else {
            makers.insert(norm.output, graph.nodes.len());
            graph.nodes.push(norm);
            continue;
        };
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
                    &name,
                    "a parameter is not a float constant",
                )),
            }
        };
        let inputs = graph.nodes[conv].inputs.clone();
        let mut weights = data(inputs[1])?;
        let [scale, shift, mean, var] = [1, 2, 3, 4].map(|i| data(norm.inputs[i]));
        let (scale, shift, mean, var) = (scale?, shift?, mean?, var?);
        let mut bias = match inputs.get(2) {
            Some(id) => data(*id)?,
            None => vec![0.0; scale.len()],
        };
        let shape = graph.values[inputs[1].0].shape.clone();
        // Weights of a channel follow each other, or lie beside those of the others of its group.
        let (inner, group) = match graph.nodes[conv].op {
            Op::ConvTranspose { group, .. } => (shape[2..].iter().product(), group),
            _ => (weights.len() / scale.len().max(1), 1),
        };
        let per_group = scale.len() / group.max(1);
        let inputs_of_group = weights.len() / (inner * scale.len()).max(1);
        let factors: Vec<f32> = (0..scale.len())
            .map(|c| scale[c] / (var[c] + epsilon).sqrt())
            .collect();
        for (slice, weights) in weights.chunks_mut(inner.max(1)).enumerate() {
            let group = slice / per_group.max(1) / inputs_of_group.max(1);
            let channel = group * per_group + slice % per_group.max(1);
            weights.iter_mut().for_each(|w| *w *= factors[channel]);
        }
        for c in 0..scale.len() {
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
        makers.insert(norm.output, conv);
    }
    Ok(graph)
}

/// Whether a graph has any.
pub(super) fn is_possible(graph: &Graph) -> bool {
    let is_norm = |node: &Node| matches!(node.op, Op::BatchNormalization { .. });
    graph.nodes.iter().any(is_norm)
}
