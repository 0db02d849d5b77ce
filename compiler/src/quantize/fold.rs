//! What needs no rounding of its own: BatchNormalization and constants that scale or move channels become weights and
//! biases of the convolution or product of matrices before them, and a HardSwish that a file has in parts becomes one
//! operator.

mod constants;
mod hard_swish;
mod producer;

use std::collections::BTreeMap;

pub(super) use constants::scaled_by_one;

use super::error::QuantizeError;
use crate::graph::{Data, Graph, Node, Op, ValueId};
use constants::constants;
use producer::{Producer, behind};

/// Folds every BatchNormalization, and every Mul, Div, Add and Sub of a constant for all channels or one for each, into
/// the convolution before it, if it alone reads that; and joins the parts of each HardSwish. A BatchNormalization folds
/// into products of matrices, too, and through views.
///
/// # Errors
/// [`QuantizeError::Node`] for parameters that aren't float constants.
pub fn fold(graph: &Graph) -> Result<Graph, QuantizeError> {
    let mut graph = graph.clone();
    hard_swish::join(&mut graph);
    let uses = graph.uses();
    let mut makers: BTreeMap<ValueId, usize> = BTreeMap::new();
    // Sums of products with their new biases, by the products' places.
    let mut sums: BTreeMap<usize, Node> = BTreeMap::new();
    for norm in std::mem::take(&mut graph.nodes) {
        let x = scaled(&graph, &norm);
        let found = x.and_then(|x| Producer::of(&graph, &uses, &makers, (x, 1)));
        let is_norm = epsilon(&norm).is_some();
        let last = x.and_then(|x| makers.get(&x).copied());
        let found = found.filter(|found| {
            let is_conv = matches!(
                graph.nodes[found.node].op,
                Op::Conv { .. } | Op::ConvTranspose { .. }
            );
            is_norm || is_conv && last == Some(found.node)
        });
        let (Some(found), Some(last)) = (found, last) else {
            makers.insert(norm.output, graph.nodes.len());
            graph.nodes.push(norm);
            continue;
        };
        graph.nodes[last].output = norm.output;
        makers.insert(norm.output, last);
        if let Some(sum) = fold_into(&mut graph, &uses, &found, &norm)? {
            // Nothing more folds through it.
            makers.remove(&sum.output);
            sums.insert(found.node, sum);
        }
    }
    let nodes = std::mem::take(&mut graph.nodes).into_iter().enumerate();
    let with_sum = |(at, node)| std::iter::once(node).chain(sums.remove(&at));
    graph.nodes = nodes.flat_map(with_sum).collect();
    Ok(graph)
}

/// What a node multiplies channels by, what it adds then, and what it subtracts before.
struct Change {
    factors: Vec<f32>,
    shift: Vec<f32>,
    mean: Vec<f32>,
}

/// The floats of a constant, which go where nothing else reads them.
fn taken(
    graph: &mut Graph,
    uses: &BTreeMap<ValueId, usize>,
    norm: &Node,
    id: ValueId,
) -> Result<Vec<f32>, QuantizeError> {
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
}

impl Change {
    fn of(
        graph: &mut Graph,
        uses: &BTreeMap<ValueId, usize>,
        norm: &Node,
        channels: usize,
    ) -> Result<Self, QuantizeError> {
        if let Some(epsilon) = epsilon(norm) {
            let [scale, shift, mean, var] =
                [1, 2, 3, 4].map(|i| taken(graph, uses, norm, norm.inputs[i]));
            let factors = scale?.into_iter().zip(var?);
            let factors = factors.map(|(scale, var)| scale / (var + epsilon).sqrt());
            return Ok(Self {
                factors: factors.collect(),
                shift: shift?,
                mean: mean?,
            });
        }
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
        let (factors, shift, mean) = match norm.op {
            Op::Mul => (constants.collect(), zeros.clone(), zeros),
            Op::Div => (constants.map(f32::recip).collect(), zeros.clone(), zeros),
            Op::Sub => (ones, zeros, constants.collect()),
            _ => (ones, constants.collect(), zeros),
        };
        Ok(Self {
            factors,
            shift,
            mean,
        })
    }
}

