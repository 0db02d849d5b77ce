//! Nodes and values that stand for a node.

use crate::graph::{Data, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};

/// A new value beside a node's output.
pub(super) fn value(
    graph: &mut Graph,
    node: &Node,
    suffix: &str,
    shape: Vec<usize>,
    data: Option<Data>,
) -> ValueId {
    let name = format!("{}.{suffix}", graph.values[node.output.0].name);
    graph.values.push(Value::new(name, shape, data));
    ValueId(graph.values.len() - 1)
}

/// A node in a node's place.
pub(super) fn push(graph: &mut Graph, node: &Node, op: Op, inputs: Vec<ValueId>, output: ValueId) {
    let name = format!("{}.{}", node.name, graph.nodes.len());
    graph.nodes.push(Node {
        name,
        op,
        inputs,
        output,
    });
}

/// An operator as ONNX has it.
pub(super) fn onnx(
    kind: &'static str,
    arguments: usize,
    attributes: Vec<(String, OnnxAttribute)>,
) -> Op {
    Op::Onnx(Box::new(OnnxOp::new(kind, arguments, attributes)))
}
