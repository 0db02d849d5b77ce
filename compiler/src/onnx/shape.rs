//! Output shapes of operators, with every size bounded.

mod moves;
mod plane;
mod product;

use super::{MAX_ELEMENTS, OnnxError};
use crate::graph::{Graph, Node, Op};
use crate::host::HostOp;
use crate::window::Window;
use plane::{like, nchw, rows};

/// The element count of a shape. Dimensions beside a 0 are bounded, too, so that no product of some
/// of them overflows.
///
/// # Errors
/// [`OnnxError::Tensor`] above [`MAX_ELEMENTS`].
pub(super) fn elements(name: &str, shape: &[usize]) -> Result<usize, OnnxError> {
    let bound = shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
    bound
        .filter(|&n| n <= MAX_ELEMENTS)
        .map(|_| shape.iter().product())
        .ok_or_else(|| OnnxError::Tensor {
            tensor: name.to_owned(),
            reason: format!("shape {shape:?} has more than {MAX_ELEMENTS} elements"),
        })
}

/// The shape of a node's output from its inputs' shapes.
pub(super) fn infer(graph: &Graph, node: &Node) -> Result<Vec<usize>, String> {
    let shape = |i: usize| {
        let id = node
            .inputs
            .get(i)
            .ok_or_else(|| format!("input {i} is missing"))?;
        Ok::<&[usize], String>(&graph.values[id.0].shape)
    };
    let x = shape(0)?;
    match &node.op {
        Op::Conv { window, group } => {
            let ([_, c, h, w], weights) = (rows(x)?, shape(1)?);
            let [co, ci, kh, kw] = match *weights {
                [co, ci, kh, kw] if x.len() == 4 => [co, ci, kh, kw],
                [co, ci, kw] if x.len() == 3 => [co, ci, 1, kw],
                _ => {
                    return Err(format!(
                        "weights of shape {weights:?} for {x:?}, not [CO, CI, KH, KW]"
                    ));
                }
            };
            if *group == 0 || c % group != 0 || co % group != 0 {
                return Err(format!(
                    "group {group} doesn't divide the {c} input and {co} output channels"
                ));
            }
            if ci.checked_mul(*group) != Some(c) || [kh, kw] != window.kernel || co == 0 {
                return Err(format!(
                    "weights {weights:?} don't fit input {x:?}, group {group}"
                ));
            }
            if node.inputs.len() > 2 && shape(2)? != [co] {
                return Err(format!("bias of shape {:?}, not [{co}]", shape(2)?));
            }
            let [oh, ow] = output(window, h, w)?;
            Ok(like(x, [co, oh, ow]))
        }
        Op::MaxPool { window } | Op::AveragePool { window, .. } => {
            let [_, c, h, w] = rows(x)?;
            let [oh, ow] = output(window, h, w)?;
            Ok(like(x, [c, oh, ow]))
        }
        Op::GlobalAveragePool => {
            let [_, c, ..] = rows(x)?;
            Ok(like(x, [c, 1, 1]))
        }
        Op::Flatten => match x {
            [n, rest @ ..] => Ok(vec![*n, rest.iter().product()]),
            [] => Err("a scalar can't be flattened".to_owned()),
        },
        Op::Gemm { trans_b } => {
            let (&[m, k], &[r, c]) = (x, shape(1)?) else {
                return Err(format!(
                    "operands {x:?} and {:?} aren't matrices",
                    shape(1)?
                ));
            };
            let (inner, n) = if *trans_b { (c, r) } else { (r, c) };
            if k != inner {
                return Err(format!("inner sizes {k} and {inner} differ"));
            }
            if m != 1 {
                return Err(format!("operand of shape {x:?}: the batch must be 1"));
            }
            if node.inputs.len() > 2 && shape(2)?.iter().product::<usize>() != n {
                return Err(format!("bias of shape {:?}, not [{n}]", shape(2)?));
            }
            Ok(vec![m, n])
        }
        Op::MatMul { form } => product::infer(*form, x, shape(1)?, shape(2).ok()),
        Op::Add => {
            // One may be a constant for each channel; what remains of those is refused later.
            let y = shape(1)?;
            let (large, small) = if x.len() >= y.len() { (x, y) } else { (y, x) };
            let (large, small) = match large.len() == small.len() && is_vector(large) {
                true => (small, large),
                false => (large, small),
            };
            let channels = large.get(1).copied();
            let fits = is_vector(small) && Some(small.iter().product()) == channels;
            match x == y || fits {
                true => Ok(large.to_vec()),
                false => broadcast(x, y),
            }
        }
        Op::BatchNormalization { .. } => {
            let &[1, channels, ..] = x else {
                return Err(format!("input of shape {x:?}, not [1, C, ..]"));
            };
            for i in 1..5 {
                if shape(i)? != [channels] {
                    return Err(format!(
                        "input {i} has shape {:?}, input 0 {x:?}",
                        shape(i)?
                    ));
                }
            }
            Ok(x.to_vec())
        }
        Op::Host(op) => host(graph, node, op),
        Op::ConvTranspose { .. }
        | Op::Concat { .. }
        | Op::Slice { .. }
        | Op::Gather { .. }
        | Op::DepthToSpace { .. }
        | Op::SpaceToDepth { .. }
        | Op::Resize { .. } => moves::infer(graph, node, x),
        Op::Mul | Op::Sub | Op::Div => broadcast(x, shape(1)?),
        Op::PRelu => match broadcast(x, shape(1)?)? {
            all if all == x => Ok(all),
            _ => Err(format!("slopes of shape {:?} for {x:?}", shape(1)?)),
        },
        Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } => match shape(1)?.contains(&0) {
            true => Err(format!("scales of shape {:?}: there is none", shape(1)?)),
            false => Ok(x.to_vec()),
        },
        Op::Relu
        | Op::Clip { .. }
        | Op::Identity
        | Op::LeakyRelu { .. }
        | Op::HardSigmoid { .. }
        | Op::HardSwish => Ok(x.to_vec()),
        Op::Pad { pads } => {
            let [n, c, h, w] = nchw(x)?;
            let [top, left, bottom, right] = pads.to_array();
            Ok(vec![n, c, h + top + bottom, w + left + right])
        }
        // Its reader says its shape.
        Op::Onnx(op) => Err(format!(
            "internal error: the shape of {} is asked for",
            op.kind
        )),
    }
}

