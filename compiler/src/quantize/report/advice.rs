//! What would help a layer that loses much by quantisation, in words.

use std::collections::BTreeSet;

use super::super::method::percentile;
use super::super::{Activations, Quantized, WeightScales};
use crate::graph::{Data, Node, Op, ValueId};

/// Ranges so many times apart are worth a word.
const FAR: f64 = 8.0;

/// What would help the layer that gives a value; `pairs` are nodes whose channels equalisation can scale.
pub fn advice(all: &Quantized, value: ValueId, pairs: &BTreeSet<usize>) -> Option<String> {
    let source = &all.stage.source;
    let at = product(all, value);
    let spread = all
        .stage
        .observed
        .channels(value)
        .and_then(|c| spread(c.largest()));
    if let (Some(spread), Some(at)) = (spread, at)
        && !all.options.equalize
        && pairs.contains(&at)
    {
        return Some(format!(
            "its channels are up to {spread:.0} times apart: equalise them"
        ));
    }
    let rows = at.and_then(|at| rows(all, &source.nodes[at]));
    if let (WeightScales::PerTensor, Some(spread)) =
        (all.options.weights, rows.as_deref().and_then(self::spread))
    {
        return Some(format!(
            "its weights are up to {spread:.0} times apart between channels: give each channel its scale"
        ));
    }
    let (seen, scale) = (all.stage.observed.histogram(value)?, all.scales[value.0]?);
    let (largest, kept) = (
        f64::from(seen.largest()),
        f64::from(scale.step) * (all.options.activations.last() - f64::from(scale.zero)),
    );
    if largest > 2.0 * kept {
        return Some(format!(
            "values beyond {kept:.3} are cut off, the largest is {largest:.3}: if those matter, try the method min-max"
        ));
    }
    if let Some(spread) = spread {
        return Some(format!(
            "its channels are up to {spread:.0} times apart, which share one scale"
        ));
    }
    let most = percentile(seen, 99.9);
    let far = FAR * all.options.activations.last() / Activations::Int8.last();
    (most > 0.0 && kept > far * most).then(|| {
        format!(
            "one value in 1000 is up to {:.0} times the others: try the method percentile",
            kept / most
        )
    })
}

/// The product with weights that gives a value: what an activation function or a bias reads that isn't rounded between.
pub fn product(all: &Quantized, value: ValueId) -> Option<usize> {
    let source = &all.stage.source;
    let makers = source.makers();
    let mut at = *makers.get(&value)?;
    loop {
        let node = &source.nodes[at];
        match node.op {
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::Gemm { .. } | Op::MatMul { .. } => {
                return Some(at);
            }
            _ => {}
        }
        let mut inputs = node.inputs.iter();
        at = inputs.find_map(|id| {
            makers
                .get(id)
                .filter(|_| all.rounded[id.0].is_none())
                .copied()
        })?;
    }
}

/// How far the largest lies above the middle one, if that is far.
fn spread(ranges: &[f32]) -> Option<f64> {
    let mut ranges: Vec<f32> = ranges.iter().copied().filter(|r| *r > 0.0).collect();
    ranges.sort_by(f32::total_cmp);
    let middle = *ranges.get(ranges.len() / 2)?;
    let spread = f64::from(*ranges.last()?) / f64::from(middle);
    (spread > FAR).then_some(spread)
}

/// The largest weight of each output channel.
fn rows(all: &Quantized, node: &Node) -> Option<Vec<f32>> {
    let Op::Conv { .. } = node.op else {
        return None;
    };
    let weights = &all.stage.source.values[node.inputs.get(1)?.0];
    let Some(Data::F32(data)) = &weights.data else {
        return None;
    };
    let rows = data.chunks((data.len() / weights.shape[0].max(1)).max(1));
    Some(
        rows.map(|row| row.iter().fold(0f32, |m, w| m.max(w.abs())))
            .collect(),
    )
}
