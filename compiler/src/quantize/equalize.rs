//! Cross-layer equalisation: channels between two layers take the same range, or nearly.
//!
//! What a layer gives for a channel is divided by a factor, and the next layer's weights of it are
//! multiplied by it: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
//! Correction" (2019). A network computes what it did, but for the rounding of floats, wherever what
//! stands between the layers commutes with factors above zero. A bound doesn't, as that of ReLU6: it would be
//! another one for each channel, and images that calibration never saw meet it. Such layers are left alone.
//! Channels only grow, but not beyond the largest, nor much where few values were seen: the next layer's
//! weights of a channel that was hardly ever active would be next to nothing, and missing once an image makes
//! more of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::calibration::Observed;
use super::mode::{Mode, WeightScales};
use super::options::Options;
use super::slices::{TASK, largest};
use crate::graph::{Data, Graph, Node, Op, ValueId};

/// Times that all pairs are looked at: what one changes moves its neighbours.
const SWEEPS: usize = 4;
/// The least factor, however many values were seen: the next layer's bias grows as much against its
/// weights' scale.
const LEAST: f64 = 1.0 / 64.0;
/// Room that a channel leaves below the largest, for values larger than those of the calibration images.
const ROOM: f64 = 1.25;
/// The least factor is this over the square root of how many values a channel showed.
const DOUBT: f64 = 8.0;

/// Two layers, and what is known of the channels between them.
struct Pair {
    first: usize,
    second: usize,
    /// Largest magnitude of each channel as the second layer reads it.
    largest: Vec<f64>,
    /// Factor of each channel until now.
    factors: Vec<f64>,
    /// What a channel grows to at most: the largest one.
    most: f64,
    /// The least factor.
    least: f64,
}

/// The graph with equalised layers, and how many pairs of them there are.
pub(super) fn equalize(graph: &Graph, observed: &Observed, options: &Options) -> (Graph, usize) {
    let mut layers = layers(graph);
    let mut pairs = pairs(graph, observed, &layers);
    let weights = match options.mode {
        Mode::Multiply => options.weights,
        Mode::Shift => WeightScales::PerTensor,
    };
    for _ in 0..SWEEPS {
        for pair in &mut pairs {
            sweep(pair, &mut layers, weights);
        }
    }
    let changed = pairs.iter().flat_map(|pair| [pair.first, pair.second]);
    let changed: BTreeSet<usize> = changed.collect();
    let mut equal = without_weights(graph, &changed);
    for index in changed {
        if let Some(layer) = layers.remove(&index) {
            layer.store(&mut equal, index);
        }
    }
    (equal, pairs.len())
}

/// A copy of a graph without the data of weights and biases that only some nodes have, which get others.
fn without_weights(graph: &Graph, nodes: &BTreeSet<usize>) -> Graph {
    let uses = graph.uses();
    let constants = nodes
        .iter()
        .flat_map(|node| &graph.nodes[*node].inputs[1..]);
    let left: BTreeSet<ValueId> = constants.filter(|id| uses[id] == 1).copied().collect();
    graph.without_data(|id| left.contains(&id))
}

/// Whether a graph may have pairs.
pub(super) fn is_possible(graph: &Graph) -> bool {
    !chains(graph, &layers(graph)).is_empty()
}

/// The nodes whose channels can be scaled against the next layer's.
pub(super) fn first_layers(graph: &Graph, observed: &Observed) -> BTreeSet<usize> {
    let layers = layers(graph);
    let pairs = pairs(graph, observed, &layers).into_iter();
    pairs.map(|pair| pair.first).collect()
}

/// The layers of a graph, by their nodes.
fn layers(graph: &Graph) -> BTreeMap<usize, Layer<'_>> {
    let nodes = graph.nodes.iter().enumerate();
    let layer = |(index, node)| Some((index, Layer::of(graph, node)?));
    nodes.filter_map(layer).collect()
}

/// Chooses factors of a pair, from 0 to 1, and applies them.
fn sweep(pair: &mut Pair, layers: &mut BTreeMap<usize, Layer<'_>>, weights: WeightScales) {
    let (Some(first), Some(second)) = (layers.get(&pair.first), layers.get(&pair.second)) else {
        return;
    };
    let others = match weights {
        WeightScales::PerChannel if second.inputs == 1 => None,
        _ => Some(second.largest_of_inputs()),
    };
    let wish = |channel: usize| {
        // A scale of its own makes a row's range meaningless, and that of the activation count.
        let own = match weights {
            WeightScales::PerChannel => pair.largest[channel],
            WeightScales::PerTensor => first.largest_of_output(channel),
        };
        let other = match &others {
            None => own.recip(),
            Some(others) => f64::from(others[channel]),
        };
        Some((own / other).sqrt()).filter(|f| f.is_normal())
    };
    let wishes: Vec<Option<f64>> = (0..pair.largest.len()).map(wish).collect();
    let most = wishes.iter().flatten().fold(0f64, |m, w| m.max(*w));
    let mut factors = Vec::with_capacity(wishes.len());
    for (channel, wish) in wishes.into_iter().enumerate() {
        let room = pair.largest[channel] * ROOM / pair.most;
        let least = room.max(pair.least / pair.factors[channel]);
        let wish = wish.map_or(1.0, |wish| wish / most);
        factors.push(wish.max(least).min(1.0));
    }
    for (channel, factor) in factors.iter().enumerate() {
        pair.factors[channel] *= factor;
        pair.largest[channel] /= factor;
    }
    if let Some(first) = layers.get_mut(&pair.first) {
        first.divide_outputs(&factors);
    }
    if let Some(second) = layers.get_mut(&pair.second) {
        second.multiply_inputs(&factors);
    }
}