/// The shape of two operands' elements: aligned at the last dimension, sizes are equal or 1.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let size =
        |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let join = |i: usize| match (size(a, i), size(b, i)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    let all: Option<Vec<usize>> = (0..rank).map(join).collect();
    all.ok_or_else(|| format!("shapes {a:?} and {b:?} differ"))
}

/// The shape of what the host computes from tensors of one rank, `[1, C, H, W]` or `[1, N]`.
fn host(graph: &Graph, node: &Node, op: &HostOp) -> Result<Vec<usize>, String> {
    let shapes = node.inputs.iter().map(|id| &graph.values[id.0].shape);
    let shapes: Vec<&Vec<usize>> = shapes.collect();
    let chw = |shape: &&Vec<usize>| match shape[..] {
        [1, c, h, w] => Some([c, h, w]),
        [1, n] => Some([n, 1, 1]),
        _ => None,
    };
    let rank = shapes.first().map_or(0, |s| s.len());
    let all: Option<Vec<[usize; 3]>> = shapes.iter().map(chw).collect();
    let all = all.filter(|_| shapes.iter().all(|s| s.len() == rank));
    let fits = all.and_then(|all| op.shape(&all));
    let [c, h, w] = fits.ok_or_else(|| format!("its inputs {shapes:?} don't fit each other"))?;
    Ok(match rank {
        2 => vec![1, c],
        _ => vec![1, c, h, w],
    })
}

/// A shape with at most one size above 1.
fn is_vector(shape: &[usize]) -> bool {
    shape.iter().filter(|&&d| d != 1).count() <= 1
}

fn output(window: &Window, h: usize, w: usize) -> Result<[usize; 2], String> {
    window
        .output(h, w)
        .ok_or_else(|| format!("a window of {window} doesn't fit an input of {h}x{w}"))
}
