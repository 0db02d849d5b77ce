//! The batch that a model leaves open: it is 1 in a [`Graph`], and open again in what is written.

use std::collections::HashSet;

use super::proto;
use crate::graph::{Graph, MatMulForm, Node, OnnxOp, Op, ValueId};
use crate::passes::import::layout::Role;

/// Where a graph's metadata has the name of its open batch.
pub(crate) const KEY: &str = "batch";
/// What an open dimension without a name is called.
const UNNAMED: &str = "batch";
/// Operators that are written as they were read, and do to a batch what they do to each image.
const ELEMENTWISE: [&str; 24] = [
    "Abs",
    "Add",
    "Ceil",
    "Celu",
    "Div",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Log",
    "Max",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "Pow",
    "Reciprocal",
    "Round",
    "Selu",
    "Sigmoid",
    "Sqrt",
    "Sub",
    "Tanh",
];

/// Notes the batch's name, if all inputs leave it open.
pub(super) fn note(graph: &mut Graph, inputs: &[&proto::ValueInfo]) {
    graph.metadata.remove(KEY);
    let open = |input: &&proto::ValueInfo| {
        let tensor = input.r#type.as_ref()?.tensor_type.as_ref()?;
        let dims = &tensor.shape.as_ref()?.dim;
        let first = dims.first().filter(|_| dims.len() > 1)?;
        let name = first.dim_param.clone().filter(|name| !name.is_empty());
        (first.dim_value.unwrap_or(0) <= 0).then(|| name.unwrap_or(UNNAMED.to_owned()))
    };
    let names: Option<Vec<String>> = inputs.iter().map(open).collect();
    if let Some(name) = names.and_then(|names| names.into_iter().next()) {
        graph.metadata.insert(KEY.to_owned(), name);
    }
}

/// The name of the batch, if it was open and every node does to several images what it does to each.
pub(super) fn open(graph: &Graph) -> Option<&str> {
    let name = graph.metadata.get(KEY)?;
    let mut images: HashSet<ValueId> = graph.inputs.iter().copied().collect();
    let is_one = |id: &ValueId| graph.values[id.0].shape.first() == Some(&1);
    for node in &graph.nodes {
        // What is computed of constants alone is the same for all images.
        if node.inputs.iter().any(|id| images.contains(id)) {
            let of_image = |id: &&ValueId| images.contains(*id);
            let given: Vec<&ValueId> = node.inputs.iter().filter(of_image).collect();
            if !is_one(&node.output) || !given.iter().all(|id| is_one(id)) {
                return None;
            }
            keeps(graph, node, &given).then_some(())?;
            images.insert(node.output);
        }
    }
    let mut ends = graph.inputs.iter().chain(&graph.outputs);
    ends.all(|id| images.contains(id) && is_one(id))
        .then_some(name)
}

/// Whether a node does to several images, `given` values of which it reads, what it does to each.
fn keeps(graph: &Graph, node: &Node, given: &[&ValueId]) -> bool {
    let rank = |id: &ValueId| graph.values[id.0].shape.len();
    let aligned = || given.iter().all(|id| rank(id) == rank(&node.output));
    match (node.op.facts().role, &node.op) {
        (Role::Each, _) => aligned(),
        (Role::Plane | Role::Channels | Role::Regroups, _) | (_, Op::Gemm { .. }) => true,
        (_, Op::Concat { axis } | Op::Gather { axis }) => *axis != 0,
        (_, Op::Slice { entries }) => entries.iter().all(|of| of.axis != 0),
        (_, Op::MatMul { form }) => {
            aligned() && (*form != MatMulForm::Left || rank(&node.output) > 2)
        }
        (_, Op::Onnx(op)) => aligned() && (ELEMENTWISE.contains(&op.kind) || leaves_first(op)),
        (Role::Other, _) => false,
    }
}

/// Whether it is a Transpose that leaves the first dimension where it is.
fn leaves_first(op: &OnnxOp) -> bool {
    op.kind == "Transpose"
        && op
            .ints("perm")
            .is_some_and(|order| order.first() == Some(&0))
}
