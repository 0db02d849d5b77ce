//! Channels in any order: the bits of the reference interpreter on every simulator, without
//! hazards.

use std::sync::Arc;

use proptest::prelude::*;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::{ChannelOf, LaneOp, QConv, QGraph, QOp, Spread, TensorId, Window};
use vta_driver::{QueueLimits, RunReport, Session};
use vta_isa::{Extension, Extensions, MemType};
use vta_sim::cycle::TimingConfig;
use vta_sim::{CycleLog, Execution, SimDevice};

use crate::common::{Rng, check, clamp, config, push, tensor, window, zero};

/// An element-wise step, so that its output isn't the network's input.
fn step(graph: &mut QGraph, input: TensorId, add: i16) -> TensorId {
    let chw = graph.tensors[input.0].chw;
    let ops = [vec![LaneOp::add(add)], clamp()].concat();
    push(graph, QOp::Eltwise { input, ops }, chw)
}

/// Some channels of tensors: runs of them, from anywhere, and zeros.
fn map(rng: &mut Rng, inputs: &[usize], runs: usize) -> Vec<Option<ChannelOf>> {
    let mut below = |n: usize| (rng.next() % n as u64) as usize;
    let mut map = Vec::new();
    for _ in 0..runs {
        let input = below(inputs.len());
        // Blocks are 8 to 64 channels.
        let first = match below(3) {
            0 => below(inputs[input]),
            _ => below(inputs[input]) / 8 * 8,
        };
        let len = 1 + below(inputs[input] - first);
        match below(6) {
            0 => map.extend(vec![None; len]),
            1 => map.extend((0..len).rev().map(|c| {
                Some(ChannelOf {
                    input,
                    channel: first + c,
                })
            })),
            _ => map.extend((0..len).map(|c| {
                Some(ChannelOf {
                    input,
                    channel: first + c,
                })
            })),
        }
    }
    map
}