/// Folds a node into the one with the weights. The sum with a bias, if a product of matrices gets one.
fn fold_into(
    graph: &mut Graph,
    uses: &BTreeMap<ValueId, usize>,
    found: &Producer,
    norm: &Node,
) -> Result<Option<Node>, QuantizeError> {
    let channels = graph.values[norm.output.0].shape.get(1).copied();
    let channels = channels.unwrap_or(0);
    let inputs = graph.nodes[found.node].inputs.clone();
    let mut weights = taken(graph, uses, norm, inputs[1])?;
    let mut bias = match found.bias(graph) {
        Some(id) => taken(graph, uses, norm, id)?,
        None => vec![0.0; channels],
    };
    if bias.len() == 1 {
        bias = vec![bias[0]; channels];
    }
    let Change {
        factors,
        shift,
        mean,
    } = Change::of(graph, uses, norm, channels)?;
    let shape = graph.values[inputs[1].0].shape.clone();
    // Weights of a channel follow each other, or lie beside those of the others of its group.
    let (inner, group) = match graph.nodes[found.node].op {
        Op::ConvTranspose { group, .. } => (shape[2..].iter().product(), group),
        _ if found.has_rows(graph) => (weights.len() / factors.len().max(1), 1),
        _ => (1, 1),
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
    let name = graph.nodes[found.node].name.clone();
    let weights = graph.value(
        format!("{name}.folded_weight"),
        shape,
        Some(Data::F32(weights)),
    );
    let form = match graph.nodes[found.node].op {
        Op::MatMul { form } => Some(form),
        _ => None,
    };
    let shape = [vec![bias.len()], vec![1; form.map_or(0, behind)]].concat();
    let bias = graph.value(format!("{name}.folded_bias"), shape, Some(Data::F32(bias)));
    graph.nodes[found.node].inputs[1] = weights;
    Ok(match (form, found.sum) {
        (None, _) => {
            graph.nodes[found.node].inputs.truncate(2);
            graph.nodes[found.node].inputs.push(bias);
            None
        }
        (Some(_), Some(sum)) => {
            let old = found.bias(graph);
            let inputs = graph.nodes[sum].inputs.iter_mut();
            inputs
                .filter(|id| Some(**id) == old)
                .for_each(|id| *id = bias);
            None
        }
        (Some(_), None) => {
            let output = graph.nodes[found.node].output;
            let shape = graph.values[output.0].shape.clone();
            let product = graph.value(format!("{name}.product"), shape, None);
            graph.nodes[found.node].output = product;
            Some(Node {
                name: format!("{name}.bias"),
                op: Op::Add,
                inputs: vec![product, bias],
                output,
            })
        }
    })
}

/// Whether a graph has anything to fold.
pub(super) fn is_possible(graph: &Graph) -> bool {
    let scales = |node: &Node| scaled(graph, node).is_some();
    graph.nodes.iter().any(scales) || !hard_swish::found(graph).is_empty()
}

/// What a BatchNormalization adds to variances; `None` for other nodes, and for one that finds these itself.
fn epsilon(node: &Node) -> Option<f32> {
    match &node.op {
        Op::BatchNormalization { epsilon } => Some(*epsilon),
        // Of other dimensions than devices take.
        Op::Onnx(op) if op.kind == "BatchNormalization" && op.int("training_mode", 0) == 0 => {
            Some(op.float("epsilon", 1e-5))
        }
        _ => None,
    }
}

/// The value whose channels a node scales or moves by constants, as a convolution before it could.
fn scaled(graph: &Graph, node: &Node) -> Option<ValueId> {
    if epsilon(node).is_some() {
        let floats = |id: &ValueId| matches!(graph.values[id.0].data, Some(Data::F32(_)));
        let is_known = node.inputs.len() == 5 && node.inputs[1..].iter().all(floats);
        return node.inputs.first().copied().filter(|_| is_known);
    }
    let (x, by) = match node.op {
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
