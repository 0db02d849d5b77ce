//! Shuffles of channels: a Reshape that divides channels into groups, a Transpose of groups and
//! channels, and a Reshape back are a Gather.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Data, Graph, Node, Op, ValueId};

/// Rewrites every such Reshape; what it alone needed is left without a reader.
pub(super) fn fold(graph: &mut Graph) {
    let makers: BTreeMap<ValueId, usize> = (graph.nodes.iter().enumerate())
        .map(|(index, node)| (node.output, index))
        .collect();
    let view = View { graph, makers };
    let found: Vec<(usize, ValueId, [usize; 2])> = (0..graph.nodes.len())
        .filter_map(|index| {
            view.shuffle(index)
                .map(|(from, groups)| (index, from, groups))
        })
        .collect();
    if found.is_empty() {
        return;
    }
    let mut names: BTreeSet<String> = graph.values.iter().map(|v| v.name.clone()).collect();
    for (index, from, [groups, each]) in found {
        let mut name = format!("{}.channels", graph.nodes[index].name);
        while !names.insert(name.clone()) {
            name.push('_');
        }
        let all = (0..each).flat_map(|c| (0..groups).map(move |g| (g * each + c) as i64));
        let list = Data::I64(all.collect());
        let list = graph.value(name, vec![groups * each], Some(list));
        let node = &mut graph.nodes[index];
        (node.op, node.inputs) = (Op::Gather { axis: 1 }, vec![from, list]);
    }
}

struct View<'g> {
    graph: &'g Graph,
    makers: BTreeMap<ValueId, usize>,
}

impl View<'_> {
    fn maker(&self, id: ValueId) -> Option<&Node> {
        self.makers.get(&id).map(|&index| &self.graph.nodes[index])
    }

    fn shape(&self, id: ValueId) -> &[usize] {
        &self.graph.values[id.0].shape
    }

    /// What a node shuffles, its groups and the channels of each.
    fn shuffle(&self, index: usize) -> Option<(ValueId, [usize; 2])> {
        let back = &self.graph.nodes[index];
        let mut rounded = Vec::new();
        let turned = self.through(*named(back, "Reshape")?.inputs.first()?, &mut rounded);
        let transpose = named(self.maker(turned)?, "Transpose")?;
        let Op::Onnx(op) = &transpose.op else {
            return None;
        };
        op.ints("perm").filter(|perm| **perm == [0, 2, 1, 3, 4])?;
        let divided = self.through(*transpose.inputs.first()?, &mut rounded);
        let first = named(self.maker(divided)?, "Reshape")?;
        let from = *first.inputs.first()?;
        let (&[1, channels, h, w], &[1, groups, each, y, x]) =
            (self.shape(from), self.shape(divided))
        else {
            return None;
        };
        let same = self.shape(back.output) == self.shape(from)
            && [h, w] == [y, x]
            && groups.checked_mul(each) == Some(channels);
        // Rounding to the steps that the values have changes nothing.
        let steps = self.maker(from).and_then(|maker| self.steps(maker));
        let exact = rounded.iter().all(|r| Some(r) == steps.as_ref());
        (same && exact).then_some((from, [groups, each]))
    }

    /// Back through QuantizeLinear and DequantizeLinear, whose steps are kept.
    fn through(&self, id: ValueId, rounded: &mut Vec<Vec<Data>>) -> ValueId {
        let pair = || {
            let out = self.maker(id)?;
            let (Op::DequantizeLinear { .. }, Some(steps)) = (&out.op, self.steps(out)) else {
                return None;
            };
            let into = self.maker(*out.inputs.first()?)?;
            let fits = matches!(into.op, Op::QuantizeLinear { .. }) && self.steps(into)? == steps;
            fits.then_some((*into.inputs.first()?, steps))
        };
        match pair() {
            None => id,
            Some((from, steps)) => {
                rounded.push(steps);
                from
            }
        }
    }

    /// Scale and zero point of a node, if it has constants for them.
    fn steps(&self, node: &Node) -> Option<Vec<Data>> {
        let rounds = matches!(
            node.op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. }
        );
        let constants = node.inputs.iter().skip(1);
        let data = constants.map(|id| self.graph.values[id.0].data.clone());
        data.collect::<Option<Vec<Data>>>().filter(|_| rounds)
    }
}

/// The node, if it is one that was kept as the file has it, of a name.
fn named<'n>(node: &'n Node, kind: &str) -> Option<&'n Node> {
    matches!(&node.op, Op::Onnx(op) if op.kind == kind).then_some(node)
}
