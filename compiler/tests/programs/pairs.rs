//! Sums and products of two tensors, of which one may have one position for every channel: the
//! bits of the reference interpreter on every simulator, without hazards.

use std::sync::Arc;

use proptest::prelude::*;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::{LaneOp, QConv, QGraph, QOp, QPair};
use vta_isa::{Extension, Extensions};

use crate::common::{Rng, check, clamp, config, push, tensor, window, zero};

/// Immediates, vectors, and constants of `positions` if there are some.
fn operations(rng: &mut Rng, channels: usize, positions: usize, kind: usize) -> Vec<LaneOp> {
    let mut list = |len: usize, n: u64| -> Vec<i32> {
        (0..len).map(|_| (rng.next() % n) as i32 - 40).collect()
    };
    let mut plane = |len: usize| -> Arc<[i32]> { list(len, 90).into() };
    match kind {
        5 if positions > 0 => {
            return vec![LaneOp::add(plane(positions)), LaneOp::mul(7)];
        }
        6 if positions > 0 => {
            let all = channels * positions;
            return vec![
                LaneOp::mul(plane(all)),
                LaneOp::max(plane(positions)),
                LaneOp::min(plane(all)),
            ];
        }
        _ => {}
    }
    let mut vector = |n: u64| list(channels, n);
    match kind {
        0 => vec![],
        1 => vec![LaneOp::add(9), LaneOp::max(-100)],
        2 => vec![LaneOp::mul(5), LaneOp::shr(2)],
        3 => vec![LaneOp::add(vector(90)), LaneOp::max(3)],
        _ => vec![LaneOp::min(vector(90)), LaneOp::mul(vector(300))],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn pairs_are_what_the_reference_says(
        channels in 1usize..100, plane in [1usize..14, 1usize..14], kinds in [0usize..7, 0usize..7, 0usize..7],
        spread in 0usize..3, product in any::<bool>(), acc8 in any::<bool>(), window in window(3), zero in zero(),
        c in 0usize..6, seed in any::<u64>(),
    ) {
        let mut graph = QGraph::default();
        let mut rng = Rng(seed);
        let [h, w] = plane;
        let input = tensor(&mut graph, [channels, h, w]);
        graph.inputs = vec![input];
        let ops = [vec![LaneOp::add(1)], clamp()].concat();
        let other = push(&mut graph, QOp::Eltwise { input, ops: ops.clone() }, [channels, h, w]);
        let small = QOp::AvgPool {
            input,
            window: vta_compiler::qgraph::Window::whole(plane),
            count_include_pad: false,
            ops_by_count: vec![(h * w, [vec![LaneOp::shr(3)], clamp()].concat())],
        };
        let small = push(&mut graph, small, [channels, 1, 1]);
        let (a, b) = [(input, other), (other, small), (small, other)][spread];
        // One position has no constants of several.
        let positions = [[h * w, h * w], [h * w, 0], [0, h * w]][spread];
        let a_ops = operations(&mut rng, channels, positions[0], kinds[0]);
        let b_ops = operations(&mut rng, channels, positions[1], kinds[1]);
        let last = operations(&mut rng, channels, h * w, kinds[2]);
        let epilogue = [last, vec![LaneOp::shr(5)], clamp()].concat();
        let op = match product {
            true => QOp::Mul(QPair { store: None, a, a_ops, b, b_ops, epilogue }),
            false => QOp::Add(QPair { store: None, a, a_ops, b, b_ops, epilogue }),
        };
        let mut last = push(&mut graph, op, [channels, h, w]);
        graph.tensors[last.0].zero = zero;
        if let Some([oh, ow]) = window.output(h, w) {
            let weights = rng.int8(3 * channels * window.area());
            let epilogue = [vec![LaneOp::shr(8)], clamp()].concat();
            let op = QOp::Conv(QConv { store: None, input: last, window, weights: weights.into(), residual: None, epilogue, dense: false, group: 1 });
            last = push(&mut graph, op, [3, oh, ow]);
        }
        graph.outputs = vec![last];
        let config = match acc8 {
            true => config(c),
            false => config(c).with_extensions(Extensions::from_iter([Extension::Mul, Extension::Shl])),
        };
        check(&graph, &config, seed)?;
    }
}

#[test]
fn products_of_tensors_need_mul() {
    let mut graph = QGraph::default();
    let input = tensor(&mut graph, [3, 2, 2]);
    let op = QOp::Mul(QPair {
        store: None,
        a: input,
        a_ops: vec![],
        b: input,
        b_ops: vec![],
        epilogue: clamp(),
    });
    let last = push(&mut graph, op, [3, 2, 2]);
    (graph.inputs, graph.outputs) = (vec![input], vec![last]);
    let config = config(0).with_extensions(Extensions::from_iter([Extension::Acc8]));
    let error = lower::compile(&graph, &config, &LowerOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("multiplies two tensors") && text.contains("no MUL"),
        "{text}"
    );
}

#[test]
fn constants_of_positions_must_fit_their_operation() {
    let plane = |len: usize| LaneOp::add(Arc::<[i32]>::from(vec![1; len]));
    let mut graph = QGraph::default();
    let input = tensor(&mut graph, [3, 2, 2]);
    graph.inputs = vec![input];
    let mean = QOp::AvgPool {
        input,
        window: vta_compiler::qgraph::Window::whole([2, 2]),
        count_include_pad: false,
        ops_by_count: vec![(4, [vec![LaneOp::shr(2)], clamp()].concat())],
    };
    let mean = push(&mut graph, mean, [3, 1, 1]);
    let eltwise = |ops: Vec<LaneOp>| QOp::Eltwise { input, ops };
    let conv = QOp::Conv(QConv {
        store: None,
        input,
        window: vta_compiler::qgraph::Window::whole([1, 1]),
        weights: vec![1; 9].into(),
        residual: None,
        epilogue: [vec![plane(4)], clamp()].concat(),
        dense: false,
        group: 1,
    });
    let gated = QOp::Mul(QPair {
        store: None,
        a: input,
        a_ops: vec![],
        b: mean,
        b_ops: vec![plane(4)],
        epilogue: clamp(),
    });
    let pool = QOp::MaxPool {
        input,
        window: vta_compiler::qgraph::Window::whole([1, 1]),
        ops: vec![plane(4)],
    };
    for (op, text) in [
        (eltwise(vec![plane(5)]), "another length"),
        (conv, "another length"),
        (gated, "one position has constants of several"),
        (pool, "several operands"),
    ] {
        let mut graph = graph.clone();
        let last = push(&mut graph, op, [3, 2, 2]);
        graph.outputs = vec![last];
        let error = lower::compile(&graph, &config(0), &LowerOptions::default()).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    // Without MUL they can't be multiplied.
    let factors = LaneOp::mul(Arc::<[i32]>::from(vec![3; 4]));
    let last = push(&mut graph, eltwise(vec![factors]), [3, 2, 2]);
    graph.outputs = vec![last];
    let config = config(0).with_extensions(Extensions::from_iter([Extension::Acc8]));
    let error = lower::compile(&graph, &config, &LowerOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no MUL"), "{error}");
}
