//! Which values of a graph are those of one input, each put through the same function and to a place of its own.
//!
//! Of int8 such a function is a table, and the places are a view of the input, as transposes, reshapes and slices leave it. A
//! reshape that joins dimensions which don't follow each other keeps them apart: a dimension of a value is one or several of
//! the view's.

use super::import::layout::{Role, permutation, regroups};
use crate::graph::{Entries, Graph, Node, Op, ValueId};
use crate::host::View;
use crate::operators;

/// For each output of a graph the view of an input of which its values are a function, by the names that `inputs` gives
/// these; `None` where there is no such input.
pub(super) fn views(graph: &Graph, inputs: &[usize]) -> Vec<Option<View>> {
    let mut of: Vec<Option<View>> = vec![None; graph.values.len()];
    for (id, &input) in graph.inputs.iter().zip(inputs) {
        of[id.0] = Some(View::whole(input, count(graph, *id)));
    }
    for node in &graph.nodes {
        of[node.output.0] = view(graph, node, &of).map(View::joined);
    }
    graph.outputs.iter().map(|id| of[id.0].clone()).collect()
}

fn count(graph: &Graph, id: ValueId) -> usize {
    graph.values[id.0].shape.iter().product()
}

/// What a node's output is a view of.
fn view(graph: &Graph, node: &Node, of: &[Option<View>]) -> Option<View> {
    let first = node.inputs.first()?;
    let shape = &graph.values[first.0].shape;
    let moved = match &node.op {
        Op::Slice { entries } => sliced(of[first.0].as_ref()?, shape, entries),
        Op::Onnx(op) if op.kind == "Transpose" => {
            turned(of[first.0].as_ref()?, shape, &permutation(op, shape.len())?)
        }
        Op::Flatten => return of[first.0].clone(),
        Op::Onnx(op) if regroups(op) => return of[first.0].clone(),
        op => return by_value(graph, node, of).filter(|_| is_by_value(op)),
    };
    moved.filter(|view| view.fits(count(graph, node.output), usize::MAX))
}

fn is_by_value(op: &Op) -> bool {
    match op {
        Op::Onnx(op) => operators::is_by_value(op.kind),
        op => matches!(op.facts().role, Role::Each),
    }
}

/// The view that all inputs of a node are that are no single constants.
fn by_value(graph: &Graph, node: &Node, of: &[Option<View>]) -> Option<View> {
    let mut found: Option<&View> = None;
    for id in &node.inputs {
        if let Some(view) = &of[id.0] {
            // Of as many values none is repeated.
            let whole = count(graph, *id) == count(graph, node.output);
            if !whole || found.is_some_and(|other| other != view) {
                return None;
            }
            found = Some(view);
        } else if graph.values[id.0].data.as_ref()?.len() != 1 {
            return None;
        }
    }
    found.cloned()
}

/// Dimensions of a view for each dimension of a shape; `None` where it would cut one of the view's unevenly.
fn grouped(view: &View, shape: &[usize]) -> Option<Vec<Vec<[usize; 2]>>> {
    let mut rest = view.dimensions.clone();
    let mut groups = Vec::with_capacity(shape.len());
    for &size in shape.iter().rev() {
        let (mut group, mut left) = (Vec::new(), size);
        while left > 1 {
            let [size, stride] = rest.pop()?;
            if left % size == 0 {
                left /= size;
                group.push([size, stride]);
            } else if size % left == 0 {
                rest.push([size / left, stride * left]);
                group.push([left, stride]);
                left = 1;
            } else {
                return None;
            }
        }
        group.reverse();
        groups.push(group);
    }
    groups.reverse();
    Some(groups)
}

fn turned(view: &View, shape: &[usize], perm: &[usize]) -> Option<View> {
    let groups = grouped(view, shape)?;
    let turned: Option<Vec<_>> = perm.iter().map(|&at| groups.get(at).cloned()).collect();
    Some(View {
        dimensions: turned?.concat(),
        ..*view
    })
}

/// Entries of dimensions that are one of the view's each.
fn sliced(view: &View, shape: &[usize], entries: &[Entries]) -> Option<View> {
    let (mut groups, mut offset) = (grouped(view, shape)?, view.offset);
    for taken in entries {
        let group = groups.get_mut(taken.axis)?;
        let [[_, stride]] = group[..] else {
            // Of one entry all is taken.
            if group.is_empty() && taken.len == 1 {
                continue;
            }
            return None;
        };
        offset += taken.start * stride;
        *group = vec![[taken.len, taken.step * stride]];
    }
    Some(View {
        offset,
        dimensions: groups.concat(),
        ..*view
    })
}

#[cfg(test)]
mod tests;
