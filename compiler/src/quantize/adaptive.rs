//! Weights rounded so that their errors cancel: what they add to a layer's outputs is small where each error alone
//! needn't be.
//!
//! The squared error of an output is a quadratic form in the errors of its weights, of the second moments of what the
//! weights meet. Steps up or down are taken one at a time while the form gets smaller: Nagel et al., "Up or Down?
//! Adaptive Rounding for Post-Training Quantization" (2020), by coordinate descent. Neighbours in a picture are alike,
//! so that a depthwise convolution's errors should add up to nothing, however large each is.

use std::ops::Range;

use rayon::prelude::*;

use crate::engine::{self, Matrix};
use crate::graph::{Graph, MatMulForm, Node, Op, ValueId};
use crate::qgraph::window::Window;

/// The longest row of weights whose moments are taken: they need its square.
const LONGEST: usize = 1200;
/// The least patches of all images for a layer, where there are so many.
const PATCHES: usize = 512;
/// Beyond them, moments cost at most so many times what the layer does on the images.
const WORTH: usize = 6;
/// Patches that are multiplied together, where images have fewer: each product reads and writes all moments.
const TOGETHER: usize = 128;
/// Moments of a row's weights are multiplied in bands of about so many weights: those with later bands are the same.
const BAND: usize = 256;
/// Columns of a form that become rows together.
const MIRRORED: usize = 8;
/// Walks over a row's weights at most.
const WALKS: usize = 12;
/// Steps that a weight is from its nearest at most.
pub(super) const AWAY: f32 = 1.5;

/// What the weights of a layer meet: patches of its input, each as long as a row of weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    pub node: usize,
    pub input: ValueId,
    reads: Reads,
    /// Rows of weights that meet other channels.
    groups: usize,
    /// Weights of a row.
    row: usize,
    /// Values that an image gives.
    outputs: usize,
}

#[derive(Clone, Copy, Debug)]
enum Reads {
    /// The last dimension.
    Rows,
    Windows {
        window: Window,
        input: [usize; 2],
        output: [usize; 2],
    },
}

/// The layers of a graph whose weights' moments can be taken.
pub(super) fn layers(graph: &Graph) -> Vec<Layer> {
    let nodes = graph.nodes.iter().enumerate();
    nodes
        .filter_map(|(at, node)| layer(graph, at, node))
        .collect()
}

fn layer(graph: &Graph, at: usize, node: &Node) -> Option<Layer> {
    let shape = |id: ValueId| &graph.values[id.0].shape[..];
    let input = *node.inputs.first()?;
    let (reads, groups, row) = match node.op {
        Op::Gemm { .. } => (Reads::Rows, 1, *shape(input).last()?),
        Op::MatMul { form } if form != MatMulForm::Left => (Reads::Rows, 1, *shape(input).last()?),
        Op::Conv { window, group } => {
            let sizes = |id: ValueId| match shape(id).get(2..)? {
                [columns] => Some([1, *columns]),
                [rows, columns] => Some([*rows, *columns]),
                _ => None,
            };
            let reads = Reads::Windows {
                window,
                input: sizes(input)?,
                output: sizes(node.output)?,
            };
            let channels = shape(input)[1] / group.max(1);
            let taps: usize = window.kernel.iter().product();
            (reads, group, channels.checked_mul(taps)?)
        }
        _ => return None,
    };
    (1..=LONGEST).contains(&row).then_some(Layer {
        node: at,
        input,
        reads,
        groups,
        row,
        outputs: shape(node.output).iter().product(),
    })
}