/// The pairs of a graph, first layers in order.
fn pairs(graph: &Graph, observed: &Observed, layers: &BTreeMap<usize, Layer<'_>>) -> Vec<Pair> {
    let pair = |chain: Chain| {
        let seen = observed.channels(chain.value)?;
        let largest = seen.largest();
        let top = largest.iter().fold(0f32, |top, m| top.max(*m));
        let fits = |channels: usize| largest.len() == channels;
        let [first, second] = [chain.first, chain.second].map(|at| layers.get(&at));
        (fits(first?.outputs) && fits(second?.channels())).then(|| Pair {
            first: chain.first,
            second: chain.second,
            largest: largest.iter().map(|m| f64::from(*m)).collect(),
            factors: vec![1.0; largest.len()],
            most: top.into(),
            least: (DOUBT / (seen.count().max(1) as f64).sqrt()).max(LEAST),
        })
    };
    chains(graph, layers).into_iter().filter_map(pair).collect()
}

/// A layer, and another that alone reads what it gives.
struct Chain {
    first: usize,
    second: usize,
    /// What the second layer reads.
    value: ValueId,
}

fn chains(graph: &Graph, layers: &BTreeMap<usize, Layer<'_>>) -> Vec<Chain> {
    let uses = graph.uses();
    let mut readers: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        readers.extend(node.inputs.iter().map(|id| (*id, index)));
    }
    let follow = |first: usize| {
        let mut value = graph.nodes[first].output;
        loop {
            if uses.get(&value) != Some(&1) {
                return None;
            }
            let second = *readers.get(&value)?;
            let node = &graph.nodes[second];
            if node.inputs[0] != value {
                return None;
            }
            if layers.contains_key(&second) {
                return Some(Chain {
                    first,
                    second,
                    value,
                });
            }
            if !commutes(graph, node) {
                return None;
            }
            value = node.output;
        }
    };
    layers.keys().filter_map(|first| follow(*first)).collect()
}

/// Whether a node gives the same multiple of its output for a multiple of a channel of its input, whatever the
/// channel's values are.
fn commutes(graph: &Graph, node: &Node) -> bool {
    match node.op {
        Op::Clip { min, max } => {
            let free = |bound: f32| bound == 0.0 || bound.is_infinite();
            free(min) && free(max)
        }
        Op::Flatten => {
            // Channels stay apart.
            let shape = &graph.values[node.inputs[0].0].shape;
            shape.len() >= 2 && shape[2..].iter().all(|d| *d == 1)
        }
        Op::Relu
        | Op::LeakyRelu { .. }
        | Op::PRelu
        | Op::Identity
        | Op::Pad { .. }
        | Op::MaxPool { .. }
        | Op::AveragePool { .. }
        | Op::GlobalAveragePool => true,
        _ => false,
    }
}

/// The weights of a convolution or a dense layer: those of the graph until they are changed.
struct Layer<'g> {
    /// `[CO][CI/group][KH * KW]`.
    weights: Cow<'g, [f32]>,
    bias: Option<Cow<'g, [f32]>>,
    /// CO.
    outputs: usize,
    /// CI / group.
    inputs: usize,
    group: usize,
}

impl<'g> Layer<'g> {
    fn of(graph: &'g Graph, node: &Node) -> Option<Self> {
        let data = |index: usize| match &graph.values[node.inputs.get(index)?.0].data {
            Some(Data::F32(data)) => Some(Cow::Borrowed(&data[..])),
            _ => None,
        };
        let shape = &graph.values[node.inputs.get(1)?.0].shape;
        let (outputs, inputs, group) = match (&node.op, &shape[..]) {
            (Op::Conv { group, .. }, [outputs, inputs, _, ..]) => (*outputs, *inputs, *group),
            (Op::Gemm { trans_b: true }, [outputs, inputs])
            | (Op::Gemm { trans_b: false }, [inputs, outputs]) => (*outputs, *inputs, 1),
            _ => return None,
        };
        let mut weights = data(1)?;
        if node.op == (Op::Gemm { trans_b: false }) {
            let from = |i: usize| weights[i % inputs * outputs + i / inputs];
            let turned = (0..weights.len()).into_par_iter().map(from);
            weights = Cow::Owned(turned.collect());
        }
        let bias = match node.inputs.len() {
            2 => None,
            _ => Some(data(2)?),
        };
        let whole = outputs * inputs > 0 && group > 0 && outputs % group == 0;
        let fits = bias.as_ref().is_none_or(|bias| bias.len() == outputs);
        (whole && fits && !weights.is_empty()).then_some(Self {
            weights,
            bias,
            outputs,
            inputs,
            group,
        })
    }

