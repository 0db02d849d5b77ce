//! Operators that give values another place, transposed convolutions, and broadcasting.

use crate::graph::{Data, Graph, Node, Op};
use crate::window::Window;

/// The values of a node that moves its inputs' or adds them up elsewhere; `None` where its inputs
/// don't fit.
pub(super) fn eval(graph: &Graph, node: &Node, inputs: &[&[f32]]) -> Option<Vec<f32>> {
    let shape = |i: usize| Some(&graph.values[node.inputs.get(i)?.0].shape[..]);
    let (x, from) = (*inputs.first()?, shape(0)?);
    let to = &graph.values[node.output.0].shape[..];
    match &node.op {
        Op::Concat { axis } => {
            let shapes: Vec<&[usize]> = (0..inputs.len()).map(shape).collect::<Option<_>>()?;
            Some(concat(inputs, &shapes, *axis))
        }
        Op::Slice {
            axis,
            start,
            len,
            step,
        } => {
            let entries: Vec<usize> = (0..*len).map(|i| start + i * step).collect();
            Some(gather(x, from, *axis, &entries))
        }
        Op::Gather { axis } => {
            let Some(Data::I64(list)) = &graph.values[node.inputs.get(1)?.0].data else {
                return None;
            };
            let entries: Vec<usize> = list.iter().map(|&i| i as usize).collect();
            Some(gather(x, from, *axis, &entries))
        }
        Op::DepthToSpace { block, mode } => {
            let (&[_, _, h, w], &[_, co, oh, ow]) = (from, to) else {
                return None;
            };
            let at = |c: usize, y: usize, z: usize| {
                let place = y % block * block + z % block;
                let c = mode.channel([c, co], [place, block * block]);
                x[(c * h + y / block) * w + z / block]
            };
            Some(each([co, oh, ow], at))
        }
        Op::SpaceToDepth { block } => {
            let (&[_, c, h, w], &[_, co, oh, ow]) = (from, to) else {
                return None;
            };
            let at = |o: usize, y: usize, z: usize| {
                let place = o / c;
                let (y, z) = (y * block + place / block, z * block + place % block);
                x[(o % c * h + y) * w + z]
            };
            Some(each([co, oh, ow], at))
        }
        Op::Resize { factors } => {
            let (&[_, _, h, w], &[_, co, oh, ow]) = (from, to) else {
                return None;
            };
            let at =
                |c: usize, y: usize, z: usize| x[(c * h + y / factors[0]) * w + z / factors[1]];
            Some(each([co, oh, ow], at))
        }
        Op::ConvTranspose { window, group, .. } => transposed(
            [x, inputs.get(1)?],
            inputs.get(2).copied(),
            window,
            *group,
            [from, to],
        ),
        _ => None,
    }
}

fn each([c, h, w]: [usize; 3], at: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
    let rows = (0..c).flat_map(|c| (0..h).map(move |y| (c, y)));
    let at = &at;
    rows.flat_map(|(c, y)| (0..w).map(move |z| at(c, y, z)))
        .collect()
}

/// Elements before an axis, along it and behind it.
fn split(shape: &[usize], axis: usize) -> [usize; 3] {
    let product = |sizes: &[usize]| sizes.iter().product();
    [
        product(&shape[..axis]),
        shape[axis],
        product(&shape[axis + 1..]),
    ]
}

fn concat(inputs: &[&[f32]], shapes: &[&[usize]], axis: usize) -> Vec<f32> {
    let outer = split(shapes[0], axis)[0];
    let mut all = Vec::new();
    for i in 0..outer {
        for (x, shape) in inputs.iter().zip(shapes) {
            let [_, size, inner] = split(shape, axis);
            all.extend_from_slice(&x[i * size * inner..(i + 1) * size * inner]);
        }
    }
    all
}

fn gather(x: &[f32], shape: &[usize], axis: usize, entries: &[usize]) -> Vec<f32> {
    let [outer, size, inner] = split(shape, axis);
    let pieces = (0..outer).flat_map(|i| entries.iter().map(move |e| i * size + e));
    pieces
        .flat_map(|at| &x[at * inner..(at + 1) * inner])
        .copied()
        .collect()
}

/// Two operands, element by element, with ONNX's broadcasting to the output's shape.
pub(super) fn binary(
    [a, b]: [(&[f32], &[usize]); 2],
    to: &[usize],
    f: impl Fn(f32, f32) -> f32,
) -> Vec<f32> {
    let place = |shape: &[usize], index: usize| {
        let (mut rest, mut at, mut pitch) = (index, 0, 1);
        for (i, size) in to.iter().enumerate().rev() {
            let own = (i + shape.len())
                .checked_sub(to.len())
                .map_or(1, |i| shape[i]);
            at += if own == 1 { 0 } else { rest % size * pitch };
            pitch *= own;
            rest /= size;
        }
        at
    };
    let all = 0..to.iter().product();
    all.map(|i| f(a.0[place(a.1, i)], b.0[place(b.1, i)]))
        .collect()
}

fn transposed(
    [x, weights]: [&[f32]; 2],
    bias: Option<&[f32]>,
    window: &Window,
    group: usize,
    [from, to]: [&[usize]; 2],
) -> Option<Vec<f32>> {
    let (&[_, ci, h, w], &[_, co, oh, ow]) = (from, to) else {
        return None;
    };
    let (inputs, outputs, area) = (ci / group, co / group, window.area());
    let bias = |o: usize| bias.map_or(0.0, |b| b[o]);
    let mut y: Vec<f32> = (0..co).flat_map(|o| vec![bias(o); oh * ow]).collect();
    // It gives its inputs to where the convolution takes its outputs from.
    let taps = window.taps([oh, ow], [h, w]);
    let mut plane = vec![0.0; h * w];
    for o in 0..co {
        let places: Vec<usize> = (0..oh * ow).collect();
        for i in 0..inputs {
            let c = o / outputs * inputs + i;
            plane.copy_from_slice(&x[c * h * w..(c + 1) * h * w]);
            let row = &weights[(c * outputs + o % outputs) * area..][..area];
            for tap in &taps {
                let weight = row[tap.index[0] * window.kernel[1] + tap.index[1]];
                let to = &mut y[o * oh * ow..(o + 1) * oh * ow];
                tap.fold(&places, &mut plane, |x, place| to[place] += weight * *x);
            }
        }
    }
    Some(y)
}
