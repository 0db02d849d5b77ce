//! A BatchNormalization behind views of what has weights, against the graph that it was.

use proptest::prelude::*;

use super::*;
use crate::float;
use crate::graph::{OnnxAttribute, OnnxOp, Value};
use crate::qgraph::window::Window;
use crate::quantize::fold::fold;

/// A value, and for each of its elements the channel of the product that it belongs to.
struct Seen {
    graph: Graph,
    last: ValueId,
    channels: Vec<usize>,
}

fn data(count: usize, seed: usize) -> Option<Data> {
    let value = |i: usize| ((i * 7919 + seed * 31) % 101) as f32 / 50.0 - 0.9;
    Some(Data::F32((0..count).map(value).collect()))
}

impl Seen {
    fn constant(&mut self, shape: &[usize], seed: usize) -> ValueId {
        let data = data(shape.iter().product(), seed);
        self.graph.value(format!("c{seed}"), shape.to_vec(), data)
    }

    fn push(&mut self, op: Op, inputs: Vec<ValueId>, shape: &[usize]) {
        let name = format!("node{}", self.graph.nodes.len());
        self.last = self.graph.value(&name, shape.to_vec(), None);
        self.graph.push(name, op, inputs, self.last);
    }

    /// One of six operators with weights, perhaps with a bias: five channels of six or one positions.
    fn product(kind: usize, has_bias: bool, seed: usize) -> Self {
        let (x, weights, made): (&[usize], &[usize], &[usize]) = match kind {
            0 => (&[1, 6, 4], &[4, 5], &[1, 6, 5]),
            1 => (&[6, 4], &[5, 4], &[6, 5]),
            2 => (&[1, 4, 6], &[5, 4], &[1, 5, 6]),
            3 => (&[1, 4], &[4, 5], &[1, 5]),
            4 => (&[1, 4], &[5, 4], &[1, 5]),
            _ => (&[1, 4, 2, 3], &[5, 4, 1, 1], &[1, 5, 2, 3]),
        };
        let window = Window {
            stride: [1, 1],
            ..Window::whole([1, 1])
        };
        let form = [
            MatMulForm::Right,
            MatMulForm::RightTransposed,
            MatMulForm::Left,
        ];
        let op = match kind {
            0..=2 => Op::MatMul { form: form[kind] },
            3 | 4 => Op::Gemm { trans_b: kind == 4 },
            _ => Op::Conv { window, group: 1 },
        };
        let x = Value::new("x", x.to_vec(), None);
        let mut seen = Self {
            graph: Graph {
                values: vec![x],
                inputs: vec![ValueId(0)],
                ..Graph::default()
            },
            last: ValueId(0),
            channels: Vec::new(),
        };
        let mut inputs = vec![ValueId(0), seen.constant(weights, seed)];
        if has_bias && kind > 2 {
            inputs.push(seen.constant(&[5], seed + 1));
        }
        seen.push(op, inputs, made);
        if has_bias && kind <= 2 {
            let shape: &[usize] = if kind == 2 { &[5, 1] } else { &[5] };
            let bias = seen.constant(shape, seed + 1);
            let inputs = [vec![bias, seen.last], vec![seen.last, bias]];
            seen.push(Op::Add, inputs[seed % 2].clone(), made);
        }
        let axis = made.iter().position(|&d| d == 5).unwrap();
        let inner: usize = made[axis + 1..].iter().product();
        let count: usize = made.iter().product();
        seen.channels = (0..count).map(|i| i / inner % 5).collect();
        seen
    }

    /// Whether the index along a dimension is the channel.
    fn has_channels(&self, axis: usize) -> bool {
        let shape = self.shape();
        let inner: usize = shape[axis + 1..].iter().product();
        let mut all = self.channels.iter().enumerate();
        shape[axis] == 5 && all.all(|(i, &own)| own == i / inner % 5)
    }

    fn shape(&self) -> Vec<usize> {
        self.graph.values[self.last.0].shape.clone()
    }

