//! A constant added after a convolution or matrix product becomes its bias input.
//!
//! Exporters write a dense layer as Gemm, or as MatMul and Add. Both mean the same, so only one
//! of them reaches the passes.

use std::collections::BTreeMap;

use super::OnnxError;
use crate::graph::{Graph, Node, Op, Value, ValueId};
use crate::operators::elementwise::broadcast;

/// Rewrites every such Add; what remains must broadcast as ONNX says. Takes time linear in
/// the number of nodes.
///
/// # Errors
/// [`OnnxError::Node`] for an Add that broadcasts in another way.
pub(super) fn fold(graph: &mut Graph) -> Result<(), OnnxError> {
    let uses = graph.uses();
    let nodes = std::mem::take(&mut graph.nodes);
    let mut folded = Folded {
        uses,
        graph,
        nodes: Vec::with_capacity(nodes.len()),
        maker: BTreeMap::new(),
    };
    for node in nodes {
        match folded.folding(&node) {
            Some((producer, constant)) => folded.join(producer, &node, constant),
            None => {
                if node.op == Op::Add {
                    same_shapes(folded.graph, &node)?;
                }
                folded.push(node);
            }
        }
    }
    graph.nodes = folded.nodes.into_iter().flatten().collect();
    Ok(())
}

fn same_shapes(graph: &Graph, node: &Node) -> Result<(), OnnxError> {
    let [a, b] = [0, 1].map(|i| &graph.values[node.inputs[i].0].shape);
    if broadcast(a, b).is_ok() {
        return Ok(());
    }
    Err(OnnxError::Node {
        node: node.name.clone(),
        op: "Add".to_owned(),
        reason: format!(
            "shapes {a:?} and {b:?} differ; only a constant for each channel, right after a \
             Conv, Gemm or MatMul without bias, is broadcast"
        ),
    })
}

/// The nodes so far.
struct Folded<'g> {
    /// Its nodes are taken out.
    graph: &'g mut Graph,
    uses: BTreeMap<ValueId, usize>,
    /// In topological order; `None` where a producer was that moved to its Add's place.
    nodes: Vec<Option<Node>>,
    /// The place of the node that makes a value.
    maker: BTreeMap<ValueId, usize>,
}

impl Folded<'_> {
    fn push(&mut self, node: Node) {
        self.maker.insert(node.output, self.nodes.len());
        self.nodes.push(Some(node));
    }

    fn made(&self, id: ValueId) -> Option<&Node> {
        self.nodes[*self.maker.get(&id)?].as_ref()
    }

    /// The Conv or Gemm before an Add, and the constant that becomes its bias.
    fn folding(&self, node: &Node) -> Option<(usize, ValueId)> {
        if node.op != Op::Add {
            return None;
        }
        let channels = *self.graph.values[node.output.0].shape.get(1)?;
        let sides = [
            (node.inputs[0], node.inputs[1]),
            (node.inputs[1], node.inputs[0]),
        ];
        sides.into_iter().find_map(|(sum, constant)| {
            let producer = *self.maker.get(&sum)?;
            let made = self.nodes[producer].as_ref()?;
            let takes_bias = matches!(made.op, Op::Conv { .. } | Op::Gemm { .. });
            let free = made.inputs.len() == 2 && self.uses.get(&sum) == Some(&1);
            let source = &self.graph.values[self.source(constant)?.0];
            let fits = source.shape.iter().product::<usize>() == channels;
            (takes_bias && free && fits).then_some((producer, constant))
        })
    }

    /// The initializer behind a value: itself, or what a DequantizeLinear reads.
    fn source(&self, id: ValueId) -> Option<ValueId> {
        if self.graph.values[id.0].data.is_some() {
            return Some(id);
        }
        let from = *self.dequantize(id)?.inputs.first()?;
        self.graph.values[from.0].data.is_some().then_some(from)
    }

    fn dequantize(&self, id: ValueId) -> Option<&Node> {
        let node = self.made(id)?;
        matches!(node.op, Op::DequantizeLinear { .. }).then_some(node)
    }

    /// Moves the producer to the Add's place (its new input may be made after it) with the
    /// constant, reshaped to one entry for each channel.
    fn join(&mut self, producer: usize, add: &Node, constant: ValueId) {
        let Some(mut made) = self.nodes[producer].take() else {
            return;
        };
        self.maker.remove(&made.output);
        let bias = vector(self.graph, constant);
        if let Some(node) = self.dequantize(constant) {
            let mut node = node.clone();
            node.inputs[0] = vector(self.graph, node.inputs[0]);
            node.op = Op::DequantizeLinear { axis: 0 };
            node.name.push_str(".bias");
            node.output = bias;
            self.push(node);
        }
        made.inputs.push(bias);
        made.output = add.output;
        self.push(made);
    }
}

/// A copy of a value as `[C]`.
fn vector(graph: &mut Graph, id: ValueId) -> ValueId {
    let Value {
        name, shape, data, ..
    } = &graph.values[id.0];
    let (name, shape, data) = (
        format!("{name}.bias"),
        vec![shape.iter().product()],
        data.clone(),
    );
    let copy = graph.value(name, shape, data);
    graph.values[copy.0].element = graph.values[id.0].element;
    copy
}
