//! The graph that is being read, and what is known of its names.

use std::collections::HashMap;

use super::attributes::Axes;
use super::budget::Budget;
use super::order::node_error;
use super::windows::Plane;
use crate::graph::{Data, Graph, Node, Op, Value, ValueId};
use crate::onnx::external::External;
use crate::onnx::{OnnxError, proto, shape};

/// Arguments of a node, `None` where one is left out.
pub(super) type Arguments = Vec<Option<ValueId>>;

pub(super) struct Import<'a> {
    pub graph: Graph,
    pub names: HashMap<String, ValueId>,
    /// The index of the node that makes a value.
    pub makers: HashMap<ValueId, usize>,
    /// How often nodes and the graph's outputs name a value.
    pub uses: HashMap<&'a String, usize>,
    pub opset: i64,
    /// What computing constants and shapes may take.
    pub budget: Budget,
    /// Files that tensors lie in.
    pub external: External<'a>,
}

/// A node that can't be added.
pub(super) enum PushError {
    /// Its inputs' shapes don't fit.
    Shape(String),
    /// Its output can't be defined.
    Other(OnnxError),
}

impl From<OnnxError> for PushError {
    fn from(error: OnnxError) -> Self {
        Self::Other(error)
    }
}

impl PushError {
    pub(super) fn of(self, node: &proto::Node) -> OnnxError {
        match self {
            Self::Shape(reason) => node_error(node, reason),
            Self::Other(error) => error,
        }
    }
}

pub(super) fn defined_twice(name: &str) -> OnnxError {
    OnnxError::Model(format!("the name {name} is defined twice"))
}

impl Import<'_> {
    pub(super) fn define(
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

    /// Adds a node whose output has a name.
    pub(super) fn push(
        &mut self,
        name: String,
        op: Op,
        inputs: Vec<ValueId>,
        output: &str,
    ) -> Result<ValueId, PushError> {
        let made = Node {
            name,
            op,
            inputs,
            output: ValueId(0),
        };
        let shape = shape::infer(&self.graph, &made).map_err(PushError::Shape)?;
        shape::elements(output, &shape)?;
        let output = self.define(output, shape, None)?;
        self.push_node(Node { output, ..made });
        Ok(output)
    }

    pub(super) fn push_node(&mut self, node: Node) {
        self.makers.insert(node.output, self.graph.nodes.len());
        self.graph.nodes.push(node);
    }

    /// Takes back the values and nodes behind so many of each.
    pub(super) fn forget(&mut self, values: usize, nodes: usize) {
        for value in self.graph.values.drain(values..) {
            self.names.remove(&value.name);
        }
        self.graph.nodes.truncate(nodes);
        self.makers.retain(|_, node| *node < nodes);
    }

    /// The node that makes a value.
    pub(super) fn maker(&self, id: ValueId) -> Option<&Node> {
        self.graph.nodes.get(*self.makers.get(&id)?)
    }

    /// Another name of a value.
    pub(super) fn alias(&mut self, name: &str, id: ValueId) -> Result<(), OnnxError> {
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

    pub(super) fn spatial(&self, input: ValueId) -> Result<[usize; 4], String> {
        let shape = &self.graph.values[input.0].shape;
        shape[..]
            .try_into()
            .map_err(|_| format!("input of shape {shape:?}, not [1, C, H, W]"))
    }

    /// Rows and columns of an input; a sequence `[1, C, W]` has one row.
    pub(super) fn plane(&self, input: ValueId) -> Result<Plane, String> {
        if let [_, _, w] = self.graph.values[input.0].shape[..] {
            return Ok(Plane {
                axes: Axes::Sequence,
                size: [1, w],
            });
        }
        self.spatial(input).map(|[_, _, h, w]| Plane {
            axes: Axes::Plane,
            size: [h, w],
        })
    }
}
