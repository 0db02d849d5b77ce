//! Operators of opset 13 to 20 in the form of opset 21, the first whose QuantizeLinear makes 16 bits.

use super::elements::tensor;
use super::proto;
use crate::graph::{Data, Graph};

/// The opset of files that have integers of 16 bits, and its IR version.
pub(super) const OPSET: i64 = 21;
pub(super) const IR_VERSION: i64 = 10;

/// Attributes that became inputs in opset 18.
const REDUCED: [&str; 9] = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
];

/// Whether a graph has integers of 16 bits.
pub(super) fn is_needed(graph: &Graph) -> bool {
    graph.values.iter().any(|v| v.element.has_16_bits())
}

/// Brings nodes to opset 21. Those that are in its form already stay what they are.
pub(super) fn renew(
    graph: &Graph,
    nodes: &mut [proto::Node],
    initializer: &mut Vec<proto::Tensor>,
) {
    for node in nodes {
        match &node.op_type[..] {
            "Split" if node.input.len() < 2 && node.find("num_outputs").is_none() => {
                let outputs = node.output.len() as i64;
                node.attribute.push(proto::Attribute {
                    name: "num_outputs".to_owned(),
                    i: outputs,
                    kind: proto::ATTRIBUTE_INT,
                    ..Default::default()
                });
            }
            "GridSample" => {
                for mode in node.attribute.iter_mut().filter(|a| a.name == "mode") {
                    match &mode.s[..] {
                        b"bilinear" => mode.s = b"linear".to_vec().into(),
                        b"bicubic" => mode.s = b"cubic".to_vec().into(),
                        _ => {}
                    }
                }
            }
            "GroupNormalization" => of_channels(graph, node, initializer),
            kind if REDUCED.contains(&kind) => axes(node, initializer),
            _ => {}
        }
    }
}

/// The axes of a reduction are an input.
fn axes(node: &mut proto::Node, initializer: &mut Vec<proto::Tensor>) {
    let Some(at) = node.attribute.iter().position(|a| a.name == "axes") else {
        return;
    };
    let axes = node.attribute.remove(at).ints;
    let output = node.output.iter().find(|name| !name.is_empty());
    let name = format!("{}.axes", output.map_or("", |name| name));
    initializer.push(tensor(&name, &[axes.len()], &Data::I64(axes)));
    node.input.truncate(1);
    node.input.push(name);
}

/// Scales and biases are those of channels, not of groups.
fn of_channels(graph: &Graph, node: &mut proto::Node, initializer: &mut Vec<proto::Tensor>) {
    let value = |name: &String| graph.values.iter().find(|value| value.name == *name);
    let shape = node.input.first().and_then(value).map(|x| &x.shape);
    let Some(&channels) = shape.and_then(|shape| shape.get(1)) else {
        return;
    };
    let groups = node.find("num_groups").map_or(1, |a| a.i);
    for input in node.input.iter_mut().skip(1) {
        let Some(Data::F32(own)) = value(input).and_then(|value| value.data.as_ref()) else {
            continue;
        };
        let each = channels / own.len().max(1);
        if own.len() as i64 != groups || each < 2 {
            continue;
        }
        let all = own.iter().flat_map(|v| std::iter::repeat_n(*v, each));
        let output = node.output.first().map_or("", |name| name);
        let name = format!("{output}.{input}.channels");
        let data = Data::F32(all.collect());
        initializer.push(tensor(&name, &[data.len()], &data));
        *input = name;
    }
}
