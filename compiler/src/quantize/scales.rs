//! The scale of every value, chosen over calibration images.

use super::calibration::{Calibration, Errors, add_errors, best_of};
use super::error::QuantizeError;
use crate::float::{FloatError, FloatNetwork};
use crate::graph::{Element, Graph, Node, Op, ValueId};
use crate::host::HostOp;

/// How scales are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Powers of two: the device requantises with a shift alone.
    Shift,
    /// Any scales, per channel for weights: the device multiplies and shifts.
    Multiply,
}

/// Values kept of each tensor and image.
const SAMPLES: usize = 2048;

/// Scales of a graph's values, by index; `None` for values that need none.
pub type Scales = Vec<Option<f32>>;

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
    refuse_quantized(graph)?;
    let rounded = rounded(graph);
    let ids = (0..graph.values.len()).map(ValueId);
    let wanted: Vec<ValueId> = ids.filter(|id| rounded[id.0]).collect();
    let network = FloatNetwork::new(graph, wanted.clone())?;
    let sample = |image: &Vec<f32>| -> Result<Vec<Vec<f32>>, FloatError> {
        let mut samples = vec![Vec::new(); graph.values.len()];
        for (id, values) in wanted.iter().zip(network.run(image)?) {
            samples[id.0] = thin(&values);
        }
        Ok(samples)
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
        if steps(&node.op) == Steps::Input {
            scales[node.output.0] = scales[node.inputs[0].0];
        }
    }
    Ok(scales)
}

/// Refuses a graph that has scales already.
pub(super) fn refuse_quantized(graph: &Graph) -> Result<(), QuantizeError> {
    let quantized = |n: &&Node| {
        matches!(
            n.op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. }
        )
    };
    match graph.nodes.iter().find(quantized) {
        None => Ok(()),
        Some(node) => Err(QuantizeError::Quantized {
            node: node.name.clone(),
        }),
    }
}

/// The same scale for every rounded value: for what depends on a graph's structure alone.
pub fn equal_scales(graph: &Graph, scale: f32) -> Scales {
    let rounded = rounded(graph).into_iter();
    rounded.map(|rounded| rounded.then_some(scale)).collect()
}

/// Which values are rounded to int8: the input, and what an operator gives after its
/// activation function.
fn rounded(graph: &Graph) -> Vec<bool> {
    let mut rounded = vec![false; graph.values.len()];
    let uses = graph.uses();
    for node in &graph.nodes {
        rounded[node.output.0] = true;
        // An operator that only its activation function reads needs no rounding of its own.
        if steps(&node.op) == Steps::Activation && uses.get(&node.inputs[0]) == Some(&1) {
            rounded[node.inputs[0].0] = false;
        }
    }
    // What only operators of the host read that come from a file as they are stays a float, and so
    // do integers.
    let is_kept = |node: &Node| matches!(node.op, Op::Onnx(_));
    let mut read_as_int8 = vec![false; graph.values.len()];
    let readers = graph.nodes.iter().filter(|node| !is_kept(node));
    let read = readers.flat_map(|node| &node.inputs).chain(&graph.outputs);
    read.for_each(|id| read_as_int8[id.0] = true);
    for node in graph.nodes.iter().filter(|node| is_kept(node)) {
        rounded[node.output.0] &= read_as_int8[node.output.0];
    }
    for (rounded, value) in rounded.iter_mut().zip(&graph.values) {
        *rounded &= value.element == Element::F32;
    }
    // The input is, whatever reads it.
    for id in &graph.inputs {
        rounded[id.0] = true;
    }
    rounded
}

/// Where the steps of an operator's output come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// They are chosen.
    Own,
    /// They are its input's, whose values it only moves or compares.
    Input,
    /// They are chosen for it and what it bounds together.
    Activation,
}

const fn steps(op: &Op) -> Steps {
    match op {
        Op::Relu | Op::Clip { .. } => Steps::Activation,
        Op::MaxPool { .. }
        | Op::Flatten
        | Op::Identity
        | Op::Slice { .. }
        | Op::Gather { .. }
        | Op::Pad { .. }
        | Op::DepthToSpace { .. }
        | Op::SpaceToDepth { .. }
        | Op::Resize { .. } => Steps::Input,
        Op::Host(op) => match op {
            HostOp::Resize { .. } => Steps::Input,
            HostOp::Sigmoid
            | HostOp::HardSigmoid { .. }
            | HostOp::HardSwish
            | HostOp::Tanh
            | HostOp::Elu { .. }
            | HostOp::LeakyRelu { .. }
            | HostOp::Softmax
            | HostOp::Mul
            | HostOp::Sub
            | HostOp::Concat => Steps::Own,
        },
        Op::Conv { .. }
        | Op::ConvTranspose { .. }
        | Op::Concat { .. }
        | Op::Mul
        | Op::Sub
        | Op::Div
        | Op::LeakyRelu { .. }
        | Op::PRelu
        | Op::HardSigmoid { .. }
        | Op::HardSwish
        | Op::Add
        | Op::AveragePool { .. }
        | Op::GlobalAveragePool
        | Op::Gemm { .. }
        | Op::BatchNormalization { .. }
        | Op::Onnx(_)
        | Op::QuantizeLinear { .. }
        | Op::DequantizeLinear { .. } => Steps::Own,
    }
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
pub(super) fn best_scale(values: &[f32], mode: Mode) -> f32 {
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
