//! What quantising each layer costs, on images: signal to noise of its own values, and of the network's
//! outputs, were it the only layer that is quantised.

mod advice;
pub mod compare;
mod groups;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rayon::prelude::*;

use self::advice::{advice, product};
use super::error::QuantizeError;
use super::{Quantized, equalize};
use crate::float::FloatNetwork;
use crate::graph::{Data, Graph, ValueId};
use crate::reflect::Reflect;

/// What quantising a network costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Layers from the first to the last: what is computed up to a value that is rounded.
    pub layers: Vec<LayerError>,
    /// Signal to noise of the outputs with everything quantised, in dB; infinite where nothing differs.
    pub output_db: f64,
}

/// What quantising a layer costs, as ratios of the float values' energy to that of their errors, in dB;
/// infinite where nothing differs.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerError {
    /// The node whose output is rounded, or the input.
    pub name: String,
    /// ONNX's name of its operator, or `Input`.
    pub kind: String,
    /// Whether its weights have 4 bits.
    pub int4: bool,
    /// Of its values, its inputs being those of the float network.
    pub own_db: f64,
    /// Of its values with all layers before it quantised, too.
    pub so_far_db: f64,
    /// Of the network's outputs with this layer alone quantised.
    pub output_db: f64,
    /// What would help, in words.
    pub advice: Option<String>,
}

/// Energy of float values and of their errors, over images.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    signal: f64,
    noise: f64,
}

impl Noise {
    pub fn add(&mut self, float: &[f32], quantized: &[f32]) {
        for (a, b) in float.iter().zip(quantized) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            if a.is_finite() && b.is_finite() {
                self.signal += a * a;
                self.noise += (a - b) * (a - b);
            }
        }
    }

    /// Noise for each of signal.
    pub fn ratio(self) -> f64 {
        match self.noise {
            0.0 => 0.0,
            noise => noise / self.signal,
        }
    }
}

/// A ratio in dB.
pub(super) fn decibel(ratio: f64) -> f64 {
    -10.0 * ratio.log10()
}

/// What is computed up to a value that is rounded.
struct Layer {
    /// Of the float network; its index among those that are looked at is the layer's.
    value: ValueId,
    /// Layers that it reads.
    reads: Vec<usize>,
    /// Layers whose values depend on it, itself among them.
    moved: Vec<bool>,
}

/// Measures a quantised network on images, for each of which a layer is run twice; `progress` is told of
/// how many layers of all are done and says whether to go on. None where it doesn't.
///
/// # Errors
/// An image of another size, a node that can't be computed.
pub fn report(
    quantized: &Quantized,
    images: &[Vec<f32>],
    progress: &(dyn Fn(usize, usize) -> bool + Sync),
) -> Result<Option<Report>, QuantizeError> {
    let measure = Measure::new(quantized)?;
    let layers = &measure.layers;
    let mut errors = vec![Errors::new(measure.outputs.len()); layers.len()];
    let mut total = vec![Noise::default(); measure.outputs.len()];
    let done = AtomicUsize::new(0);
    let all = layers.len() * images.len();
    let go_on = AtomicBool::new(progress(0, all));
    for image in images {
        let float = measure.float.run(image)?.into_iter().map(Data::F32);
        let float: Vec<Data> = float.collect();
        let int8 = measure.quantized.run(image)?;
        for (output, noise) in total.iter_mut().enumerate() {
            let at = layers.len() + output;
            noise.add(floats(&float[at]), &int8[at]);
        }
        let each = errors.par_iter_mut().enumerate().map(|(layer, errors)| {
            if !go_on.load(Ordering::Relaxed) {
                return Ok(());
            }
            errors.so_far.add(floats(&float[layer]), &int8[layer]);
            measure.layer(layer, image, &float, errors)?;
            let done = 1 + done.fetch_add(1, Ordering::Relaxed);
            go_on.fetch_and(progress(done, all), Ordering::Relaxed);
            Ok(())
        });
        // The first of several errors.
        each.collect::<Vec<Result<(), QuantizeError>>>()
            .into_iter()
            .collect::<Result<(), _>>()?;
    }
    if !go_on.into_inner() {
        return Ok(None);
    }
    let pairs = equalize::first_layers(&quantized.stage.source, &quantized.stage.observed);
    let makers: BTreeMap<ValueId, usize> = quantized
        .stage
        .source
        .nodes
        .iter()
        .enumerate()
        .map(|(i, n)| (n.output, i))
        .collect();
    let int4 = |value| product(quantized, value).is_some_and(|at| quantized.int4.contains(&at));
    let mean = |all: &[Noise]| all.iter().map(|n| n.ratio()).sum::<f64>() / all.len().max(1) as f64;
    let row = |(layer, errors): (&Layer, &Errors)| {
        let node = makers
            .get(&layer.value)
            .map(|at| &quantized.stage.source.nodes[*at]);
        LayerError {
            name: node
                .map_or(&quantized.stage.source.values[layer.value.0].name, |n| {
                    &n.name
                })
                .clone(),
            kind: node.map_or("Input".to_owned(), |n| n.op.kind().to_owned()),
            int4: int4(layer.value),
            own_db: decibel(errors.own.ratio()),
            so_far_db: decibel(errors.so_far.ratio()),
            output_db: decibel(mean(&errors.outputs)),
            advice: advice(quantized, layer.value, &pairs),
        }
    };
    Ok(Some(Report {
        layers: layers.iter().zip(&errors).map(row).collect(),
        output_db: decibel(mean(&total)),
    }))
}

