//! The scale of every value, chosen over calibration images.

use rayon::prelude::*;

use super::calibration::{Observed, observe};
use super::error::QuantizeError;
use super::method::Method;
use super::mode::Mode;
use super::rounded::{Kept, rounded};
use crate::graph::{Graph, Op, ValueId};
use crate::operators::fields::Steps;

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
        if node.op.facts().steps != Steps::Input {
            continue;
        }
        let kept = scales[node.inputs[0].0];
        // What the host reads or gives in floats has none.
        let both = kept.is_some() && scales[node.output.0].is_some();
        if both || !matches!(node.op, Op::Onnx(_)) {
            scales[node.output.0] = kept;
        }
    }
}

/// The same scale for every rounded value: for what depends on a graph's structure alone.
pub fn equal_scales(graph: &Graph, scale: f32) -> Scales {
    let rounded = rounded(graph, &Kept::new()).into_iter();
    let mut scales = rounded.map(|rounded| rounded.then_some(scale)).collect();
    keep_steps(graph, &mut scales);
    scales
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
