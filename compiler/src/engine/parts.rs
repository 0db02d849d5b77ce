//! The nodes that stand for one.

use crate::graph::{Data, Graph, Node, OnnxAttribute, OnnxOp, Op, ValueId};

/// An operator as ONNX has it.
pub(super) fn onnx(
    kind: &'static str,
    arguments: usize,
    attributes: Vec<(String, OnnxAttribute)>,
) -> Op {
    Op::Onnx(Box::new(OnnxOp::new(kind, arguments, attributes)))
}

/// The nodes that stand for one.
pub(super) struct Parts<'a> {
    pub graph: &'a mut Graph,
    pub node: &'a Node,
    /// Its first input's.
    pub shape: Vec<usize>,
}

impl<'a> Parts<'a> {
    /// Those for a node, and its first input.
    pub fn of(graph: &'a mut Graph, node: &'a Node) -> Option<(Self, ValueId)> {
        let x = *node.inputs.first()?;
        let shape = graph.values[x.0].shape.clone();
        Some((Self { graph, node, shape }, x))
    }

    /// A new value beside the node's output.
    pub fn value(&mut self, what: &str, shape: &[usize], data: Option<Data>) -> ValueId {
        let name = format!("{}.{what}", self.graph.values[self.node.output.0].name);
        self.graph.value(name, shape.to_vec(), data)
    }

    /// A node whose output has the first input's shape.
    pub fn push(&mut self, op: Op, inputs: &[ValueId], what: &str) -> ValueId {
        let shape = self.shape.clone();
        self.shaped(op, inputs, what, shape)
    }

    pub fn shaped(&mut self, op: Op, inputs: &[ValueId], what: &str, shape: Vec<usize>) -> ValueId {
        let output = self.value(what, &shape, None);
        self.add(op, inputs, output);
        output
    }

    pub fn add(&mut self, op: Op, inputs: &[ValueId], output: ValueId) {
        let name = format!("{}.{}", self.node.name, self.graph.nodes.len());
        self.graph.push(name, op, inputs.to_vec(), output);
    }

    /// The node that gives the output.
    pub fn last(&mut self, op: Op, inputs: &[ValueId]) -> Option<()> {
        self.add(op, inputs, self.node.output);
        Some(())
    }

    pub fn constant(&mut self, what: &str, shape: &[usize], data: Vec<f32>) -> ValueId {
        self.value(what, shape, Some(Data::F32(data)))
    }

    pub fn reshaped(&mut self, x: ValueId, shape: &[usize], what: &str) -> ValueId {
        let sizes = self.sizes(shape, &format!("{what}.sizes"));
        let reshape = onnx("Reshape", 2, vec![]);
        self.shaped(reshape, &[x, sizes], what, shape.to_vec())
    }

    pub fn last_reshaped(&mut self, x: ValueId, shape: &[usize]) -> Option<()> {
        let sizes = self.sizes(shape, "sizes");
        self.last(onnx("Reshape", 2, vec![]), &[x, sizes])
    }

    pub fn sizes(&mut self, shape: &[usize], name: &str) -> ValueId {
        let sizes = Data::I64(shape.iter().map(|&d| d as i64).collect());
        self.value(name, &[shape.len()], Some(sizes))
    }
}