impl Layer {
    /// So many patches of an image's input, group by group: the values that the weights of a row meet, one patch
    /// behind the other. `image` moves the positions, so that not all images show the same.
    pub fn patches(&self, values: &[f32], images: usize, image: usize) -> Vec<f32> {
        let given = (self.outputs / self.groups.max(1)).saturating_mul(images);
        let worth = given.saturating_mul(WORTH) / self.row;
        let wanted = PATCHES.max(self.row.min(worth)).div_ceil(images.max(1));
        let finite = |v: f32| if v.abs() < f32::INFINITY { v } else { 0.0 };
        let places = |all: usize| {
            let count = wanted.min(all);
            let first = image.wrapping_mul(7919) % (all / count.max(1)).max(1);
            (0..count).map(move |k| (k * all / count + first).min(all - 1))
        };
        match self.reads {
            Reads::Rows => {
                let mut patches = Vec::new();
                for place in places(values.len() / self.row) {
                    let row = &values[place * self.row..][..self.row];
                    patches.extend(row.iter().map(|v| finite(*v)));
                }
                patches
            }
            Reads::Windows {
                window,
                input: [height, width],
                output: [rows, columns],
            } => {
                let at: Vec<[usize; 2]> = places(rows * columns)
                    .map(|place| [place / columns, place % columns])
                    .map(|[y, x]| [y * window.stride[0], x * window.stride[1]])
                    .collect();
                let before = window.pads.before();
                let taps = window.kernel[0] * window.kernel[1];
                let each = at.len() * self.row;
                let mut patches = vec![0.0; self.groups * each];
                let channels = values.chunks_exact((height * width).max(1));
                for (channel, values) in channels.enumerate() {
                    let (group, first) = (channel * taps / self.row, channel * taps % self.row);
                    for tap in 0..taps {
                        let place = [tap / window.kernel[1], tap % window.kernel[1]];
                        let inside = |at: &[usize; 2], axis: usize| {
                            (at[axis] + place[axis] * window.dilation[axis])
                                .checked_sub(before[axis])
                        };
                        for (patch, at) in at.iter().enumerate() {
                            if let (Some(y), Some(x)) = (inside(at, 0), inside(at, 1))
                                && y < height
                                && x < width
                            {
                                patches[group * each + patch * self.row + first + tap] =
                                    finite(values[y * width + x]);
                            }
                        }
                    }
                }
                patches
            }
        }
    }
}

/// Second moments of what a layer's weights meet.
#[derive(Clone, Debug)]
pub(super) struct Moments {
    layer: Layer,
    /// Sums of products, group by group: of each band of weights with all up to its end.
    sums: Vec<Vec<f32>>,
    firsts: Vec<f32>,
    count: usize,
    /// Patches of a layer of one group that aren't in the sums yet.
    waiting: Vec<f32>,
}

impl Moments {
    pub fn new(layer: &Layer) -> Self {
        let Layer { groups, row, .. } = *layer;
        let band = |band: Range<usize>| vec![0.0; band.len() * band.end];
        Self {
            layer: *layer,
            sums: (0..groups).flat_map(|_| bands(row).map(band)).collect(),
            firsts: vec![0.0; groups * row],
            count: 0,
            waiting: Vec::new(),
        }
    }

    /// Adds the patches of an image.
    pub fn add(&mut self, patches: &[f32]) {
        let row = self.layer.row;
        let count = patches.len() / self.firsts.len().max(1);
        if count == 0 {
            return;
        }
        self.count += count;
        let firsts = self.firsts.chunks_exact_mut(row);
        for (firsts, patches) in firsts.zip(patches.chunks_exact(count * row)) {
            for patch in patches.chunks_exact(row) {
                firsts
                    .iter_mut()
                    .zip(patch)
                    .for_each(|(first, v)| *first += v);
            }
        }
        if self.layer.groups > 1 {
            self.multiply(patches);
            return;
        }
        self.waiting.extend_from_slice(patches);
        if self.waiting.len() >= TOGETHER * row {
            self.multiply_waiting();
        }
    }

    /// The moments of all patches that were added.
    pub fn whole(mut self) -> Self {
        self.multiply_waiting();
        self
    }