/// The errors of a layer.
#[derive(Clone)]
struct Errors {
    own: Noise,
    so_far: Noise,
    outputs: Vec<Noise>,
}

impl Errors {
    fn new(outputs: usize) -> Self {
        let none = Noise::default();
        Self {
            own: none,
            so_far: none,
            outputs: vec![none; outputs],
        }
    }
}

/// The two networks, of which the same values are looked at: those of layers, then the outputs.
struct Measure<'q> {
    float: FloatNetwork<'q>,
    quantized: FloatNetwork<'q>,
    layers: Vec<Layer>,
    outputs: Vec<ValueId>,
}

impl<'q> Measure<'q> {
    fn new(all: &'q Quantized) -> Result<Self, QuantizeError> {
        let source = &all.stage.source;
        let made = source.nodes.iter().map(|n| n.output);
        let values = source.inputs.iter().copied().chain(made);
        let values: Vec<ValueId> = values.filter(|id| all.rounded[id.0].is_some()).collect();
        let index: BTreeMap<ValueId, usize> =
            values.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let layers = values.iter().map(|value| Layer {
            value: *value,
            reads: reads(source, *value, &index),
            moved: moved(source, *value, &values),
        });
        let layers = layers.collect();
        let wanted: Vec<ValueId> = values.iter().chain(&source.outputs).copied().collect();
        let rounded = values.iter().filter_map(|id| all.rounded[id.0]);
        let real: Vec<ValueId> = rounded.chain(all.graph.outputs.iter().copied()).collect();
        Ok(Self {
            float: FloatNetwork::new(source, wanted)?,
            quantized: FloatNetwork::new(&all.graph, real)?,
            layers,
            outputs: source.outputs.clone(),
        })
    }

    /// Adds the errors of a layer on an image.
    fn layer(
        &self,
        index: usize,
        image: &[f32],
        float: &[Data],
        errors: &mut Errors,
    ) -> Result<(), QuantizeError> {
        let layer = &self.layers[index];
        let given: Vec<(usize, &Data)> = layer.reads.iter().map(|at| (*at, &float[*at])).collect();
        let own = self.quantized.resume(image, &given, &[index])?.remove(0);
        errors.own.add(floats(&float[index]), &own);
        if own == floats(&float[index]) {
            // Nothing behind it moves.
            let outputs = errors.outputs.iter_mut().zip(&float[self.layers.len()..]);
            outputs.for_each(|(noise, value)| noise.add(floats(value), floats(value)));
            return Ok(());
        }
        let own = Data::F32(own);
        let still = (0..self.layers.len()).filter(|other| !layer.moved[*other]);
        let given = still
            .map(|other| (other, &float[other]))
            .chain([(index, &own)]);
        let given: Vec<(usize, &Data)> = given.collect();
        let wanted: Vec<usize> = (0..self.outputs.len())
            .map(|k| self.layers.len() + k)
            .collect();
        let found = self.float.resume(image, &given, &wanted)?;
        for (k, found) in found.iter().enumerate() {
            errors.outputs[k].add(floats(&float[wanted[k]]), found);
        }
        Ok(())
    }
}

fn floats(data: &Data) -> &[f32] {
    match data {
        Data::F32(data) => data,
        _ => &[],
    }
}

/// The layers whose values are read to compute one.
fn reads(graph: &Graph, value: ValueId, layers: &BTreeMap<ValueId, usize>) -> Vec<usize> {
    let mut needed = vec![false; graph.values.len()];
    needed[value.0] = true;
    let mut found = Vec::new();
    for node in graph.nodes.iter().rev() {
        if needed[node.output.0] && (node.output == value || !layers.contains_key(&node.output)) {
            node.inputs.iter().for_each(|id| needed[id.0] = true);
        }
    }
    for (id, layer) in layers {
        if needed[id.0] && *id != value {
            found.push(*layer);
        }
    }
    found
}

/// Which layers depend on a value.
fn moved(graph: &Graph, value: ValueId, layers: &[ValueId]) -> Vec<bool> {
    let mut moved = vec![false; graph.values.len()];
    moved[value.0] = true;
    for node in &graph.nodes {
        moved[node.output.0] |= node.inputs.iter().any(|id| moved[id.0]);
    }
    layers.iter().map(|id| moved[id.0]).collect()
}

#[cfg(test)]
mod tests;
