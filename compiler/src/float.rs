//! The float32 interpreter: for calibration, and to see what quantisation costs.
//!
//! Sums run in a fixed order, so results don't depend on the number of threads.

mod moves;

use rayon::prelude::*;
use thiserror::Error;

use crate::graph::{Data, Graph, Node, Op, ValueId};
use crate::host::HostOp;
use crate::window::Window;

/// A graph or input that can't be interpreted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FloatError {
    /// The input has another length.
    #[error("the input has {found} values, the network needs {expected}")]
    Input {
        /// Values given.
        found: usize,
        /// Values needed.
        expected: usize,
    },
    /// A node lacks data.
    #[error("node {node}: {reason}")]
    Node {
        /// The node.
        node: String,
        /// Why.
        reason: String,
    },
}

/// Every value of the graph on one image (float32, NCHW), indexed by [`ValueId`]; float
/// initializers are included, other constants are empty.
///
/// # Errors
/// [`FloatError`] for an input of another length or inconsistent nodes.
pub fn run_all(graph: &Graph, input: &[f32]) -> Result<Vec<Vec<f32>>, FloatError> {
    let mut values: Vec<Vec<f32>> = graph
        .values
        .iter()
        .map(|v| constant(v.data.as_ref()))
        .collect();
    for id in &graph.inputs {
        let expected = graph.values[id.0].shape.iter().product();
        if input.len() != expected {
            return Err(FloatError::Input {
                found: input.len(),
                expected,
            });
        }
        values[id.0] = input.to_vec();
    }
    for node in &graph.nodes {
        values[node.output.0] = eval(graph, node, &values)?;
    }
    Ok(values)
}

/// The network's outputs on one image.
///
/// # Errors
/// As [`run_all`].
pub fn run(graph: &Graph, input: &[f32]) -> Result<Vec<Vec<f32>>, FloatError> {
    let mut values = run_all(graph, input)?;
    Ok(graph
        .outputs
        .iter()
        .map(|id| std::mem::take(&mut values[id.0]))
        .collect())
}

/// Constants as floats: integers are wanted by DequantizeLinear.
fn constant(data: Option<&Data>) -> Vec<f32> {
    match data {
        Some(Data::F32(v)) => v.clone(),
        Some(Data::I8(v)) => v.iter().map(|&x| x.into()).collect(),
        Some(Data::U8(v)) => v.iter().map(|&x| x.into()).collect(),
        Some(Data::I32(v)) => v.iter().map(|&x| x as f32).collect(),
        Some(Data::I64(_) | Data::Bool(_)) | None => Vec::new(),
    }
}

/// What windows go over.
const PLANES: &str = "its tensors have no rows and columns";

