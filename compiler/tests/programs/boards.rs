//! Programs for machines that lack extensions of the original RTL: the bits of the reference
//! interpreter, by what those machines have.

use crate::common::{Rng, check, clamp, config, push, tensor, window, zero};
use crate::parts::parts;
use proptest::prelude::*;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::{LaneOp, QConv, QGraph, QOp, QPair, Window};
use vta_driver::Command;
use vta_isa::{Config, Extension, Extensions, Insn, MemType};

fn lacking() -> impl Strategy<Value = Extensions> {
    let some = prop::collection::vec(prop::sample::select(&Extension::ALL[..]), 0..3);
    prop_oneof![Just(Extensions::NONE), some.prop_map(Extensions::from_iter)]
}

fn covered_window() -> impl Strategy<Value = Window> {
    let fits = |w: &Window| {
        let pads = [w.pads.before(), w.pads.after()];
        pads.iter()
            .all(|pads| (0..2).all(|a| pads[a] < w.kernel[a]))
    };
    window(4).prop_filter("pads stay inside windows", fits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A block as `shift` networks have it: a convolution, one that adds the first, a max pool.
    #[test]
    fn shifted_residuals_are_the_direct_ones(
        ci in 1usize..40, co in 1usize..40, hw in [2usize..12, 2usize..12], window in covered_window(),
        has in lacking(), c in 0usize..6, align in 0i16..14, shift in 0i16..10, one in any::<bool>(), seed in any::<u64>(),
        zero in zero(), parts in parts(),
    ) {
        let Some([oh, ow]) = window.output(hw[0], hw[1]) else { return Ok(()); };
        let mut graph = QGraph::default();
        let mut rng = Rng(seed);
        let input = tensor(&mut graph, [ci, hw[0], hw[1]]);
        graph.tensors[input.0].zero = zero;
        graph.inputs = vec![input];
        let mut conv = |graph: &mut QGraph, residual| {
            let weights = crate::parts::weights(&mut rng, co * ci * window.kernel[0] * window.kernel[1], parts);
            let mut epilogue = vec![LaneOp::add((0..co).map(|_| rng.next() as i32 >> 16).collect::<Vec<_>>())];
            epilogue.push(match one {
                true => LaneOp::shr(shift),
                false => LaneOp::shr((0..co).map(|i| i as i32 % 11).collect::<Vec<_>>()),
            });
            epilogue.extend(clamp());
            push(graph, QOp::Conv(QConv { store: None, input, window, weights: weights.into(), residual, epilogue, dense: false, group: 1 }), [co, oh, ow])
        };
        let first = conv(&mut graph, None);
        let prologue = if align == 0 { vec![] } else { vec![LaneOp::shl(align)] };
        let sum = conv(&mut graph, Some((first, prologue)));
        let whole = Window { kernel: [oh.min(3), ow.min(2)], stride: [1, 2], dilation: [1, 1], pads: [0; 4].into() };
        let [ph, pw] = whole.output(oh, ow).unwrap();
        let last = push(&mut graph, QOp::MaxPool { input: sum, window: whole, ops: vec![] }, [co, ph, pw]);
        graph.outputs = vec![last];
        let config = config(c).with_extensions(has);
        match lower::compile(&graph, &config, &LowerOptions::default()) {
            // Taps beside the input leave tiles without products; such a residual needs ACC8.
            Err(e) if e.to_string().contains("no ACC8") => {}
            _ => check(&graph, &config, seed)?,
        }
    }

    /// Pools, sums and changes of scale, with factors that the ALU has no operation for.
    #[test]
    fn pools_and_sums_are_the_direct_ones(
        ci in 1usize..40, hw in [1usize..14, 1usize..14], window in covered_window(), include_pad in any::<bool>(),
        has in lacking(), c in 0usize..6, factor in 0i16..=i16::MAX, shifts in [0i16..4, 0i16..4], seed in any::<u64>(),
    ) {
        let Some([oh, ow]) = window.output(hw[0], hw[1]) else { return Ok(()); };
        let mut graph = QGraph::default();
        let input = tensor(&mut graph, [ci, hw[0], hw[1]]);
        graph.inputs = vec![input];
        let out = [ci, oh, ow];
        let ops = |n: usize| {
            let factor = factor >> (n % 15);
            vec![LaneOp::add(3), LaneOp::mul(factor), LaneOp::shr(9), LaneOp::min(127), LaneOp::max(-128)]
        };
        let a = push(&mut graph, QOp::MaxPool { input, window, ops: ops(2) }, out);
        let counts = 0..=window.kernel[0] * window.kernel[1];
        let ops_by_count = counts.map(|n| (n, ops(n))).collect();
        let b = push(&mut graph, QOp::AvgPool { input, window, count_include_pad: include_pad, ops_by_count }, out);
        let shl = |n: i16| if n == 0 { vec![] } else { vec![LaneOp::shl(n)] };
        let [a_ops, b_ops] = shifts.map(shl);
        let mut epilogue = vec![LaneOp::add(2), LaneOp::shr(2)];
        epilogue.extend(clamp());
        let add = push(&mut graph, QOp::Add(QPair { store: None, a, a_ops, b, b_ops, epilogue }), out);
        let scaled = push(&mut graph, QOp::Eltwise { input: add, ops: ops(5) }, out);
        let add = QOp::Add(QPair { store: None, a: scaled, a_ops: vec![LaneOp::mul(factor >> 4)], b: add, b_ops: vec![LaneOp::mul(77)], epilogue: vec![LaneOp::shr(8), LaneOp::min(127), LaneOp::max(-128)] });
        let last = push(&mut graph, add, out);
        graph.outputs = vec![last];
        check(&graph, &config(c).with_extensions(has), seed)?;
    }
}

fn conv(epilogue: Vec<LaneOp>) -> QGraph {
    let mut graph = QGraph::default();
    let input = tensor(&mut graph, [3, 4, 4]);
    let window = Window {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4].into(),
    };
    let op = QOp::Conv(QConv {
        store: None,
        input,
        window,
        weights: vec![1; 9].into(),
        group: 1,
        residual: None,
        epilogue,
        dense: false,
    });
    let out = push(&mut graph, op, [3, 4, 4]);
    (graph.inputs, graph.outputs) = (vec![input], vec![out]);
    graph
}