    fn multiply_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        self.multiply(&waiting);
        waiting.clear();
        self.waiting = waiting;
    }

    fn multiply(&mut self, patches: &[f32]) {
        let Layer { groups, row, .. } = self.layer;
        let count = patches.len() / (groups * row);
        if count == 0 {
            return;
        }
        let all = patches.chunks_exact(count * row);
        let all = all.flat_map(|patches| bands(row).map(move |band| (patches, band)));
        for (sums, (patches, band)) in self.sums.iter_mut().zip(all) {
            let left = Matrix {
                values: &patches[band.start..],
                sizes: [band.len(), count],
                strides: [1, row],
            };
            let right = Matrix {
                values: patches,
                sizes: [count, band.end],
                strides: [row, 1],
            };
            engine::add_product(sums, left, right);
        }
    }

    /// Moves weights from their nearest steps to those with which a layer's outputs lose least: around their means
    /// where biases take those off.
    pub fn settle(&self, rounded: &mut [i8], weights: &[f32], rows: &Rows<'_>, centred: bool) {
        let Layer { row, groups, .. } = self.layer;
        if self.count < 2 || weights.len() != rows.count * row || !rows.count.is_multiple_of(groups)
        {
            return;
        }
        let each = rows.count / groups;
        let nearest = &*rounded;
        let moved: Vec<Vec<i8>> = (0..groups)
            .into_par_iter()
            .flat_map(|group| {
                let form = self.form(group, centred);
                let own = group * each..(group + 1) * each;
                let errors: Vec<f32> = own
                    .clone()
                    .flat_map(|at| (0..row).map(move |k| rows.error(at, k, nearest, weights)))
                    .collect();
                // Half of how the form changes with each error.
                let mut slopes = vec![0.0; errors.len()];
                let [left, right] = [(&errors, each), (&form, row)].map(|(values, rows)| Matrix {
                    values,
                    sizes: [rows, row],
                    strides: [row, 1],
                });
                engine::add_product(&mut slopes, left, right);
                own.into_par_iter()
                    .zip(errors.par_chunks(row).zip(slopes.par_chunks_mut(row)))
                    .map(|(at, (errors, slope))| rows.settled(at, nearest, (errors, slope), &form))
                    .collect::<Vec<_>>()
            })
            .collect();
        for (at, row) in moved.into_iter().enumerate() {
            for (k, q) in row.into_iter().enumerate() {
                rounded[rows.place(at, k)] = q;
            }
        }
    }

    /// The quadratic form of a group: what differs by chance from zero between two weights counts less with fewer
    /// patches.
    fn form(&self, group: usize, centred: bool) -> Vec<f32> {
        let row = self.layer.row;
        let count = self.count as f64;
        let sums = &self.sums[group * bands(row).len()..];
        let firsts = self.firsts[group * row..][..row].iter();
        let mean = |sum: &f32| {
            if centred {
                f64::from(*sum) / count
            } else {
                0.0
            }
        };
        let means: Vec<f64> = firsts.map(mean).collect();
        let sure = count / (count + row as f64);
        let mut form = vec![0.0; row * row];
        for (band, sums) in bands(row).zip(sums) {
            for (i, sums) in band.clone().zip(sums.chunks_exact(band.end)) {
                let moment = |k: usize| f64::from(sums[k]) / count - means[i] * means[k];
                for (k, form) in form[i * row..][..i].iter_mut().enumerate() {
                    *form = (moment(k) * sure) as f32;
                }
                form[i * row + i] = moment(i) as f32;
            }
        }
        // Few columns at a time become rows, so that their ends stay in the cache.
        for first in (0..row).step_by(MIRRORED) {
            for i in first..row {
                for k in first..i.min(first + MIRRORED) {
                    form[k * row + i] = form[i * row + k];
                }
            }
        }
        form
    }
}

/// Parts of a row's weights, alike in size.
fn bands(row: usize) -> impl ExactSizeIterator<Item = Range<usize>> {
    let count = row.div_ceil(BAND);
    (0..count).map(move |band| band * row / count..(band + 1) * row / count)
}

/// Where the weights of each row lie, and their steps.
pub(super) struct Rows<'a> {
    pub count: usize,
    /// Weights from one of a row to the next, and from one row to the next.
    pub strides: [usize; 2],
    pub step: &'a (dyn Fn(usize) -> f32 + Sync),
    /// The least and the largest step.
    pub range: [f32; 2],
}

impl Rows<'_> {
    fn place(&self, row: usize, k: usize) -> usize {
        row * self.strides[1] + k * self.strides[0]
    }

    /// How far a weight's step is from it, in steps.
    fn error(&self, row: usize, k: usize, rounded: &[i8], weights: &[f32]) -> f32 {
        let place = self.place(row, k);
        f32::from(rounded[place]) - weights[place] / (self.step)(row)
    }

    /// A row's weights in steps, of the steps that they have and their errors, and of how the form changes with these.
    fn settled(
        &self,
        row: usize,
        rounded: &[i8],
        (errors, slope): (&[f32], &mut [f32]),
        form: &[f32],
    ) -> Vec<i8> {
        let len = errors.len();
        let step = |k: usize| f32::from(rounded[self.place(row, k)]);
        let (mut moves, [low, high]) = (vec![0.0f32; len], self.range);
        for _ in 0..WALKS {
            let mut moved = false;
            for k in 0..len {
                let by = -slope[k].signum();
                let less = slope[k].abs() > form[k * len + k] * 0.5001;
                if less
                    && (errors[k] + moves[k] + by).abs() <= AWAY
                    && (low..=high).contains(&(step(k) + moves[k] + by))
                {
                    moves[k] += by;
                    let form = &form[k * len..][..len];
                    slope
                        .iter_mut()
                        .zip(form)
                        .for_each(|(slope, form)| *slope += by * form);
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        (0..len).map(|k| (step(k) + moves[k]) as i8).collect()
    }
}

#[cfg(test)]
mod tests;
