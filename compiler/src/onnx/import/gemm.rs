//! Gemm of a transposed first operand, rewritten as a Transpose and a Gemm of what it gives.
//!
//! A Transpose of a constant is a constant, and that of one row computes nothing; one that the host computes is a
//! node more.

use std::collections::HashSet;

use super::order::{fresh, names};
use crate::onnx::proto::{ATTRIBUTE_INTS, Attribute, Graph, Node};

const TURNED: &str = "transA";

/// Rewrites every such Gemm whose first operand and output have names, in time linear in the number of nodes.
pub(super) fn turn(graph: &mut Graph) {
    let is_turned = |node: &Node| {
        let own = node.domain.is_empty() || node.domain == "ai.onnx";
        own && node.op_type == "Gemm" && node.find(TURNED).is_some_and(|a| a.i != 0)
    };
    if !graph.node.iter().any(is_turned) {
        return;
    }
    let mut names = names(graph);
    let mut nodes = Vec::with_capacity(graph.node.len());
    for mut node in std::mem::take(&mut graph.node) {
        if is_turned(&node)
            && let Some(transpose) = transpose(&node, &mut names)
        {
            node.input[0].clone_from(&transpose.output[0]);
            node.attribute.retain(|a| a.name != TURNED);
            nodes.push(transpose);
        }
        nodes.push(node);
    }
    graph.node = nodes;
}

/// The Transpose of a Gemm's first operand, with a name that nothing has yet.
fn transpose(node: &Node, names: &mut HashSet<String>) -> Option<Node> {
    let given = |name: &&String| !name.is_empty();
    let operand = node.input.first().filter(given)?;
    let output = node.output.first().filter(given)?;
    let name = fresh(names, format!("{output}/transposed"));
    Some(Node {
        input: vec![operand.clone()],
        output: vec![name.clone()],
        name,
        op_type: "Transpose".to_owned(),
        attribute: vec![Attribute {
            name: "perm".to_owned(),
            ints: vec![1, 0],
            kind: ATTRIBUTE_INTS,
            ..Attribute::default()
        }],
        domain: String::new(),
    })
}
