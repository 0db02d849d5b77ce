//! Grouped and depthwise convolutions give the reference interpreter's bits, and visit no block
//! that their groups don't touch.

use crate::common::{Rng, check, clamp, config, push, tensor, window, zero};
use crate::parts::parts;
use proptest::prelude::*;
use vta_compiler::qgraph::{LaneOp, QConv, QGraph, QOp, TensorId, Window};
use vta_compiler::{layer, lower, reference};
use vta_driver::QueueLimits;
use vta_isa::{Config, Extension};

#[derive(Debug, Clone)]
struct Grouped {
    group: usize,
    inputs: usize,
    outputs: usize,
    hw: [usize; 2],
    window: Window,
    config: usize,
    seed: u64,
    parts: (usize, u64),
}

/// Group counts and sizes: depthwise with one or several outputs a channel, aligned to blocks or
/// not.
fn grouped() -> impl Strategy<Value = Grouped> {
    let sizes = prop_oneof![
        (2usize..70, Just(1), Just(1)),
        (2usize..40, Just(1), 2usize..4),
        (2usize..6, 1usize..30, 1usize..30),
        (2usize..4, Just(16), Just(32)),
        (2usize..12, Just(4), Just(4)),
    ];
    (
        sizes,
        [1usize..12, 1usize..12],
        window(4),
        0usize..6,
        any::<u64>(),
        parts(),
    )
        .prop_filter_map(
            "the window must fit",
            |((group, inputs, outputs), hw, window, config, seed, parts)| {
                window.output(hw[0], hw[1])?;
                Some(Grouped {
                    group,
                    inputs,
                    outputs,
                    hw,
                    window,
                    config,
                    seed,
                    parts,
                })
            },
        )
}

