//! Sums that a quantised file allows, worked out from the file alone.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::float::{self, FloatNetwork};
use crate::graph::{Data, MatMulForm};
use crate::onnx;
use crate::qgraph::window::Window;
use crate::quantize::{Method, Options, WeightScales, ZeroPoints, quantize_network};

const SIZE: usize = 5;

/// A number from -1 to 1 that looks like chance.
fn chance(seed: u64, index: usize) -> f32 {
    let mut z = (seed << 32) ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// The largest value that a network's own Clip lets through.
const OWN: f32 = 3.0;

/// A network of layers whose weights are alike in size, so that their sums are as large as they can be.
struct Net {
    graph: Graph,
    now: ValueId,
    seed: u64,
}

impl Net {
    fn new(channels: usize, seed: u64) -> Self {
        let mut graph = Graph::default();
        let now = graph.value("x", vec![1, channels, SIZE, SIZE], None);
        graph.inputs.push(now);
        Self { graph, now, seed }
    }

    fn shape(&self) -> Vec<usize> {
        self.graph.values[self.now.0].shape.clone()
    }

    fn weights(&mut self, shape: Vec<usize>) -> ValueId {
        let seed = self.seed + self.graph.values.len() as u64;
        let one = |i: usize| {
            let w = chance(seed, i);
            w.signum() * (0.7 + 0.3 * w.abs())
        };
        let data = (0..shape.iter().product()).map(one).collect();
        let name = format!("w{}", self.graph.values.len());
        self.graph.value(name, shape, Some(Data::F32(data)))
    }

    fn push(&mut self, op: Op, constants: &[ValueId], shape: Vec<usize>) {
        let name = format!("v{}", self.graph.values.len());
        let output = self.graph.value(&name, shape, None);
        let inputs = [&[self.now], constants].concat();
        self.graph.push(format!("{name}.node"), op, inputs, output);
        self.now = output;
    }

    fn layer(&mut self, kind: u8) {
        let shape = self.shape();
        let &[_, channels, height, width] = &shape[..] else {
            return;
        };
        let square = |kernel: usize, pads: usize| Window {
            pads: [pads; 4].into(),
            ..Window::whole([kernel; 2])
        };
        match kind {
            0 | 1 => {
                let group = [1, channels][usize::from(kind)];
                let window = square(3, 1);
                let weights = self.weights(vec![channels, channels / group, 3, 3]);
                let bias = self.weights(vec![channels]);
                self.push(Op::Conv { window, group }, &[weights, bias], shape);
            }
            2 => {
                let window = Window {
                    stride: [2; 2],
                    ..square(4, 1)
                };
                let weights = self.weights(vec![channels, channels, 4, 4]);
                let shape = vec![1, channels, 2 * height, 2 * width];
                let op = Op::ConvTranspose {
                    window,
                    group: 1,
                    output_padding: [0; 2],
                };
                self.push(op, &[weights], shape);
            }
            3 => self.push(Op::Relu, &[], shape),
            4 => self.push(
                Op::Clip {
                    min: -0.5,
                    max: OWN,
                },
                &[],
                shape,
            ),
            5 => self.push(
                Op::MaxPool {
                    window: square(3, 1),
                },
                &[],
                shape,
            ),
            6 => self.push(Op::HardSwish, &[], shape),
            7 => {
                let by = Some(Data::F32(vec![0.37]));
                let by = self.graph.value("by", vec![], by);
                self.push(Op::Mul, &[by], shape);
            }
            8 => {
                let form = MatMulForm::Right;
                let weights = self.weights(vec![width, width]);
                self.push(Op::MatMul { form }, &[weights], shape);
            }
            _ => {
                let count = channels * height * width;
                self.push(Op::Flatten, &[], vec![1, count]);
                let weights = self.weights(vec![7, count]);
                self.push(Op::Gemm { trans_b: true }, &[weights], vec![1, 7]);
            }
        }
    }

    fn image(&self, index: usize) -> Vec<f32> {
        let count = self.graph.values[0].shape.iter().product();
        let seed = self.seed + 1000 + index as u64;
        (0..count).map(|i| chance(seed, i)).collect()
    }
}

fn constant(graph: &Graph, id: ValueId) -> &Data {
    graph.values[id.0].data.as_ref().unwrap()
}

fn single(graph: &Graph, id: ValueId) -> f32 {
    match constant(graph, id) {
        Data::F32(v) => v[0],
        other => panic!("{other:?}"),
    }
}

/// For each value of a file that a QuantizeLinear gives, the largest magnitude that it can have, and whether that is less than the
/// network's own.
fn reach(graph: &Graph) -> BTreeMap<ValueId, (i64, bool)> {
    let makers = graph.makers();
    let maker = |id: ValueId| makers.get(&id).map(|at| &graph.nodes[*at]);
    let mut reach = BTreeMap::new();
    for node in &graph.nodes {
        if !matches!(node.op, Op::QuantizeLinear { .. }) {
            continue;
        }
        assert_eq!(constant(graph, node.inputs[2]), &Data::I16(vec![0]));
        let step = single(graph, node.inputs[1]);
        let from = maker(node.inputs[0]);
        let most = match from.map(|from| &from.op) {
            Some(Op::Clip { min, max }) => {
                let most = (min.abs().max(max.abs()) / step).round_ties_even();
                (most.min(32768.0) as i64, *max != OWN)
            }
            Some(Op::MaxPool { .. } | Op::Flatten) => {
                // Of integers with the same steps.
                let before = maker(from.unwrap().inputs[0]).unwrap();
                assert_eq!(single(graph, before.inputs[1]), step);
                reach[&before.inputs[0]]
            }
            _ => (32768, false),
        };
        reach.insert(node.output, most);
    }
    reach
}

/// The largest sum of magnitudes that a product of a file can have, its bias among them.
fn largest(graph: &Graph, node: &Node, reach: i64) -> i64 {
    let makers = graph.makers();
    let ints = |id: ValueId| {
        let dequantize = &graph.nodes[makers[&id]];
        constant(graph, dequantize.inputs[0]).integers().unwrap()
    };
    // The same operator on ones, with the magnitudes of the weights.
    let mut ones = Graph::default();
    let x = &graph.values[node.inputs[0].0].shape;
    let x = ones.value("x", x.clone(), None);
    ones.inputs.push(x);
    let weights = ints(node.inputs[1]);
    let weights = weights.iter().map(|w| w.abs() as f32).collect();
    let shape = graph.values[node.inputs[1].0].shape.clone();
    let weights = ones.value("w", shape, Some(Data::F32(weights)));
    let output = graph.values[node.output.0].shape.clone();
    let output = ones.value("y", output, None);
    ones.push("node", node.op.clone(), vec![x, weights], output);
    ones.outputs.push(output);
    let count = ones.values[x.0].shape.iter().product();
    let sums = float::run(&ones, &vec![1.0; count]).unwrap().remove(0);
    let bias = node.inputs.get(2).map_or(vec![], |id| ints(*id));
    let bias = bias.into_iter().map(i64::abs).max().unwrap_or(0);
    let sum = sums.into_iter().fold(0f32, f32::max);
    sum as i64 * reach + bias
}

/// What a quantised file allows is within int32, and values are within what it allows, also on other images.
fn check(net: &Net, options: &Options) -> Result<usize, TestCaseError> {
    let images: Vec<Vec<f32>> = (0..6).map(|i| net.image(i)).collect();
    let quantized = quantize_network(&net.graph, &&images[..], options).unwrap();
    let graph = onnx::load(&onnx::save(&quantized.graph)).unwrap();
    let reach = reach(&graph);
    let makers = graph.makers();
    let (mut limited, mut spent) = (0, 0f64);
    for node in &graph.nodes {
        let is_product = matches!(
            node.op,
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::Gemm { .. } | Op::MatMul { .. }
        );
        if is_product {
            let input = &graph.nodes[makers[&node.inputs[0]]];
            let (reach, limits) = reach[&input.inputs[0]];
            let sum = largest(&graph, node, reach);
            prop_assert!(sum < 3 << 29, "{}: {sum} of {reach}", node.name);
            limited += usize::from(reach < 32768);
            if limits && reach <= 32766 {
                spent = spent.max(sum as f64 / (1u64 << 30) as f64);
            }
        }
    }
    // No more steps are given up than what rounding may do needs, and powers of two: of values with several readers by
    // the one with the largest sums.
    let least = match options.mode {
        Mode::Shift => 0.3,
        Mode::Multiply => 0.6,
    };
    prop_assert!(spent == 0.0 || spent > least, "{spent}");
    let wanted: Vec<ValueId> = reach.keys().copied().collect();
    let network = FloatNetwork::new(&graph, wanted.clone()).unwrap();
    for index in 0..8 {
        let image = net.image(index);
        let image: Vec<f32> = image.iter().map(|v| v * index as f32).collect();
        for (found, id) in network.run(&image).unwrap().iter().zip(&wanted) {
            let most = found.iter().fold(0f32, |m, v| m.max(v.abs())) as i64;
            let (reach, _) = reach[id];
            prop_assert!(most <= reach, "{most} of {reach}");
        }
    }
    Ok(limited)
}

fn int16(mode: Mode) -> Options {
    Options::new(mode).with_activations(Activations::Int16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn sums_of_int16_files_fit_int32(
        channels in prop_oneof![Just(3usize), Just(40), Just(130)], seed in 0u64..1 << 20,
        layers in proptest::collection::vec(0u8..9, 1..5), ends: bool, shift: bool, tensor: bool,
        method in prop_oneof![Just(Method::MinMax), Just(Method::Mse), Just(Method::Percentile(99.0))],
    ) {
        let mut net = Net::new(channels, seed);
        // Their weights grow by four each.
        let mut large = 0;
        for layer in layers {
            large += usize::from(layer == 2);
            if layer != 2 || large < 2 {
                net.layer(layer);
            }
        }
        if ends {
            net.layer(9);
        }
        net.graph.outputs.push(net.now);
        let mode = if shift { Mode::Shift } else { Mode::Multiply };
        let weights = if tensor { WeightScales::PerTensor } else { WeightScales::PerChannel };
        check(&net, &Options { method, weights, ..int16(mode) })?;
    }
}

#[test]
fn values_are_cut_off_only_where_sums_are_large() {
    for (channels, limits) in [(3, 0), (130, 1)] {
        let mut net = Net::new(channels, 5);
        net.layer(0);
        net.graph.outputs.push(net.now);
        assert_eq!(check(&net, &int16(Mode::Multiply)).unwrap(), limits);
    }
}

#[test]
fn a_clip_has_the_bounds_of_what_stands_before_it() {
    assert_eq!(clip(None, 5.0), Some([-5.0, 5.0]));
    assert_eq!(clip(Some(&Op::Relu), 5.0), Some([0.0, 5.0]));
    let six = Op::Clip { min: 0.0, max: 6.0 };
    assert_eq!(clip(Some(&six), 5.0), Some([0.0, 5.0]));
    assert_eq!(clip(Some(&six), 6.0), None);
    assert_eq!(clip(Some(&six), 5.999_999_5), None);
}

#[test]
fn options_that_dont_go_together_are_refused() {
    let check = |zero_points, method| {
        let options = Options {
            zero_points,
            method,
            ..int16(Mode::Multiply)
        };
        options.check().map_err(|error| error.to_string())
    };
    assert_eq!(check(ZeroPoints::Auto, Method::Mse), Ok(()));
    let error = check(ZeroPoints::Asymmetric, Method::MinMax).unwrap_err();
    assert!(error.contains("no zero points"), "{error}");
    let error = check(ZeroPoints::Symmetric, Method::Entropy).unwrap_err();
    assert!(error.contains("entropy"), "{error}");
    let int8 = Options {
        method: Method::Entropy,
        ..Options::new(Mode::Shift)
    };
    assert_eq!(int8.check(), Ok(()));
}
