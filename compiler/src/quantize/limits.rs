//! How far int16 activations may reach, so that a layer's sums stay within int32, which devices wrap at.
//!
//! A sum is at most the largest magnitude of an input in steps times the magnitudes of a row's weights in steps. Where
//! that could exceed 2^30 the input gets larger steps, and a Clip before its QuantizeLinear, by which the file itself
//! says that no value is larger. The rest of int32 is for biases and for rounding.

use rayon::prelude::*;

use super::adaptive::AWAY;
use super::error::QuantizeError;
use super::insert::Given;
use super::insert::weights::Weights;
use super::mode::Mode;
use super::scales::{self, Limits, Scales, shared};
use super::slices::{INT4, INT8};
use crate::graph::{Graph, Node, Op, ValueId};
use crate::operators::fields::Steps;
use crate::qgraph::Numbers as Activations;

/// What sums of products are up to.
const ROOM: f64 = (1 << 30) as f64;
/// The largest magnitude of an int16.
const ALL: f64 = 32768.0;
/// Inputs of fewer steps on each side of 0 are worse than int8.
const LEAST: f64 = 127.0;

/// Makes steps as large as products need that read them, and gives the bounds of values that would go on beyond.
///
/// # Errors
/// A layer whose weights leave its input fewer steps than int8 has.
pub(super) fn limit(
    graph: &Graph,
    scales: &mut Scales,
    given: &Given<'_>,
) -> Result<Limits, QuantizeError> {
    if given.options.activations == Activations::Int8 {
        return Ok(Limits::new());
    }
    let mut most = products(graph, scales, given)?;
    // What has the steps of another value has its integers.
    let mut own = vec![Steps::Own; graph.values.len()];
    for node in graph.nodes.iter().rev() {
        if let Some((input, _)) = shared(graph, node, scales) {
            most[input.0] = most[input.0].min(most[node.output.0]);
            own[node.output.0] = node.op.facts().steps;
        }
    }
    let mode = given.options.mode;
    let wholes = scales::wholes(graph);
    let mut is_root = vec![true; graph.values.len()];
    for node in &graph.nodes {
        if let Some((input, _)) = shared(graph, node, scales) {
            most[node.output.0] = most[input.0];
            is_root[node.output.0] = false;
        }
    }
    let last = Activations::Int16.last();
    for (index, most) in most.iter().enumerate().filter(|(at, _)| is_root[*at]) {
        let Some(scale) = scales[index].as_mut().filter(|_| *most < last) else {
            continue;
        };
        let full = f64::from(scale.step) * last / most;
        scale.step = match mode {
            Mode::Multiply if wholes[index] => scales::whole_bound(full as f32),
            Mode::Multiply => full as f32,
            Mode::Shift => 2f64.powi(full.log2().ceil() as i32) as f32,
        };
    }
    scales::keep_steps(graph, scales);
    let makers = graph.makers();
    let limited = (0..most.len()).filter(|at| most[*at] < ALL && own[*at] != Steps::Input);
    let bounds = limited.filter_map(|at| {
        let maker = makers
            .get(&ValueId(at))
            .map(|maker| &graph.nodes[*maker].op);
        let bound = (most[at] * f64::from(scales[at]?.step)) as f32;
        Some((ValueId(at), clip(maker, bound)?))
    });
    Ok(bounds.collect())
}

/// For each value, the largest magnitude in steps that the products that read it leave it.
fn products(graph: &Graph, scales: &Scales, given: &Given<'_>) -> Result<Vec<f64>, QuantizeError> {
    let mut most = vec![f64::INFINITY; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        let is_product = matches!(
            node.op,
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::Gemm { .. } | Op::MatMul { .. }
        );
        if !is_product || given.kept.contains(&index) || scales[node.inputs[0].0].is_none() {
            continue;
        }
        let steps = (ROOM / largest_sum(graph, (index, node), given)?).floor();
        if steps < LEAST {
            let text = "int32 doesn't hold the sums of int16 and so many weights: keep it in float, or take int8";
            return Err(QuantizeError::of(&node.name, text));
        }
        let input = &mut most[node.inputs[0].0];
        *input = input.min(steps);
    }
    Ok(most)
}

/// The largest sum of the magnitudes that a row's weights may have in steps.
fn largest_sum(
    graph: &Graph,
    (index, node): (usize, &Node),
    given: &Given<'_>,
) -> Result<f64, QuantizeError> {
    let weights = Weights::of(graph, given.constants, node)?;
    let range = if given.int4.contains(&index) {
        INT4
    } else {
        INT8
    };
    // A bias makes steps larger at most.
    let none = vec![0.0; weights.channels];
    let scale = weights.scales(given.options, &none, 1.0, range);
    let moments = given.observed.filter(|_| given.options.adaptive_rounding);
    let is_moved = moments.is_some_and(|all| all.moments(index).is_some());
    let away = f64::from(if is_moved { AWAY } else { 0.5 });
    let largest = f64::from(-range[0]);
    let rows = weights.rows();
    let parts = weights.group.max(1);
    let each = (rows.len() / weights.channels.max(1) / parts).max(1);
    let classes = classes(node, weights.inner);
    let count = classes.iter().max().map_or(1, |most| most + 1);
    let sums = rows.par_chunks(each).enumerate().map(|(part, row)| {
        let s = f64::from(scale[if scale.len() == 1 { 0 } else { part / parts }]);
        let mut sums = vec![0.0; count];
        for (k, w) in row.iter().enumerate() {
            sums[classes[k % classes.len()]] += (f64::from(w.abs()) / s + away).min(largest);
        }
        sums.into_iter().fold(1.0, f64::max)
    });
    Ok(sums.reduce(|| 1.0, f64::max))
}

/// Which taps of a window an output of a ConvTranspose meets together, by numbers; of others all.
fn classes(node: &Node, taps: usize) -> Vec<usize> {
    let Op::ConvTranspose { window, .. } = node.op else {
        return vec![0];
    };
    let place = |tap: usize, axis: usize| tap * window.dilation[axis] % window.stride[axis].max(1);
    let columns = window.kernel[1].max(1);
    let class =
        |tap: usize| place(tap / columns, 0) * window.stride[1].max(1) + place(tap % columns, 1);
    (0..taps.max(1)).map(class).collect()
}

/// The bounds of a Clip behind an operator; none where it has them.
fn clip(maker: Option<&Op>, bound: f32) -> Option<[f32; 2]> {
    let [low, high] = match maker {
        Some(Op::Relu) => [0.0, f32::INFINITY],
        Some(Op::Clip { min, max }) => [*min, *max],
        _ => [f32::NEG_INFINITY, f32::INFINITY],
    };
    // A bound that is a step may be a float beside it.
    let enough = bound * (1.0 + 16.0 * f32::EPSILON);
    if low.abs().max(high.abs()) <= enough {
        return None;
    }
    Some([low.max(-bound), high.min(bound)])
}

#[cfg(test)]
mod tests;
