//! Which values have zero points, and which none share steps.

use proptest::prelude::*;

use super::*;
use crate::float;
use crate::graph::Data;
use crate::qgraph::window::Window;
use crate::quantize::{Quantized, quantize_network};

const SIZE: usize = 6;

fn image(seed: u32) -> Vec<f32> {
    let value = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed * 40_503) >> 8) % 2001;
    (0..(4 * SIZE * SIZE) as u32)
        .map(|i| value(i) as f32 / 1000.0 - 1.0)
        .collect()
}

/// A graph as it is written.
struct Made(Graph);

impl Made {
    fn new() -> (Self, ValueId) {
        let mut made = Self(Graph::default());
        let x = made.0.value("x", vec![1, 4, SIZE, SIZE], None);
        made.0.inputs.push(x);
        (made, x)
    }

    /// A node whose output has the shape of its first input.
    fn node(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let shape = self.0.values[inputs[0].0].shape.clone();
        self.shaped(op, inputs, shape)
    }

    fn shaped(&mut self, op: Op, inputs: &[ValueId], shape: Vec<usize>) -> ValueId {
        let name = format!("v{}", self.0.values.len());
        let output = self.0.value(&name, shape, None);
        self.0
            .push(format!("{name}.node"), op, inputs.to_vec(), output);
        output
    }

    /// A depthwise convolution with weights of about `size`.
    fn conv(&mut self, x: ValueId, kernel: usize, pad: usize, size: f32) -> ValueId {
        let weight = |i: usize| size * (((i * 7919) % 97) as f32 / 48.0 - 1.0);
        let weights: Vec<f32> = (0..4 * kernel * kernel).map(weight).collect();
        let shape = vec![4, 1, kernel, kernel];
        let weights = self.0.value("w", shape, Some(Data::F32(weights)));
        let window = Window {
            kernel: [kernel; 2],
            pads: [pad; 4].into(),
            ..Window::whole([kernel; 2])
        };
        self.node(Op::Conv { window, group: 4 }, &[x, weights])
    }

    fn quantized(self, outputs: &[ValueId], zero_points: ZeroPoints) -> (Graph, Quantized) {
        let mut graph = self.0;
        graph.outputs = outputs.to_vec();
        let images: Vec<Vec<f32>> = (0..8).map(image).collect();
        let options = Options {
            zero_points,
            equalize: false,
            ..Options::new(Mode::Multiply)
        };
        let quantized = quantize_network(&graph, &&images[..], &options).unwrap();
        (graph, quantized)
    }
}

fn zero(all: &Quantized, id: ValueId) -> i8 {
    all.scales[id.0].unwrap().zero
}

#[test]
fn values_of_one_side_have_zero_points_where_they_cost_nothing() {
    for (kernel, pad, zero_points, expected) in [
        (1, 0, ZeroPoints::Auto, -128),
        (1, 0, ZeroPoints::Asymmetric, -128),
        (1, 0, ZeroPoints::Symmetric, 0),
        (3, 1, ZeroPoints::Auto, 0),
        (3, 1, ZeroPoints::Asymmetric, -128),
    ] {
        // What a MaxPool gives has the steps of what it reads.
        for pooled in [false, true] {
            let (mut made, x) = Made::new();
            let a = made.conv(x, 1, 0, 1.0);
            let b = made.node(Op::Relu, &[a]);
            let window = Window::whole([1, 1]);
            let read = if pooled {
                made.node(Op::MaxPool { window }, &[b])
            } else {
                b
            };
            let y = made.conv(read, kernel, pad, 1.0);
            let (_, all) = made.quantized(&[y], zero_points);
            let found = [zero(&all, b), zero(&all, read)];
            assert_eq!(
                found, [expected; 2],
                "{kernel} {pad} {zero_points:?} {pooled}"
            );
        }
    }
}