/// Weights have 4 bits in DRAM where all of a layer's fit and the machine has WGT4: half the bytes, and the same sums.
#[test]
fn weights_of_4_bits_are_loaded_so_where_all_fit() {
    let plain = Config::default();
    let packs = |has: Extensions| plain.clone().with_extensions(has.with(Extension::Wgt4));
    let [alone, all] = [plain.extensions(), Extensions::ALL].map(packs);
    for (least, most, fits) in [(-8, 7, true), (-9, 7, false), (-8, 8, false), (0, 0, true)] {
        let mut graph = conv(clamp());
        if let QOp::Conv(conv) = &mut graph.nodes[0].op {
            conv.weights = vec![least, 1, -1, 2, most, 3, -4, 5, 6].into();
        }
        for (config, has) in [(&plain, false), (&alone, true), (&all, true)] {
            let graph = lower::for_machine(&graph, config);
            let options = LowerOptions::default();
            let program = lower::compile(&graph, config, &options).unwrap();
            let commands = program.layers.iter().flat_map(|layer| &layer.commands);
            let packed =
                |c: &&Command| matches!(c.insn, Insn::Load(load) if load.mem == MemType::Wgt4);
            let loads = commands.filter(packed);
            assert_eq!(loads.count() > 0, fits && has, "{least} to {most}");
            let mut buffers = program.buffers.iter();
            let weights = buffers
                .find(|buffer| buffer.name.ends_with("weights"))
                .unwrap();
            let bytes = weights.size_bytes as usize;
            let tile = config.elem_bytes(MemType::Wgt);
            assert_eq!(bytes, if fits && has { tile / 2 } else { tile });
        }
        for seed in 0..4 {
            check(&graph, &alone, seed).unwrap();
            check(&graph, &all, seed).unwrap();
        }
    }
}

