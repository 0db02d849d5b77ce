//! The reference interpreter: what an integer graph means, without tiles or devices.

mod fusions;

use std::sync::Arc;

use rayon::prelude::*;
use thiserror::Error;

use crate::host::{HostError, Segment};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::Window;
use crate::qgraph::{ChannelOf, QConv, QGraph, QNode, QOp, QPair, Spread, TensorId};
use crate::semantics::{self, SemanticsError};

pub use fusions::{Deviation, compare};

/// A graph that can't be interpreted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The input's length isn't the tensor's.
    #[error("the input has {found} values, {name} needs {expected}")]
    Input {
        /// The input tensors.
        name: String,
        /// Values given.
        found: usize,
        /// C * H * W, of all inputs together.
        expected: usize,
    },
    /// A node's tensors contradict its geometry.
    #[error("node {node}: its tensors don't fit its window or weights")]
    Shape {
        /// The node.
        node: String,
    },
    /// A node of the host whose tensors contradict it.
    #[error("node {node}: {source}")]
    Host {
        /// The node.
        node: String,
        /// The cause.
        source: HostError,
    },
    /// A lane operation lacks an entry.
    #[error("node {node}: {source}")]
    Lane {
        /// The node.
        node: String,
        /// The cause.
        source: SemanticsError,
    },
}

/// Runs the graph on one image: NCHW, the values of all inputs one behind the other. Returns
/// every tensor, indexed by [`TensorId`]; tensors that nothing writes are empty.
///
/// # Errors
/// [`ReferenceError`] for an input of another length or an inconsistent graph.
pub fn run(graph: &QGraph, input: &[i16]) -> Result<Vec<Vec<i16>>, ReferenceError> {
    let mut values: Vec<Vec<i16>> = vec![Vec::new(); graph.tensors.len()];
    let len = |id: &TensorId| graph.tensors[id.0].chw.iter().product::<usize>();
    let expected = graph.inputs.iter().map(len).sum();
    if input.len() != expected {
        let names = graph.inputs.iter().map(|id| &graph.tensors[id.0].name[..]);
        return Err(ReferenceError::Input {
            name: names.collect::<Vec<_>>().join(", "),
            found: input.len(),
            expected,
        });
    }
    let mut rest = input;
    for id in &graph.inputs {
        let own = rest.split_off(..len(id)).unwrap_or_default();
        values[id.0] = own.to_vec();
    }
    // Nodes of one segment stand together.
    let mut computed = None;
    for node in &graph.nodes {
        let eval = Eval {
            graph,
            node,
            values: &values,
        };
        values[node.output.0] = eval.value(&mut computed)?;
    }
    Ok(values)
}

struct Eval<'a> {
    graph: &'a QGraph,
    node: &'a QNode,
    values: &'a [Vec<i16>],
}

/// A `[C][H][W]` tensor.
#[derive(Clone, Copy)]
struct View<'a> {
    data: &'a [i16],
    chw: [usize; 3],
    /// The zero point.
    zero: i32,
}

impl<'a> View<'a> {
    fn channel(&self, c: usize) -> &'a [i16] {
        let plane = self.chw[1] * self.chw[2];
        &self.data[c * plane..(c + 1) * plane]
    }
}

impl<'a> Eval<'a> {
    fn shape_error(&self) -> ReferenceError {
        ReferenceError::Shape {
            node: self.node.name.clone(),
        }
    }

    /// What tensors, window and weights must be to each other.
    fn check(&self, fits: bool) -> Result<(), ReferenceError> {
        fits.then_some(()).ok_or_else(|| self.shape_error())
    }