fn eval(graph: &Graph, node: &Node, values: &[Vec<f32>]) -> Result<Vec<f32>, FloatError> {
    let fail = |reason: &str| FloatError::Node {
        node: node.name.clone(),
        reason: reason.to_owned(),
    };
    let input = |i: usize| -> Result<&[f32], FloatError> {
        let id = node
            .inputs
            .get(i)
            .ok_or_else(|| fail("an input is missing"))?;
        let expected: usize = graph.values[id.0].shape.iter().product();
        let value = &values[id.0];
        if value.len() == expected {
            Ok(value)
        } else {
            Err(fail("an input has no data"))
        }
    };
    let shape = |id: ValueId| &graph.values[id.0].shape[..];
    let x = input(0)?;
    let in_shape = shape(node.inputs[0]);
    Ok(match &node.op {
        Op::Conv { window, group } => {
            let bias = if node.inputs.len() > 2 {
                Some(input(2)?)
            } else {
                None
            };
            let sizes = [in_shape, shape(node.output)];
            conv(x, input(1)?, bias, window, *group, sizes).ok_or_else(|| fail(PLANES))?
        }
        Op::Relu => x.iter().map(|v| v.max(0.0)).collect(),
        Op::Clip { min, max } => x.iter().map(|v| v.max(*min).min(*max)).collect(),
        Op::Add | Op::Mul | Op::Sub | Op::Div | Op::PRelu => {
            let pair = [(x, in_shape), (input(1)?, shape(node.inputs[1]))];
            let f = match node.op {
                Op::Add => |a, b| a + b,
                Op::Mul => |a, b| a * b,
                Op::Sub => |a, b| a - b,
                Op::Div => |a, b| a / b,
                _ => |x: f32, slope: f32| if x < 0.0 { slope * x } else { x },
            };
            moves::binary(pair, shape(node.output), f)
        }
        Op::LeakyRelu { alpha } => {
            let leak = |&x: &f32| if x < 0.0 { alpha * x } else { x };
            x.iter().map(leak).collect()
        }
        Op::HardSigmoid { alpha, beta } => x
            .iter()
            .map(|x| (alpha * x + beta).clamp(0.0, 1.0))
            .collect(),
        Op::HardSwish => x
            .iter()
            .map(|x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0))
            .collect(),
        Op::ConvTranspose { .. }
        | Op::Concat { .. }
        | Op::Slice { .. }
        | Op::Gather { .. }
        | Op::DepthToSpace { .. }
        | Op::SpaceToDepth { .. }
        | Op::Resize { .. } => {
            let count = match node.op {
                Op::Gather { .. } => 1,
                _ => node.inputs.len(),
            };
            let all = (0..count).map(input).collect::<Result<Vec<_>, _>>()?;
            moves::eval(graph, node, &all).ok_or_else(|| fail("its inputs don't fit each other"))?
        }
        Op::MaxPool { window } => {
            let sizes = [in_shape, shape(node.output)];
            let folded = pool(x, sizes, window, f32::NEG_INFINITY, f32::max);
            let folded = folded.ok_or_else(|| fail(PLANES))?;
            folded.into_iter().map(|(v, _)| v).collect()
        }
        Op::AveragePool {
            window,
            count_include_pad,
        } => {
            let all = window.area();
            let sizes = [in_shape, shape(node.output)];
            let sums = pool(x, sizes, window, 0.0, |a, b| a + b);
            let sums = sums.ok_or_else(|| fail(PLANES))?;
            let mean =
                |(sum, n): (f32, usize)| sum / (if *count_include_pad { all } else { n }) as f32;
            sums.into_iter().map(mean).collect()
        }
        Op::GlobalAveragePool => {
            let plane: usize = in_shape.iter().skip(2).product();
            x.chunks(plane.max(1))
                .map(|c| c.iter().sum::<f32>() / plane as f32)
                .collect()
        }
        Op::Flatten | Op::Identity => x.to_vec(),
        Op::Pad { .. } | Op::Onnx(_) => return Err(fail("it isn't computed here")),
        Op::Host(op) => {
            let all = (0..node.inputs.len())
                .map(input)
                .collect::<Result<Vec<_>, _>>()?;
            let shapes = node.inputs.iter().map(|id| shape(*id));
            host(op, &all, shapes).ok_or_else(|| fail("its inputs don't fit each other"))?
        }
        Op::Gemm { trans_b } => {
            let bias = if node.inputs.len() > 2 {
                Some(input(2)?)
            } else {
                None
            };
            let n = *shape(node.output)
                .last()
                .ok_or_else(|| fail("its output has no dimensions"))?;
            gemm(x, input(1)?, bias, n, *trans_b)
        }
        Op::BatchNormalization { epsilon } => {
            let plane: usize = in_shape.iter().skip(2).product();
            let [scale, bias, mean, var] = [input(1)?, input(2)?, input(3)?, input(4)?];
            let channel = |(c, v): (usize, &[f32])| {
                let factor = scale[c] / (var[c] + epsilon).sqrt();
                v.iter()
                    .map(|v| (v - mean[c]) * factor + bias[c])
                    .collect::<Vec<_>>()
            };
            x.chunks(plane.max(1))
                .enumerate()
                .flat_map(channel)
                .collect()
        }
        Op::QuantizeLinear { axis } => {
            let scales = input(1)?;
            let quantize = |(i, v): (usize, &f32)| {
                (v / slice(scales, in_shape, *axis, i))
                    .round_ties_even()
                    .clamp(-128.0, 127.0)
            };
            x.iter().enumerate().map(quantize).collect()
        }
        Op::DequantizeLinear { axis } => {
            let scales = input(1)?;
            let real = |(i, v): (usize, &f32)| v * slice(scales, in_shape, *axis, i);
            x.iter().enumerate().map(real).collect()
        }
    })
}