/// Commands of ALU operations on a lane each, and STOREs that saturate.
fn steps_and_saturated(graph: &QGraph, config: &Config) -> [usize; 2] {
    let program = lower::compile(graph, config, &LowerOptions::default()).unwrap();
    let commands = || program.layers.iter().flat_map(|layer| &layer.commands);
    let steps = commands().filter(|c| matches!(c.insn, Insn::Alu(_)));
    let saturated = |c: &&Command| matches!(c.insn, Insn::Store(store) if store.saturate);
    [steps.count(), commands().filter(saturated).count()]
}

/// A clamp to int8 before a STORE is the STORE's where the machine has SATURATE: values are the same, and a bound within
/// int8 stays. Where what comes out needn't be int8, its low byte is stored.
#[test]
fn stores_saturate_in_place_of_clamps() {
    let plain = Config::default();
    let saturates = |has: Extensions| plain.clone().with_extensions(has.with(Extension::Saturate));
    let with = |last: &[LaneOp]| [&[LaneOp::mul(9), LaneOp::shr(2)], last].concat();
    let [min, max] = [LaneOp::min(127), LaneOp::max(-128)];
    let relu = LaneOp::max(0);
    for (last, fewer) in [
        (vec![min.clone(), max.clone()], 2),
        (vec![max.clone(), min.clone()], 2),
        (vec![min.clone(), relu.clone()], 1),
        (vec![relu, min.clone()], 1),
        (vec![LaneOp::min(100), max.clone()], 1),
        (vec![LaneOp::min(vec![127; 3]), max.clone()], 2),
        (vec![LaneOp::max(-100), LaneOp::min(100)], 0),
        // The low byte of what is beyond.
        (vec![min.clone()], 0),
        (vec![max.clone()], 0),
        (vec![min.clone(), max.clone(), LaneOp::add(1)], 0),
        (vec![], 0),
    ] {
        let graph = conv(with(&last));
        let before = steps_and_saturated(&graph, &plain);
        let alone = saturates(plain.extensions());
        let [steps, saturated] = steps_and_saturated(&graph, &alone);
        assert_eq!((before[0] - steps, before[1]), (fewer, 0), "{last:?}");
        assert_eq!(saturated > 0, fewer > 0, "{last:?}");
        let clips = alone.extensions().with(Extension::Clip);
        let others = Extensions::ALL.iter().filter(|e| *e != Extension::Requant);
        for has in [alone.extensions(), clips, others.collect(), Extensions::ALL] {
            for seed in 0..4 {
                check(&graph, &saturates(has), seed).unwrap();
            }
        }
        // Twice is once.
        let once = lower::for_machine(&graph, &alone);
        assert_eq!(lower::for_machine(&once, &alone), once, "{last:?}");
    }
}

#[test]
fn sums_that_are_multiplied_are_refused_with_the_way_out() {
    let base = Config::default().with_extensions(Extensions::NONE);
    for (epilogue, parts) in [
        (
            vec![LaneOp::mul(vec![3; 3])],
            &[
                "node n0: its sums are multiplied",
                "no MUL",
                "a model quantised by powers of two",
                "zoo:NAME:shift",
            ][..],
        ),
        (vec![LaneOp::mul(3)], &["node n0: its sums are multiplied"]),
        (
            vec![LaneOp::shr(vec![1, 0, -2])],
            &["a channel's sums are shifted left by 2", "no SHL"],
        ),
    ] {
        let graph = conv(epilogue);
        let options = LowerOptions::default();
        assert!(lower::compile(&graph, &Config::default(), &options).is_ok());
        let error = lower::compile(&graph, &base, &options)
            .unwrap_err()
            .to_string();
        for part in parts {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
}
