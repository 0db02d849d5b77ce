//! Chains of operators of a model that the device computes, one behind the other and joined: the bits of the
//! reference interpreter on every simulator, without hazards.

use std::collections::BTreeSet;

use crate::builder::Builder;
use crate::common::{Rng, check, config};
use proptest::prelude::*;
use vta_compiler::graph::{Data, DepthMode, Entries, MatMulForm, OnnxAttribute, Op, ValueId};
use vta_compiler::qgraph::{Numbers, QGraph, QOp, Window};
use vta_compiler::quantize::{self, Activations, Mode};
use vta_compiler::{onnx, passes};

/// The most channels, and the most rows and columns, that a chain grows to.
const MOST: [usize; 2] = [48, 12];

/// An operator of a chain. One that doesn't fit what is before it is left out.
#[derive(Clone, Copy, Debug)]
enum Link {
    Conv(usize),
    Depthwise,
    Transposed(usize),
    Tokens(usize, usize),
    Relu,
    Leaky,
    Slopes,
    HardSwish,
    HardSigmoid,
    Normalized,
    Plus,
    Minus,
    Times,
    Gate,
    Mask,
    Places,
    Zeros,
    Join,
    Slice,
    Steps,
    Turn,
    Larger,
    ToSpace,
    ToDepth,
    Largest,
    Mean,
}

fn link() -> impl Strategy<Value = Link> {
    prop_oneof![
        (1usize..40).prop_map(Link::Conv),
        (1usize..20).prop_map(Link::Transposed),
        (1usize..40, 0usize..4).prop_map(|(n, form)| Link::Tokens(n, form)),
        prop::sample::select(vec![
            Link::Depthwise,
            Link::Relu,
            Link::Leaky,
            Link::Slopes,
            Link::HardSwish,
            Link::HardSigmoid,
            Link::Normalized,
        ]),
        prop::sample::select(vec![
            Link::Plus,
            Link::Minus,
            Link::Times,
            Link::Gate,
            Link::Mask,
            Link::Places,
            Link::Zeros,
            Link::Join,
            Link::Slice,
            Link::Steps,
            Link::Turn,
        ]),
        prop::sample::select(vec![
            Link::Larger,
            Link::ToSpace,
            Link::ToDepth,
            Link::Largest,
            Link::Mean,
        ]),
    ]
}

/// A network while it grows.
struct Chain {
    net: Builder,
    rng: Rng,
    /// What is before, the last one last.
    seen: Vec<(ValueId, [usize; 3])>,
}

impl Chain {
    fn new(chw: [usize; 3], seed: u64) -> Self {
        let mut net = Builder::default();
        let [c, h, w] = chw;
        let x = net.input(&[1, c, h, w]);
        Self {
            net,
            rng: Rng(seed),
            seen: vec![(x, chw)],
        }
    }

    fn last(&self) -> (ValueId, [usize; 3]) {
        self.seen[self.seen.len() - 1]
    }

    /// A constant of values from -1 to 1, but for a tenth around 0.
    fn constant(&mut self, shape: &[usize], factor: f32) -> ValueId {
        let count = shape.iter().product();
        let mut value = || {
            let value = (self.rng.next() % 1801) as f32 / 1000.0 - 0.9;
            (value + 0.1f32.copysign(value)) * factor
        };
        let values: Vec<f32> = (0..count).map(|_| value()).collect();
        let name = format!("c{}", self.net.0.values.len());
        self.net.value(&name, shape, Some(Data::F32(values)))
    }

    fn push(&mut self, op: Op, inputs: &[ValueId], [c, h, w]: [usize; 3]) {
        let y = self.net.push(op, inputs, &[1, c, h, w]);
        self.seen.push((y, [c, h, w]));
    }

    /// Something from before that fits.
    fn other(&mut self, fits: impl Fn([usize; 3]) -> bool) -> Option<(ValueId, [usize; 3])> {
        let all: Vec<_> = self
            .seen
            .iter()
            .copied()
            .filter(|(_, chw)| fits(*chw))
            .collect();
        let at = self.rng.next() as usize % all.len().max(1);
        all.get(at).copied()
    }

