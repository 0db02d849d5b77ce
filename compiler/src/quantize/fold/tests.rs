//! Folded graphs against the graphs that they were, by the engine.

use proptest::prelude::*;

use super::*;
use crate::float;
use crate::graph::Value;
use crate::qgraph::window::Window;

const SHAPE: [usize; 4] = [1, 3, 2, 2];

struct Chain {
    graph: Graph,
    last: ValueId,
}

impl Chain {
    fn conv(seed: usize) -> Self {
        let value = |i: usize| ((i * 7919 + seed * 31) % 101) as f32 / 50.0 - 1.0;
        let mut graph = Graph {
            values: vec![
                Value::new("x", SHAPE.to_vec(), None),
                Value::new(
                    "w",
                    vec![3, 3, 1, 1],
                    Some(Data::F32((0..9).map(value).collect())),
                ),
            ],
            inputs: vec![ValueId(0)],
            ..Graph::default()
        };
        let window = Window {
            kernel: [1, 1],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [0; 4].into(),
        };
        let last = graph.value("conv", SHAPE.to_vec(), None);
        graph.push(
            "conv",
            Op::Conv { window, group: 1 },
            vec![ValueId(0), ValueId(1)],
            last,
        );
        Self { graph, last }
    }

    fn constant(&mut self, shape: &[usize], data: &[f32]) -> ValueId {
        self.graph
            .value("c", shape.to_vec(), Some(Data::F32(data.to_vec())))
    }

    fn node(&mut self, op: Op, inputs: Vec<ValueId>) -> ValueId {
        let name = format!("node{}", self.graph.nodes.len());
        self.last = self.graph.value(&name, SHAPE.to_vec(), None);
        self.graph.push(name, op, inputs, self.last);
        self.last
    }

    /// What both graphs give, and the folded one.
    fn finish(mut self, outputs: &[ValueId]) -> (Graph, [Vec<Vec<f32>>; 2]) {
        self.graph.outputs = outputs.to_vec();
        let folded = fold(&self.graph).unwrap();
        let image: Vec<f32> = (0..12).map(|i| i as f32 * 0.9 - 5.0).collect();
        let both = [&self.graph, &folded].map(|graph| float::run(graph, &image).unwrap());
        (folded, both)
    }
}

fn are_near([a, b]: &[Vec<Vec<f32>>; 2]) -> bool {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs
        .into_iter()
        .all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Constants for all channels or one for each vanish behind a convolution; others, and what another reads
    /// beside them, stay.
    #[test]
    fn constants_fold_into_convolutions(
        steps in prop::collection::vec((0usize..4, 0usize..4, 1usize..9, any::<bool>()), 1..5),
        seed in 0usize..100, read_beside in any::<bool>(),
    ) {
        let mut chain = Chain::conv(seed);
        let conv = chain.last;
        let mut folds = true;
        let mut left = 0;
        for (op, shape, by, turned) in steps {
            let by = by as f32 / 3.0;
            let (shape, data): (&[usize], _) = match shape {
                0 => (&[], vec![by]),
                1 => (&[1, 3, 1, 1], vec![by, -by, by + 1.0]),
                2 => (&[3, 1, 1], vec![by, by * 2.0, 0.5]),
                // One for each column is none for each channel.
                _ => (&[2], vec![by, by + 1.0]),
            };
            let (op, commutes) = match op {
                0 => (Op::Mul, true),
                1 => (Op::Add, true),
                2 => (Op::Sub, false),
                _ => (Op::Div, false),
            };
            folds &= shape != [2] && !read_beside;
            left += usize::from(!folds);
            let (c, x) = (chain.constant(shape, &data), chain.last);
            chain.node(op, if commutes && turned { vec![c, x] } else { vec![x, c] });
        }
        let last = chain.last;
        let outputs = if read_beside { vec![last, conv] } else { vec![last] };
        let (folded, both) = chain.finish(&outputs);
        prop_assert!(are_near(&both), "{both:?}");
        prop_assert_eq!(folded.nodes.len(), 1 + left);
    }

    /// All ways of writing HardSwish become one node; with another bound, slope or factor none does.
    #[test]
    fn parts_of_hard_swish_are_one(order in 0usize..4, turned in any::<[bool; 3]>(), wrong in 0usize..5, read_beside in any::<bool>()) {
        let mut chain = Chain::conv(7);
        let x = chain.last;
        let pair = |turn: bool, a: ValueId, b: ValueId| if turn { vec![b, a] } else { vec![a, b] };
        let three = chain.constant(&[1], &[if wrong == 1 { 3.5 } else { 3.0 }]);
        let six = if wrong == 2 { 5.0 } else { 6.0 };
        let (divisor, factor) = (chain.constant(&[], &[six]), chain.constant(&[1], &[1.0 / six]));
        let max = if wrong == 3 { 6.5 } else { 6.0 };
        let gate = |chain: &mut Chain| {
            let sum = chain.node(Op::Add, pair(turned[0], x, three));
            chain.node(Op::Clip { min: 0.0, max }, vec![sum])
        };
        let (gate, y) = match order {
            0 | 1 => {
                let gate = gate(&mut chain);
                let product = chain.node(Op::Mul, pair(turned[1], x, gate));
                let y = if order == 0 {
                    chain.node(Op::Div, vec![product, divisor])
                } else {
                    chain.node(Op::Mul, pair(turned[2], product, factor))
                };
                (gate, y)
            }
            2 => {
                let gate = gate(&mut chain);
                let part = chain.node(Op::Div, vec![gate, divisor]);
                (part, chain.node(Op::Mul, pair(turned[1], x, part)))
            }
            _ => {
                let alpha = if wrong == 0 { 1.0 / 6.0 } else { 0.2 };
                let gate = chain.node(Op::HardSigmoid { alpha, beta: 0.5 }, vec![x]);
                (gate, chain.node(Op::Mul, pair(turned[1], x, gate)))
            }
        };
        let outputs = if read_beside { vec![y, gate] } else { vec![y] };
        let (folded, both) = chain.finish(&outputs);
        prop_assert!(are_near(&both), "{both:?}");
        let is_one = if order == 3 { wrong == 0 } else { !(1..4).contains(&wrong) };
        let found = folded.nodes.iter().filter(|node| node.op == Op::HardSwish).count();
        prop_assert_eq!(found, usize::from(is_one));
        if is_one && !read_beside {
            prop_assert_eq!(folded.nodes.len(), 2);
        }
    }
}