/// A convolution of `input` and what it writes.
fn conv(
    graph: &mut QGraph,
    g: &Grouped,
    rng: &mut Rng,
    input: TensorId,
    residual: Option<(TensorId, Vec<LaneOp>)>,
) -> TensorId {
    let co = g.group * g.outputs;
    let [oh, ow] = g.window.output(g.hw[0], g.hw[1]).unwrap();
    let count = co * g.inputs * g.window.kernel[0] * g.window.kernel[1];
    let weights = crate::parts::weights(rng, count, g.parts);
    let bias: Vec<i32> = (0..co).map(|_| rng.next() as i32 >> 16).collect();
    let mut epilogue = vec![LaneOp::add(bias)];
    if g.seed.is_multiple_of(3) {
        epilogue.push(LaneOp::shr(3));
        let factors: Vec<i32> = (0..co).map(|_| (rng.next() % 100) as i32).collect();
        epilogue.push(LaneOp::mul(factors));
    }
    epilogue.push(LaneOp::shr(6));
    epilogue.extend(clamp());
    let op = QOp::Conv(QConv {
        store: None,
        input,
        window: g.window,
        weights: weights.into(),
        group: g.group,
        residual,
        epilogue,
        dense: false,
    });
    push(graph, op, [co, oh, ow])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn tiled_groups_are_the_direct_ones(g in grouped(), residual in any::<bool>(), zero in zero()) {
        let mut graph = QGraph::default();
        let mut rng = Rng(g.seed);
        let input = tensor(&mut graph, [g.group * g.inputs, g.hw[0], g.hw[1]]);
        graph.tensors[input.0].zero = zero;
        graph.inputs = vec![input];
        let mut last = conv(&mut graph, &g, &mut rng, input, None);
        if residual {
            let align = vec![LaneOp::shl([0, 3, 6, 9][g.seed as usize % 4])];
            last = conv(&mut graph, &g, &mut rng, input, Some((last, align)));
        }
        graph.outputs = vec![last];
        check(&graph, &config(g.config), g.seed)?;
    }

    #[test]
    fn a_grouped_convolution_is_the_dense_one_with_zeros_between_groups(g in grouped(), zero in zero()) {
        let mut graph = QGraph::default();
        let mut rng = Rng(g.seed);
        let [ci, area] = [g.group * g.inputs, g.window.kernel[0] * g.window.kernel[1]];
        let input = tensor(&mut graph, [ci, g.hw[0], g.hw[1]]);
        graph.tensors[input.0].zero = zero;
        graph.inputs = vec![input];
        graph.outputs = vec![conv(&mut graph, &g, &mut rng, input, None)];
        let mut dense = graph.clone();
        if let QOp::Conv(QConv { weights, group, .. }) = &mut dense.nodes[0].op {
            let rows = weights.chunks(g.inputs * area).enumerate().flat_map(|(o, row)| {
                let o = o % (g.group * g.outputs);
                let mut all = vec![0; ci * area];
                let first = o / g.outputs * g.inputs * area;
                all[first..first + row.len()].copy_from_slice(row);
                all
            });
            (*weights, *group) = (rows.collect::<Vec<i8>>().into(), 1);
        }
        let image = rng.int8(ci * g.hw[0] * g.hw[1]);
        let values = [&graph, &dense].map(|graph| reference::run(graph, &image).unwrap());
        prop_assert_eq!(&values[0], &values[1]);
    }

    #[test]
    fn windows_are_the_products_of_each_channel(
        c in 1usize..70, hw in [1usize..20, 1usize..20], window in window(7), at in 0usize..6,
        others in prop::collection::btree_set(prop::sample::select(Extension::ALL.to_vec()), 0..6),
        residual in any::<bool>(), zero in zero(), seed in any::<u64>(),
    ) {
        prop_assume!(window.output(hw[0], hw[1]).is_some());
        let (group, inputs, outputs) = (c, 1, 1);
        let g = Grouped { group, inputs, outputs, hw, window, config: at, seed, parts: (1, 1) };
        let mut graph = QGraph::default();
        let mut rng = Rng(seed);
        let input = tensor(&mut graph, [c, hw[0], hw[1]]);
        graph.tensors[input.0].zero = zero;
        graph.inputs = vec![input];
        let mut last = conv(&mut graph, &g, &mut rng, input, None);
        if residual && window.output(hw[0], hw[1]) == Some(hw) {
            last = conv(&mut graph, &g, &mut rng, last, Some((last, vec![LaneOp::shl(3)])));
        }
        graph.outputs = vec![last];
        let config = config(at);
        let has = others.into_iter().fold(config.extensions(), |has, one| has.with(one));
        check(&graph, &config.with_extensions(has.with(Extension::Depthwise)), seed)?;
    }

    #[test]
    fn borders_have_what_their_outputs_lack(
        g in grouped(), zero in zero(), residual in any::<bool>(),
        others in prop::collection::btree_set(prop::sample::select(Extension::ALL.to_vec()), 0..4),
    ) {
        let mut graph = QGraph::default();
        let mut rng = Rng(g.seed);
        let input = tensor(&mut graph, [g.group * g.inputs, g.hw[0], g.hw[1]]);
        graph.tensors[input.0].zero = zero;
        graph.inputs = vec![input];
        let mut last = conv(&mut graph, &g, &mut rng, input, None);
        if residual {
            last = conv(&mut graph, &g, &mut rng, input, Some((last, vec![LaneOp::shl(0)])));
        }
        graph.outputs = vec![last];
        let config = config(g.config);
        // STOREs have the bias of all outputs then, and products start the sums.
        let least = [Extension::Requant, Extension::Overwrite];
        let all = others.into_iter().chain(least);
        let has = all.fold(config.extensions(), |has, one| has.with(one));
        check(&graph, &config.with_extensions(has), g.seed)?;
    }

    #[test]
    fn a_pool_joins_a_depthwise_convolution(c in 1usize..50, n in 1usize..7, at in 0usize..6, seed in any::<u64>(), zero in zero()) {
        let g = Grouped {
            group: c,
            inputs: 1,
            outputs: 1,
            hw: [2 * n, 2 * n],
            window: Window { kernel: [3, 3], stride: [1, 1], dilation: [1, 1], pads: [1; 4].into() },
            config: at,
            seed,
            parts: (1, 1),
        };
        let mut graph = QGraph::default();
        let mut rng = Rng(seed);
        let input = tensor(&mut graph, [c, 2 * n, 2 * n]);
        graph.tensors[input.0].zero = zero;
        graph.inputs = vec![input];
        let out = conv(&mut graph, &g, &mut rng, input, None);
        let window = Window { kernel: [2, 2], stride: [2, 2], dilation: [1, 1], pads: [0; 4].into() };
        let pool = QOp::MaxPool { input: out, window, ops: vec![] };
        graph.outputs = vec![push(&mut graph, pool, [c, n, n])];
        check(&graph, &config(at), seed)?;
    }
}

/// GEMM steps of the products alone: without resets, and without the bias.
fn steps(spec: &str) -> u64 {
    steps_on(&Config::default(), spec)
}

fn steps_on(config: &Config, spec: &str) -> u64 {
    let graph = layer::build(&layer::parse(spec).unwrap(), 1).unwrap();
    let options = lower::LowerOptions::default();
    let program = lower::compile(&graph, config, &options).unwrap();
    let limits = QueueLimits::default();
    let reports = vta_sim::hazards::check_program(&std::sync::Arc::new(program.clone()), limits);
    assert!(reports.unwrap().iter().all(|b| b.report.is_clean()));
    let step = |insn: &vta_isa::Insn| match insn {
        vta_isa::Insn::Gemm(g) if !g.reset && g.src_factor_in > 0 => {
            u64::from(g.uop_end - g.uop_bgn) * u64::from(g.iter_out) * u64::from(g.iter_in)
        }
        vta_isa::Insn::Depthwise(insn) => insn.steps(),
        _ => 0,
    };
    let layer = &program.layers[0];
    let issued = layer.commands.iter().map(|c| step(&c.insn)).sum();
    assert_eq!(layer.steps.products, issued);
    issued
}

