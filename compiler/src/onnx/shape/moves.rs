//! Operators that give values another place, and transposed convolutions, which spread them.

use super::plane::nchw;
use crate::graph::{Data, Graph, Node, Op};
use crate::window::Window;

/// The shape of a node's output; `x` is that of its first input.
pub(super) fn infer(graph: &Graph, node: &Node, x: &[usize]) -> Result<Vec<usize>, String> {
    match &node.op {
        Op::ConvTranspose {
            window,
            group,
            output_padding,
        } => transposed(graph, node, window, *group, *output_padding),
        Op::Concat { axis } => {
            let shapes = node.inputs.iter().map(|id| &graph.values[id.0].shape);
            joined(&shapes.map(Vec::as_slice).collect::<Vec<_>>(), *axis)
        }
        Op::Slice {
            axis,
            start,
            len,
            step,
        } => {
            let last = len.checked_sub(1).and_then(|n| n.checked_mul(*step));
            let last = last.and_then(|n| n.checked_add(*start));
            match (x.get(*axis), last) {
                (Some(size), Some(last)) if *step > 0 && last < *size => Ok(with(x, *axis, *len)),
                _ => Err(format!(
                    "{len} entries from {start} in steps of {step} of axis {axis} of {x:?}"
                )),
            }
        }
        Op::Gather { axis } => gathered(graph, node, x, *axis),
        Op::DepthToSpace { block, .. } => {
            let [n, c, h, w] = nchw(x)?;
            let area = block.checked_mul(*block).filter(|area| *area > 0);
            match area {
                Some(area) if c % area == 0 => {
                    Ok(vec![n, c / area, times(h, *block)?, times(w, *block)?])
                }
                _ => Err(format!("{c} channels for blocks of {block}x{block}")),
            }
        }
        Op::SpaceToDepth { block } => {
            let [n, c, h, w] = nchw(x)?;
            if *block == 0 || h % block != 0 || w % block != 0 {
                return Err(format!("{h}x{w} in blocks of {block}x{block}"));
            }
            let area = times(*block, *block)?;
            Ok(vec![n, times(c, area)?, h / block, w / block])
        }
        Op::Resize { factors } => {
            let [n, c, h, w] = nchw(x)?;
            if factors.contains(&0) {
                return Err(format!("factors {factors:?}"));
            }
            Ok(vec![n, c, times(h, factors[0])?, times(w, factors[1])?])
        }
        _ => Err("internal error: it has another rule".to_owned()),
    }
}

fn times(a: usize, b: usize) -> Result<usize, String> {
    a.checked_mul(b).ok_or_else(|| format!("{a} times {b}"))
}

fn with(x: &[usize], axis: usize, size: usize) -> Vec<usize> {
    let mut shape = x.to_vec();
    shape[axis] = size;
    shape
}

fn joined(shapes: &[&[usize]], axis: usize) -> Result<Vec<usize>, String> {
    let first = *shapes.first().ok_or("it has no input")?;
    let mut size = 0usize;
    for shape in shapes {
        let fits = axis < shape.len()
            && with(shape, axis, 0) == with(first, axis.min(first.len().saturating_sub(1)), 0);
        let more = shape.get(axis).and_then(|n| size.checked_add(*n));
        size = more
            .filter(|_| fits)
            .ok_or_else(|| format!("its inputs {shapes:?} don't fit along axis {axis}"))?;
    }
    Ok(with(first, axis, size))
}

fn gathered(graph: &Graph, node: &Node, x: &[usize], axis: usize) -> Result<Vec<usize>, String> {
    let indices = node.inputs.get(1).ok_or("input 1 is missing")?;
    let indices = &graph.values[indices.0];
    let size = *x.get(axis).ok_or_else(|| format!("axis {axis} of {x:?}"))?;
    match (&indices.data, &indices.shape[..]) {
        (Some(Data::I64(list)), [_]) if !list.is_empty() => {
            let inside = |i: &i64| usize::try_from(*i).is_ok_and(|i| i < size);
            match list.iter().find(|i| !inside(i)) {
                None => Ok(with(x, axis, list.len())),
                Some(i) => Err(format!("entry {i} of axis {axis} of {x:?}")),
            }
        }
        _ => Err("its entries must be a constant int64 list".to_owned()),
    }
}

fn transposed(
    graph: &Graph,
    node: &Node,
    window: &Window,
    group: usize,
    output_padding: [usize; 2],
) -> Result<Vec<usize>, String> {
    let shape = |i: usize| node.inputs.get(i).map(|id| &graph.values[id.0].shape[..]);
    let x = shape(0).ok_or("input 0 is missing")?;
    let [n, c, h, w] = nchw(x)?;
    let Some(&[ci, per_group, kh, kw]) = shape(1) else {
        return Err(format!(
            "weights of shape {:?}, not [CI, CO, KH, KW]",
            shape(1)
        ));
    };
    if group == 0 || c % group != 0 || ci != c || [kh, kw] != window.kernel || per_group == 0 {
        return Err(format!(
            "weights {:?} don't fit input {x:?}, group {group}",
            shape(1)
        ));
    }
    let co = times(per_group, group)?;
    let most = |axis: usize| window.stride[axis].max(window.dilation[axis]);
    if (0..2).any(|axis| output_padding[axis] >= most(axis)) {
        return Err(format!(
            "output padding {output_padding:?} for a window of {window}"
        ));
    }
    if let Some(bias) = shape(2)
        && bias != [co]
    {
        return Err(format!("bias of shape {bias:?}, not [{co}]"));
    }
    let sizes = window.transposed([h, w], output_padding);
    let [oh, ow] =
        sizes.ok_or_else(|| format!("a window of {window} leaves nothing of {h}x{w}"))?;
    Ok(vec![n, co, oh, ow])
}
