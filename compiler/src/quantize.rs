//! Post-training quantisation: float graph and calibration images to a QDQ graph.
//!
//! Activations get one symmetric int8 scale a tensor, chosen to minimise the mean squared
//! error over values sampled from the calibration images; a Clip (ReLU6) that uses its range keeps it
//! whole. Weights get one scale for each output
//! channel (`multiply`) or powers of two a tensor (`shift`), chosen the same way; in `shift`
//! mode activation scales are powers of two as well, so that requantising is one shift. Biases
//! are int32 at `s_x * s_w`. QuantizeLinear and DequantizeLinear stand after the activation
//! function of every operator, where other runtimes expect them too.

mod calibration;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::float::{self, FloatError};
use crate::graph::{Data, Graph, Node, Op, Value, ValueId};
use crate::host::HostOp;

pub use calibration::Calibration;
use calibration::{Errors, Fault, add_errors, best_of};

/// How scales are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Powers of two: the device requantises with a shift alone.
    Shift,
    /// Any scales, per channel for weights: the device multiplies and shifts.
    Multiply,
}

/// A graph that can't be quantised.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// No calibration image.
    #[error("quantisation needs at least one calibration image")]
    NoImages,
    /// The graph is quantised already.
    #[error("the model is quantised already (node {node})")]
    Quantised {
        /// The first QuantizeLinear or DequantizeLinear.
        node: String,
    },
    /// A node that can't be quantised.
    #[error("node {node}: {reason}")]
    Node {
        /// The node.
        node: String,
        /// Why.
        reason: String,
    },
    /// A calibration image can't be read.
    #[error("{0}")]
    Image(String),
    /// A calibration image can't be run.
    #[error("calibration: {0}")]
    Float(#[from] FloatError),
}

impl From<Fault> for QuantizeError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Image(reason) => Self::Image(reason),
            Fault::Float(error) => Self::Float(error),
        }
    }
}

/// Values kept of each tensor and image.
const SAMPLES: usize = 2048;
/// The largest magnitude of a quantised bias; leaves the sum a bit more than the same again.
const MAX_BIAS: f64 = (1 << 30) as f64;

/// Scales of a graph's values, by index; `None` for values that need none.
pub type Scales = Vec<Option<f32>>;

/// Quantises a float graph with calibration images (preprocessed, float32, NCHW).
///
/// # Errors
/// [`QuantizeError`].
pub fn quantize(graph: &Graph, images: &[Vec<f32>], mode: Mode) -> Result<Graph, QuantizeError> {
    quantize_with(graph, &images, mode)
}

/// [`quantize`] with images that are read as they are needed.
///
/// # Errors
/// [`QuantizeError`].
pub fn quantize_with(
    graph: &Graph,
    images: &dyn Calibration,
    mode: Mode,
) -> Result<Graph, QuantizeError> {
    let graph = fold_batchnorm(graph)?;
    let scales = calibrate_with(&graph, images, mode)?;
    apply(&graph, &scales, mode)
}

