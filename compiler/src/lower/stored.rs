//! Requantisation by STOREs, for machines that have REQUANT: lane operations that are one rounding leave the layer, and a
//! sum with what a convolution stores joins it. A sum of two tensors is the STOREs' alone, where they have a factor for
//! each; of others, and of products, they round what the operations give.

use std::sync::Arc;

use vta_isa::{Config, Extension, MemType, Requantize, Rounding};

use super::readers::Readers;
use crate::qgraph::lane::LaneOp;
use crate::qgraph::{QConv, QGraph, QOp, QPair, QStore, QTensor, TensorId};
use crate::semantics::{self, Interval, WeightSums};

/// Gives STOREs what they can take over of a network.
pub(super) fn requantize(graph: &mut QGraph, config: &Config) {
    // A residual is loaded as int8, and lies some tiles behind the sums.
    let adds = config.extensions().contains(Extension::Acc8)
        && config.depth(MemType::Acc) >= 8 * Requantize::RESIDUAL_TILES;
    let QGraph { tensors, nodes, .. } = graph;
    for node in nodes {
        let chw = tensors[node.output.0].chw;
        match &mut node.op {
            QOp::Conv(conv) if conv.store.is_none() && conv.residual.is_none() => {
                if let Some(rounding) = of_sums(conv, &tensors[conv.input.0], chw[0]) {
                    conv.epilogue.clear();
                    let residual = None;
                    conv.store = Some(QStore { rounding, residual });
                }
            }
            QOp::Add(pair) if pair.store.is_none() => {
                let alike = [pair.a, pair.b].iter().all(|id| tensors[id.0].chw == chw);
                match of_pair(pair, tensors).filter(|_| adds && alike) {
                    Some((factor, rounding)) => {
                        let lists = [&mut pair.a_ops, &mut pair.b_ops, &mut pair.epilogue];
                        lists.into_iter().for_each(Vec::clear);
                        pair.store = Some((Some(factor), rounding));
                    }
                    None => round_joined(pair, tensors, false),
                }
            }
            QOp::Mul(pair) if pair.store.is_none() => round_joined(pair, tensors, true),
            _ => {}
        }
    }
}

/// The roundings of a convolution's channels.
fn of_sums(conv: &QConv, input: &QTensor, channels: usize) -> Option<Arc<[Rounding]>> {
    let row = input.chw[0] / conv.group.max(1) * conv.window.area();
    let sums = WeightSums::of(&conv.weights, channels, channels * row);
    let padded = semantics::wider(input.range, input.zero);
    let bounds = sums.iter().map(|sums| sums.bounds(padded)).enumerate();
    let roundings = bounds.map(|(c, sum)| semantics::plan_store(&conv.epilogue, c, sum));
    roundings.collect::<Option<Vec<_>>>().map(Into::into)
}

/// The operations on each operand, and what they begin with.
fn operands<'p>(pair: &'p QPair, tensors: &[QTensor]) -> [(&'p [LaneOp], Interval); 2] {
    let interval = |id: TensorId| {
        let (low, high) = tensors[id.0].range;
        (low.into(), high.into())
    };
    [
        (&pair.a_ops, interval(pair.a)),
        (&pair.b_ops, interval(pair.b)),
    ]
}

fn of_pair(pair: &QPair, tensors: &[QTensor]) -> Option<(u32, Rounding)> {
    semantics::plan_store_sum(operands(pair, tensors), &pair.epilogue)
}

/// Leaves the requantisation of a sum or a product to STOREs, if it is one rounding.
fn round_joined(pair: &mut QPair, tensors: &[QTensor], is_product: bool) {
    let operands = operands(pair, tensors);
    if let Some(rounding) = semantics::plan_store_joined(operands, is_product, &pair.epilogue) {
        pair.epilogue.clear();
        pair.store = Some((None, rounding));
    }
}

/// A sum that alone reads a convolution is made where that is stored, if its other operand is there by then.
pub(super) fn join_sums(graph: &mut QGraph) {
    let readers = Readers::of(graph);
    let mut writers = vec![None; graph.tensors.len()];
    for (id, node) in graph.ids() {
        writers[node.output.0] = Some(id.0);
    }
    let mut joined = Vec::new();
    for (id, sum) in graph.ids() {
        let QOp::Add(QPair {
            a,
            b,
            store: Some((Some(factor), rounding)),
            ..
        }) = &sum.op
        else {
            continue;
        };
        let writer = |id: TensorId| writers[id.0];
        let swapped = Rounding {
            multiplier: *factor,
            ..*rounding
        };
        let ways = [
            (*a, *b, *factor, *rounding),
            (*b, *a, rounding.multiplier, swapped),
        ];
        for (conv, other, factor, rounding) in ways {
            let alone = readers.only(conv) == Some(id);
            let Some(at) = writer(conv).filter(|&at| alone && writer(other) < Some(at)) else {
                continue;
            };
            if let QOp::Conv(QConv {
                store: Some(QStore { residual: None, .. }),
                ..
            }) = &graph.nodes[at].op
            {
                joined.push((id, at, (other, factor, rounding)));
                break;
            }
        }
    }
    let mut gone = vec![false; graph.nodes.len()];
    for (id, at, residual) in joined {
        gone[id.0] = true;
        let (output, name) = (graph.nodes[id.0].output, graph.nodes[id.0].name.clone());
        let node = &mut graph.nodes[at];
        node.output = output;
        node.name = format!("{}+{name}", node.name);
        if let QOp::Conv(QConv {
            store: Some(store), ..
        }) = &mut node.op
        {
            store.residual = Some(residual);
        }
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| gone.next() == Some(false));
}
