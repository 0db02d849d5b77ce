//! Equalised networks compute what they did, and their channels are alike.

use proptest::prelude::*;

use super::*;
use crate::float;
use crate::graph::Value;
use crate::qgraph::window::Window;
use crate::quantize::{Method, Mode, observe, quantize_network};

/// What stands between the first layer and the second.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    Relu,
    LeakyRelu,
    MaxPool,
    /// A Relu, as some files have it.
    OpenClip,
    /// None of these commutes with factors.
    Clip,
    LowClip,
    NegativeClip,
    HardSwish,
    HardSigmoid,
    ShiftedClip,
}

const ALL: [Between; 11] = [
    Between::Nothing,
    Between::Relu,
    Between::LeakyRelu,
    Between::MaxPool,
    Between::OpenClip,
    Between::Clip,
    Between::LowClip,
    Between::NegativeClip,
    Between::HardSwish,
    Between::HardSigmoid,
    Between::ShiftedClip,
];

const CHANNELS: usize = 6;
const SIZE: usize = 5;

fn value(i: usize, seed: u32) -> f32 {
    let mixed = (i as u32)
        .wrapping_mul(2_654_435_761)
        .wrapping_add(seed.wrapping_mul(40_503))
        >> 8;
    (mixed % 2001) as f32 / 1000.0 - 1.0
}

fn image(seed: u32) -> Vec<f32> {
    (0..3 * SIZE * SIZE).map(|i| value(i, seed)).collect()
}

/// An image with values so many times as far from 0.
fn far_image(seed: u32, times: f32) -> Vec<f32> {
    image(seed).iter().map(|v| v * times).collect()
}

struct Case {
    between: Between,
    /// Of the second layer.
    group: usize,
    /// Another node reads what the second layer does.
    twice: bool,
    seed: u32,
    /// Exponents of the first layer's channels.
    spread: i32,
}

/// conv, what stands between, conv of the groups, Relu, conv.
fn graph(case: &Case) -> Graph {
    let mut graph = Graph::default();
    let mut define = |name: &str, shape: &[usize], data: Option<Data>| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let far =
        |channel: usize| 2f32.powi((value(channel, case.seed + 5) * case.spread as f32) as i32);
    let tensor = |len: usize, from: u32, inner: usize| -> Data {
        let one =
            |i: usize| value(i, case.seed + from) * if from == 0 { far(i / inner) } else { 1.0 };
        Data::F32((0..len).map(one).collect())
    };
    let x = define("x", &[1, 3, SIZE, SIZE], None);
    let inner = [1, CHANNELS, SIZE, SIZE];
    let w1 = define("w1", &[CHANNELS, 3, 1, 1], Some(tensor(CHANNELS * 3, 0, 3)));
    let b1 = define("b1", &[CHANNELS], Some(tensor(CHANNELS, 0, 1)));
    let each = CHANNELS / case.group;
    let w2 = define(
        "w2",
        &[CHANNELS, each, 3, 3],
        Some(tensor(CHANNELS * each * 9, 1, 1)),
    );
    let w3 = define("w3", &[4, CHANNELS, 1, 1], Some(tensor(4 * CHANNELS, 2, 1)));
    let [a, b, c, d, y, other] = [
        ("a", &inner),
        ("b", &inner),
        ("c", &inner),
        ("d", &inner),
        ("y", &[1, 4, SIZE, SIZE]),
        ("other", &inner),
    ]
    .map(|(name, shape)| define(name, shape, None));
    let conv = |kernel: usize, group: usize| {
        let window = Window {
            kernel: [kernel; 2],
            pads: [kernel / 2; 4].into(),
            ..Window::whole([kernel; 2])
        };
        Op::Conv { window, group }
    };
    let pool = Window {
        kernel: [3; 2],
        pads: [1; 4].into(),
        ..Window::whole([3; 2])
    };
    let between = match case.between {
        Between::Nothing => Op::Identity,
        Between::Relu => Op::Relu,
        Between::LeakyRelu => Op::LeakyRelu { alpha: 0.1 },
        Between::OpenClip => Op::Clip {
            min: 0.0,
            max: f32::INFINITY,
        },
        Between::Clip => Op::Clip { min: 0.0, max: 6.0 },
        Between::NegativeClip => Op::Clip {
            min: -0.5,
            max: 0.0,
        },
        Between::LowClip => Op::Clip {
            min: 0.0,
            max: 0.25,
        },
        Between::MaxPool => Op::MaxPool { window: pool },
        Between::HardSwish => Op::HardSwish,
        Between::HardSigmoid => Op::HardSigmoid {
            alpha: 0.2,
            beta: 0.5,
        },
        Between::ShiftedClip => Op::Clip {
            min: -0.5,
            max: 6.0,
        },
    };
    let mut push = |op: Op, inputs: &[ValueId], output: ValueId| {
        let (name, inputs) = (format!("node{}", output.0), inputs.to_vec());
        graph.nodes.push(Node {
            name,
            op,
            inputs,
            output,
        });
    };
    push(conv(1, 1), &[x, w1, b1], a);
    push(between, &[a], b);
    push(conv(3, case.group), &[b, w2], c);
    push(Op::Relu, &[c], d);
    push(conv(1, 1), &[d, w3], y);
    graph.inputs = vec![x];
    graph.outputs = vec![y];
    if case.twice {
        graph.nodes.push(Node {
            name: "other".to_owned(),
            op: Op::Relu,
            inputs: vec![b],
            output: other,
        });
        graph.outputs.push(other);
    }
    graph
}

