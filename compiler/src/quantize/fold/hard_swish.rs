//! `x * min(max(x + 3, 0), 6) / 6`, as PaddlePaddle and older exporters write HardSwish, in any order of its parts.

use std::collections::BTreeMap;

use super::constants::{constant, scaled_by_one as scaled};
use crate::graph::{Graph, Node, Op, ValueId};

/// A product and a quotient of it or of a factor that are one HardSwish, by the place of the last of them.
pub(super) struct Found {
    last: usize,
    x: ValueId,
}

/// Puts a HardSwish in the place of the last of its parts, and takes out parts that nothing else reads.
pub(super) fn join(graph: &mut Graph) {
    let found = found(graph);
    for Found { last, x } in &found {
        let node = &mut graph.nodes[*last];
        (node.op, node.inputs) = (Op::HardSwish, vec![*x]);
    }
    if found.is_empty() {
        return;
    }
    let mut read = vec![false; graph.values.len()];
    graph.outputs.iter().for_each(|id| read[id.0] = true);
    for node in graph.nodes.iter().rev() {
        if read[node.output.0] {
            node.inputs.iter().for_each(|id| read[id.0] = true);
        }
    }
    graph.nodes.retain(|node| read[node.output.0]);
}

/// Those of a graph.
pub(super) fn found(graph: &Graph) -> Vec<Found> {
    let makers = graph.makers();
    let view = View {
        graph,
        makers: &makers,
    };
    let nodes = graph.nodes.iter().enumerate();
    let shape = |id: ValueId| &graph.values[id.0].shape;
    let of = |node: &Node| {
        view.hard_swish(node)
            .filter(|x| shape(*x) == shape(node.output))
    };
    nodes
        .filter_map(|(last, node)| of(node).map(|x| Found { last, x }))
        .collect()
}

struct View<'g> {
    graph: &'g Graph,
    makers: &'g BTreeMap<ValueId, usize>,
}

impl<'g> View<'g> {
    fn maker(&self, id: ValueId) -> Option<&'g Node> {
        self.makers.get(&id).map(|node| &self.graph.nodes[*node])
    }

    /// What a node makes a HardSwish of.
    fn hard_swish(&self, node: &Node) -> Option<ValueId> {
        if let Some((product, by)) = scaled(self.graph, node)
            && is_near(by, 1.0 / 6.0)
        {
            return self.product(self.maker(product)?, 6.0);
        }
        self.product(node, 1.0)
    }

    /// `x` of a node that gives `x * HardSigmoid(x) * scale`.
    fn product(&self, node: &Node, scale: f32) -> Option<ValueId> {
        let &[a, b] = &node.inputs[..] else {
            return None;
        };
        let of = |x: ValueId, gate: ValueId| {
            self.gate(gate)
                .filter(|(of, by)| *of == x && is_near(*by, scale))
        };
        let found = (node.op == Op::Mul).then(|| of(a, b).or_else(|| of(b, a)));
        found.flatten().map(|(x, _)| x)
    }

    /// `x` and `scale` of `HardSigmoid(x) * scale`, with the slope of HardSwish.
    fn gate(&self, id: ValueId) -> Option<(ValueId, f32)> {
        let node = self.maker(id)?;
        match node.op {
            Op::HardSigmoid { alpha, beta } if is_near(alpha, 1.0 / 6.0) && beta == 0.5 => {
                Some((node.inputs[0], 1.0))
            }
            Op::Clip { min: 0.0, max: 6.0 } => {
                let sum = self.maker(node.inputs[0]).filter(|sum| sum.op == Op::Add)?;
                let [a, b] = [sum.inputs[0], sum.inputs[1]];
                let moved =
                    |x: ValueId, by: ValueId| (constant(self.graph, by) == Some(3.0)).then_some(x);
                moved(a, b).or_else(|| moved(b, a)).map(|x| (x, 6.0))
            }
            _ => {
                let (gate, by) = scaled(self.graph, node)?;
                let (x, scale) = self.gate(gate)?;
                Some((x, scale * by))
            }
        }
    }
}

fn is_near(a: f32, b: f32) -> bool {
    (a - b).abs() <= b.abs() * 1e-5
}