    fn view(&self, id: TensorId) -> Result<View<'a>, ReferenceError> {
        let tensor = &self.graph.tensors[id.0];
        let (chw, zero) = (tensor.chw, tensor.zero);
        let data = &self.values[id.0];
        self.check(data.len() == chw.iter().product::<usize>())?;
        Ok(View { data, chw, zero })
    }

    /// What the node gives; `computed` are all values of the segment before it, if that is of the host.
    fn value(
        &self,
        computed: &mut Option<(Arc<Segment>, Vec<Vec<i16>>)>,
    ) -> Result<Vec<i16>, ReferenceError> {
        if let QOp::Host {
            segment, output, ..
        } = &self.node.op
        {
            return self.host(segment, *output, computed);
        }
        let out = self.graph.tensors[self.node.output.0].chw;
        let planes = (0..out[0]).into_par_iter().map(|c| self.channel(c, out));
        let planes: Vec<Vec<i16>> = planes.collect::<Result<_, _>>()?;
        Ok(planes.concat())
    }

    /// One of a segment's outputs, of which `computed` are those that were computed before.
    fn host(
        &self,
        segment: &Arc<Segment>,
        output: usize,
        computed: &mut Option<(Arc<Segment>, Vec<Vec<i16>>)>,
    ) -> Result<Vec<i16>, ReferenceError> {
        let known = computed.take();
        let known = known.filter(|(of, _)| Arc::ptr_eq(of, segment));
        let made = match known {
            Some((_, made)) => made,
            None => {
                let inputs = self.node.op.inputs();
                let inputs = inputs.iter().map(|id| self.view(*id).map(|view| view.data));
                let inputs: Vec<&[i16]> = inputs.collect::<Result<_, _>>()?;
                segment
                    .run(&inputs)
                    .map_err(|source| ReferenceError::Host {
                        node: self.node.name.clone(),
                        source,
                    })?
            }
        };
        let value = made.get(output).cloned().unwrap_or_default();
        *computed = Some((Arc::clone(segment), made));
        let len: usize = self.graph.tensors[self.node.output.0].chw.iter().product();
        self.check(value.len() == len)?;
        Ok(value)
    }

    /// One channel of the output.
    fn channel(&self, c: usize, out: [usize; 3]) -> Result<Vec<i16>, ReferenceError> {
        let len = out[1] * out[2];
        let lanes = match &self.node.op {
            QOp::Conv(conv) => self.convolution(conv, c, out)?,
            QOp::Add(pair) => self.pair(pair, [c, len], i32::wrapping_add)?,
            QOp::Mul(pair) => self.pair(pair, [c, len], i32::wrapping_mul)?,
            QOp::Eltwise { input, ops } => {
                let view = self.same_shape(*input, out)?;
                self.lanes(widen(view.channel(c)), ops, c)?
            }
            QOp::MaxPool { input, window, ops } => {
                let view = self.pooled(*input, window, out)?;
                let max = |x: Option<i32>, y| Some(x.map_or(y, |x| x.max(y)));
                let values = pool(view.channel(c), view, window, out, max);
                let (least, _) = self.graph.numbers.bounds();
                let value = |(v, _): (Option<i32>, usize)| v.unwrap_or(least.into());
                let lanes = values.into_iter().map(value).collect();
                self.lanes(lanes, ops, c)?
            }
            QOp::Channels {
                inputs,
                map,
                spread,
                gain,
                ops,
            } => {
                let lanes = self.spread([c, out[0]], out, (inputs, map), *spread)?;
                let gain = i32::from(*gain);
                self.lanes(lanes.into_iter().map(|x| x * gain).collect(), ops, c)?
            }
            // Computed with the others of its segment.
            QOp::Host { .. } => return Err(self.shape_error()),
            QOp::AvgPool {
                input,
                window,
                count_include_pad,
                ops_by_count,
            } => {
                let view = self.pooled(*input, window, out)?;
                let sum = |x: Option<i32>, y| Some(x.unwrap_or(0) + y);
                let sums = pool(view.channel(c), view, window, out, sum);
                let all = window.area();
                let average = |(sum, count): (Option<i32>, usize)| {
                    let count = if *count_include_pad { all } else { count };
                    let ops = ops_by_count.iter().find(|(n, _)| *n == count);
                    let ops = ops.ok_or_else(|| self.shape_error())?;
                    Ok(self.lanes(vec![sum.unwrap_or(0)], &ops.1, c)?[0])
                };
                sums.into_iter().map(average).collect::<Result<_, _>>()?
            }
        };
        let (numbers, saturates) = (self.graph.numbers, self.node.saturate);
        let stored = lanes.into_iter().map(|x| numbers.stored(x, saturates));
        Ok(stored.collect())
    }

    /// One channel of a convolution.
    fn convolution(
        &self,
        conv: &QConv,
        c: usize,
        out: [usize; 3],
    ) -> Result<Vec<i32>, ReferenceError> {
        let (window, weights) = (&conv.window, &conv.weights);
        let mut sums = match &conv.residual {
            Some((id, prologue)) => {
                let view = self.same_shape(*id, out)?;
                self.lanes(widen(view.channel(c)), prologue, c)?
            }
            None => vec![0; out[1] * out[2]],
        };
        let view = self.group(self.view(conv.input)?, conv.group, [c, out[0]])?;
        let per_channel = view.chw[0] * window.area();
        let count = out[0] * per_channel;
        let whole = count > 0 && !weights.is_empty() && weights.len().is_multiple_of(count);
        self.check(whole && fits(window, view, out))?;
        for part in weights.chunks(count) {
            let row = &part[c * per_channel..(c + 1) * per_channel];
            convolve(view, window, row, out, &mut sums);
        }
        let lanes = self.lanes(sums, &conv.epilogue, c)?;
        let Some(store) = &conv.store else {
            return Ok(lanes);
        };
        let rounding = store.rounding.get(c).ok_or_else(|| self.shape_error())?;
        let rounded = lanes.into_iter().map(|lane| rounding.apply(lane));
        let Some((id, factor, sum)) = &store.residual else {
            return Ok(rounded.map(i32::from).collect());
        };
        let view = self.same_shape(*id, out)?;
        let both = rounded.zip(view.channel(c));
        Ok(both
            .map(|(x, y)| sum.add(x, *y as i8, *factor).into())
            .collect())
    }

    /// The input channels of the group that an output channel is in.
    fn group(
        &self,
        view: View<'a>,
        group: usize,
        [channel, channels]: [usize; 2],
    ) -> Result<View<'a>, ReferenceError> {
        let [c, h, w] = view.chw;
        self.check(group > 0 && c % group == 0 && channels % group == 0)?;
        let inputs = c / group;
        let first = channel / (channels / group) * inputs * h * w;
        Ok(View {
            data: &view.data[first..first + inputs * h * w],
            chw: [inputs, h, w],
            ..view
        })
    }

    /// A channel whose positions are those of its phases' channels.
    fn spread(
        &self,
        [c, channels]: [usize; 2],
        [_, oh, ow]: [usize; 3],
        (inputs, map): (&[TensorId], &[Option<ChannelOf>]),
        spread: Spread,
    ) -> Result<Vec<i32>, ReferenceError> {
        let mut lanes = vec![0; oh * ow];
        self.check(map.len() == spread.phases() * channels && spread.phases() > 0)?;
        for (phase, part) in map.chunks(channels).enumerate() {
            let Some(from) = part[c] else {
                continue;
            };
            let id = inputs.get(from.input).ok_or_else(|| self.shape_error())?;
            let view = self.view(*id)?;
            let [depth, h, w] = view.chw;
            self.check(from.channel < depth && spread.fits([h, w], [oh, ow]))?;
            let plane = view.channel(from.channel);
            let of = |axis: usize, at: &usize| {
                let own = [phase / spread.up[1], phase % spread.up[1]][axis];
                spread.phase(axis, *at) == own
            };
            for y in (0..oh).filter(|y| of(0, y)) {
                for x in (0..ow).filter(|x| of(1, x)) {
                    let at = spread.position(0, y) * w + spread.position(1, x);
                    lanes[y * ow + x] = plane[at].into();
                }
            }
        }
        Ok(lanes)
    }

    /// A channel of two operands, joined lane by lane. One may have one position for all.
    fn pair(
        &self,
        pair: &QPair,
        [c, len]: [usize; 2],
        join: impl Fn(i32, i32) -> i32,
    ) -> Result<Vec<i32>, ReferenceError> {
        let out = self.graph.tensors[self.node.output.0].chw;
        let lanes = |id: TensorId, ops: &[LaneOp]| {
            let view = self.view(id)?;
            let lanes = match view.chw {
                chw if chw == out => widen(view.channel(c)),
                [channels, 1, 1] if channels == out[0] => vec![view.channel(c)[0].into(); len],
                _ => return Err(self.shape_error()),
            };
            self.lanes(lanes, ops, c)
        };
        let [a, b] = [lanes(pair.a, &pair.a_ops)?, lanes(pair.b, &pair.b_ops)?];
        let both = a.into_iter().zip(b);
        if let Some((Some(factor), rounding)) = &pair.store {
            let sum = |(x, y)| rounding.add(x as i8, y as i8, *factor).into();
            return Ok(both.map(sum).collect());
        }
        let joined = both.map(|(x, y)| join(x, y));
        if let Some((None, rounding)) = &pair.store {
            return Ok(joined.map(|x| rounding.apply(x).into()).collect());
        }
        self.lanes(joined.collect(), &pair.epilogue, c)
    }

    fn same_shape(&self, id: TensorId, out: [usize; 3]) -> Result<View<'a>, ReferenceError> {
        let view = self.view(id)?;
        self.check(view.chw == out)?;
        Ok(view)
    }

    /// A tensor whose windows are pooled.
    fn pooled(
        &self,
        id: TensorId,
        window: &Window,
        out: [usize; 3],
    ) -> Result<View<'a>, ReferenceError> {
        let view = self.view(id)?;
        self.check(view.chw[0] == out[0] && fits(window, view, out))?;
        Ok(view)
    }

    fn lanes(
        &self,
        mut lanes: Vec<i32>,
        ops: &[LaneOp],
        channel: usize,
    ) -> Result<Vec<i32>, ReferenceError> {
        for op in ops {
            semantics::apply(op, channel, &mut lanes).map_err(|source| ReferenceError::Lane {
                node: self.node.name.clone(),
                source,
            })?;
        }
        Ok(lanes)
    }
}

