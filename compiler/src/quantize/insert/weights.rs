//! Weights of layers as the graph has them, and their scales.

use std::borrow::Cow;

use rayon::prelude::*;

use super::super::error::QuantizeError;
use super::super::method::best_scale;
use super::super::mode::{Mode, WeightScales};
use super::super::options::Options;
use super::super::slices::{INT4, are_finite, largest};
use crate::graph::{Data, Graph, Node, Op, ValueId};
use crate::qgraph::Numbers as Activations;

/// Float data of a graph, or made for it.
pub(in crate::quantize) type Floats<'a> = Cow<'a, [f32]>;

/// Float constants that a graph leaves out.
pub(in crate::quantize) type Constants<'a> = dyn Fn(ValueId) -> Option<Vec<f32>> + 'a;

/// Weights of a layer. Those of a dense layer have output channels first.
pub(in crate::quantize) struct Weights<'a> {
    pub values: Floats<'a>,
    pub shape: Vec<usize>,
    /// That of output channels, or of those of a group.
    pub axis: usize,
    /// Groups, beside the axis.
    pub group: usize,
    /// Channels of the axis.
    pub channels: usize,
    /// Weights behind each other of a channel.
    pub inner: usize,
}

/// A float constant, by the index of an input, and its shape.
pub(in crate::quantize) fn floats<'a>(
    source: &'a Graph,
    constants: &Constants<'_>,
    node: &Node,
    index: usize,
) -> Result<(Floats<'a>, Vec<usize>), QuantizeError> {
    let refuse = |reason: &str| Err(QuantizeError::of(&node.name, reason));
    let value = node.inputs.get(index).map(|id| (id, &source.values[id.0]));
    let data = value.and_then(|(id, value)| match &value.data {
        Some(Data::F32(data)) => Some((Cow::Borrowed(&data[..]), &value.shape)),
        Some(_) => None,
        None => Some((Cow::Owned(constants(*id)?), &value.shape)),
    });
    match data {
        Some((data, shape)) if are_finite(&data) => Ok((data, shape.clone())),
        Some(_) => refuse("a weight or bias is not finite"),
        None => refuse("its weights and bias must be float constants"),
    }
}

impl<'a> Weights<'a> {
    /// Those of a node.
    ///
    /// # Errors
    /// As for [`floats`].
    pub fn of(
        source: &'a Graph,
        constants: &Constants<'_>,
        node: &Node,
    ) -> Result<Self, QuantizeError> {
        let (mut values, mut shape) = floats(source, constants, node, 1)?;
        if node.op == (Op::Gemm { trans_b: false }) {
            let (k, n) = (shape[0], shape[1]);
            let turned = (0..n * k).into_par_iter();
            values = turned.map(|i| values[i % k * n + i / k]).collect();
            shape = vec![n, k];
        }
        let (axis, group) = match node.op {
            Op::MatMul { form } => (form.output_axis(), 1),
            Op::ConvTranspose { group, .. } => (1, group),
            _ => (0, 1),
        };
        let (channels, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        Ok(Self {
            values,
            shape,
            axis,
            group,
            channels,
            inner,
        })
    }

    /// Channel by channel.
    pub fn rows(&self) -> Floats<'_> {
        // All weights of a channel, of each group, have one scale.
        let of = |c: usize| {
            let slices = self.values.chunks(self.inner.max(1)).skip(c);
            slices.step_by(self.channels.max(1)).flatten().copied()
        };
        match self.axis {
            0 => Cow::Borrowed(&self.values),
            _ => (0..self.channels).flat_map(of).collect(),
        }
    }

    /// One scale for each output channel, or one for all.
    pub fn scales(
        &self,
        options: &Options,
        bias: &[f32],
        scale_x: f32,
        range: [f32; 2],
    ) -> Vec<f32> {
        let weights = self.rows();
        // A scale so small that the bias exceeds its part of int32 is raised.
        let most = most_bias(options.activations);
        let least = |b: &f32| (f64::from(b.abs()) / f64::from(scale_x) / most) as f32;
        let channel = |(row, b): (&[f32], &f32)| {
            let scale = match largest(row) {
                0.0 => 1.0 / 128.0,
                // Of few steps some are better spent on many small weights than on a large one.
                _ if range == INT4 => best_scale(row, Mode::Multiply, range),
                largest => largest / 127.0,
            };
            scale.max(least(b)).max(f32::MIN_POSITIVE)
        };
        match (options.mode, options.weights) {
            (Mode::Multiply, WeightScales::PerChannel) => {
                let rows = weights.par_chunks((weights.len() / self.channels.max(1)).max(1));
                rows.zip(bias).map(channel).collect()
            }
            (Mode::Multiply, WeightScales::PerTensor) => {
                vec![channel((&weights, &largest(bias)))]
            }
            (Mode::Shift, _) => {
                let mut scale = best_scale(&weights, Mode::Shift, range);
                while bias.iter().any(|b| scale < least(b)) {
                    scale *= 2.0;
                }
                vec![scale]
            }
        }
    }
}

/// The largest magnitude of a quantised bias. Beside int8 it leaves the sum a bit more than the same again; beside int16
/// products may be 2^30, which leaves rounding a quarter of int32.
const fn most_bias(activations: Activations) -> f64 {
    match activations {
        Activations::Int8 => (1 << 30) as f64,
        Activations::Int16 => (1 << 29) as f64,
    }
}