/// What the host computes, through float64.
fn host<'s>(
    op: &HostOp,
    inputs: &[&[f32]],
    shapes: impl Iterator<Item = &'s [usize]>,
) -> Option<Vec<f32>> {
    let wide = |x: &&[f32]| x.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    let values: Vec<Vec<f64>> = inputs.iter().map(wide).collect();
    let chw = |shape: &[usize]| match *shape {
        [_, c, h, w] => Some([c, h, w]),
        [_, n] => Some([n, 1, 1]),
        _ => None,
    };
    let shapes: Vec<[usize; 3]> = shapes.map(chw).collect::<Option<_>>()?;
    let given: Vec<_> = values.iter().map(Vec::as_slice).zip(shapes).collect();
    let out = op.real(&given).ok()?;
    Some(out.into_iter().map(|v| v as f32).collect())
}

/// The scale of element `i`: one for all, or one for each slice along an axis.
fn slice(scales: &[f32], shape: &[usize], axis: usize, i: usize) -> f32 {
    let inner: usize = shape.iter().skip(axis + 1).product();
    scales[if scales.len() == 1 {
        0
    } else {
        i / inner.max(1) % scales.len()
    }]
}

fn gemm(x: &[f32], w: &[f32], bias: Option<&[f32]>, n: usize, trans_b: bool) -> Vec<f32> {
    let k = x.len();
    let column = |o: usize| {
        let dot: f32 = (0..k)
            .map(|i| x[i] * if trans_b { w[o * k + i] } else { w[i * n + o] })
            .sum();
        dot + bias.map_or(0.0, |b| b[o])
    };
    (0..n).map(column).collect()
}

fn conv(
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    window: &Window,
    group: usize,
    [input, output]: [&[usize]; 2],
) -> Option<Vec<f32>> {
    let (&[_, ci, h, wi], &[_, co, oh, ow]) = (input, output) else {
        return None;
    };
    let (area, per_group) = (window.area(), ci / group);
    let taps = window.taps([h, wi], [oh, ow]);
    let channel = |o: usize| {
        let mut sums = vec![bias.map_or(0.0, |b| b[o]); oh * ow];
        let first = o / (co / group).max(1) * per_group;
        for c in 0..per_group {
            let plane = &x[(first + c) * h * wi..(first + c + 1) * h * wi];
            let weights = &w[(o * per_group + c) * area..][..area];
            for tap in &taps {
                let weight = weights[tap.index[0] * window.kernel[1] + tap.index[1]];
                tap.fold(plane, &mut sums, |sum, x| *sum += weight * x);
            }
        }
        sums
    };
    let planes: Vec<Vec<f32>> = (0..co).into_par_iter().map(channel).collect();
    Some(planes.concat())
}

fn pool(
    x: &[f32],
    [input, output]: [&[usize]; 2],
    window: &Window,
    start: f32,
    fold: impl Fn(f32, f32) -> f32,
) -> Option<Vec<(f32, usize)>> {
    let (&[_, c, h, w], &[_, _, oh, ow]) = (input, output) else {
        return None;
    };
    let mut values = vec![(start, 0); c * oh * ow];
    let taps = window.taps([h, w], [oh, ow]);
    for (plane, out) in x.chunks(h * w).zip(values.chunks_mut(oh * ow)) {
        for tap in &taps {
            tap.fold(plane, out, |value, x| {
                *value = (fold(value.0, x), value.1 + 1)
            });
        }
    }
    Some(values)
}
