//! The scale of every value, chosen over calibration images.

mod costs;

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::calibration::{Observed, observe};
use super::error::QuantizeError;
use super::fold::scaled_by_one;
use super::histogram::Histogram;
use super::method::{Zero, within};
use super::mode::{Mode, Scale, ZeroPoints};
use super::options::Options;
use super::rounded::{Kept, rounded};
use crate::graph::{Graph, Node, Op, ValueId};
use crate::operators::fields::Steps;
use crate::qgraph::Numbers as Activations;

/// Fewer steps than so many below HardSwish's bound stay what they are: a whole number of them would be too far off.
const LEAST_STEPS: f32 = 24.0;
/// Steps so many times apart aren't shared by what a network ends with.
const FAR: f32 = 4.0;

/// Bounds of values that have a Clip before their QuantizeLinear.
pub(super) type Limits = BTreeMap<ValueId, [f32; 2]>;

/// Scales of a graph's values, by index; `None` for values that need none.
pub type Scales = Vec<Option<Scale>>;

/// Chooses the scale of every rounded value, by the defaults of a mode.
///
/// # Errors
/// As for [`observe`](super::observe).
pub fn calibrate(graph: &Graph, images: &[Vec<f32>], mode: Mode) -> Result<Scales, QuantizeError> {
    let observed = observe(graph, &images)?;
    Ok(choose(graph, &observed, &Options::new(mode)))
}

/// The scale of every rounded value, by what images showed of it.
pub fn choose(graph: &Graph, observed: &Observed, options: &Options) -> Scales {
    let costly = costs::costly(graph);
    let bounds = bounds(graph);
    let middle = match options.activations {
        Activations::Int8 => Zero::Middle,
        Activations::Int16 => Zero::Wide,
    };
    let scale = |index: usize| {
        let seen = observed.histogram(ValueId(index))?;
        let of = |zero: Zero| {
            let bounded = bounded(bounds[index], seen, options.mode, zero);
            bounded.unwrap_or_else(|| options.method.scale(seen, options.mode, zero))
        };
        let symmetric = of(middle);
        Some(match options.zero_points() {
            ZeroPoints::Symmetric => symmetric,
            ZeroPoints::Asymmetric => of(Zero::Anywhere),
            ZeroPoints::Auto => {
                let free = of(Zero::Anywhere);
                let both = [free, symmetric];
                both[usize::from(!costs::is_worth(seen, both, costly[index]))]
            }
        })
    };
    let all = (0..graph.values.len()).into_par_iter();
    let mut scales: Scales = all.map(scale).collect();
    // Where steps are finer, what is far apart leaves the others as many.
    let far = FAR * (options.activations.last() / Activations::Int8.last()) as f32;
    leave_far_ends(graph, &mut scales, far);
    if options.mode == Mode::Multiply {
        whole_bounds(graph, &mut scales);
    }
    keep_steps(graph, &mut scales);
    scales
}

/// HardSwish clamps at 3. Where that is a whole number of steps of its input it takes one operation of the device less, and
/// clamps that CLIP joins: steps become as much larger as that needs, a few percent at most.
fn whole_bounds(graph: &Graph, scales: &mut Scales) {
    for (scale, whole) in scales.iter_mut().zip(wholes(graph)) {
        if let Some(scale) = scale.as_mut().filter(|_| whole) {
            scale.step = whole_bound(scale.step);
        }
    }
}

/// Which values HardSwish reads.
pub(super) fn wholes(graph: &Graph) -> Vec<bool> {
    let mut wholes = vec![false; graph.values.len()];
    for node in graph.nodes.iter().filter(|node| node.op == Op::HardSwish) {
        wholes[node.inputs[0].0] = true;
    }
    wholes
}

/// A step no smaller than one, of which a whole number is HardSwish's bound.
pub(super) fn whole_bound(step: f32) -> f32 {
    let steps = (3.0 / step).floor();
    if steps >= LEAST_STEPS {
        3.0 / steps
    } else {
        step
    }
}