/// Whether an output has the rows and columns of a window over an input.
fn fits(window: &Window, view: View<'_>, out: [usize; 3]) -> bool {
    window.output(view.chw[1], view.chw[2]) == Some([out[1], out[2]])
}

fn widen(values: &[i16]) -> Vec<i32> {
    values.iter().map(|&x| x.into()).collect()
}

/// Adds one output channel's products to `sums`. Taps on padding read the zero point `z`: all that
/// read it is added first, and then `w * (x - z)` where there is an input.
fn convolve(view: View<'_>, window: &Window, weights: &[i8], out: [usize; 3], sums: &mut [i32]) {
    let [ci, h, w] = view.chw;
    let taps = window.taps([h, w], [out[1], out[2]]);
    // Sums wrap as the device's do; a plan proves that they don't. Loops that check for it don't become vectors.
    let all = weights
        .iter()
        .map(|&w| i32::from(w).wrapping_mul(view.zero));
    let start = all.fold(0, i32::wrapping_add);
    sums.iter_mut()
        .for_each(|sum| *sum = sum.wrapping_add(start));
    for (c, weights) in (0..ci).zip(weights.chunks(window.area())) {
        for tap in &taps {
            let weight = i32::from(weights[tap.index[0] * window.kernel[1] + tap.index[1]]);
            if weight != 0 {
                tap.fold(view.channel(c), sums, |sum, x| {
                    let x = i32::from(x).wrapping_sub(view.zero);
                    *sum = sum.wrapping_add(weight.wrapping_mul(x));
                });
            }
        }
    }
}

/// Folds the valid part of each window; with the number of its positions.
fn pool(
    plane: &[i16],
    view: View<'_>,
    window: &Window,
    out: [usize; 3],
    fold: impl Fn(Option<i32>, i32) -> Option<i32>,
) -> Vec<(Option<i32>, usize)> {
    let [_, h, w] = view.chw;
    let mut values = vec![(None, 0); out[1] * out[2]];
    for tap in window.taps([h, w], [out[1], out[2]]) {
        tap.fold(plane, &mut values, |value, x| {
            *value = (fold(value.0, x.into()), value.1 + 1);
        });
    }
    values
}
