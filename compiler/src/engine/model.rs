//! The bytes of a graph that an engine loads.

use std::borrow::Cow;

use crate::graph::{Data, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use crate::onnx;

/// The ONNX model of a graph, or of the part of one that gives some of its values, in operators that
/// the library has. Values have their names, but where two have the same.
pub fn model(graph: &Graph, outputs: &[ValueId]) -> Vec<u8> {
    onnx::save_with_outputs(&without_missing(graph), outputs)
}

/// The graph without operators that the library lacks.
fn without_missing(graph: &Graph) -> Cow<'_, Graph> {
    let missing = |node: &Node| matches!(node.op, Op::SpaceToDepth { .. });
    if !graph.nodes.iter().any(missing) {
        return Cow::Borrowed(graph);
    }
    let mut made = Graph {
        nodes: Vec::with_capacity(graph.nodes.len()),
        ..graph.clone()
    };
    for node in &graph.nodes {
        match node.op {
            Op::SpaceToDepth { block } => blocks_to_channels(&mut made, node, block),
            _ => made.nodes.push(node.clone()),
        }
    }
    Cow::Owned(made)
}

/// `[1, C, H*B, W*B]` to `[1, B, B, C, H, W]`, of which the channels are one dimension.
fn blocks_to_channels(graph: &mut Graph, node: &Node, block: usize) {
    let [_, channels, height, width] = graph.values[node.inputs[0].0].shape[..] else {
        // It is left to the engine to say so.
        graph.nodes.push(node.clone());
        return;
    };
    let (rows, columns) = (height / block.max(1), width / block.max(1));
    let cut = vec![1, channels, rows, block, columns, block];
    let turned = vec![1, block, block, channels, rows, columns];
    let mut value = |suffix: &str, shape: Vec<usize>, data: Option<Data>| {
        let name = format!("{}.{suffix}", graph.values[node.output.0].name);
        graph.values.push(Value::new(name, shape, data));
        ValueId(graph.values.len() - 1)
    };
    let sizes = |shape: &[usize]| Data::I64(shape.iter().map(|&d| d as i64).collect());
    let whole = [1, channels * block * block, rows, columns];
    let (cut_sizes, whole_sizes) = (sizes(&cut), sizes(&whole));
    let cut_sizes = value("cut.shape", vec![6], Some(cut_sizes));
    let whole_sizes = value("whole.shape", vec![4], Some(whole_sizes));
    let (cut, turned) = (value("cut", cut, None), value("turned", turned, None));
    let order = OnnxAttribute::Ints(vec![0, 3, 5, 1, 2, 4]);
    let attributes = vec![("perm".to_owned(), order)];
    let x = node.inputs[0];
    let mut push = |suffix: &str, kind, inputs: Vec<ValueId>, attributes, output| {
        let op = OnnxOp {
            kind,
            domain: "",
            opset: 13,
            attributes,
            arguments: vec![true; inputs.len()],
            output: 0,
            reason: String::new(),
        };
        graph.nodes.push(Node {
            name: format!("{}.{suffix}", node.name),
            op: Op::Onnx(Box::new(op)),
            inputs,
            output,
        });
    };
    push("cut", "Reshape", vec![x, cut_sizes], vec![], cut);
    push("turn", "Transpose", vec![cut], attributes, turned);
    push(
        "whole",
        "Reshape",
        vec![turned, whole_sizes],
        vec![],
        node.output,
    );
}
