//! The graph that is being read, and what is known of its names.

use std::collections::{HashMap, HashSet};

use super::budget::Budget;
use crate::graph::{Data, Graph, Node, Value, ValueId};
use crate::onnx::OnnxError;
use crate::onnx::external::External;

/// Arguments of a node, `None` where one is left out.
pub(crate) type Arguments = Vec<Option<ValueId>>;

pub(crate) struct Import<'a> {
    pub graph: Graph,
    pub names: HashMap<String, ValueId>,
    /// The index of the node that makes a value.
    pub makers: HashMap<ValueId, usize>,
    /// How often nodes and the graph's outputs name a value.
    pub uses: HashMap<&'a String, usize>,
    /// Values whose size a run says, and those that depend on such a size.
    pub open: HashSet<ValueId>,
    /// Of these those that sizes say, as they are where all sizes are the largest.
    pub examples: HashMap<ValueId, Value>,
    pub opset: i64,
    /// What computing constants and shapes may take.
    pub budget: Budget,
    /// Files that tensors lie in.
    pub external: External<'a>,
}

pub(crate) fn defined_twice(name: &str) -> OnnxError {
    OnnxError::Model(format!("the name {name} is defined twice"))
}

impl Import<'_> {
    pub(crate) fn define(
        &mut self,
        name: &str,
        shape: Vec<usize>,
        data: Option<Data>,
    ) -> Result<ValueId, OnnxError> {
        let id = ValueId(self.graph.values.len());
        if self.names.insert(name.to_owned(), id).is_some() {
            return Err(defined_twice(name));
        }
        self.graph.values.push(Value::new(name, shape, data));
        Ok(id)
    }

    pub(crate) fn push_node(&mut self, node: Node) {
        self.makers.insert(node.output, self.graph.nodes.len());
        self.graph.nodes.push(node);
    }

    /// Takes back the values and nodes behind so many of each.
    pub(crate) fn forget(&mut self, values: usize, nodes: usize) {
        for value in self.graph.values.drain(values..) {
            self.names.remove(&value.name);
        }
        self.graph.nodes.truncate(nodes);
        self.makers.retain(|_, node| *node < nodes);
    }

    /// The node that makes a value.
    pub(crate) fn maker(&self, id: ValueId) -> Option<&Node> {
        self.graph.nodes.get(*self.makers.get(&id)?)
    }

    /// Another name of a value.
    pub(crate) fn alias(&mut self, name: &str, id: ValueId) -> Result<(), OnnxError> {
        if let Some(reads) = self.budget.folded.get_mut(&id) {
            // The node that gives the name is one reader less.
            let more = self.uses.get(&name.to_owned()).copied().unwrap_or(0);
            *reads = (*reads + more).saturating_sub(1);
        }
        match self.names.insert(name.to_owned(), id) {
            None => Ok(()),
            Some(_) => Err(defined_twice(name)),
        }
    }
}
