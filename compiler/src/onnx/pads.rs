//! A Pad in front of a convolution or an average becomes its window's pads, also through the
//! QuantizeLinear and DequantizeLinear between them, whose zero stays zero.

use std::collections::HashMap;

use crate::graph::{Graph, Node, Op, ValueId};
use crate::qgraph::window::{Pads, Window};

/// The most zeros on a side that a window takes over.
const MAX_PAD: usize = 65535;

/// Rewrites every window over padded values; Pads that nothing else reads are left to be pruned. Takes
/// time in proportion to the nodes between Pads and windows.
pub(super) fn fold(graph: &mut Graph) {
    if !graph.nodes.iter().any(|n| matches!(n.op, Op::Pad { .. })) {
        return;
    }
    let nodes = std::mem::take(&mut graph.nodes);
    let makers = nodes.iter().enumerate().map(|(i, n)| (n.output, i));
    let mut unpadded = Unpadded {
        makers: makers.collect(),
        graph,
        nodes: &nodes,
        made: HashMap::new(),
        out: Vec::with_capacity(nodes.len()),
    };
    for node in &nodes {
        let node = unpadded.window(node).unwrap_or_else(|| node.clone());
        unpadded.out.push(node);
    }
    let out = unpadded.out;
    graph.nodes = out;
}

struct Unpadded<'a> {
    graph: &'a mut Graph,
    nodes: &'a [Node],
    makers: HashMap<ValueId, usize>,
    /// Values without the zeros around them.
    made: HashMap<ValueId, ValueId>,
    out: Vec<Node>,
}

/// The window of an operator that may take zeros over, with them.
fn widened(op: &Op, more: Pads) -> Option<Op> {
    let wide = |window: &Window| Window {
        pads: window.pads + more,
        ..*window
    };
    match op {
        Op::Conv { window, group } => Some(Op::Conv {
            window: wide(window),
            group: *group,
        }),
        // The zeros count, as any value does; pads of its own that don't can't be told from them.
        Op::AveragePool {
            window,
            count_include_pad,
        } if *count_include_pad || window.pads == Pads::NONE => Some(Op::AveragePool {
            window: wide(window),
            count_include_pad: true,
        }),
        _ => None,
    }
}

impl Unpadded<'_> {
    fn window(&mut self, node: &Node) -> Option<Node> {
        let first = *node.inputs.first()?;
        let (pads, between) = self.chain(first)?;
        let op = widened(&node.op, pads)?;
        let mut inputs = node.inputs.clone();
        inputs[0] = self.rebuild(first, &between)?;
        Some(Node {
            op,
            inputs,
            ..node.clone()
        })
    }

    /// The pads in front of a value, all together, and the nodes from it to the Pad that is
    /// farthest, the last one first.
    fn chain(&self, value: ValueId) -> Option<(Pads, Vec<usize>)> {
        let (mut at, mut between, mut pads) = (value, Vec::new(), Pads::NONE);
        let mut last = 0;
        while let Some(index) = self.makers.get(&at) {
            let node = &self.nodes[*index];
            between.push(*index);
            match node.op {
                Op::Pad { pads: more } => {
                    pads = pads + more;
                    last = between.len();
                }
                Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } | Op::Identity => {}
                _ => break,
            }
            at = *node.inputs.first()?;
        }
        between.truncate(last);
        let [top, left, bottom, right] = pads.to_array();
        let bounded = [top, left, bottom, right].iter().all(|&p| p <= MAX_PAD);
        (last > 0 && bounded).then_some((pads, between))
    }

    /// The value without zeros, computed by nodes like those between.
    fn rebuild(&mut self, value: ValueId, between: &[usize]) -> Option<ValueId> {
        if let Some(made) = self.made.get(&value) {
            return Some(*made);
        }
        let Some((index, before)) = between.split_first() else {
            return Some(value);
        };
        let node = &self.nodes[*index];
        let input = self.rebuild(*node.inputs.first()?, before)?;
        if let Op::Pad { .. } = node.op {
            return Some(input);
        }
        let mut inputs = node.inputs.clone();
        inputs[0] = input;
        let name = format!("{}.unpadded", self.graph.values[value.0].name);
        let shape = self.graph.values[input.0].shape.clone();
        let output = self.graph.value(name, shape, None);
        self.graph.values[output.0].element = self.graph.values[value.0].element;
        self.out.push(Node {
            name: format!("{}.unpadded", node.name),
            op: node.op.clone(),
            inputs,
            output,
        });
        self.made.insert(value, output);
        Some(output)
    }
}
