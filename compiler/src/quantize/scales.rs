//! The scale of every value, chosen over calibration images.

mod costs;

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

/// Fewer steps than so many below HardSwish's bound stay what they are: a whole number of them would be too far off.
const LEAST_STEPS: f32 = 24.0;
/// Steps so many times apart aren't shared by what a network ends with.
const FAR: f32 = 4.0;

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
    let scale = |index: usize| {
        let seen = observed.histogram(ValueId(index))?;
        let of = |zero: Zero| {
            let bounded = bounded(bounds[index], seen, options.mode, zero);
            bounded.unwrap_or_else(|| options.method.scale(seen, options.mode, zero))
        };
        let symmetric = of(Zero::Middle);
        Some(match options.zero_points {
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
    leave_far_ends(graph, &mut scales);
    if options.mode == Mode::Multiply {
        whole_bounds(graph, &mut scales);
    }
    keep_steps(graph, &mut scales);
    scales
}

/// HardSwish clamps at 3. Where that is a whole number of steps of its input it takes one operation of the device less, and
/// clamps that CLIP joins: steps become as much larger as that needs, a few percent at most.
fn whole_bounds(graph: &Graph, scales: &mut Scales) {
    for node in graph.nodes.iter().filter(|node| node.op == Op::HardSwish) {
        if let Some(scale) = &mut scales[node.inputs[0].0] {
            let steps = (3.0 / scale.step).floor();
            if steps >= LEAST_STEPS {
                scale.step = 3.0 / steps;
            }
        }
    }
}

/// Takes the scale of what a network ends with where it joins values that are far apart: the steps of the
/// largest would leave the others nothing. The host joins them in floats.
fn leave_far_ends(graph: &Graph, scales: &mut Scales) {
    let ends = ends(graph);
    let mut left = vec![false; graph.values.len()];
    for node in graph.nodes.iter().filter(|node| ends[node.output.0]) {
        let steps = node.inputs.iter().filter_map(|id| scales[id.0]);
        let steps = steps.map(|scale| scale.step);
        let [least, most] = steps.fold([f32::INFINITY, 0.0], |[least, most], step| {
            [step.min(least), step.max(most)]
        });
        let far = matches!(node.op, Op::Concat { .. }) && most >= FAR * least;
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
fn keep_steps(graph: &Graph, scales: &mut Scales) {
    for node in &graph.nodes {
        if let Some((input, by)) = scaled_by_one(graph, node)
            && let (Some(kept), Some(_)) = (scales[input.0], scales[node.output.0])
            && by > 0.0
            && (kept.step * by).is_normal()
        {
            scales[node.output.0] = Some(Scale {
                step: kept.step * by,
                ..kept
            });
        }
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