    /// Other dimensions, or others' order.
    fn view(&mut self, kind: usize) {
        let shape = self.shape();
        let count: usize = shape.iter().product();
        if kind == 0 && shape.len() > 2 {
            let rank = shape.len();
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(1, rank - 1);
            let turned: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
            let inner = |shape: &[usize], d: usize| shape[d + 1..].iter().product::<usize>();
            let place = |i: usize| {
                let along = |d: usize| i / inner(&turned, d) % turned[d] * inner(&shape, order[d]);
                (0..rank).map(along).sum::<usize>()
            };
            self.channels = (0..count).map(|i| self.channels[place(i)]).collect();
            let order = OnnxAttribute::Ints(order.iter().map(|&d| d as i64).collect());
            let op = OnnxOp::new("Transpose", 1, vec![("perm".to_owned(), order)]);
            self.push(Op::Onnx(Box::new(op)), vec![self.last], &turned);
            return;
        }
        let shapes: [&[usize]; 6] = [
            &[6, 5],
            &[1, 5, 6],
            &[1, 5, 2, 3],
            &[3, 2, 5],
            &[1, 30],
            &[1, 6, 5],
        ];
        let few: [&[usize]; 2] = [&[1, 5, 1], &[1, 5]];
        let shape = if count == 5 {
            few[kind % 2]
        } else {
            shapes[kind % 6]
        };
        let sizes = Data::I64(shape.iter().map(|&d| d as i64).collect());
        let sizes = self.graph.value("sizes", vec![shape.len()], Some(sizes));
        let op = OnnxOp::new("Reshape", 2, Vec::new());
        self.push(Op::Onnx(Box::new(op)), vec![self.last, sizes], shape);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// It becomes weights where the dimension that it scales is that of the channels, and nothing else reads what lies
    /// between.
    #[test]
    fn what_scales_channels_behind_views_folds(
        (kind, has_bias, seed) in (0usize..6, any::<bool>(), 0usize..50),
        views in prop::collection::vec(0usize..7, 0..4),
        beside in prop::option::of(0usize..4),
    ) {
        let mut seen = Seen::product(kind, has_bias, seed);
        let mut between = vec![seen.last];
        let mut is_channels = true;
        for view in views {
            seen.view(view);
            between.push(seen.last);
            let rank = seen.shape().len();
            is_channels &= (0..rank).any(|axis| seen.has_channels(axis));
        }
        let shape = seen.shape();
        is_channels &= seen.has_channels(1);
        let parameters = [1, 2, 3].map(|more| seen.constant(&shape[1..2], seed + 10 * more));
        let variance = Some(Data::F32((1..=shape[1]).map(|i| i as f32 / 3.0).collect()));
        let variance = seen.graph.value("variance", vec![shape[1]], variance);
        let inputs = [&[seen.last][..], &parameters, &[variance]].concat();
        seen.push(Op::BatchNormalization { epsilon: 0.01 }, inputs, &shape);
        let beside = beside.and_then(|at| between.get(at).copied());
        seen.graph.outputs = std::iter::once(seen.last).chain(beside).collect();
        let folded = fold(&seen.graph).unwrap();
        let count = seen.graph.values[0].shape.iter().product::<usize>();
        let image: Vec<f32> = (0..count).map(|i| i as f32 * 0.7 - 5.0).collect();
        let [one, other] = [&seen.graph, &folded].map(|graph| float::run(graph, &image).unwrap());
        for (one, other) in one.iter().flatten().zip(other.iter().flatten()) {
            prop_assert!((one - other).abs() <= 1e-4 * one.abs().max(1.0), "{one} {other}");
        }
        let is_left = folded.nodes.iter().any(|n| matches!(n.op, Op::BatchNormalization { .. }));
        prop_assert_eq!(is_left, !is_channels || beside.is_some(), "{:?} {:?}", shape, seen.channels);
    }
}