#[test]
fn sums_and_means_have_no_zero_points_that_cost_an_operation() {
    let (mut made, x) = Made::new();
    let a = made.conv(x, 1, 0, 1.0);
    let b = made.node(Op::Relu, &[a]);
    let sum = made.node(Op::Add, &[b, x]);
    let y = made.node(Op::Relu, &[sum]);
    let other = made.conv(y, 1, 0, 1.0);
    let mean = made.shaped(Op::GlobalAveragePool, &[other], vec![1, 4, 1, 1]);
    let (_, all) = made.quantized(&[mean], ZeroPoints::Auto);
    assert_eq!([b, y, mean].map(|id| zero(&all, id)), [0; 3]);
}

#[test]
fn bounds_of_a_hard_swish_are_whole_steps_unless_steps_are_large() {
    for (size, is_whole) in [(0.5, true), (1.3, true), (4.0, true), (60.0, false)] {
        let [step, free] = [Op::HardSwish, Op::LeakyRelu { alpha: 0.2 }].map(|op| {
            let (mut made, x) = Made::new();
            let a = made.conv(x, 1, 0, size);
            let y = made.node(op, &[a]);
            let (_, all) = made.quantized(&[y], ZeroPoints::Symmetric);
            all.scales[a.0].unwrap().step
        });
        let steps = 3.0 / f64::from(step);
        let off = (steps / steps.round() - 1.0).abs();
        assert_eq!(off < 1e-6, is_whole, "{size}: {steps}");
        assert!(step >= free && step <= free * 1.05, "{size}: {step} {free}");
        assert!(is_whole || step == free, "{size}: {step} {free}");
    }
}

/// A Concat of a network's end, and what it is of.
fn ended(sizes: [f32; 2], reader: bool) -> (Graph, Quantized, ValueId) {
    let (mut made, x) = Made::new();
    let parts = sizes.map(|size| made.conv(x, 1, 0, size));
    let joined = made.shaped(Op::Concat { axis: 1 }, &parts, vec![1, 8, SIZE, SIZE]);
    let moved = made.node(Op::Identity, &[joined]);
    let mut outputs = vec![moved];
    if reader {
        outputs.push(made.node(Op::Relu, &[joined]));
    }
    let (graph, all) = made.quantized(&outputs, ZeroPoints::Auto);
    (graph, all, joined)
}

#[test]
fn only_ends_that_join_what_is_far_apart_have_no_steps() {
    for (sizes, reader, expected) in [
        ([1.0, 1.0], false, true),
        ([1.0, 3.0], false, true),
        ([640.0, 1.0], false, false),
        ([1.0, 640.0], false, false),
        ([640.0, 1.0], true, true),
    ] {
        let (graph, all, joined) = ended(sizes, reader);
        let found = [joined, graph.outputs[0]].map(|id| all.scales[id.0].is_some());
        assert_eq!(found, [expected; 2], "{sizes:?} {reader}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Each part of what a network ends with is as right as it would be alone, however far apart they are.
    #[test]
    fn parts_of_an_end_keep_their_meaning(size in 0f32..12.0, turned: bool) {
        let mut sizes = [2f32.powf(size), 1.0];
        if turned {
            sizes.swap(0, 1);
        }
        let (graph, all, _) = ended(sizes, false);
        for seed in 20..23 {
            let image = image(seed);
            let [float, int8] = [&graph, &all.graph].map(|g| float::run(g, &image).unwrap().remove(0));
            for part in 0..2 {
                let each = float.len() / 2;
                let of = |all: &[f32]| all[part * each..][..each].to_vec();
                let [float, int8] = [of(&float), of(&int8)];
                let energy: f32 = float.iter().map(|v| v * v).sum();
                let noise: f32 = float.iter().zip(&int8).map(|(a, b)| (a - b).powi(2)).sum();
                prop_assert!(energy > 300.0 * noise, "{sizes:?} {part}: {energy} {noise}");
            }
        }
    }
}