fn operations(rng: &mut Rng, channels: usize, kind: usize) -> (i8, Vec<LaneOp>) {
    let mut vector = |n: i32| -> Vec<i32> {
        // Neighbours often have the same.
        let mut value = 0;
        let mut next = || {
            if rng.next().is_multiple_of(9) {
                value = (rng.next() % n as u64) as i32;
            }
            value
        };
        (0..channels).map(|_| next()).collect()
    };
    match kind {
        0 => (1, vec![]),
        1 => (
            1,
            [
                vec![LaneOp::mul(3), LaneOp::add(4), LaneOp::shr(3)],
                clamp(),
            ]
            .concat(),
        ),
        _ => {
            let ops = vec![
                LaneOp::add(vector(90)),
                LaneOp::mul(vector(60_000)),
                LaneOp::shr(vector(9)),
                LaneOp::shr(12),
            ];
            (64, [ops, clamp()].concat())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn channels_are_where_the_map_says(
        sizes in prop::collection::vec(1usize..70, 1..4), plane in [1usize..12, 1usize..12], runs in 1usize..9,
        kind in 0usize..3, c in 0usize..6, window in window(3), mul in any::<bool>(), zero in zero(), seed in any::<u64>(),
    ) {
        let mut graph = QGraph::default();
        let mut rng = Rng(seed);
        let [h, w] = plane;
        let widest = *sizes.iter().max().unwrap();
        let input = tensor(&mut graph, [widest, h, w]);
        graph.inputs = vec![input];
        // The first input is the network's, the others are made from it.
        let mut inputs = vec![input];
        let mut counts = vec![widest];
        for (n, &size) in sizes.iter().enumerate() {
            let map = (0..size).map(|channel| Some(ChannelOf { input: 0, channel })).collect();
            let op = QOp::Channels { inputs: vec![input], map, spread: Spread::NONE, gain: 1, ops: vec![] };
            let part = push(&mut graph, op, [size, h, w]);
            inputs.push(step(&mut graph, part, n as i16 - 1));
            counts.push(size);
        }
        let map = map(&mut rng, &counts, runs);
        let channels = map.len();
        let (gain, ops) = operations(&mut rng, channels, kind);
        let joined = push(&mut graph, QOp::Channels { inputs, map, spread: Spread::NONE, gain, ops }, [channels, h, w]);
        graph.tensors[joined.0].zero = zero;
        let mut last = step(&mut graph, joined, 1);
        if let Some([oh, ow]) = window.output(h, w) {
            // What lies beside the channels in a block counts for nothing.
            let weights = rng.int8(3 * channels * window.area());
            let epilogue = [vec![LaneOp::shr(8)], clamp()].concat();
            let op = QOp::Conv(QConv { store: None, input: joined, window, weights: weights.into(), residual: None, epilogue, dense: false, group: 1 });
            last = push(&mut graph, op, [3, oh, ow]);
        }
        graph.outputs = vec![last];
        // Without MUL an immediate factor is shifts and sums, and there is none for each channel.
        let lacking = Extensions::from_iter([Extension::Shl]);
        let config = match mul || kind == 2 {
            true => config(c),
            false => config(c).with_extensions(lacking),
        };
        check(&graph, &config, seed)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn channels_become_positions(
        depth in 1usize..90, channels in 1usize..60, plane in [1usize..12, 1usize..12], up in [1usize..5, 1usize..5],
        cut in prop::array::uniform4(0usize..6), by in [1usize..4, 1usize..4], kind in 0usize..3, same in any::<bool>(),
        c in 0usize..6, seed in any::<u64>(),
    ) {
        let mut graph = QGraph::default();
        let mut rng = Rng(seed);
        let [h, w] = plane;
        let skip = [cut[0].min(h * up[0] - 1), cut[1].min(w * up[1] - 1)];
        let by = [0, 1].map(|a| if up[a] == 1 { by[a] } else { 1 });
        let spread = Spread { up, skip, step: by };
        let out = [0, 1].map(|a| {
            let most = (plane[a] * up[a] - skip[a]).div_ceil(by[a]);
            most.saturating_sub(cut[2 + a]).max(1)
        });
        let input = tensor(&mut graph, [depth, h, w]);
        graph.inputs = vec![input];
        let from = step(&mut graph, input, 1);
        let any = |i: usize| {
            let channel = if same { i % channels % depth } else { (rng.next() % depth as u64) as usize };
            (!rng.next().is_multiple_of(17)).then_some(ChannelOf { input: 0, channel })
        };
        let map = (0..up[0] * up[1] * channels).map(any).collect();
        let (gain, ops) = operations(&mut Rng(seed), channels, kind);
        let op = QOp::Channels { inputs: vec![from], map, spread, gain, ops };
        let last = push(&mut graph, op, [channels, out[0], out[1]]);
        let last = step(&mut graph, last, -1);
        graph.outputs = vec![last];
        check(&graph, &config(c), seed)?;
    }
}

/// A network of steps, joined and taken apart channels: some by whole blocks, which need no copy.
fn joined(rng: &mut Rng, nodes: usize, plane: [usize; 2], block: usize) -> QGraph {
    let mut graph = QGraph::default();
    let [h, w] = plane;
    let input = tensor(&mut graph, [2 * block, h, w]);
    graph.inputs = vec![input];
    let mut all = vec![input];
    for _ in 0..nodes {
        let mut below = |n: usize| (rng.next() % n as u64) as usize;
        let any = all[below(all.len())];
        let channels = |graph: &QGraph, id: TensorId| graph.tensors[id.0].chw[0];
        let made = match below(5) {
            0 => step(&mut graph, any, below(5) as i16 - 2),
            1 => {
                // Some channels, mostly from a block on.
                let count = channels(&graph, any);
                let first = match below(4) {
                    0 => below(count),
                    _ => below(count) / block * block,
                };
                let len = match below(3) {
                    0 => 1 + below(count - first),
                    _ => block.min(count - first),
                };
                let of = |channel| Some(ChannelOf { input: 0, channel });
                let map = (first..first + len).map(of).collect();
                // A clamp that every value is within changes nothing either.
                let ops = if below(2) == 0 { vec![] } else { clamp() };
                let op = QOp::Channels {
                    inputs: vec![any],
                    map,
                    spread: Spread::NONE,
                    gain: 1,
                    ops,
                };
                push(&mut graph, op, [len, h, w])
            }
            _ => {
                let count = 2 + below(3);
                let inputs: Vec<TensorId> = (0..count)
                    .map(|_| all[all.len() - 1 - below(all.len().min(6))])
                    .collect();
                let of = |(input, id): (usize, &TensorId)| {
                    let count = channels(&graph, *id);
                    (0..count)
                        .map(move |channel| Some(ChannelOf { input, channel }))
                        .collect::<Vec<_>>()
                };
                let map: Vec<_> = inputs
                    .iter()
                    .enumerate()
                    .flat_map(of)
                    .take(12 * block)
                    .collect();
                let len = map.len();
                let ops = match below(4) {
                    0 => [
                        vec![LaneOp::add(
                            (0..len).map(|c| i32::from(c >= block)).collect::<Vec<_>>(),
                        )],
                        clamp(),
                    ]
                    .concat(),
                    _ => vec![],
                };
                let op = QOp::Channels {
                    inputs,
                    map,
                    spread: Spread::NONE,
                    gain: 1,
                    ops,
                };
                push(&mut graph, op, [len, h, w])
            }
        };
        all.push(made);
    }
    // Something reads most of them, and one in between may be an output, too.
    let last = all[all.len() - 1];
    let window = Window::whole([1, 1]);
    let epilogue = [vec![LaneOp::shr(8)], clamp()].concat();
    let count = graph.tensors[last.0].chw[0];
    let op = QOp::Conv(QConv {
        store: None,
        input: last,
        window,
        weights: rng.int8(7 * count).into(),
        residual: None,
        epilogue,
        dense: false,
        group: 1,
    });
    graph.outputs = vec![push(&mut graph, op, [7, h, w])];
    if rng.next().is_multiple_of(2) {
        graph
            .outputs
            .push(all[1 + (rng.next() % nodes as u64) as usize]);
    }
    graph
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn channels_that_share_memory_keep_their_values(
        nodes in 1usize..14, plane in [1usize..6, 1usize..6], c in 0usize..6, seed in any::<u64>(),
    ) {
        let config = config(c);
        let graph = joined(&mut Rng(seed), nodes, plane, config.block());
        check(&graph, &config, seed)?;
    }
}

/// Two tensors with copies of one block lie apart, since both are written.
#[test]
fn copies_of_a_block_have_one_writer_each() {
    let config = config(2);
    let graph = joined(
        &mut Rng(6_960_455_102_629_585_312),
        10,
        [1, 1],
        config.block(),
    );
    check(&graph, &config, 6_960_455_102_629_585_312).unwrap();
}

/// Every step's result is joined to all before it: one piece of memory has them all.
#[test]
fn chains_that_join_all_before_copy_nothing() {
    let mut graph = QGraph::default();
    let input = tensor(&mut graph, [32, 5, 5]);
    graph.inputs = vec![input];
    let mut made = vec![step(&mut graph, input, 1)];
    let mut last = made[0];
    for n in 0..6 {
        let count = graph.tensors[last.0].chw[0];
        let weights = Rng(n).int8(16 * count);
        let epilogue = [vec![LaneOp::shr(7)], clamp()].concat();
        let op = QOp::Conv(QConv {
            store: None,
            input: last,
            window: Window::whole([1, 1]),
            weights: weights.into(),
            residual: None,
            epilogue,
            dense: false,
            group: 1,
        });
        made.push(push(&mut graph, op, [16, 5, 5]));
        let of = |(input, id): (usize, &TensorId)| {
            let count = graph.tensors[id.0].chw[0];
            (0..count).map(move |channel| Some(ChannelOf { input, channel }))
        };
        let map: Vec<_> = made.iter().enumerate().flat_map(of).collect();
        let len = map.len();
        let op = QOp::Channels {
            inputs: made.clone(),
            map,
            spread: Spread::NONE,
            gain: 1,
            ops: vec![],
        };
        last = push(&mut graph, op, [len, 5, 5]);
    }
    let last = step(&mut graph, last, 1);
    graph.outputs = vec![last];
    let config = config(0);
    check(&graph, &config, 1).unwrap();
    let program = lower::compile(&graph, &config, &LowerOptions::default()).unwrap();
    let joins = program
        .layers
        .iter()
        .filter(|layer| layer.kind == "channels");
    assert_eq!(joins.clone().count(), 6);
    assert!(joins.clone().all(|layer| layer.commands.is_empty()));
    // The memory of one for all, which a bundle keeps.
    let spec = |id: &TensorId| &program.tensors[id.0];
    assert!(
        made.iter()
            .all(|id| spec(id).buffer == spec(&made[0]).buffer)
    );
    assert_eq!(spec(&made[3]).offset_bytes, 4 * 25 * 16);
    let again = vta_driver::Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
    assert_eq!(again, program);
}

/// What the first layer of a network takes.
fn ran(graph: &QGraph) -> RunReport {
    let config = config(0);
    let program = lower::compile(graph, &config, &LowerOptions::default()).unwrap();
    let device = SimDevice::cycle(
        config,
        TimingConfig::default(),
        Execution::TimingOnly,
        CycleLog::default(),
    );
    let mut session =
        Session::new(Arc::new(program), Arc::new(device), QueueLimits::default()).unwrap();
    let len = graph.tensors[graph.inputs[0].0].chw.iter().product();
    let mut out = session.run(&[&vec![1; len]]).unwrap();
    out.reports.remove(0)
}

/// What part of its cycles the stores of such a layer take at least: 3 for each tile.
fn share(graph: &QGraph) -> f64 {
    let [c, h, w] = graph.tensors[graph.outputs[0].0].chw;
    let stores = 3 * c.div_ceil(16) * h * w;
    stores as f64 / ran(graph).cycles.unwrap() as f64
}

/// Rows and columns of whole blocks are loaded from where they lie: nothing else is loaded, and nothing computed.
#[test]
fn rows_and_columns_are_taken_by_addresses() {
    for (step, skip) in [
        ([2, 2], [0, 0]),
        ([1, 2], [0, 1]),
        ([3, 1], [1, 0]),
        ([1, 1], [2, 3]),
    ] {
        let mut graph = QGraph::default();
        let input = tensor(&mut graph, [32, 12, 12]);
        let [h, w] = [0, 1].map(|a| (12 - skip[a]) / step[a]);
        let of = |channel| Some(ChannelOf { input: 0, channel });
        let op = QOp::Channels {
            inputs: vec![input],
            map: (0..32).map(of).collect(),
            spread: Spread {
                step,
                skip,
                ..Spread::NONE
            },
            gain: 1,
            ops: vec![],
        };
        let last = push(&mut graph, op, [32, h, w]);
        (graph.inputs, graph.outputs) = (vec![input], vec![last]);
        // What takes the same values as the largest of windows of one.
        let mut pooled = graph.clone();
        let window = Window {
            stride: step,
            ..Window::whole([1, 1])
        };
        let ops = vec![];
        pooled.nodes[0].op = QOp::MaxPool { input, window, ops };
        let report = ran(&graph);
        if skip == [0, 0] {
            let cycles = [&graph, &pooled].map(|graph| ran(graph).cycles.unwrap());
            println!("{step:?}: {cycles:?} cycles");
            assert!(cycles[0] < cycles[1], "{step:?}: {cycles:?}");
        }
        let traffic = report.traffic;
        let steps = [traffic.gemm_steps, traffic.reset_steps, traffic.alu_steps];
        assert_eq!(steps, [0; 3], "{step:?} {skip:?}");
        let bytes = (32 * h * w) as u64;
        for mem in [MemType::Acc8, MemType::Out] {
            assert_eq!(traffic.bytes[mem.index()], bytes, "{mem:?}");
        }
        assert_eq!(traffic.total_bytes(), 2 * bytes, "{step:?} {skip:?}");
    }
}

/// What part of a layer's cycles its stores alone would take.
#[test]
fn layers_that_move_values_come_near_their_stores() {
    let of = |channel| Some(ChannelOf { input: 0, channel });
    let from = |n: usize, first: usize| (first..first + n).map(of).collect::<Vec<_>>();
    let scaled = [
        vec![LaneOp::mul(93), LaneOp::add(64), LaneOp::shr(7)],
        clamp(),
    ]
    .concat();
    let twice = Spread {
        up: [2, 2],
        ..Spread::NONE
    };
    let half = Spread {
        step: [2, 2],
        ..Spread::NONE
    };
    let shuffled = (0..128).map(|c| of(c % 2 * 64 + c / 2)).collect();
    let four = |channel: &dyn Fn(usize, usize) -> usize| -> Vec<_> {
        let all = (0..4).flat_map(|phase| (0..32).map(move |c| (phase, c)));
        all.map(|(phase, c)| of(channel(phase, c))).collect()
    };
    for (name, spread, map, ops, least) in [
        ("slice from a lane", Spread::NONE, from(64, 8), vec![], 0.55),
        ("change of scale", Spread::NONE, from(128, 0), scaled, 0.37),
        ("shuffle", Spread::NONE, shuffled, vec![], 0.6),
        ("slice with steps", half, from(128, 0), vec![], 0.3),
        ("resize", twice, from(128, 0).repeat(4), vec![], 0.79),
        ("DCR", twice, four(&|phase, c| phase * 32 + c), vec![], 0.74),
        ("CRD", twice, four(&|phase, c| c * 4 + phase), vec![], 0.44),
    ] {
        let mut graph = QGraph::default();
        let input = tensor(&mut graph, [128, 28, 28]);
        let out = [
            map.len() / spread.phases(),
            28 * spread.up[0] / spread.step[0],
            28 * spread.up[1] / spread.step[1],
        ];
        let inputs = vec![input];
        let op = QOp::Channels {
            inputs,
            map,
            spread,
            gain: 1,
            ops,
        };
        let last = push(&mut graph, op, out);
        (graph.inputs, graph.outputs) = (vec![input], vec![last]);
        let found = share(&graph);
        assert!(found >= least, "{name}: {found:.3}");
    }
}

/// Padding of any width is left out of the products.
#[test]
fn pads_may_be_as_wide_as_dilated_kernels_want() {
    for (c, dilation) in [(0, 12), (0, 36), (4, 24)] {
        let mut graph = QGraph::default();
        let input = tensor(&mut graph, [20, 33, 30]);
        graph.inputs = vec![input];
        let op = QOp::Conv(QConv {
            store: None,
            input,
            window: Window {
                kernel: [3, 3],
                stride: [1, 1],
                dilation: [dilation; 2],
                pads: [dilation; 4].into(),
            },
            weights: Rng(7).int8(18 * 20 * 9).into(),
            residual: None,
            epilogue: [vec![LaneOp::shr(9)], clamp()].concat(),
            dense: false,
            group: 1,
        });
        let last = push(&mut graph, op, [18, 33, 30]);
        graph.outputs = vec![last];
        check(&graph, &config(c), 3).unwrap();
    }
}

/// More selection tiles than the scratchpad holds: they come in sets.
#[test]
fn selections_that_do_not_fit_come_in_sets() {
    for (c, channels) in [(0, 2300), (4, 700), (5, 300)] {
        let mut graph = QGraph::default();
        let mut rng = Rng(channels as u64);
        let input = tensor(&mut graph, [channels, 2, 1]);
        graph.inputs = vec![input];
        let any = |_| {
            let channel = (rng.next() % channels as u64) as usize;
            Some(ChannelOf { input: 0, channel })
        };
        let map = (0..channels).map(any).collect();
        let op = QOp::Channels {
            inputs: vec![input],
            map,
            spread: Spread::NONE,
            gain: 1,
            ops: vec![],
        };
        let last = push(&mut graph, op, [channels, 2, 1]);
        graph.outputs = vec![last];
        check(&graph, &config(c), 1).unwrap();
    }
}