fn options(weights: WeightScales) -> Options {
    Options {
        weights,
        equalize: true,
        ..Options::new(Mode::Multiply)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Conditions that are dropped show: an operator that doesn't commute, a bound that only other images
    /// reach, a second reader change what is computed.
    #[test]
    fn equalized_networks_compute_what_they_did(
        between in prop::sample::select(&ALL[..]), group in prop::sample::select(&[1, 2, CHANNELS][..]),
        twice: bool, seed in 0u32..1000, tensor: bool,
    ) {
        let case = Case { between, group, twice, seed, spread: 5 };
        let graph = graph(&case);
        let images: Vec<Vec<f32>> = (0..3).map(|k| image(seed + 100 + k)).collect();
        let observed = observe(&graph, &&images[..]).unwrap();
        let weights = if tensor { WeightScales::PerTensor } else { WeightScales::PerChannel };
        let (equal, pairs) = equalize(&graph, &observed, &options(weights));
        // The second pair is always one.
        let commutes = matches!(
            between,
            Between::Nothing | Between::Relu | Between::LeakyRelu | Between::MaxPool | Between::OpenClip
        );
        prop_assert_eq!(pairs, 1 + usize::from(commutes && !twice));
        prop_assert!(equal.nodes.iter().zip(&graph.nodes).any(|(a, b)| a.inputs != b.inputs));
        let others = (0..6).map(|k| far_image(seed + 200 + k, 2f32.powi(k as i32)));
        for image in images.iter().cloned().chain(others) {
            let [before, after] = [&graph, &equal].map(|g| float::run(g, &image).unwrap());
            for (before, after) in before.iter().zip(&after) {
                let most = before.iter().fold(1e-6f32, |m, v| m.max(v.abs()));
                for (a, b) in before.iter().zip(after) {
                    prop_assert!((a - b).abs() <= most * 1e-4, "{a} {b} of {most}");
                }
            }
        }
    }

    #[test]
    fn channels_before_a_depthwise_layer_are_alike(seed in 0u32..1000) {
        let case = Case { between: Between::Relu, group: CHANNELS, twice: false, seed, spread: 2 };
        let graph = graph(&case);
        let images: Vec<Vec<f32>> = (0..40).map(|k| image(seed + 100 + k)).collect();
        let observed = observe(&graph, &&images[..]).unwrap();
        let (equal, _) = equalize(&graph, &observed, &options(WeightScales::PerChannel));
        let again = observe(&equal, &&images[..]).unwrap();
        let read = equal.nodes[2].inputs[0];
        let largest = |all: &Observed| all.channels(read).unwrap().largest().to_vec();
        let (before, after) = (largest(&observed), largest(&again));
        let most = before.iter().copied().fold(0f32, f32::max);
        let seen = (images.len() * SIZE * SIZE) as f64;
        let least = (DOUBT / seen.sqrt()).max(LEAST) as f32;
        for (before, after) in before.into_iter().zip(after) {
            // A channel comes as near to the largest as there is room for larger values, and as values
            // were seen.
            let expected = before.max((most / ROOM as f32).min(before / least));
            prop_assert!((after / expected - 1.0).abs() < 1e-4, "{after} for {expected}");
        }
    }
}

#[test]
fn equalizing_makes_far_channels_of_depthwise_networks_exact() {
    let case = Case {
        between: Between::Relu,
        group: CHANNELS,
        twice: false,
        seed: 3,
        spread: 6,
    };
    let graph = graph(&case);
    let images: Vec<Vec<f32>> = (0..8).map(image).collect();
    let error = |equalize: bool| {
        let options = Options {
            equalize,
            method: Method::MinMax,
            ..Options::new(Mode::Multiply)
        };
        let quantized = quantize_network(&graph, &&images[..], &options).unwrap();
        assert_eq!(quantized.equalized, if equalize { 2 } else { 0 });
        let energy = |image: &Vec<f32>| {
            let [a, b] =
                [&graph, &quantized.graph].map(|g| float::run(g, image).unwrap().remove(0));
            a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>()
        };
        images.iter().map(energy).sum::<f32>()
    };
    let (without, with) = (error(false), error(true));
    assert!(with < without, "{with} {without}");
}
