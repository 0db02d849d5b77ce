//! Convolutions that take turns with the depthwise ones behind them: the bits of the reference interpreter on every simulator, without
//! hazards, with every product once.

use proptest::prelude::*;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::{LaneOp, QConv, QGraph, QOp, QPair, TensorId, Window};
use vta_compiler::{passes, zoo};
use vta_isa::{Config, Extension, Extensions};

use crate::common::{Rng, check, clamp, config, push, tensor};
use crate::edges::{links, objections, without};

/// What layers need that take turns, and some extensions that change what they do.
const LEAST: [Extension; 3] = [
    Extension::Requant,
    Extension::Depthwise,
    Extension::Overwrite,
];

fn extended(config: &Config, more: &[Extension]) -> Config {
    let all = LEAST.iter().chain(more);
    let has = all.fold(config.extensions(), |has, one| has.with(*one));
    config.clone().with_extensions(has)
}

fn square(kernel: usize, stride: usize) -> Window {
    Window {
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [1; 2],
        pads: [kernel / 2; 4].into(),
    }
}

/// A convolution of groups of a channel, or of all, whose sums are rounded.
fn conv(
    graph: &mut QGraph,
    rng: &mut Rng,
    input: TensorId,
    (co, group): (usize, usize),
    window: Window,
) -> TensorId {
    let [ci, h, w] = graph.tensors[input.0].chw;
    let [oh, ow] = window.output(h, w).unwrap();
    let bias: Vec<i32> = (0..co).map(|_| rng.next() as i32 >> 18).collect();
    let op = QOp::Conv(QConv {
        store: None,
        input,
        window,
        weights: rng.int8(co * ci / group * window.area()).into(),
        residual: None,
        epilogue: [vec![LaneOp::add(bias), LaneOp::shr(8)], clamp()].concat(),
        dense: false,
        group,
    });
    push(graph, op, [co, oh, ow])
}

/// A pair: channels, both kernels, the stride of the second, and whether the input is added to what the first gives, which then has as
/// many channels.
type Pair = (usize, usize, usize, usize, bool);

/// The sum of two tensors, which STOREs may make.
fn sum(graph: &mut QGraph, [a, b]: [TensorId; 2]) -> TensorId {
    let op = QOp::Add(QPair {
        store: None,
        a,
        a_ops: vec![],
        b,
        b_ops: vec![LaneOp::shl(1)],
        epilogue: [vec![LaneOp::shr(2)], clamp()].concat(),
    });
    let chw = graph.tensors[a.0].chw;
    push(graph, op, chw)
}

/// Pairs of a convolution and a depthwise one, one behind the other.
fn pairs(chw: [usize; 3], all: &[Pair], zero: i32, seed: u64) -> QGraph {
    let (mut graph, mut rng) = (QGraph::default(), Rng(seed));
    let mut last = tensor(&mut graph, chw);
    graph.inputs = vec![last];
    for &(channels, kernel, depthwise, stride, adds) in all {
        let (dense, input) = (square(kernel, 1), last);
        let channels = match adds {
            true => graph.tensors[input.0].chw[0],
            false => channels,
        };
        last = conv(&mut graph, &mut rng, last, (channels, 1), dense);
        if adds {
            last = sum(&mut graph, [last, input]);
        }
        graph.tensors[last.0].zero = zero;
        let depthwise = square(depthwise, stride);
        last = conv(&mut graph, &mut rng, last, (channels, channels), depthwise);
    }
    graph.outputs = vec![last];
    graph
}

/// How many of a network's layers are two that take turns.
fn turns(graph: &QGraph, config: &Config) -> usize {
    let graph = lower::for_machine(graph, config);
    let program = lower::compile(&graph, config, &LowerOptions::default()).unwrap();
    let layers = program.layers.iter();
    layers.filter(|layer| layer.nodes.len() > 1).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn turns_are_what_the_reference_says(
        c in 16usize..120, hw in [8usize..30, 8usize..30],
        all in prop::collection::vec((16usize..100, prop::sample::select(vec![1usize, 1, 3]), prop::sample::select(vec![3usize, 3, 5]), 1usize..3, any::<bool>()), 1..3),
        at in 0usize..6, more in prop::collection::vec(prop::sample::select(Extension::ALL.to_vec()), 0..5),
        zero in prop::sample::select(vec![0, 0, 5]), seed in any::<u64>(),
    ) {
        let graph = pairs([c, hw[0], hw[1]], &all, zero, seed);
        check(&graph, &extended(&config(at), &more), seed)?;
    }
}

fn adds(seed: u64) -> bool {
    seed % 4 == 3
}

/// A pair, and a machine.
fn drawn(seed: u64) -> (QGraph, Config) {
    let mut rng = Rng(seed);
    let mut from = |least: usize, most: usize| least + rng.next() as usize % (most - least);
    let chw = [from(16, 120), from(8, 30), from(8, 30)];
    let pair = (
        from(16, 100),
        1 + 2 * (from(0, 3) / 2),
        3,
        from(1, 3),
        adds(seed),
    );
    (pairs(chw, &[pair], 0, seed), config(from(0, 6)))
}

/// Many pairs, also where the first adds, and those of a network, take turns. Without the extensions none does.
#[test]
fn layers_take_turns_where_stores_round() {
    let (mut some, mut all, mut adding) = (0, 0, 0);
    for seed in 0..40 {
        let (graph, machine) = drawn(seed);
        all += 1;
        let found = turns(&graph, &extended(&machine, &[Extension::Preload]));
        some += found;
        adding += found * usize::from(adds(seed));
        assert_eq!(
            turns(&graph, &machine.with_extensions(Extensions::DEFAULT)),
            0
        );
    }
    println!("{some} of {all}, {adding} of them add");
    assert!(
        some * 4 > all && adding > 2,
        "{some} of {all}, {adding} of them add"
    );
    let graph = passes::quantized(&zoo::graph("mobilenet-v1").unwrap()).unwrap();
    assert!(turns(&graph, &extended(&Config::default(), &[Extension::Preload])) > 6);
}

/// Of a layer whose tiles take turns each edge is needed, but for few: drop one, and two modules race or none goes on.
#[test]
fn tokens_of_turns_are_needed() {
    let mut all = (0..).map(drawn);
    let (graph, config) = all
        .by_ref()
        .map(|(graph, machine)| (graph, extended(&machine, &[Extension::Preload])))
        .find(|(graph, config)| turns(graph, config) == 1)
        .unwrap();
    let graph = lower::for_machine(&graph, &config);
    let program = lower::compile(&graph, &config, &LowerOptions::default()).unwrap();
    assert_eq!(objections(program.clone()), [""; 0]);
    let (mut all, mut needed) = (0, 0);
    for link in links(&program) {
        all += 1;
        needed += usize::from(!objections(without(&program, link)).is_empty());
    }
    println!("{needed} of {all}");
    assert!(all > 100 && needed * 10 > all * 6, "{needed} of {all}");
}
