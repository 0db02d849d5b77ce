//! A constant added after a convolution or matrix product becomes its bias input.
//!
//! Exporters write a dense layer as Gemm, or as MatMul and Add. Both mean the same, so only one
//! of them reaches the passes.

use super::OnnxError;
use crate::graph::{Graph, Node, Op, Value, ValueId};

/// Rewrites every such Add; what remains must have operands of one shape.
///
/// # Errors
/// [`OnnxError::Node`] for an Add that broadcasts in another way.
pub(super) fn fold(graph: &mut Graph) -> Result<(), OnnxError> {
    let mut index = 0;
    while index < graph.nodes.len() {
        if graph.nodes[index].op == Op::Add {
            match folding(graph, index) {
                Some((producer, constant)) => {
                    join(graph, producer, index, constant);
                    // The producer moved to this place, one position earlier.
                    index -= 1;
                }
                None => same_shapes(graph, &graph.nodes[index])?,
            }
        }
        index += 1;
    }
    Ok(())
}

fn same_shapes(graph: &Graph, node: &Node) -> Result<(), OnnxError> {
    let [a, b] = [0, 1].map(|i| &graph.values[node.inputs[i].0].shape);
    if a == b {
        return Ok(());
    }
    Err(OnnxError::Node {
        node: node.name.clone(),
        op: "Add".to_owned(),
        reason: format!(
            "shapes {a:?} and {b:?} differ; only a constant for each channel, right after a \
             Conv, Gemm or MatMul without bias, is broadcast"
        ),
    })
}

/// The Conv or Gemm before an Add, and the constant that becomes its bias.
fn folding(graph: &Graph, add: usize) -> Option<(usize, ValueId)> {
    let node = &graph.nodes[add];
    let channels = *graph.values[node.output.0].shape.get(1)?;
    let sides = [
        (node.inputs[0], node.inputs[1]),
        (node.inputs[1], node.inputs[0]),
    ];
    sides.into_iter().find_map(|(sum, constant)| {
        let producer = graph.nodes[..add].iter().position(|n| n.output == sum)?;
        let made = &graph.nodes[producer];
        let takes_bias = matches!(made.op, Op::Conv { .. } | Op::Gemm { .. });
        let free = made.inputs.len() == 2 && graph.uses().get(&sum) == Some(&1);
        let constant_len = graph.values[source(graph, constant)?.0]
            .shape
            .iter()
            .product::<usize>();
        (takes_bias && free && constant_len == channels).then_some((producer, constant))
    })
}

/// The initializer behind a value: itself, or what a DequantizeLinear reads.
fn source(graph: &Graph, id: ValueId) -> Option<ValueId> {
    if graph.values[id.0].data.is_some() {
        return Some(id);
    }
    let node = dequantize(graph, id)?;
    let from = *graph.nodes[node].inputs.first()?;
    graph.values[from.0].data.is_some().then_some(from)
}

fn dequantize(graph: &Graph, id: ValueId) -> Option<usize> {
    let position = graph.nodes.iter().position(|n| n.output == id)?;
    matches!(graph.nodes[position].op, Op::DequantizeLinear { .. }).then_some(position)
}

/// Moves the producer to the Add's place (its new input may be made after it) with the constant,
/// reshaped to one entry for each channel.
fn join(graph: &mut Graph, producer: usize, mut add: usize, constant: ValueId) {
    let bias = match dequantize(graph, constant) {
        None => vector(graph, constant),
        Some(node) => {
            let mut node = graph.nodes[node].clone();
            node.inputs[0] = vector(graph, node.inputs[0]);
            node.op = Op::DequantizeLinear { axis: 0 };
            node.name.push_str(".bias");
            let output = vector(graph, constant);
            node.output = output;
            graph.nodes.insert(add, node);
            add += 1;
            output
        }
    };
    let output = graph.nodes[add].output;
    let mut node = graph.nodes[producer].clone();
    node.inputs.push(bias);
    node.output = output;
    graph.nodes[add] = node;
    graph.nodes.remove(producer);
}

/// A copy of a value as `[C]`.
fn vector(graph: &mut Graph, id: ValueId) -> ValueId {
    let Value { name, shape, data } = &graph.values[id.0];
    let copy = Value {
        name: format!("{name}.bias"),
        shape: vec![shape.iter().product()],
        data: data.clone(),
    };
    graph.values.push(copy);
    ValueId(graph.values.len() - 1)
}