/// Takes the scale of what a network ends with where it joins values that are far apart: the steps of the
/// largest would leave the others nothing. The host joins them in floats.
fn leave_far_ends(graph: &Graph, scales: &mut Scales, far: f32) {
    let ends = ends(graph);
    let mut left = vec![false; graph.values.len()];
    for node in graph.nodes.iter().filter(|node| ends[node.output.0]) {
        let steps = node.inputs.iter().filter_map(|id| scales[id.0]);
        let steps = steps.map(|scale| scale.step);
        let [least, most] = steps.fold([f32::INFINITY, 0.0], |[least, most], step| {
            [step.min(least), step.max(most)]
        });
        let far = matches!(node.op, Op::Concat { .. }) && most >= far * least;
        if far || moves(node) && node.inputs.iter().any(|id| left[id.0]) {
            scales[node.output.0] = None;
            left[node.output.0] = true;
        }
    }
}

/// Which values are outputs, or become outputs by being moved and joined alone.
fn ends(graph: &Graph) -> Vec<bool> {
    // Nothing is known of a value that nothing reads.
    let mut ends: Vec<Option<bool>> = vec![None; graph.values.len()];
    graph.outputs.iter().for_each(|id| ends[id.0] = Some(true));
    for node in graph.nodes.iter().rev() {
        let end = ends[node.output.0] == Some(true) && moves(node);
        for id in &node.inputs {
            ends[id.0] = Some(end && ends[id.0].unwrap_or(true));
        }
    }
    ends.into_iter().map(|end| end == Some(true)).collect()
}

/// Whether a node only moves or joins values.
fn moves(node: &Node) -> bool {
    matches!(node.op, Op::Concat { .. }) || node.op.facts().steps == Steps::Input
}

/// The bounds of values that a Clip gives.
fn bounds(graph: &Graph) -> Vec<Option<[f32; 2]>> {
    let mut bounds = vec![None; graph.values.len()];
    for node in &graph.nodes {
        if let Op::Clip { min, max } = node.op {
            bounds[node.output.0] = Some([min, max]);
        }
    }
    bounds
}

/// What only moves or compares values has the steps of its input, and what scales them all has those steps scaled: it
/// rounds nothing.
pub(super) fn keep_steps(graph: &Graph, scales: &mut Scales) {
    for node in &graph.nodes {
        if let Some((input, by)) = shared(graph, node, scales) {
            let step = |kept: Scale| Scale {
                step: kept.step * by,
                ..kept
            };
            scales[node.output.0] = scales[input.0].map(step);
        }
    }
}

/// The value whose steps a node's output has, and what they are multiplied by.
pub(super) fn shared(graph: &Graph, node: &Node, scales: &Scales) -> Option<(ValueId, f32)> {
    if let Some((input, by)) = scaled_by_one(graph, node)
        && let (Some(kept), Some(_)) = (scales[input.0], scales[node.output.0])
        && by > 0.0
        && (kept.step * by).is_normal()
    {
        return Some((input, by));
    }
    if node.op.facts().steps != Steps::Input {
        return None;
    }
    let input = node.inputs[0];
    // What the host reads or gives in floats has none.
    let both = scales[input.0].is_some() && scales[node.output.0].is_some();
    (both || !matches!(node.op, Op::Onnx(_))).then_some((input, 1.0))
}

/// The same scale for every rounded value: for what depends on a graph's structure alone.
pub fn equal_scales(graph: &Graph, step: f32) -> Scales {
    let scale = |rounded: bool| rounded.then_some(Scale::symmetric(step));
    let mut scales = rounded(graph, &Kept::new())
        .into_iter()
        .map(scale)
        .collect();
    keep_steps(graph, &mut scales);
    scales
}

/// The scale of an activation function whose bound is reached, or half of it: the bound itself is
/// a step, or within half of one, so that what it cuts off is what the model cuts off.
fn bounded(bounds: Option<[f32; 2]>, seen: &Histogram, mode: Mode, zero: Zero) -> Option<Scale> {
    let [low, high] = bounds?.map(f64::from);
    let bound = low.abs().max(high.abs());
    if !bound.is_finite() || bound == 0.0 || f64::from(seen.largest()) < bound / 2.0 {
        return None;
    }
    Some(within([(-low).max(0.0), high.max(0.0)], mode, zero))
}

#[cfg(test)]
mod tests;
