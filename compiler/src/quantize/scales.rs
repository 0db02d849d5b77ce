//! The scale of every value, chosen over calibration images.

use rayon::prelude::*;

use super::calibration::{Observed, observe};
use super::error::QuantizeError;
use super::method::Method;
use crate::graph::{Element, Graph, Node, Op, ValueId};
use crate::host::HostOp;

/// How scales are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Powers of two: the device requantises with a shift alone.
    Shift,
    /// Any scales: the device multiplies and shifts.
    Multiply,
}

/// Which weights of a convolution or dense layer share a scale; in [`Mode::Shift`] all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightScales {
    /// Those of an output channel.
    PerChannel,
    /// All.
    PerTensor,
}

/// Scales of a graph's values, by index; `None` for values that need none.
pub type Scales = Vec<Option<f32>>;

/// Chooses the scale of every rounded value, by [`Method::Mse`].
///
/// # Errors
/// As for [`observe`](super::observe).
pub fn calibrate(graph: &Graph, images: &[Vec<f32>], mode: Mode) -> Result<Scales, QuantizeError> {
    let observed = observe(graph, &images)?;
    Ok(choose(graph, &observed, Method::default(), mode))
}

/// The scale of every rounded value, by what images showed of it.
pub fn choose(graph: &Graph, observed: &Observed, method: Method, mode: Mode) -> Scales {
    let scale = |index: usize| {
        let seen = observed.histogram(ValueId(index))?;
        Some(method.scale(seen, mode))
    };
    let all = (0..graph.values.len()).into_par_iter();
    let mut scales: Scales = all.map(scale).collect();
    for node in &graph.nodes {
        if let (Op::Clip { min, max }, Some(seen)) = (&node.op, observed.histogram(node.output))
            && let Some(scale) = bounded_scale(min.abs().max(max.abs()), seen.largest(), mode)
        {
            scales[node.output.0] = Some(scale);
        }
    }
    keep_steps(graph, &mut scales);
    scales
}

/// What only moves or compares values has the steps of its input.
fn keep_steps(graph: &Graph, scales: &mut Scales) {
    for node in &graph.nodes {
        if steps(&node.op) == Steps::Input {
            scales[node.output.0] = scales[node.inputs[0].0];
        }
    }
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
    let mut scales = rounded.map(|rounded| rounded.then_some(scale)).collect();
    keep_steps(graph, &mut scales);
    scales
}

/// Which values are rounded to int8: the input, and what an operator gives after its
/// activation function.
pub(super) fn rounded(graph: &Graph) -> Vec<bool> {
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
