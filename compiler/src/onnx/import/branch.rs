//! An If whose condition is a constant is the nodes of one of its branches.

use crate::graph::Data;
use crate::onnx::proto;

/// The nodes of a node's branches and bodies, and of those inside these.
pub(super) fn inner(node: &proto::Node) -> Vec<&proto::Node> {
    let mut found = Vec::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        let graphs = node.attribute.iter().filter_map(|a| a.g.as_ref());
        let nodes = graphs.flat_map(|graph| &graph.node);
        nodes.for_each(|inner| open.push(inner));
        found.push(node);
    }
    found.split_off(1)
}

/// Names that a node reads, its branches and bodies counted.
pub(super) fn read(node: &proto::Node) -> impl Iterator<Item = &String> {
    let all = inner(node).into_iter();
    let inside = all.flat_map(|node| &node.input);
    let graphs = node.attribute.iter().filter_map(|a| a.g.as_ref());
    let given = graphs.flat_map(|graph| graph.output.iter().map(|output| &output.name));
    node.input.iter().chain(inside).chain(given)
}

/// The branch that a node takes; `None` for one that isn't known before it runs.
pub(super) fn taken<'a>(
    node: &'a proto::Node,
    condition: Option<&Data>,
) -> Option<&'a proto::Graph> {
    let name = match condition? {
        Data::Bool(values) if node.op_type == "If" && values.len() == 1 => match values[0] {
            true => "then_branch",
            false => "else_branch",
        },
        _ => return None,
    };
    let branch = node.attribute.iter().find(|a| a.name == name);
    branch?.g.as_ref()
}