/// Folds every BatchNormalization into the convolution before it.
///
/// # Errors
/// [`QuantizeError::Node`] when one doesn't follow a convolution that it alone reads.
pub fn fold_batchnorm(graph: &Graph) -> Result<Graph, QuantizeError> {
    let mut graph = graph.clone();
    let uses = graph.uses();
    let mut makers: BTreeMap<ValueId, usize> = BTreeMap::new();
    for norm in std::mem::take(&mut graph.nodes) {
        let fail = |reason: &str| QuantizeError::Node {
            node: norm.name.clone(),
            reason: reason.to_owned(),
        };
        let Op::BatchNormalization { epsilon } = norm.op else {
            makers.insert(norm.output, graph.nodes.len());
            graph.nodes.push(norm);
            continue;
        };
        let conv = makers.get(&norm.inputs[0]).copied();
        let conv = conv.filter(|&c| matches!(graph.nodes[c].op, Op::Conv { .. }));
        let conv = conv.filter(|_| uses.get(&norm.inputs[0]) == Some(&1));
        let conv = conv.ok_or_else(|| fail("it doesn't follow a convolution of its own"))?;
        let data = |id: ValueId| match &graph.values[id.0].data {
            Some(Data::F32(v)) => Ok(v.clone()),
            _ => Err(fail("a parameter is not a float constant")),
        };
        let inputs = graph.nodes[conv].inputs.clone();
        let mut weights = data(inputs[1])?;
        let [scale, shift, mean, var] = [1, 2, 3, 4].map(|i| data(norm.inputs[i]));
        let (scale, shift, mean, var) = (scale?, shift?, mean?, var?);
        let mut bias = match inputs.get(2) {
            Some(id) => data(*id)?,
            None => vec![0.0; scale.len()],
        };
        let per_channel = weights.len() / scale.len().max(1);
        for c in 0..scale.len() {
            let factor = scale[c] / (var[c] + epsilon).sqrt();
            weights[c * per_channel..(c + 1) * per_channel]
                .iter_mut()
                .for_each(|w| *w *= factor);
            bias[c] = (bias[c] - mean[c]) * factor + shift[c];
        }
        let shape = graph.values[inputs[1].0].shape.clone();
        let mut define = |suffix: &str, shape: Vec<usize>, data: Vec<f32>| {
            let name = format!("{}.{suffix}", graph.nodes[conv].name);
            graph.values.push(Value {
                name,
                shape,
                data: Some(Data::F32(data)),
            });
            ValueId(graph.values.len() - 1)
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

/// Which values are rounded to int8: the input, and what an operator gives after its
/// activation function.
fn rounded(graph: &Graph) -> Vec<bool> {
    let mut rounded = vec![false; graph.values.len()];
    for id in &graph.inputs {
        rounded[id.0] = true;
    }
    let uses = graph.uses();
    for node in &graph.nodes {
        rounded[node.output.0] = true;
        let activation = matches!(node.op, Op::Relu | Op::Clip { .. });
        // An operator that only its activation function reads needs no rounding of its own.
        if activation && uses.get(&node.inputs[0]) == Some(&1) {
            rounded[node.inputs[0].0] = false;
        }
    }
    rounded
}

/// Chooses the scale of every rounded value.
///
/// # Errors
/// Without images, for a graph that is quantised already, or an image of another size.
pub fn calibrate(graph: &Graph, images: &[Vec<f32>], mode: Mode) -> Result<Scales, QuantizeError> {
    calibrate_with(graph, &images, mode)
}

/// [`calibrate`] with images that are read as they are needed: memory doesn't grow with their
/// number, nor do results depend on how many are held at once.
///
/// # Errors
/// As for [`calibrate`], and what reading an image says.
pub fn calibrate_with(
    graph: &Graph,
    images: &dyn Calibration,
    mode: Mode,
) -> Result<Scales, QuantizeError> {
    if images.count() == 0 {
        return Err(QuantizeError::NoImages);
    }
    let quantised = |n: &&Node| {
        matches!(
            n.op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. }
        )
    };
    if let Some(node) = graph.nodes.iter().find(quantised) {
        return Err(QuantizeError::Quantised {
            node: node.name.clone(),
        });
    }
    let rounded = rounded(graph);
    let sample = |image: &Vec<f32>| -> Result<Vec<Vec<f32>>, FloatError> {
        let values = float::run_all(graph, image)?;
        Ok(values
            .iter()
            .zip(&rounded)
            .map(|(v, r)| if *r { thin(v) } else { vec![] })
            .collect())
    };
    let mut errors = Errors::new(images, &sample, graph.values.len())?;
    let largest = errors.largest().to_vec();
    errors.try_scales(|largest| candidates(largest, mode))?;
    let scale = |index: usize| rounded[index].then(|| errors.best(index));
    let mut scales: Scales = (0..graph.values.len()).map(scale).collect();
    for node in &graph.nodes {
        if let Op::Clip { min, max } = node.op {
            let largest = largest[node.output.0];
            if let Some(scale) = bounded_scale(min.abs().max(max.abs()), largest, mode) {
                scales[node.output.0] = Some(scale);
            }
        }
    }
    // These only move or compare values: their steps are their input's.
    for node in &graph.nodes {
        let resize = matches!(node.op, Op::Host(HostOp::Resize { .. }));
        if resize || matches!(node.op, Op::MaxPool { .. } | Op::Flatten | Op::Identity) {
            scales[node.output.0] = scales[node.inputs[0].0];
        }
    }
    Ok(scales)
}

/// The same scale for every rounded value: for what depends on a graph's structure alone.
pub fn equal_scales(graph: &Graph, scale: f32) -> Scales {
    let rounded = rounded(graph).into_iter();
    rounded.map(|rounded| rounded.then_some(scale)).collect()
}

/// Evenly spaced values and the extremes.
fn thin(values: &[f32]) -> Vec<f32> {
    let step = values.len().div_ceil(SAMPLES).max(1);
    let extremes = values
        .iter()
        .fold((0f32, 0f32), |(lo, hi), v| (lo.min(*v), hi.max(*v)));
    values
        .iter()
        .step_by(step)
        .copied()
        .chain([extremes.0, extremes.1])
        .collect()
}

/// The scale of an activation function whose bound is reached, or half of it: the bound itself is
/// a step, or within half of one, so that what it cuts off is what the model cuts off.
fn bounded_scale(bound: f32, largest: f32, mode: Mode) -> Option<f32> {
    if !bound.is_finite() || bound == 0.0 || largest < bound / 2.0 {
        return None;
    }
    let full = f64::from(bound) / 127.0;
    Some(match mode {
        Mode::Multiply => full as f32,
        Mode::Shift => 2f64.powi(full.log2().ceil() as i32) as f32,
    })
}

/// The scale of values with the smallest squared error.
fn best_scale(values: &[f32], mode: Mode) -> f32 {
    let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
    let candidates = candidates(largest, mode);
    let mut errors = vec![0.0; candidates.len()];
    add_errors(&mut errors, &candidates, values);
    best_of(&candidates, &errors)
}

/// Scales to try for values up to a magnitude: clips from 30 % to 100 % of it, the whole first, or
/// powers of two around it. None where nothing can be measured.
fn candidates(largest: f32, mode: Mode) -> Vec<f64> {
    if largest == 0.0 || !largest.is_finite() {
        return Vec::new();
    }
    let full = f64::from(largest) / 127.0;
    match mode {
        Mode::Multiply => (0..=35)
            .map(|k| full * (1.0 - 0.02 * f64::from(k)))
            .collect(),
        Mode::Shift => {
            let top = full.log2().ceil() as i32;
            (top - 4..=top).rev().map(|e| 2f64.powi(e)).collect()
        }
    }
}

/// Inserts QuantizeLinear and DequantizeLinear with the given scales.
///
/// # Errors
/// [`QuantizeError::Node`] for weights that aren't float constants.
pub fn apply(graph: &Graph, scales: &Scales, mode: Mode) -> Result<Graph, QuantizeError> {
    let mut quantised = Quantised {
        source: graph,
        mode,
        out: Graph {
            name: graph.name.clone(),
            metadata: graph.metadata.clone(),
            ..Graph::default()
        },
        map: BTreeMap::new(),
    };
    for id in &graph.inputs {
        let value = graph.values[id.0].clone();
        let new = quantised.value(&value.name, value.shape, None);
        quantised.out.inputs.push(new);
        let scale = scales[id.0].unwrap_or(1.0);
        let real = quantised.round(new, scale, "");
        quantised.map.insert(*id, (real, scale));
    }
    for node in &graph.nodes {
        quantised.node(node, scales)?;
    }
    quantised.outputs()?;
    Ok(quantised.out)
}

struct Quantised<'a> {
    source: &'a Graph,
    mode: Mode,
    out: Graph,
    /// The dequantised value and its scale for each source value.
    map: BTreeMap<ValueId, (ValueId, f32)>,
}

impl Quantised<'_> {
    /// The network's outputs, which keep their names.
    fn outputs(&mut self) -> Result<(), QuantizeError> {
        let source = self.source;
        let makers = source.nodes.iter().map(|n| (n.output, &n.name[..]));
        let makers: BTreeMap<ValueId, &str> = makers.collect();
        let mut named: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, value) in self.out.values.iter().enumerate() {
            named.entry(value.name.clone()).or_default().push(index);
        }
        for id in &source.outputs {
            let name = &source.values[id.0].name;
            let (real, _) = self.mapped(makers.get(id).copied().unwrap_or_default(), *id)?;
            for index in named.remove(name).unwrap_or_default() {
                let value = &mut self.out.values[index];
                if value.name == *name {
                    value.name.push_str(".float");
                }
            }
            self.out.values[real.0].name.clone_from(name);
            self.out.outputs.push(real);
        }
        Ok(())
    }

    fn value(&mut self, name: &str, shape: Vec<usize>, data: Option<Data>) -> ValueId {
        self.out.values.push(Value {
            name: name.to_owned(),
            shape,
            data,
        });
        ValueId(self.out.values.len() - 1)
    }

    fn push(&mut self, name: String, op: Op, inputs: Vec<ValueId>, output: ValueId) {
        self.out.nodes.push(Node {
            name,
            op,
            inputs,
            output,
        });
    }

    fn mapped(&self, node: &str, id: ValueId) -> Result<(ValueId, f32), QuantizeError> {
        self.map
            .get(&id)
            .copied()
            .ok_or_else(|| QuantizeError::Node {
                node: node.to_owned(),
                reason: format!(
                    "{} is not computed from the input",
                    self.source.values[id.0].name
                ),
            })
    }

    /// QuantizeLinear and DequantizeLinear after a value; the real value again.
    fn round(&mut self, id: ValueId, scale: f32, suffix: &str) -> ValueId {
        let (name, shape) = (
            format!("{}{suffix}", self.out.values[id.0].name),
            self.out.values[id.0].shape.clone(),
        );
        let scale = self.value(
            &format!("{name}.scale"),
            vec![],
            Some(Data::F32(vec![scale])),
        );
        let zero = self.value(
            &format!("{name}.zero_point"),
            vec![],
            Some(Data::I8(vec![0])),
        );
        let int8 = self.value(&format!("{name}.int8"), shape.clone(), None);
        let real = self.value(&format!("{name}.real"), shape, None);
        self.push(
            format!("{name}.quantize"),
            Op::QuantizeLinear { axis: 1 },
            vec![id, scale, zero],
            int8,
        );
        self.push(
            format!("{name}.dequantize"),
            Op::DequantizeLinear { axis: 1 },
            vec![int8, scale, zero],
            real,
        );
        real
    }

    fn node(&mut self, node: &Node, scales: &Scales) -> Result<(), QuantizeError> {
        let (first, scale_x) = self.mapped(&node.name, node.inputs[0])?;
        let mut inputs = vec![first];
        let mut op = node.op.clone();
        match &node.op {
            Op::Conv { .. } => inputs.extend(self.weights(node, scale_x)?),
            Op::Gemm { .. } => {
                inputs.extend(self.weights(node, scale_x)?);
                op = Op::Gemm { trans_b: true };
            }
            Op::Add | Op::Host(_) => {
                for id in node.inputs.iter().skip(1) {
                    inputs.push(self.mapped(&node.name, *id)?.0);
                }
            }
            _ => {}
        }
        let source = &self.source.values[node.output.0];
        let output = self.value(&source.name, source.shape.clone(), None);
        self.push(node.name.clone(), op, inputs, output);
        let real = match scales[node.output.0] {
            Some(scale) => (self.round(output, scale, ""), scale),
            None => (output, scale_x),
        };
        self.map.insert(node.output, real);
        Ok(())
    }

    /// Weights and bias as DequantizeLinear of integer constants, output channels first.
    fn weights(&mut self, node: &Node, scale_x: f32) -> Result<Vec<ValueId>, QuantizeError> {
        let fail = |reason: &str| QuantizeError::Node {
            node: node.name.clone(),
            reason: reason.to_owned(),
        };
        let constant = |i: usize| {
            let value = node.inputs.get(i).map(|id| &self.source.values[id.0]);
            match value.map(|v| (&v.data, &v.shape)) {
                Some((Some(Data::F32(data)), shape)) => Ok((data.clone(), shape.clone())),
                _ => Err(fail("its weights and bias must be float constants")),
            }
        };
        let (mut weights, mut shape) = constant(1)?;
        if node.op == (Op::Gemm { trans_b: false }) {
            let (k, n) = (shape[0], shape[1]);
            weights = (0..n * k).map(|i| weights[i % k * n + i / k]).collect();
            shape = vec![n, k];
        }
        let channels = shape[0];
        let bias = if node.inputs.len() > 2 {
            constant(2)?.0
        } else {
            vec![0.0; channels]
        };
        if weights.iter().chain(&bias).any(|w| !w.is_finite()) {
            return Err(fail("a weight or bias is not finite"));
        }
        let scale = self.weight_scales(&weights, channels, &bias, scale_x);
        let per_channel = weights.len() / channels.max(1);
        let round = |(i, w): (usize, &f32)| {
            let s = scale[if scale.len() == 1 { 0 } else { i / per_channel }];
            (w / s).round_ties_even().clamp(-127.0, 127.0) as i8
        };
        let int8: Vec<i8> = weights.iter().enumerate().map(round).collect();
        let bias_scale: Vec<f32> = scale.iter().map(|s| s * scale_x).collect();
        let step = |c: usize| bias_scale[if bias_scale.len() == 1 { 0 } else { c }];
        let int32 = |(c, b): (usize, &f32)| (f64::from(*b) / f64::from(step(c))).round() as i32;
        let int32 = bias.iter().enumerate().map(int32).collect();
        let weight = self.constant(
            &format!("{}.weight", node.name),
            shape,
            Data::I8(int8),
            scale,
        );
        let bias = self.constant(
            &format!("{}.bias", node.name),
            vec![channels],
            Data::I32(int32),
            bias_scale,
        );
        Ok(vec![weight, bias])
    }

    /// One scale for each output channel, or one power of two.
    fn weight_scales(
        &self,
        weights: &[f32],
        channels: usize,
        bias: &[f32],
        scale_x: f32,
    ) -> Vec<f32> {
        // A scale so small that the bias exceeds int32 is raised.
        let least = |b: &f32| (f64::from(b.abs()) / f64::from(scale_x) / MAX_BIAS) as f32;
        match self.mode {
            Mode::Multiply => {
                let rows = weights.chunks(weights.len() / channels.max(1));
                let channel = |(row, b): (&[f32], &f32)| {
                    let largest = row.iter().fold(0f32, |m, w| m.max(w.abs()));
                    let scale = if largest == 0.0 {
                        1.0 / 128.0
                    } else {
                        largest / 127.0
                    };
                    scale.max(least(b)).max(f32::MIN_POSITIVE)
                };
                rows.zip(bias).map(channel).collect()
            }
            Mode::Shift => {
                let mut scale = best_scale(weights, Mode::Shift);
                while bias.iter().any(|b| scale < least(b)) {
                    scale *= 2.0;
                }
                vec![scale]
            }
        }
    }

    fn constant(&mut self, name: &str, shape: Vec<usize>, data: Data, scale: Vec<f32>) -> ValueId {
        let zero = match data {
            Data::I32(_) => Data::I32(vec![0; scale.len()]),
            _ => Data::I8(vec![0; scale.len()]),
        };
        let dims = if scale.len() == 1 {
            vec![]
        } else {
            vec![scale.len()]
        };
        let int = self.value(&format!("{name}.int"), shape.clone(), Some(data));
        let scale = self.value(
            &format!("{name}.scale"),
            dims.clone(),
            Some(Data::F32(scale)),
        );
        let zero = self.value(&format!("{name}.zero_point"), dims, Some(zero));
        let real = self.value(name, shape, None);
        let op = Op::DequantizeLinear { axis: 0 };
        self.push(
            format!("{name}.dequantize"),
            op,
            vec![int, scale, zero],
            real,
        );
        real
    }
}
