//! Which values of a graph are those of one input, each put through the same function and to a place of its own.
//!
//! Of int8 such a function is a table, and the places are a view of the input: dimensions with their strides, as
//! transposes, reshapes and slices leave them. A reshape that joins dimensions which don't follow each other keeps them
//! apart: a dimension of a value is one or several of the input.

use serde::{Deserialize, Serialize};

use crate::graph::{Entries, Graph, Node, Op, ValueId};
use crate::operators;
use crate::passes::import::layout::{Role, permutation, regroups};

/// The most dimensions of a view.
const MOST_DIMENSIONS: usize = 64;

/// Where values come from: the first from `offset`, and then along dimensions, of which the last is the innermost, so many
/// at a stride.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    /// Which input.
    pub input: usize,
    offset: usize,
    /// Sizes and strides.
    dimensions: Vec<[usize; 2]>,
}

impl View {
    /// A whole input of so many values.
    fn whole(input: usize, count: usize) -> Self {
        Self {
            input,
            offset: 0,
            dimensions: vec![[count, 1]],
        }
    }

    /// Whether it is a whole input as that lies.
    pub fn is_whole(&self, count: usize) -> bool {
        *self == Self::whole(self.input, count)
    }

    /// How many values it gives.
    pub fn count(&self) -> usize {
        self.dimensions.iter().map(|[size, _]| size).product()
    }

    /// Whether it gives so many values and reads none beyond so many, each once at most.
    pub fn fits(&self, given: usize, read: usize) -> bool {
        let mut count = 1usize;
        let mut last = Some(self.offset);
        for &[size, stride] in &self.dimensions {
            count = count.saturating_mul(size);
            let reach = size.checked_sub(1).and_then(|n| n.checked_mul(stride));
            last = last.zip(reach).and_then(|(a, b)| a.checked_add(b));
        }
        let few = self.dimensions.len() <= MOST_DIMENSIONS;
        few && count == given && last.is_some_and(|last| last < read)
    }

    /// Calls with each place, in order, and the place of the input that it comes from.
    pub fn each(&self, mut call: impl FnMut(usize, usize)) {
        let Some((&[size, stride], outer)) = self.dimensions.split_last() else {
            return call(0, self.offset);
        };
        let mut at = vec![0usize; outer.len()];
        let (mut to, mut from) = (0, self.offset);
        loop {
            for i in 0..size {
                call(to + i, from + i * stride);
            }
            to += size;
            // The innermost that isn't at its end goes on; those within it begin again.
            let mut dimension = outer.len();
            loop {
                let Some(next) = dimension.checked_sub(1) else {
                    return;
                };
                dimension = next;
                let [size, stride] = outer[dimension];
                at[dimension] += 1;
                from += stride;
                if at[dimension] < size {
                    break;
                }
                from -= size * stride;
                at[dimension] = 0;
            }
        }
    }

    /// As few dimensions as there can be.
    fn joined(mut self) -> Self {
        let mut kept: Vec<[usize; 2]> = Vec::new();
        for [size, stride] in self.dimensions {
            match kept.last_mut() {
                _ if size == 1 => {}
                Some(last) if last[1] == size * stride => *last = [last[0] * size, stride],
                _ => kept.push([size, stride]),
            }
        }
        if kept.is_empty() {
            kept.push([1, 1]);
        }
        self.dimensions = kept;
        self
    }
}

/// For each output of a graph the view of an input of which its values are a function, by the names that `inputs` gives
/// these; `None` where there is no such input.
pub(crate) fn views(graph: &Graph, inputs: &[usize]) -> Vec<Option<View>> {
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
