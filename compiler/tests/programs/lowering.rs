//! Tiled programs on the simulators give the reference interpreter's bits.

use crate::common::{Rng, check, clamp, config, push, tensor, window, zero};
use crate::parts::parts;
use proptest::prelude::*;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::{
    ChannelOf, LaneOp, QConv, QGraph, QOp, QPair, Spread, TensorId, Window,
};
use vta_compiler::reflect::Network;
use vta_driver::{Layer, Program};
use vta_isa::{Config, Extension};

#[derive(Debug, Clone)]
struct Shape {
    ci: usize,
    co: usize,
    hw: [usize; 2],
    window: Window,
    config: usize,
    seed: u64,
}

fn shape() -> impl Strategy<Value = Shape> {
    (
        1usize..40,
        1usize..40,
        [1usize..14, 1usize..14],
        window(5),
        0usize..6,
        any::<u64>(),
    )
        .prop_filter_map(
            "the window must fit",
            |(ci, co, hw, window, config, seed)| {
                window.output(hw[0], hw[1])?;
                Some(Shape {
                    ci,
                    co,
                    hw,
                    window,
                    config,
                    seed,
                })
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5))]

    /// More columns than an instruction can step by, where there is one row and none follows it: of a convolution with
    /// and without a residual, a pool, and channels that become positions.
    #[test]
    fn rows_alone_may_be_longer_than_a_stride(
        (wide, channels) in (1usize..3000, [1usize..10, 1usize..10]), (kernel, stride, pad) in (1usize..4, 1usize..3, 0usize..2),
        kind in 0usize..4, c in 0usize..6, seed in any::<u64>(),
    ) {
        let (mut graph, mut rng) = (QGraph::default(), Rng(seed));
        let ([ci, co], wide) = (channels, 65535 + wide);
        let input = tensor(&mut graph, [ci, 1, wide]);
        graph.inputs = vec![input];
        let mut conv = |graph: &mut QGraph, input: TensorId, window: Window, residual| {
            let [ci, _, w] = graph.tensors[input.0].chw;
            let weights = rng.int8(co * ci * window.area()).into();
            let epilogue = [vec![LaneOp::add((0..co as i32).collect::<Vec<_>>()), LaneOp::shr(6)], clamp()].concat();
            let op = QOp::Conv(QConv { store: None, input, window, weights, residual, epilogue, dense: false, group: 1 });
            let [h, w] = window.output(1, w).unwrap();
            push(graph, op, [co, h, w])
        };
        let pads = [0, pad.min(kernel - 1), 0, 0].into();
        let window = Window { kernel: [1, kernel], stride: [1, stride], dilation: [1, 1], pads };
        let one = Window { kernel: [1, 1], stride: [1, 1], ..Window::whole([1, 1]) };
        let first = conv(&mut graph, input, one, None);
        let last = match kind {
            0 => conv(&mut graph, first, window, None),
            1 => conv(&mut graph, first, one, Some((first, vec![LaneOp::shl(3)]))),
            2 => {
                let [h, w] = window.output(1, wide).unwrap();
                push(&mut graph, QOp::MaxPool { input: first, window, ops: vec![] }, [co, h, w])
            }
            _ => {
                let of = |channel| Some(ChannelOf { input: 0, channel });
                let spread = Spread { up: [1, 2], ..Spread::NONE };
                let map = (0..co).chain((0..co).rev()).map(of).collect();
                let op = QOp::Channels { inputs: vec![first], map, spread, gain: 1, ops: vec![] };
                push(&mut graph, op, [co, 1, 2 * wide])
            }
        };
        graph.outputs = vec![last];
        check(&graph, &config(c), seed)?;
        lower::compile(&graph, &config(c), &LowerOptions::default()).unwrap();
    }
}

/// A seed of [`check`] with which a machine has these extensions.
fn seed_with(has: &[Extension]) -> u64 {
    let others = Extension::ALL.into_iter().filter(|e| !e.is_default());
    let bits = (3..).zip(others).filter(|(_, e)| has.contains(e));
    bits.map(|(bit, _)| 1 << bit).sum::<u64>() | 7
}

