//! Bias correction: what rounded weights add to the mean of an output channel, for its bias to take off.
//!
//! Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (2019), with
//! the means that calibration images give instead of those of BatchNormalization. Errors of weights
//! don't cancel over the inputs of a channel, of which depthwise convolutions have few.

use rayon::prelude::*;

use crate::graph::{Graph, Node, Op};
use crate::qgraph::window::Window;

/// Outputs that are added up side by side, so that no sum waits for itself.
const LANES: usize = 4;

/// Errors of weights.
pub(super) struct Errors<'a> {
    pub count: usize,
    /// Writes those from an index on, as many as there is room for.
    pub from: &'a (dyn Fn(usize, &mut [f64]) + Sync),
}

/// What errors of weights add to the mean of each output channel, with the means of the input's channels.
/// `errors` is `[CO][CI/group][KH][KW]`, or `[N][K]` for a dense layer. None for other operators, and where
/// the means are of other channels.
pub(super) fn expected(
    graph: &Graph,
    node: &Node,
    errors: &Errors<'_>,
    means: &[f64],
) -> Option<Vec<f64>> {
    let channels = match *graph.values[node.output.0].shape {
        [1, channels, ..] => channels,
        _ => return None,
    };
    let (taps, group) = match node.op {
        Op::Gemm { .. } => (vec![1.0], 1),
        Op::Conv { window, group } => {
            let sizes = |id: usize| match graph.values[id].shape[2..] {
                [columns] => Some([1, columns]),
                [rows, columns] => Some([rows, columns]),
                _ => None,
            };
            let inputs = sizes(node.inputs[0].0)?;
            (taps(&window, inputs, sizes(node.output.0)?), group)
        }
        _ => return None,
    };
    let inputs = means.len() / group.max(1);
    let outputs = channels / group.max(1);
    if errors.count != channels * inputs * taps.len() || outputs == 0 || inputs == 0 {
        return None;
    }
    let row = inputs * taps.len();
    let mut sums = vec![0.0; channels];
    let room = || vec![0.0; LANES * row];
    let lanes = sums.par_chunks_mut(LANES).enumerate();
    lanes.for_each_init(room, |of, (index, sums)| {
        let first = index * LANES;
        let of = &mut of[..sums.len() * row];
        (errors.from)(first * row, of);
        // What the taps of an input add up to, in the input's place.
        if taps != [1.0] {
            for at in 0..sums.len() * inputs {
                let errors = &of[at * taps.len()..][..taps.len()];
                of[at] = errors.iter().zip(&taps).map(|(e, part)| e * part).sum();
            }
        }
        let means = |lane: usize| &means[(first + lane) / outputs * inputs..][..inputs];
        add_up(of, inputs, means, sums);
    });
    Some(sums)
}

/// For each sum its values, `inputs` of them, times their means, added up from the first to the last.
fn add_up<'m>(values: &[f64], inputs: usize, means: impl Fn(usize) -> &'m [f64], sums: &mut [f64]) {
    let lane = |lane: usize| (&values[lane * inputs..][..inputs], means(lane));
    if sums.len() < LANES {
        for (index, sum) in sums.iter_mut().enumerate() {
            let (values, means) = lane(index);
            *sum = values.iter().zip(means).map(|(v, mean)| mean * v).sum();
        }
        return;
    }
    // A sum of nothing is -0.
    let mut all = [-0.0; LANES];
    let lanes: [_; LANES] = std::array::from_fn(lane);
    for input in 0..inputs {
        for (sum, (values, means)) in all.iter_mut().zip(&lanes) {
            *sum += means[input] * values[input];
        }
    }
    sums.copy_from_slice(&all);
}

/// The part of the output's positions for which each tap lies on the input, not on padding.
fn taps(window: &Window, inputs: [usize; 2], outputs: [usize; 2]) -> Vec<f64> {
    let part = |axis: usize, tap: usize| {
        let first = window.pads.before()[axis];
        let inside = |at: &usize| {
            let place = at * window.stride[axis] + tap * window.dilation[axis];
            (first..first + inputs[axis]).contains(&place)
        };
        let count = (0..outputs[axis]).filter(inside).count();
        count as f64 / outputs[axis].max(1) as f64
    };
    let [rows, columns] = [0, 1].map(|axis| {
        let taps = 0..window.kernel[axis];
        taps.map(|tap| part(axis, tap)).collect::<Vec<f64>>()
    });
    rows.iter()
        .flat_map(|row| columns.iter().map(move |column| row * column))
        .collect()
}

#[cfg(test)]
mod tests;
