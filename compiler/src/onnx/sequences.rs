//! Convolutions over several sequences become convolutions over planes, which devices have.
//!
//! Sequences `[N, C, W]` are the rows of a plane `[1, C, N, W]`, over which a window of one row goes. What computes value
//! by value goes on in the plane, so that between two convolutions nothing is turned.

use std::collections::{HashMap, HashSet};

use crate::graph::{Data, Element, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use crate::operators::conv::{Geometry, geometry};
use crate::operators::is_by_value;
use crate::operators::operator::Given;
use crate::passes::import::layout::Role;

/// Rewrites every such convolution of constant weights but for values of a size that a run says; what nothing reads is
/// left to be pruned. Takes time linear in the number of nodes.
pub(super) fn fold(graph: &mut Graph, open: &HashSet<ValueId>) {
    let is_one = |node: &Node| sequences(graph, node, open).is_some();
    if !graph.nodes.iter().any(is_one) {
        return;
    }
    // Values by the names of the planes that hold the same.
    let mut planes: HashMap<ValueId, ValueId> = HashMap::new();
    for node in std::mem::take(&mut graph.nodes) {
        let made = match sequences(graph, &node, open) {
            Some(of) => Some(convolved(graph, &node, of, &mut planes)),
            None => by_value(graph, &node, &planes).map(|inputs| (node.op.clone(), inputs)),
        };
        let Some((op, inputs)) = made else {
            graph.nodes.push(node);
            continue;
        };
        let [count, channels, width] = sizes(graph, node.output).unwrap_or_default();
        let plane = value(graph, node.output, "plane", vec![1, channels, count, width]);
        graph.push(&node.name[..], op, inputs, plane);
        let turned = value(graph, node.output, "turned", vec![channels, count, width]);
        reshape(graph, plane, turned);
        transpose(graph, turned, node.output);
        planes.insert(node.output, plane);
    }
}

fn sizes(graph: &Graph, id: ValueId) -> Option<[usize; 3]> {
    let shape = &graph.values[id.0].shape[..];
    <[usize; 3]>::try_from(shape).ok()
}

/// What a convolution of several sequences goes over, if a node is one.
fn sequences(graph: &Graph, node: &Node, open: &HashSet<ValueId>) -> Option<Geometry> {
    let Op::Onnx(op) = &node.op else {
        return None;
    };
    let (x, parameters) = node.inputs.split_first()?;
    let value = |id: &ValueId| &graph.values[id.0];
    let is_float = |id: &ValueId| matches!(value(id).data, Some(Data::F32(_)));
    let sizes = sizes(graph, *x).filter(|sizes| sizes[0] > 1 && !sizes.contains(&0))?;
    let is_sound = op.kind == "Conv"
        && op.output == 0
        && value(x).element == Element::F32
        && value(x).data.is_none()
        && !open.contains(x)
        && parameters.iter().all(is_float);
    let values: Vec<&Value> = node.inputs.iter().map(value).collect();
    let of = geometry(&Given { op, values }).ok().filter(|_| is_sound)?;
    let made = [sizes[0], of.channels, of.size[1]];
    (value(&node.output).shape == made).then_some(of)
}

/// A convolution over the plane of its input, which is made where there is none, and what it reads.
fn convolved(
    graph: &mut Graph,
    node: &Node,
    of: Geometry,
    planes: &mut HashMap<ValueId, ValueId>,
) -> (Op, Vec<ValueId>) {
    let mut inputs = node.inputs.clone();
    let x = inputs[0];
    inputs[0] = *planes.entry(x).or_insert_with(|| {
        let [count, channels, width] = sizes(graph, x).unwrap_or_default();
        let turned = value(graph, x, "turned", vec![channels, count, width]);
        transpose(graph, x, turned);
        let plane = value(graph, x, "plane", vec![1, channels, count, width]);
        reshape(graph, turned, plane);
        plane
    });
    let Value {
        name, shape, data, ..
    } = &graph.values[inputs[1].0];
    let mut shape = shape.clone();
    shape.insert(2, 1);
    let (name, data) = (format!("{name}/plane"), data.clone());
    inputs[1] = graph.value(name, shape, data);
    let Geometry { window, group, .. } = of;
    (Op::Conv { window, group }, inputs)
}

/// What a node reads in planes, if it computes each value of those at its place: planes, and constants of one value.
fn by_value(
    graph: &Graph,
    node: &Node,
    planes: &HashMap<ValueId, ValueId>,
) -> Option<Vec<ValueId>> {
    let value = |id: ValueId| &graph.values[id.0];
    let output = value(node.output);
    let facts = node.op.facts();
    let is_each = matches!(facts.role, Role::Each) || is_by_value(facts.kind);
    if !is_each || output.element != Element::F32 {
        return None;
    }
    let plane = |id: &ValueId| match &value(*id).data {
        Some(data) => (data.len() == 1).then_some(*id),
        None => planes
            .get(id)
            .copied()
            .filter(|_| value(*id).shape == output.shape),
    };
    let inputs = node.inputs.iter().map(plane).collect::<Option<Vec<_>>>()?;
    (inputs != node.inputs).then_some(inputs)
}

/// A value named by another one.
fn value(graph: &mut Graph, of: ValueId, what: &str, shape: Vec<usize>) -> ValueId {
    let name = format!("{}/{what}", graph.values[of.0].name);
    graph.value(name, shape, None)
}

fn reshape(graph: &mut Graph, from: ValueId, to: ValueId) {
    let Value { name, shape, .. } = &graph.values[to.0];
    let (name, sizes) = (
        name.clone(),
        shape.iter().map(|&d| d as i64).collect::<Vec<_>>(),
    );
    let sizes = graph.value(
        format!("{name}/sizes"),
        vec![sizes.len()],
        Some(Data::I64(sizes)),
    );
    let op = OnnxOp::new("Reshape", 2, Vec::new());
    graph.push(name, Op::Onnx(Box::new(op)), vec![from, sizes], to);
}

/// Swaps the first two of three dimensions.
fn transpose(graph: &mut Graph, from: ValueId, to: ValueId) {
    let order = ("perm".to_owned(), OnnxAttribute::Ints(vec![1, 0, 2]));
    let op = OnnxOp::new("Transpose", 1, vec![order]);
    let name = format!("{}/turn", graph.values[to.0].name);
    graph.push(name, Op::Onnx(Box::new(op)), vec![from], to);
}