    fn add(&mut self, link: Link) {
        let (x, [c, h, w]) = self.last();
        let chw = [c, h, w];
        let window = |kernel: usize, stride: usize, pad: usize| Window {
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1, 1],
            pads: [pad; 4].into(),
        };
        let small = |[c, h, w]: [usize; 3]| c <= MOST[0] && h.max(w) <= MOST[1];
        match link {
            Link::Conv(co) => {
                let factor = 1.0 / (c as f32).sqrt();
                let inputs = [
                    x,
                    self.constant(&[co, c, 3, 3], factor),
                    self.constant(&[co], 0.5),
                ];
                let (window, group) = (window(3, 1, 1), 1);
                self.push(Op::Conv { window, group }, &inputs, [co, h, w]);
            }
            Link::Depthwise => {
                let weights = self.constant(&[c, 1, 3, 3], 0.5);
                let (window, group) = (window(3, 1, 1), c);
                self.push(Op::Conv { window, group }, &[x, weights], chw);
            }
            Link::Transposed(co) if small([co, 2 * h, 2 * w]) => {
                let weights = self.constant(&[c, co, 2, 2], 1.0 / (c as f32).sqrt());
                let op = Op::ConvTranspose {
                    window: window(2, 2, 0),
                    group: 1,
                    output_padding: [0, 0],
                };
                self.push(op, &[x, weights], [co, 2 * h, 2 * w]);
            }
            Link::Tokens(n, form) => self.tokens(n, form),
            Link::Relu => self.push(Op::Relu, &[x], chw),
            Link::Leaky => self.push(Op::LeakyRelu { alpha: 0.2 }, &[x], chw),
            Link::Slopes => {
                let slopes = self.constant(&[c, 1, 1], 0.5);
                self.push(Op::PRelu, &[x, slopes], chw);
            }
            Link::HardSwish => self.push(Op::HardSwish, &[x], chw),
            Link::HardSigmoid => {
                let (alpha, beta) = (0.2, 0.5);
                self.push(Op::HardSigmoid { alpha, beta }, &[x], chw);
            }
            Link::Normalized => {
                let [gamma, beta, mean] = [1.0; 3].map(|factor| self.constant(&[c], factor));
                let var = vec![0.7; c];
                let var = self.net.value("var", &[c], Some(Data::F32(var)));
                let op = Op::BatchNormalization { epsilon: 1e-5 };
                self.push(op, &[x, gamma, beta, mean, var], chw);
            }
            Link::Plus | Link::Minus | Link::Times => {
                let op = match link {
                    Link::Plus => Op::Add,
                    Link::Minus => Op::Sub,
                    _ => Op::Mul,
                };
                let (y, _) = self.other(|other| other == chw).unwrap();
                self.push(op, &[x, y], chw);
            }
            Link::Gate => {
                let mean = self.net.push(Op::GlobalAveragePool, &[x], &[1, c, 1, 1]);
                let (alpha, beta) = (0.2, 0.5);
                let gate = Op::HardSigmoid { alpha, beta };
                let gate = self.net.push(gate, &[mean], &[1, c, 1, 1]);
                self.push(Op::Mul, &[gate, x], chw);
            }
            Link::Mask => {
                let op = [Op::Add, Op::Sub, Op::Mul][self.rng.next() as usize % 3].clone();
                let first = Entries::run(1, c - 1, 1);
                let mask = self.net.push(first.into(), &[x], &[1, 1, h, w]);
                let inputs = match self.rng.next() % 2 {
                    0 => [x, mask],
                    _ => [mask, x],
                };
                self.push(op, &inputs, chw);
            }
            Link::Places => self.places(),
            Link::Zeros if small([c + 5, h, w]) => {
                let zeros = |count: usize| Some(Data::F32(vec![0.0; count * h * w]));
                let before = self.net.value("before", &[1, 2, h, w], zeros(2));
                let behind = self.net.value("behind", &[1, 3, h, w], zeros(3));
                let inputs = [before, x, behind];
                self.push(Op::Concat { axis: 1 }, &inputs, [c + 5, h, w]);
            }
            Link::Join => {
                let fits = |other: [usize; 3]| other[1..] == [h, w] && other[0] + c <= MOST[0];
                if let Some((y, other)) = self.other(fits) {
                    self.push(Op::Concat { axis: 1 }, &[y, x], [c + other[0], h, w]);
                }
            }
            Link::Slice if c > 1 => {
                let start = self.rng.next() as usize % (c - 1);
                let (axis, step) = (1, 1 + c % 2);
                let len = (c - start).div_ceil(step);
                let of = Entries {
                    axis,
                    start,
                    len,
                    step,
                };
                self.push(of.into(), &[x], [len, h, w]);
            }
            Link::Steps if h > 1 && w > 1 => {
                let columns = Entries {
                    axis: 3,
                    start: 0,
                    len: w.div_ceil(2),
                    step: 2,
                };
                let entries = vec![Entries::run(2, 1, h - 1), columns];
                self.push(Op::Slice { entries }, &[x], [c, h - 1, w.div_ceil(2)]);
            }
            Link::Turn => {
                let list = Data::I64((0..c as i64).rev().collect());
                let list = self.net.value("list", &[c], Some(list));
                self.push(Op::Gather { axis: 1 }, &[x, list], chw);
            }
            Link::Larger if small([c, 2 * h, w]) => {
                self.push(Op::Resize { factors: [2, 1] }, &[x], [c, 2 * h, w]);
            }
            Link::ToSpace if c.is_multiple_of(4) && small([c / 4, 2 * h, 2 * w]) => {
                let (block, mode) = (2, DepthMode::Crd);
                self.push(
                    Op::DepthToSpace { block, mode },
                    &[x],
                    [c / 4, 2 * h, 2 * w],
                );
            }
            Link::ToDepth if (h | w).is_multiple_of(2) && small([4 * c, h, w]) => {
                self.push(Op::SpaceToDepth { block: 2 }, &[x], [4 * c, h / 2, w / 2]);
            }
            Link::Largest => {
                let window = window(3, 1, 1);
                self.push(Op::MaxPool { window }, &[x], chw);
            }
            Link::Mean if h > 1 && w > 1 => {
                let op = Op::AveragePool {
                    window: window(2, 1, 0),
                    count_include_pad: false,
                };
                self.push(op, &[x], [c, h - 1, w - 1]);
            }
            Link::Transposed(_)
            | Link::Zeros
            | Link::Slice
            | Link::Steps
            | Link::Larger
            | Link::ToSpace
            | Link::ToDepth
            | Link::Mean => {}
        }
    }

    /// Constants that differ from position to position, on either side, some alike in all channels.
    fn places(&mut self) {
        let (x, chw @ [c, h, w]) = self.last();
        let shapes = [vec![h, w], vec![1, c, h, w], vec![c, 1, w], vec![1, h, 1]];
        let shape = &shapes[self.rng.next() as usize % shapes.len()];
        let constant = self.constant(shape, 1.0);
        let (op, inputs) = match self.rng.next() % 5 {
            0 => (Op::Add, [x, constant]),
            1 => (Op::Sub, [x, constant]),
            2 => (Op::Sub, [constant, x]),
            3 => (Op::Mul, [constant, x]),
            _ => (Op::Div, [x, constant]),
        };
        self.push(op, &inputs, chw);
    }

    /// Positions as rows of a matrix that is multiplied by a constant: with positions in one dimension, in two,
    /// or with the channels in front, and as a Gemm.
    fn tokens(&mut self, n: usize, form: usize) {
        let (x, [c, h, w]) = self.last();
        let factor = 1.0 / (c as f32).sqrt();
        let bias = self.constant(&[n], 0.5);
        let right = Op::MatMul {
            form: MatMulForm::Right,
        };
        let y = match form {
            0 => {
                let rows = self.kept("Reshape", x, &[1, c, h * w], &[]);
                let rows = self.kept("Transpose", rows, &[1, h * w, c], &[0, 2, 1]);
                let weights = self.constant(&[c, n], factor);
                let y = self.net.push(right, &[rows, weights], &[1, h * w, n]);
                let y = self.net.push(Op::Add, &[bias, y], &[1, h * w, n]);
                let places = self.constant(&[1, h * w, n], 0.5);
                let y = self.net.push(Op::Add, &[y, places], &[1, h * w, n]);
                let y = self.kept("Transpose", y, &[1, n, h * w], &[0, 2, 1]);
                self.kept("Reshape", y, &[1, n, h, w], &[])
            }
            1 => {
                let rows = self.kept("Transpose", x, &[1, h, w, c], &[0, 2, 3, 1]);
                let factors = self.constant(&[1, c], 1.0);
                let rows = self.net.push(Op::Mul, &[rows, factors], &[1, h, w, c]);
                let weights = self.constant(&[c, n], factor);
                let y = self.net.push(right, &[rows, weights], &[1, h, w, n]);
                let y = self.net.push(Op::Add, &[y, bias], &[1, h, w, n]);
                let y = self.net.push(Op::HardSwish, &[y], &[1, h, w, n]);
                let y = match n == c {
                    true => self.net.push(Op::Add, &[rows, y], &[1, h, w, n]),
                    false => y,
                };
                self.kept("Transpose", y, &[1, n, h, w], &[0, 3, 1, 2])
            }
            2 => {
                let columns = self.kept("Reshape", x, &[c, h * w], &[]);
                let weights = self.constant(&[n, c], factor);
                let form = MatMulForm::Left;
                let inputs = [columns, weights];
                let y = self.net.push(Op::MatMul { form }, &inputs, &[n, h * w]);
                self.kept("Reshape", y, &[1, n, h, w], &[])
            }
            _ => {
                let rows = self.kept("Transpose", x, &[1, h, w, c], &[0, 2, 3, 1]);
                let rows = self.kept("Reshape", rows, &[h * w, c], &[]);
                let weights = self.constant(&[n, c], factor);
                let form = MatMulForm::RightTransposed;
                let inputs = [rows, weights, bias];
                let y = self.net.push(Op::MatMul { form }, &inputs, &[h * w, n]);
                let y = self.kept("Transpose", y, &[n, h * w], &[1, 0]);
                self.kept("Reshape", y, &[1, n, h, w], &[])
            }
        };
        self.seen.push((y, [n, h, w]));
    }

    /// An operator that only gives values another place: a Reshape, or a Transpose by a permutation.
    fn kept(&mut self, kind: &'static str, x: ValueId, shape: &[usize], perm: &[i64]) -> ValueId {
        if kind == "Transpose" {
            let perm = OnnxAttribute::Ints(perm.to_vec());
            return self.net.kept(kind, &[x], shape, &[("perm", perm)]);
        }
        let sizes = shape.iter().map(|&d| d as i64).collect();
        let name = format!("s{}", self.net.0.values.len());
        let sizes = self
            .net
            .value(&name, &[shape.len()], Some(Data::I64(sizes)));
        self.net.kept(kind, &[x, sizes], shape, &[])
    }

    /// Quantised through files, as a user's model is.
    fn finish(self, activations: Activations) -> QGraph {
        let (output, _) = self.last();
        let len = self.seen[0].1.iter().product();
        let graph = onnx::load(&onnx::save(&self.net.finish(&[output]))).unwrap();
        let mut rng = self.rng;
        let mut image = || -> Vec<f32> {
            (0..len)
                .map(|_| (rng.next() % 2001) as f32 / 700.0 - 1.4)
                .collect()
        };
        let images = [image(), image()];
        let options = quantize::Options::new(Mode::Multiply).with_activations(activations);
        let quantized = quantize::quantize_network(&graph, &&images[..], &options).unwrap();
        passes::quantized(&onnx::load(&onnx::save(&quantized.graph)).unwrap()).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn chains_of_any_operators_have_the_bits_of_the_reference(
        links in prop::collection::vec(link(), 1..9), chw in [1usize..20, 2usize..7, 2usize..7],
        index in 0usize..6, seed in any::<u64>(),
    ) {
        let mut chain = Chain::new(chw, seed);
        links.iter().for_each(|link| chain.add(*link));
        prop_assume!(chain.seen.len() > 1);
        let graph = chain.finish(Activations::Int8);
        // A HardSwish of steps below 3 / 65,534 is the host's.
        prop_assume!(graph.tensors.iter().all(|t| t.scale > 1e-4));
        let host = graph.nodes.iter().find(|n| matches!(n.op, QOp::Host { .. }));
        prop_assert!(host.is_none(), "{}", graph);
        check(&graph, &config(index), seed)?;
    }

    #[test]
    fn chains_of_int16_have_the_bits_of_the_reference(
        links in prop::collection::vec(link(), 1..9), chw in [1usize..20, 2usize..7, 2usize..7],
        index in 0usize..6, seed in any::<u64>(),
    ) {
        let mut chain = Chain::new(chw, seed);
        links.iter().for_each(|link| chain.add(*link));
        prop_assume!(chain.seen.len() > 1);
        let graph = chain.finish(Activations::Int16);
        let host = graph.nodes.iter().find(|n| matches!(n.op, QOp::Host { .. }));
        let swishes = links.iter().any(|link| matches!(link, Link::HardSwish | Link::Tokens(_, 1)));
        prop_assert!(host.is_none() || swishes, "{}", graph);
        prop_assume!(host.is_none());
        prop_assert_eq!(graph.numbers, Numbers::Int16);
        check(&graph, &config(index), seed)?;
    }
}

/// What chains of every link become, so that none is left out.
#[test]
fn chains_reach_every_kind_of_layer() {
    let all = [
        Link::Conv(20),
        Link::Depthwise,
        Link::Transposed(3),
        Link::Tokens(5, 0),
        Link::Relu,
        Link::Leaky,
        Link::Slopes,
        Link::HardSwish,
        Link::HardSigmoid,
        Link::Normalized,
        Link::Plus,
        Link::Minus,
        Link::Times,
        Link::Gate,
        Link::Mask,
        Link::Zeros,
        Link::Join,
        Link::Slice,
        Link::Turn,
        Link::Larger,
        Link::ToSpace,
        Link::ToDepth,
        Link::Largest,
        Link::Mean,
    ];
    let mut kinds = BTreeSet::new();
    for link in all {
        let mut chain = Chain::new([8, 4, 4], 1);
        chain.add(link);
        assert!(chain.seen.len() > 1, "{link:?} fits nothing");
        let graph = chain.finish(Activations::Int8);
        kinds.extend(graph.nodes.iter().map(|node| node.op.kind()));
    }
    let expected = [
        "add", "avgpool", "channels", "conv", "eltwise", "maxpool", "mul",
    ];
    assert_eq!(kinds, BTreeSet::from(expected));
}
