//! An If whose condition is a constant is the nodes of one of its branches.

use super::order::{node_error, sorted};
use super::state::Import;
use super::tensor::read_tensor;
use crate::graph::{Data, ValueId};
use crate::onnx::{OnnxError, proto};

/// The nodes of a node's branches and bodies, and of those inside these.
fn inner(node: &proto::Node) -> Vec<&proto::Node> {
    let mut found = Vec::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        open.extend(graphs(node).flat_map(|graph| &graph.node));
        found.push(node);
    }
    found.split_off(1)
}

fn graphs(node: &proto::Node) -> impl Iterator<Item = &proto::Graph> {
    node.attribute.iter().filter_map(|a| a.g.as_ref())
}

/// Names that a node reads, its branches and bodies counted.
pub(super) fn read(node: &proto::Node) -> impl Iterator<Item = &String> {
    let all = inner(node);
    let given = std::iter::once(node).chain(all.clone()).flat_map(graphs);
    let given = given.flat_map(|graph| graph.output.iter().map(|output| &output.name));
    let inside = all.into_iter().flat_map(|node| &node.input);
    node.input.iter().chain(inside).chain(given)
}

/// The branch that a node takes; `None` for one that isn't known before it runs.
pub(super) fn taken<'n>(
    node: &'n proto::Node,
    condition: Option<&Data>,
) -> Option<&'n proto::Graph> {
    let name = match condition? {
        Data::Bool(values) if node.op_type == "If" && values.len() == 1 => {
            if values[0] {
                "then_branch"
            } else {
                "else_branch"
            }
        }
        _ => return None,
    };
    part(node, name)
}

fn part<'n>(node: &'n proto::Node, name: &str) -> Option<&'n proto::Graph> {
    node.attribute.iter().find(|a| a.name == name)?.g.as_ref()
}

impl Import<'_> {
    /// Reads a branch in the place of its node, whose outputs' names its outputs get.
    pub(super) fn branch(
        &mut self,
        node: &proto::Node,
        branch: &proto::Graph,
    ) -> Result<(), OnnxError> {
        let first = self.graph.values.len();
        let made = self.enter(node, branch)?;
        for (output, id) in node.output.iter().zip(made) {
            self.give(output, id, first)?;
        }
        Ok(())
    }

    /// Reads the constants and nodes of a branch or body; its outputs.
    fn enter(
        &mut self,
        node: &proto::Node,
        part: &proto::Graph,
    ) -> Result<Vec<ValueId>, OnnxError> {
        for tensor in &part.initializer {
            let (shape, data) = read_tensor(&tensor.name, tensor, &mut self.external)?;
            self.budget.add_constant(&data);
            self.define(&tensor.name, shape, Some(data))?;
        }
        for (index, inner) in sorted(&part.node, &self.names)?.into_iter().enumerate() {
            self.node(inner, index)?;
        }
        let made = part.output.iter().map(|inside| {
            let id = self.names.get(&inside.name).copied();
            id.ok_or_else(|| node_error(node, format!("its body doesn't make {}", inside.name)))
        });
        made.collect()
    }

    /// Names a value that was made behind the `first` ones.
    fn give(&mut self, name: &str, id: ValueId, first: usize) -> Result<(), OnnxError> {
        if name.is_empty() {
            return Ok(());
        }
        self.alias(name, id)?;
        if id.0 >= first {
            name.clone_into(&mut self.graph.values[id.0].name);
        }
        Ok(())
    }
}