/// Tables that the load module brings where its scratchpads have room for one chunk alone, and for tiles without any.
#[test]
fn preloads_come_behind_the_only_part_and_never_behind_no_chunk() {
    let config = Config::from_json(r#"{"LOG_INP_BUFF_SIZE": 8}"#).unwrap();
    for (kernel, pad) in [(9, 4), (1, 30)] {
        let (mut graph, mut rng) = (QGraph::default(), Rng(7));
        let input = tensor(&mut graph, [32, 1, 60]);
        graph.inputs = vec![input];
        let pads = [0, pad, 0, pad].into();
        let window = Window {
            kernel: [1, kernel],
            stride: [1, 1],
            dilation: [1, 1],
            pads,
        };
        let [h, w] = window.output(1, 60).unwrap();
        let weights = rng.int8(20 * 32 * kernel).into();
        let epilogue = [vec![LaneOp::shr(6)], clamp()].concat();
        let op = QOp::Conv(QConv {
            store: None,
            input,
            window,
            weights,
            residual: None,
            epilogue,
            dense: false,
            group: 1,
        });
        graph.outputs = vec![push(&mut graph, op, [20, h, w])];
        for has in [
            &[Extension::Preload, Extension::Requant][..],
            &Extension::ALL,
        ] {
            check(&graph, &config, seed_with(has)).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tiled_convolution_is_the_direct_one(s in shape(), residual in any::<bool>(), vectors in any::<bool>(), zero in zero(), bias in 0usize..3, parts in parts()) {
        let mut graph = QGraph::default();
        let mut rng = Rng(s.seed);
        let input = tensor(&mut graph, [s.ci, s.hw[0], s.hw[1]]);
        graph.tensors[input.0].zero = zero;
        graph.inputs = vec![input];
        let [oh, ow] = s.window.output(s.hw[0], s.hw[1]).unwrap();
        let out = [s.co, oh, ow];
        let mut conv = |graph: &mut QGraph, residual| {
            let weights = crate::parts::weights(&mut rng, s.co * s.ci * s.window.kernel[0] * s.window.kernel[1], parts);
            // Within the reach of digits, beyond it, or the same for all channels.
            let mut epilogue = match bias {
                0 => vec![LaneOp::add((0..s.co).map(|_| rng.next() as i32 >> 16).collect::<Vec<_>>())],
                1 => vec![LaneOp::add((0..s.co).map(|_| rng.next() as i32 >> 8).collect::<Vec<_>>())],
                _ => vec![],
            };
            if vectors {
                epilogue.push(LaneOp::min((0..s.co).map(|_| (rng.next() >> 12) as i32 & 0xf_ffff).collect::<Vec<_>>()));
                epilogue.push(LaneOp::max((0..s.co).map(|_| -((rng.next() >> 12) as i32 & 0xf_ffff)).collect::<Vec<_>>()));
                epilogue.push(LaneOp::shr(6));
                epilogue.push(LaneOp::mul((0..s.co).map(|_| (rng.next() % 100) as i32).collect::<Vec<_>>()));
            }
            epilogue.push(LaneOp::shr(7));
            epilogue.extend(clamp());
            let op = QOp::Conv(QConv { store: None, input, window: s.window, weights: weights.into(), residual, epilogue, dense: false, group: 1 });
            push(graph, op, out)
        };
        let mut last = conv(&mut graph, None);
        if residual {
            // Shifts below, at and above that of the sums: a product, or a start of the sums.
            let align = [0, 3, 7, 9][s.seed as usize % 4];
            let prologue = if vectors { vec![LaneOp::mul((0..s.co as i32).collect::<Vec<_>>())] } else { vec![LaneOp::shl(align)] };
            last = conv(&mut graph, Some((last, prologue)));
        }
        graph.outputs = vec![last];
        check(&graph, &config(s.config), s.seed)?;
    }

    #[test]
    fn tiled_pools_and_sums_are_the_direct_ones(s in shape(), include_pad in any::<bool>()) {
        let pads = [s.window.pads.before(), s.window.pads.after()];
        prop_assume!(pads.iter().all(|pads| (0..2).all(|a| pads[a] < s.window.span(a))));
        let mut graph = QGraph::default();
        let input = tensor(&mut graph, [s.ci, s.hw[0], s.hw[1]]);
        graph.inputs = vec![input];
        let [oh, ow] = s.window.output(s.hw[0], s.hw[1]).unwrap();
        let out = [s.ci, oh, ow];
        let a = push(&mut graph, QOp::MaxPool { input, window: s.window, ops: vec![] }, out);
        let counts = 0..=s.window.kernel[0] * s.window.kernel[1];
        let ops_by_count = counts
            .map(|n| (n, vec![LaneOp::mul(n as i16 + 1), LaneOp::add(16), LaneOp::shr(5), LaneOp::min(127), LaneOp::max(-128)]))
            .collect();
        let pool = QOp::AvgPool { input, window: s.window, count_include_pad: include_pad, ops_by_count };
        let b = push(&mut graph, pool, out);
        let add = QOp::Add(QPair { store: None, a, a_ops: vec![LaneOp::mul(3)], b, b_ops: vec![LaneOp::shl(1)], epilogue: clamp() });
        let c = push(&mut graph, add, out);
        let d = push(&mut graph, QOp::Eltwise { input: c, ops: vec![LaneOp::max(0)] }, out);
        graph.outputs = vec![d];
        check(&graph, &config(s.config), s.seed)?;
    }

    #[test]
    fn a_pool_joined_to_its_convolution_is_the_separate_one(
        ci in 1usize..40, co in 1usize..70, out in [1usize..8, 1usize..8],
        conv in (1usize..4, 1usize..3, 0usize..2), pool in prop::array::uniform2((1usize..4, 0usize..3, 0usize..5)),
        c in 0usize..6, vectors in any::<bool>(), seed in any::<u64>(), zero in zero(),
    ) {
        let (k, stride, pad) = conv;
        // Strides 1 to 3, pads below the stride, kernels that reach into neighbours at most.
        let axis = pool.map(|(s, p, k)| { let p = p.min(s - 1); (s, p, p + 1 + k.min(s - 1)) });
        let size = [0, 1].map(|a| out[a] * axis[a].0);
        let hw = size.map(|n| ((n - 1) * stride + k).saturating_sub(2 * pad));
        let window = Window { kernel: [k; 2], stride: [stride; 2], dilation: [1, 1], pads: [pad; 4].into() };
        prop_assume!(hw[0] > 0 && hw[1] > 0 && window.output(hw[0], hw[1]) == Some(size));
        let mut graph = QGraph::default();
        let mut rng = Rng(seed);
        let input = tensor(&mut graph, [ci, hw[0], hw[1]]);
        graph.tensors[input.0].zero = zero;
        graph.inputs = vec![input];
        let weights = rng.int8(co * ci * k * k);
        let mut epilogue = vec![LaneOp::add((0..co).map(|_| rng.next() as i32 >> 16).collect::<Vec<_>>())];
        if vectors {
            epilogue.push(LaneOp::shr(4));
            epilogue.push(LaneOp::mul((0..co).map(|_| (rng.next() % 100) as i32).collect::<Vec<_>>()));
        }
        epilogue.push(LaneOp::shr(7));
        epilogue.extend(clamp());
        let op = QOp::Conv(QConv { store: None, input, window, weights: weights.into(), residual: None, epilogue, dense: false, group: 1 });
        let last = push(&mut graph, op, [co, size[0], size[1]]);
        // The pads below and on the right are what is left of the kernel.
        let after = axis.map(|(_, p, k)| k - 1 - p);
        let window = Window {
            kernel: axis.map(|a| a.2),
            stride: axis.map(|a| a.0),
            dilation: [1, 1],
            pads: [axis[0].1, axis[1].1, after[0], after[1]].into(),
        };
        let pooled = window.output(size[0], size[1]).unwrap();
        let last = push(&mut graph, QOp::MaxPool { input: last, window, ops: vec![] }, [co, pooled[0], pooled[1]]);
        graph.outputs = vec![last];
        check(&graph, &config(c), seed)?;
    }

    #[test]
    fn dense_layers_cover_the_whole_input(ci in 1usize..40, co in 1usize..80, [h, w] in sides(), c in 0usize..6, seed in any::<u64>()) {
        // Where rows are long, the weights' memory is what takes time.
        let (ci, co) = if h * w > 16 { (ci % 5 + 1, co % 20 + 1) } else { (ci, co) };
        let mut graph = QGraph::default();
        let mut rng = Rng(seed);
        let input = tensor(&mut graph, [ci, h, w]);
        graph.inputs = vec![input];
        let whole = |kernel| Window { kernel, stride: [1, 1], dilation: [1, 1], pads: [0; 4].into() };
        let mut epilogue = vec![LaneOp::shr(9)];
        epilogue.extend(clamp());
        let first = QOp::Eltwise { input, ops: vec![LaneOp::add(1), LaneOp::min(127)] };
        let first = push(&mut graph, first, [ci, h, w]);
        let weights = rng.int8(co * ci * h * w);
        let op = QOp::Conv(QConv { store: None, input: first, window: whole([h, w]), weights: weights.into(), residual: None, epilogue: epilogue.clone(), dense: true, group: 1 });
        let hidden = push(&mut graph, op, [co, 1, 1]);
        let weights = rng.int8(co * 3);
        let op = QOp::Conv(QConv { store: None, input: hidden, window: whole([1, 1]), weights: weights.into(), residual: None, epilogue, dense: true, group: 1 });
        let last = push(&mut graph, op, [3, 1, 1]);
        graph.outputs = vec![last];
        let error = lower::compile(&graph, &config(c), &LowerOptions { im2col: false, ..LowerOptions::default() }).err();
        prop_assert_eq!(error, None);
        check(&graph, &config(c), seed)?;
    }
}

/// Sizes of an input: small ones, and rows that are longer than any scratchpad's half.
fn sides() -> impl Strategy<Value = [usize; 2]> {
    prop_oneof![
        4 => [1usize..5, 1usize..5],
        1 => (1usize..3, 1000usize..2100).prop_map(|(h, w)| [h, w]),
    ]
}

/// A row of weights may be longer than a stride can say, where blocks are loaded one by one.
#[test]
fn dense_layers_of_65536_positions_are_tiled() {
    let mut graph = QGraph::default();
    let input = tensor(&mut graph, [1, 256, 256]);
    graph.inputs = vec![input];
    let op = QOp::Conv(QConv {
        store: None,
        input,
        window: Window {
            kernel: [256, 256],
            stride: [1, 1],
            dilation: [1, 1],
            pads: [0; 4].into(),
        },
        weights: Rng(1).int8(20 * 65_536).into(),
        group: 1,
        residual: None,
        epilogue: [vec![LaneOp::shr(12)], clamp()].concat(),
        dense: true,
    });
    let out = push(&mut graph, op, [20, 1, 1]);
    graph.outputs = vec![out];
    check(&graph, &Config::default(), 1).unwrap();
    let error = lower::compile(
        &graph,
        &Config::default(),
        &LowerOptions {
            im2col: false,
            ..LowerOptions::default()
        },
    )
    .err();
    assert_eq!(error, None);
}

#[test]
fn a_kernel_that_cannot_be_tiled_names_the_limits() {
    let mut graph = QGraph::default();
    let input = tensor(&mut graph, [1, 40, 2000]);
    graph.inputs = vec![input];
    let window = Window {
        kernel: [1, 1100],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4].into(),
    };
    let weights = vec![1; 1100];
    let epilogue = clamp();
    let op = QOp::Conv(QConv {
        store: None,
        input,
        window,
        weights: weights.into(),
        group: 1,
        residual: None,
        epilogue,
        dense: false,
    });
    let out = push(&mut graph, op, [1, 40, 901]);
    graph.outputs = vec![out];
    let error = lower::compile(
        &graph,
        &Config::default(),
        &LowerOptions {
            im2col: false,
            ..LowerOptions::default()
        },
    );
    let text = error.unwrap_err().to_string();
    assert!(
        text.starts_with("node n0: no tile fits")
            && text.contains("1100 weight tiles (the scratchpad holds 1024)"),
        "{text}"
    );
}

/// Sums over windows are steps of the matrix unit where the input is larger than its scratchpad,
/// and additions of the ALU elsewhere.
#[test]
fn large_averages_are_products() {
    for (chw, kernel, stride, pad, config_index, products) in [
        ([1040, 7, 7], [7, 7], 1, 0, 0, true),
        ([512, 7, 7], [7, 7], 1, 0, 0, false),
        ([50, 14, 13], [3, 2], 2, 1, 4, true),
        ([50, 14, 13], [3, 2], 1, 0, 4, true),
        ([40, 9, 9], [9, 9], 1, 0, 5, true),
        ([1, 20, 20], [2, 2], 2, 0, 4, true),
        ([100, 24, 24], [3, 3], 1, 1, 3, true),
    ] {
        let mut graph = QGraph::default();
        let input = tensor(&mut graph, chw);
        let window = Window {
            kernel,
            stride: [stride; 2],
            dilation: [1, 1],
            pads: [pad; 4].into(),
        };
        let [oh, ow] = window.output(chw[1], chw[2]).unwrap();
        let mut ops = vec![LaneOp::mul(700), LaneOp::add(99), LaneOp::shr(13)];
        ops.extend(clamp());
        let pool = QOp::AvgPool {
            input,
            window,
            count_include_pad: pad > 0,
            ops_by_count: vec![(kernel[0] * kernel[1], ops)],
        };
        let output = push(&mut graph, pool, [chw[0], oh, ow]);
        // A layer behind it finds the scratchpads as it should.
        let last = QOp::Conv(QConv {
            store: None,
            input: output,
            window: Window {
                kernel: [1, 1],
                stride: [1, 1],
                dilation: [1, 1],
                pads: [0; 4].into(),
            },
            weights: Rng(3).int8(20 * chw[0]).into(),
            residual: None,
            epilogue: [vec![LaneOp::shr(8)], clamp()].concat(),
            dense: false,
            group: 1,
        });
        let last = push(&mut graph, last, [20, oh, ow]);
        (graph.inputs, graph.outputs) = (vec![input], vec![last]);
        let config = config(config_index);
        let program = lower::compile(&graph, &config, &LowerOptions::default()).unwrap();
        assert_eq!(program.layers[0].steps.products > 0, products, "{chw:?}");
        check(&graph, &config, 7).unwrap();
    }
}

#[test]
fn layers_describe_the_nodes_that_they_compute_and_so_do_bundles() {
    let mut graph = QGraph::default();
    let input = tensor(&mut graph, [16, 8, 8]);
    graph.inputs = vec![input];
    let window = |kernel, stride, pad| Window {
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [1, 1],
        pads: [pad; 4].into(),
    };
    let conv = |input, window: Window, dense| {
        QOp::Conv(QConv {
            store: None,
            input,
            window,
            weights: vec![1; 16 * 16 * window.area()].into(),
            group: 1,
            residual: None,
            epilogue: [vec![LaneOp::shr(8)], clamp()].concat(),
            dense,
        })
    };
    let pool = |input, ops| QOp::MaxPool {
        input,
        window: window(2, 2, 0),
        ops,
    };
    let a = push(&mut graph, conv(input, window(3, 1, 1), false), [16, 8, 8]);
    let joined = push(&mut graph, pool(a, vec![]), [16, 4, 4]);
    let scaled = QOp::Eltwise {
        input: joined,
        ops: vec![LaneOp::max(0)],
    };
    let scaled = push(&mut graph, scaled, [16, 4, 4]);
    let sum = QOp::Add(QPair {
        store: None,
        a: joined,
        a_ops: vec![],
        b: scaled,
        b_ops: vec![LaneOp::shl(1)],
        epilogue: clamp(),
    });
    let sum = push(&mut graph, sum, [16, 4, 4]);
    let alone = push(&mut graph, pool(sum, vec![LaneOp::min(9)]), [16, 2, 2]);
    let mean = QOp::AvgPool {
        input: alone,
        window: Window::whole([2, 2]),
        count_include_pad: false,
        ops_by_count: vec![(4, vec![LaneOp::shr(2)])],
    };
    let mean = push(&mut graph, mean, [16, 1, 1]);
    let last = push(
        &mut graph,
        conv(mean, Window::whole([1, 1]), true),
        [16, 1, 1],
    );
    graph.outputs = vec![last];

    let program = lower::compile(&graph, &Config::default(), &LowerOptions::default()).unwrap();
    let described = graph.describe();
    let of_layers = program.layers.iter().flat_map(|layer| &layer.nodes);
    assert!(of_layers.eq(&described));
    let kinds = |layer: &Layer| -> Vec<String> {
        let kinds = layer.nodes.iter().map(|node| node.kind.to_string());
        kinds.collect()
    };
    let kinds: Vec<_> = program.layers.iter().map(kinds).collect();
    let expected: [&[&str]; 6] = [
        &["conv", "maxpool"],
        &["eltwise"],
        &["add"],
        &["maxpool"],
        &["avgpool"],
        &["dense"],
    ];
    assert_eq!(kinds, expected);
    let joined = "n0+n1 (conv 16x8x8 to 16x8x8, maxpool 16x8x8 to 16x4x4)";
    assert_eq!(program.layers[0].described(), joined);
    let bundle = Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
    assert_eq!(bundle, program);
}

/// Two rows that long are refused, by whatever would step from one to the other.
#[test]
fn rows_that_are_longer_than_a_stride_are_refused_where_others_follow() {
    for rows in [1, 2] {
        let mut graph = QGraph::default();
        let input = tensor(&mut graph, [1, rows, 65_536]);
        graph.inputs = vec![input];
        let window = Window::whole([1, 1]);
        let ops = vec![];
        let last = push(
            &mut graph,
            QOp::MaxPool { input, window, ops },
            [1, rows, 65_536],
        );
        let conv = QOp::Conv(QConv {
            store: None,
            input: last,
            window,
            weights: vec![1].into(),
            residual: None,
            epilogue: clamp(),
            dense: false,
            group: 1,
        });
        let last = push(&mut graph, conv, [1, rows, 65_536]);
        graph.outputs = vec![last];
        let made = lower::compile(&graph, &config(0), &LowerOptions::default());
        let error = made
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        let refused = error
            .matches("65536 columns; x_stride holds at most 65535")
            .count()
            + error.matches("65536 input columns; x_stride").count();
        assert_eq!(refused, if rows == 1 { 0 } else { 2 }, "{error}");
    }
}