#[test]
fn a_depthwise_layer_takes_one_step_for_each_tap() {
    // 64 channels are 4 blocks. Taps on padding take none: two of three taps reach all rows.
    assert_eq!(
        steps("dw:1,64,14,14,3,1,1"),
        4 * (14 + 2 * 13) * (14 + 2 * 13)
    );
    assert_eq!(steps("dw:1,64,14,14,3,2,1"), 4 * (6 + 2 * 7) * (6 + 2 * 7));
}

#[test]
fn a_window_takes_one_step_for_each_output() {
    let has = Config::default().extensions().with(Extension::Depthwise);
    let config = Config::default().with_extensions(has);
    let steps = |spec: &str| steps_on(&config, spec);
    assert_eq!(steps("dw:1,64,14,14,3,1,1"), 4 * 14 * 14);
    assert_eq!(steps("dw:1,64,14,14,3,2,1"), 4 * 7 * 7);
    // A tile has room for three of five rows.
    assert_eq!(steps("dw:1,60,14,14,5,1,2"), 2 * 4 * 14 * 14);
    // Two channels each have more than a tile's rows.
    assert_eq!(steps("conv:1,32,8,8,32,3,1,1,16"), 2 * 22 * 22);
}

#[test]
fn groups_visit_only_their_own_blocks() {
    let steps_of = |spec: &str| steps(spec) / ((8 + 2 * 7) * (8 + 2 * 7));
    // 32 groups of 4 channels: 8 diagonal blocks, not 64.
    assert_eq!(steps_of("conv:1,128,8,8,128,3,1,1,32"), 8);
    // 4 groups of 2 blocks: 16 pairs of blocks.
    assert_eq!(steps_of("conv:1,128,8,8,128,3,1,1,4"), 16);
    // 3 groups of 24 channels across blocks: 2 + 3 + 2 + 2 + 2, none for the zeros beyond.
    assert_eq!(steps_of("conv:1,72,8,8,72,3,1,1,3"), 11);
}

#[test]
fn useful_multiply_adds_are_counted() {
    let graph = layer::build(&layer::parse("dw:1,64,14,14,3,1,1").unwrap(), 1).unwrap();
    let options = lower::LowerOptions::default();
    let program = lower::compile(&graph, &Config::default(), &options).unwrap();
    assert_eq!(program.layers[0].macs, 64 * 14 * 14 * 9);
}

#[test]
fn layers_name_wrong_groups() {
    for (spec, expected) in [
        (
            "conv:1,30,8,8,32,3,1,1,4",
            "'conv:1,30,8,8,32,3,1,1,4': G is 4, which doesn't divide CI 30 and CO 32",
        ),
        (
            "conv:1,32,8,8,30,3,1,1,4",
            "'conv:1,32,8,8,30,3,1,1,4': G is 4, which doesn't divide CI 32 and CO 30",
        ),
        (
            "conv:1,32,8,8,32,3,1,1,0",
            "'conv:1,32,8,8,32,3,1,1,0': G is '0', but it must be a whole number from 1 to 65536",
        ),
        (
            "dw:1,32,8,8,3,1",
            "'dw:1,32,8,8,3,1' has 6 numbers, but 7 are needed (N,C,H,W,K,S,P)",
        ),
    ] {
        assert_eq!(layer::parse(spec).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_kernel_that_no_input_holds_is_an_error() {
    let mut spec = layer::parse("conv:1,16,8,8,16,3,1,0").unwrap();
    spec.chw = [16, 2, 8];
    let error = layer::build(&spec, 1).unwrap_err().to_string();
    assert!(
        error.contains("a kernel of 3 doesn't fit an input of 2x8"),
        "{error}"
    );
}

#[test]
fn wrong_groups_are_errors_not_panics() {
    let spec = layer::parse("conv:1,32,8,8,32,3,1,1,4").unwrap();
    let good = layer::build(&spec, 1).unwrap();
    for wrong in [0, 3, 5, 64] {
        let mut graph = good.clone();
        if let QOp::Conv(QConv { group, .. }) = &mut graph.nodes[0].op {
            *group = wrong;
        }
        let image = layer::input(&spec, 1, 0);
        assert!(reference::run(&graph, &image).is_err(), "{wrong}");
        let options = lower::LowerOptions::default();
        let error = lower::compile(&graph, &Config::default(), &options).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("node conv:1,32"), "{text}");
    }
}
