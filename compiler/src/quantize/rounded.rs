//! Which values of a graph are rounded, and whose steps they have.

mod islands;
pub mod keep;

use std::collections::BTreeSet;

use super::error::QuantizeError;
use crate::graph::{Element, Graph, MatMulForm, Node, Op, Value, ValueId};
use crate::operators::fields::Steps;

/// Refuses a graph that has scales already.
pub(super) fn refuse_quantized(graph: &Graph) -> Result<(), QuantizeError> {
    let quantized = |n: &&Node| {
        matches!(
            n.op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. }
        )
    };
    match graph.nodes.iter().find(quantized) {
        None => Ok(()),
        Some(node) => Err(QuantizeError::Quantized {
            node: node.name.clone(),
        }),
    }
}

/// Nodes that stay in float on the host, by their index.
pub type Kept = BTreeSet<usize>;

/// Which values are rounded to int8: the input, and what an operator gives after its
/// activation function; but for those that only nodes in `kept` make and read.
fn with_inputs(graph: &Graph, kept: &Kept) -> Vec<bool> {
    let mut rounded = vec![false; graph.values.len()];
    let uses = graph.uses();
    let makers = graph.makers();
    let islands = islands::islands(graph);
    let hosted = |index: usize| islands[index] || kept.contains(&index);
    // Whether a value's maker is on the same side as a node that alone reads it.
    let joined = |id: &ValueId, reader: usize| {
        let maker = makers.get(id);
        let apart = maker.is_some_and(|maker| hosted(*maker) != hosted(reader));
        uses.get(id) == Some(&1) && !apart
    };
    for (index, node) in graph.nodes.iter().enumerate() {
        rounded[node.output.0] = true;
        // An operator that only its activation function reads needs no rounding of its own.
        if node.op.facts().steps == Steps::Activation && joined(&node.inputs[0], index) {
            rounded[node.inputs[0].0] = false;
        }
    }
    // A constant that is added to a product of matrices is its bias.
    for (index, node) in graph.nodes.iter().enumerate() {
        let form = |id: &ValueId| match graph.nodes[*makers.get(id)?].op {
            Op::MatMul { form } => Some((*id, form)),
            _ => None,
        };
        if node.op == Op::Add
            && let Some((id, form)) = node.inputs.iter().find_map(form)
            && node
                .inputs
                .iter()
                .any(|id| is_bias(&graph.values[id.0], form))
            && joined(&id, index)
        {
            rounded[id.0] = false;
        }
    }
    // What the host computes stays a float where only the host reads it, or nothing does, and so do integers.
    let mut read_as_int8 = vec![false; graph.values.len()];
    for (_, node) in graph.nodes.iter().enumerate().filter(|(i, _)| !hosted(*i)) {
        node.inputs.iter().for_each(|id| read_as_int8[id.0] = true);
    }
    for (_, node) in graph.nodes.iter().enumerate().filter(|(i, _)| hosted(*i)) {
        rounded[node.output.0] &= read_as_int8[node.output.0];
    }
    for (rounded, value) in rounded.iter_mut().zip(&graph.values) {
        *rounded &= value.element == Element::F32;
    }
    // An input is, whatever reads it, but for integers.
    for id in &graph.inputs {
        rounded[id.0] = graph.values[id.0].element == Element::F32;
    }
    rounded
}

/// Which values are rounded, as [`with_inputs`] says, but for inputs that only kept nodes read, where the host can
/// begin with them: before the first rounding it reads either inputs or int8 tensors, and an output needs an int8
/// tensor.
pub(super) fn rounded(graph: &Graph, kept: &Kept) -> Vec<bool> {
    let mut rounded = with_inputs(graph, kept);
    let raw = raw_inputs(graph, kept, &rounded);
    let sources = Sources::new(graph, &rounded, &raw);
    let possible = graph.outputs.iter().all(|id| sources.of[id.0][1]) && sources.mixed.is_empty();
    if possible && sources.any_rounded {
        raw.iter().for_each(|id| rounded[id.0] = false);
    }
    rounded
}

/// Inputs that only kept nodes read.
fn raw_inputs(graph: &Graph, kept: &Kept, rounded: &[bool]) -> Vec<ValueId> {
    let reads = |id: &ValueId, index: usize| graph.nodes[index].inputs.contains(id);
    let only_kept = |id: &&ValueId| {
        let mut readers = (0..graph.nodes.len()).filter(|index| reads(id, *index));
        rounded[id.0] && readers.all(|index| kept.contains(&index))
    };
    let raw = graph.inputs.iter().filter(only_kept).copied();
    raw.filter(|_| !kept.is_empty()).collect()
}

/// What values come from since they were last rounded, if some inputs stay as they are.
struct Sources {
    /// Inputs as they are, int8 tensors.
    of: Vec<[bool; 2]>,
    /// Rounded values that come from both.
    mixed: Vec<ValueId>,
    any_rounded: bool,
}

impl Sources {
    fn new(graph: &Graph, rounded: &[bool], raw: &[ValueId]) -> Self {
        let mut of = vec![[false; 2]; graph.values.len()];
        for id in &graph.inputs {
            // Whole numbers are inputs as they are, too.
            let is_int8 = rounded[id.0] && !raw.contains(id);
            of[id.0] = [!is_int8, is_int8];
        }
        let (mut mixed, mut any_rounded) = (Vec::new(), false);
        for node in &graph.nodes {
            let any = |which: usize| node.inputs.iter().any(|id| of[id.0][which]);
            let output = node.output;
            of[output.0] = [any(0), any(1)];
            if rounded[output.0] {
                any_rounded = true;
                if of[output.0] == [true, true] {
                    mixed.push(output);
                }
                of[output.0] = [false, true];
            }
        }
        Self {
            of,
            mixed,
            any_rounded,
        }
    }
}

/// Rounded values that would have to stay floats for inputs that only kept nodes read to do so: beside these inputs
/// they make another rounded value.
pub(super) fn beside_inputs(graph: &Graph, kept: &Kept) -> Vec<ValueId> {
    let rounded = with_inputs(graph, kept);
    let raw = raw_inputs(graph, kept, &rounded);
    let makers = graph.makers();
    let mut open = Sources::new(graph, &rounded, &raw).mixed;
    let (mut seen, mut beside) = (BTreeSet::new(), Vec::new());
    while let Some(id) = open.pop() {
        let Some(maker) = makers.get(&id) else {
            continue;
        };
        for input in graph.nodes[*maker]
            .inputs
            .iter()
            .filter(|id| !raw.contains(id))
        {
            match rounded[input.0] {
                _ if !seen.insert(*input) => {}
                true => beside.push(*input),
                false => open.push(*input),
            }
        }
    }
    beside
}

/// Whether a constant has one value for each channel of a product of matrices, or one for all: others are sums of
/// their own.
pub(super) fn is_bias(constant: &Value, form: MatMulForm) -> bool {
    let behind = match form {
        MatMulForm::Left => 1,
        MatMulForm::Right | MatMulForm::RightTransposed => 0,
    };
    let mut dims = constant.shape.iter().rev().enumerate();
    constant.data.is_some() && dims.all(|(at, &size)| at == behind || size == 1)
}