    /// Channels of the input.
    const fn channels(&self) -> usize {
        self.inputs * self.group
    }

    /// Weights of one input of one output.
    fn inner(&self) -> usize {
        self.weights.len() / (self.outputs * self.inputs)
    }

    /// Weights of an output.
    fn row(&self) -> usize {
        self.inputs * self.inner()
    }

    /// The first input channel of an output's group.
    const fn first_input(&self, output: usize) -> usize {
        output / (self.outputs / self.group) * self.inputs
    }

    /// The largest weight of an output channel.
    fn largest_of_output(&self, channel: usize) -> f64 {
        largest(&self.weights[channel * self.row()..][..self.row()]).into()
    }

    /// The largest weight of each input channel.
    fn largest_of_inputs(&self) -> Vec<f32> {
        let (none, inner) = (|| vec![0f32; self.channels()], self.inner());
        let rows = self.weights.par_chunks(self.row()).enumerate();
        let rows = rows.with_min_len((TASK / self.row()).max(1));
        let found = rows.fold(none, |mut found, (output, row)| {
            let inputs = &mut found[self.first_input(output)..][..self.inputs];
            if inner == 1 {
                let weights = inputs.iter_mut().zip(row);
                weights.for_each(|(found, w)| *found = found.max(w.abs()));
                return found;
            }
            for (found, weights) in inputs.iter_mut().zip(row.chunks(inner)) {
                *found = found.max(largest(weights));
            }
            found
        });
        found.reduce(none, |mut all, some| {
            all.iter_mut().zip(some).for_each(|(m, w)| *m = m.max(w));
            all
        })
    }

    /// Divides what the layer gives for each channel.
    fn divide_outputs(&mut self, factors: &[f64]) {
        let row = self.row();
        let rows = self.weights.to_mut().par_chunks_mut(row).zip(factors);
        let rows = rows.with_min_len((TASK / row).max(1));
        rows.filter(|(_, factor)| **factor != 1.0)
            .for_each(|(row, factor)| {
                row.iter_mut()
                    .for_each(|w| *w = (f64::from(*w) / factor) as f32);
            });
        let bias = self.bias.as_mut().map(Cow::to_mut);
        for (bias, factor) in bias.into_iter().flatten().zip(factors) {
            *bias = (f64::from(*bias) / factor) as f32;
        }
    }

    /// Multiplies the weights of each input channel.
    fn multiply_inputs(&mut self, factors: &[f64]) {
        let (row, inner, inputs) = (self.row(), self.inner(), self.inputs);
        let each = self.outputs / self.group;
        let rows = self.weights.to_mut().par_chunks_mut(row).enumerate();
        let rows = rows.with_min_len((TASK / row).max(1));
        rows.for_each(|(output, row)| {
            let factors = &factors[output / each * inputs..][..inputs];
            let multiply = |w: &mut f32, factor: f64| *w = (f64::from(*w) * factor) as f32;
            if inner == 1 {
                let weights = row.iter_mut().zip(factors);
                return weights.for_each(|(w, factor)| multiply(w, *factor));
            }
            for (weights, factor) in row.chunks_mut(inner).zip(factors) {
                weights.iter_mut().for_each(|w| multiply(w, *factor));
            }
        });
    }

    /// Gives a node these weights, under names of their own: others may share those that it had.
    fn store(self, graph: &mut Graph, index: usize) {
        let name = graph.nodes[index].name.clone();
        let node = &graph.nodes[index];
        let (shape, op) = match node.op {
            Op::Gemm { .. } => (vec![self.outputs, self.inputs], Op::Gemm { trans_b: true }),
            _ => (
                graph.values[node.inputs[1].0].shape.clone(),
                node.op.clone(),
            ),
        };
        let mut define = |suffix: &str, shape: Vec<usize>, data: Vec<f32>| {
            graph.value(format!("{name}.{suffix}"), shape, Some(Data::F32(data)))
        };
        let weights = define("equalized_weight", shape, self.weights.into_owned());
        let bias = self
            .bias
            .map(|bias| define("equalized_bias", vec![bias.len()], bias.into_owned()));
        let node = &mut graph.nodes[index];
        node.op = op;
        node.inputs[1] = weights;
        if let Some(bias) = bias {
            node.inputs[2] = bias;
        }
    }
}

#[cfg(test)]
mod tests;
