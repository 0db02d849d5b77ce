//! Requantisation by STOREs, for machines that have REQUANT: lane operations that are one rounding leave the layer.

use std::sync::Arc;

use vta_isa::Rounding;

use crate::qgraph::{QConv, QGraph, QOp, QPair};
use crate::semantics::{self, Interval, WeightSums};

/// Gives the layers whose lane operations STOREs can take over to these.
pub(super) fn requantize(graph: &mut QGraph) {
    let QGraph { tensors, nodes, .. } = graph;
    for node in nodes {
        let channels = tensors[node.output.0].chw[0];
        match &mut node.op {
            QOp::Conv(conv) if conv.store.is_none() && conv.residual.is_none() => {
                let input = &tensors[conv.input.0];
                let bounds = semantics::wider(input.range, input.zero);
                let row = input.chw[0] / conv.group.max(1) * conv.window.area();
                if let Some(store) = of_sums(conv, [channels, row], bounds) {
                    conv.epilogue.clear();
                    conv.store = Some(store);
                }
            }
            QOp::Add(pair) if pair.store.is_none() => {
                let alike = [pair.a, pair.b].map(|id| tensors[id.0].chw);
                let ranges = [pair.a, pair.b].map(|id| tensors[id.0].range);
                if alike == [tensors[node.output.0].chw; 2]
                    && let Some(store) =
                        of_pair(pair, ranges.map(|(low, high)| (low.into(), high.into())))
                {
                    [&mut pair.a_ops, &mut pair.b_ops, &mut pair.epilogue]
                        .into_iter()
                        .for_each(Vec::clear);
                    pair.store = Some(store);
                }
            }
            _ => {}
        }
    }
}

/// The roundings of a convolution's channels.
fn of_sums(conv: &QConv, [channels, row]: [usize; 2], input: (i8, i8)) -> Option<Arc<[Rounding]>> {
    let sums = WeightSums::of(&conv.weights, channels, channels * row);
    let bounds = sums.iter().map(|sums| sums.bounds(input));
    let roundings = bounds
        .enumerate()
        .map(|(c, sum)| semantics::plan_store(&conv.epilogue, c, sum));
    roundings.collect::<Option<Vec<_>>>().map(Into::into)
}

fn of_pair(pair: &QPair, ranges: [Interval; 2]) -> Option<(Rounding, u32)> {
    let operands = [(&pair.a_ops[..], ranges[0]), (&pair.b_ops[..], ranges[1])];
    semantics::plan_store_sum(operands, &pair.epilogue)
}
