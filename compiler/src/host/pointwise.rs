//! Which values of a graph are functions of one input, value by value: of int8 such a function is a table.

use crate::graph::{Graph, Node, Op, ValueId};
use crate::operators;
use crate::passes::import::layout::{Role, permutation, regroups, swapped};

/// What a value is made of, place by place.
#[derive(Clone, Copy, PartialEq)]
struct Source {
    /// Which input, or which of several that are alike.
    input: usize,
    /// The two dimensions that its values are turned by, if they are.
    turned: Option<[usize; 2]>,
}

/// For each output of a graph the input of which every value is a function of the value at its place, by the names that
/// `inputs` gives them; `None` where there is no such input.
pub(crate) fn sources(graph: &Graph, inputs: &[usize]) -> Vec<Option<usize>> {
    let mut of: Vec<Option<Source>> = vec![None; graph.values.len()];
    for (id, &input) in graph.inputs.iter().zip(inputs) {
        let turned = None;
        of[id.0] = Some(Source { input, turned });
    }
    for node in &graph.nodes {
        of[node.output.0] = source(graph, node, &of);
    }
    let whole = |id: &ValueId| of[id.0].filter(|source| source.turned.is_none());
    let outputs = graph.outputs.iter();
    outputs.map(|id| Some(whole(id)?.input)).collect()
}

/// What a node's output is made of.
fn source(graph: &Graph, node: &Node, of: &[Option<Source>]) -> Option<Source> {
    let count = |id: ValueId| graph.values[id.0].shape.iter().product::<usize>();
    let regroups = match &node.op {
        Op::Onnx(op) => regroups(op),
        op => matches!(op, Op::Flatten),
    };
    let mut found = None;
    for id in &node.inputs {
        if let Some(source) = of[id.0] {
            // Of as many values none is repeated.
            if count(*id) != count(node.output) || found.is_some_and(|other| other != source) {
                return None;
            }
            found = Some(source);
        } else if graph.values[id.0].data.as_ref()?.len() != 1 && !regroups {
            return None;
        }
    }
    let source = found?;
    let by_value = match &node.op {
        Op::Onnx(op) if op.kind == "Transpose" => {
            let shape = &graph.values[node.inputs[0].0].shape;
            return turned(source, swapped(shape, &permutation(op, shape.len())?)?);
        }
        Op::Onnx(op) => operators::is_by_value(op.kind),
        op => matches!(op.facts().role, Role::Each),
    };
    (by_value || regroups).then_some(source)
}

/// A source whose values are turned once more; twice is not at all.
fn turned(source: Source, dimensions: Option<[usize; 2]>) -> Option<Source> {
    let turned = match (source.turned, dimensions) {
        (before, None) => before,
        (None, some) => some,
        (Some([front, behind]), Some(again)) if again == [behind, front] => None,
        _ => return None,
    };
    Some(Source { turned, ..source })
}
