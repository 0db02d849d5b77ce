//! Writing: a graph as standard ONNX (IR version 8, opset 13, or 14 where an operator needs it; IR version 10, opset 21
//! with integers of 16 bits).

use std::borrow::Cow;
use std::collections::HashSet;

use prost::Message;

use super::elements::{data_type, tensor};
use super::{batch, newer, proto};
use crate::graph::{Graph, Node, OnnxAttribute, OnnxOp, Op, ValueId};
use crate::operators::fields::Written;
use crate::reflect::AttributeValue;

/// The bytes of an ONNX model, the same for the same graph.
pub fn save(graph: &Graph) -> Vec<u8> {
    save_batched(graph, &graph.outputs, batch::open(graph))
}

/// [`save`] of a graph that gives other values, any that its nodes compute, with a batch of 1.
pub fn save_with_outputs(graph: &Graph, outputs: &[ValueId]) -> Vec<u8> {
    save_batched(graph, outputs, None)
}

/// `batch` is the name of one that is open.
fn save_batched(graph: &Graph, outputs: &[ValueId], batch: Option<&str>) -> Vec<u8> {
    let graph = &*with_unique_names(graph);
    let initializer = graph
        .values
        .iter()
        .filter_map(|v| Some(tensor(&v.name, &v.shape, v.data.as_ref()?)));
    let mut initializer: Vec<_> = initializer.collect();
    let mut node = nodes(graph, &mut initializer);
    let is_wide = newer::is_needed(graph);
    if is_wide {
        newer::renew(graph, &mut node, &mut initializer);
    }
    let info = |ids: &[ValueId]| ids.iter().map(|id| value_info(graph, *id, batch)).collect();
    let proto = proto::Graph {
        node,
        name: graph.name.clone(),
        initializer,
        input: info(&graph.inputs),
        output: info(outputs),
        value_info: Vec::new(),
    };
    let needed = graph.nodes.iter().map(|node| node.op.facts().opset);
    let (ir_version, least) = if is_wide {
        (newer::IR_VERSION, newer::OPSET)
    } else {
        (8, 13)
    };
    let opset = needed.fold(least, i64::max);
    let entry = |(k, v): (&String, &String)| proto::StringEntry {
        key: format!("vta.{k}"),
        value: v.clone(),
    };
    let model = proto::Model {
        ir_version,
        producer_name: "vta".to_owned(),
        graph: Some(proto),
        opset_import: vec![proto::OperatorSet {
            domain: String::new(),
            version: opset,
        }],
        metadata_props: graph.metadata.iter().map(entry).collect(),
    };
    model.encode_to_vec()
}

/// The graph, its values and nodes renamed where two have one name: nodes of a file may, and what is
/// made of them is named after them.
pub(crate) fn with_unique_names(graph: &Graph) -> Cow<'_, Graph> {
    let mut graph = Cow::Borrowed(graph);
    let mut used = HashSet::new();
    for index in 0..graph.values.len() {
        if !used.insert(graph.values[index].name.clone()) {
            let name = format!("{}#{index}", graph.values[index].name);
            used.insert(name.clone());
            graph.to_mut().values[index].name = name;
        }
    }
    let mut used = HashSet::new();
    for index in 0..graph.nodes.len() {
        if !used.insert(graph.nodes[index].name.clone()) {
            let name = format!("{}#{index}", graph.nodes[index].name);
            used.insert(name.clone());
            graph.to_mut().nodes[index].name = name;
        }
    }
    graph
}

pub(super) fn value_info(graph: &Graph, id: ValueId, batch: Option<&str>) -> proto::ValueInfo {
    let value = &graph.values[id.0];
    let dim = |(i, &d): (usize, &usize)| {
        let open = batch.filter(|_| i == 0);
        proto::Dimension {
            dim_value: open.is_none().then_some(d as i64),
            dim_param: open.map(str::to_owned),
        }
    };
    let shape = proto::Shape {
        dim: value.shape.iter().enumerate().map(dim).collect(),
    };
    let tensor_type = proto::TensorType {
        elem_type: data_type(value.element),
        shape: Some(shape),
    };
    let r#type = Some(proto::Type {
        tensor_type: Some(tensor_type),
    });
    proto::ValueInfo {
        name: value.name.clone(),
        r#type,
    }
}

/// All nodes; those that make several outputs of one operator are one.
fn nodes(graph: &Graph, initializer: &mut Vec<proto::Tensor>) -> Vec<proto::Node> {
    let mut made: Vec<proto::Node> = Vec::with_capacity(graph.nodes.len());
    let mut first: Option<(&Node, &OnnxOp)> = None;
    for node in &graph.nodes {
        // The reader puts them behind each other.
        if let (Op::Onnx(op), Some((before, of)), Some(last)) = (&node.op, first, made.last_mut())
            && before.inputs == node.inputs
            && (OnnxOp {
                output: of.output,
                ..(**op).clone()
            }) == *of
        {
            set_output(
                &mut last.output,
                op.output,
                &graph.values[node.output.0].name,
            );
            continue;
        }
        made.push(export_node(graph, node, initializer));
        first = match &node.op {
            Op::Onnx(op) => Some((node, op)),
            _ => None,
        };
    }
    made
}

/// Names one of several outputs.
fn set_output(outputs: &mut Vec<String>, index: usize, name: &str) {
    if outputs.len() <= index {
        outputs.resize(index + 1, String::new());
    }
    name.clone_into(&mut outputs[index]);
}

/// An operator as its file had it.
fn export_onnx(graph: &Graph, node: &Node, op: &OnnxOp) -> proto::Node {
    let mut inputs = node.inputs.iter().map(|id| graph.values[id.0].name.clone());
    let argument = |given: &bool| {
        let given = given.then(|| inputs.next());
        given.flatten().unwrap_or_default()
    };
    let mut output = Vec::new();
    set_output(&mut output, op.output, &graph.values[node.output.0].name);
    proto::Node {
        input: op.arguments.iter().map(argument).collect(),
        output,
        name: node.name.clone(),
        op_type: op.kind.to_owned(),
        attribute: op.attributes.iter().map(|(n, v)| attribute(n, v)).collect(),
        domain: String::new(),
    }
}

/// An attribute as its file had it.
fn attribute(name: &str, value: &OnnxAttribute) -> proto::Attribute {
    let mut made = proto::Attribute {
        name: name.to_owned(),
        ..Default::default()
    };
    made.kind = match value {
        OnnxAttribute::Int(i) => {
            made.i = *i;
            proto::ATTRIBUTE_INT
        }
        OnnxAttribute::Float(f) => {
            made.f = *f;
            proto::ATTRIBUTE_FLOAT
        }
        OnnxAttribute::Text(text) => {
            made.s = text.clone().into();
            proto::ATTRIBUTE_STRING
        }
        OnnxAttribute::Texts(texts) => {
            made.strings = texts.iter().map(|text| text.clone().into()).collect();
            proto::ATTRIBUTE_STRINGS
        }
        OnnxAttribute::Ints(ints) => {
            made.ints.clone_from(ints);
            proto::ATTRIBUTE_INTS
        }
        OnnxAttribute::Floats(floats) => {
            made.floats.clone_from(floats);
            proto::ATTRIBUTE_FLOATS
        }
        OnnxAttribute::Tensor { shape, data } => {
            made.t = Some(tensor("", shape, data));
            proto::ATTRIBUTE_TENSOR
        }
    };
    made
}

fn export_node(graph: &Graph, node: &Node, initializer: &mut Vec<proto::Tensor>) -> proto::Node {
    if let Op::Onnx(op) = &node.op {
        return export_onnx(graph, node, op);
    }
    let facts = node.op.facts();
    let name = |id: &ValueId| graph.values[id.0].name.clone();
    let first = node.inputs.first();
    let given = facts.fields.into_iter().filter(|f| !f.written.is_empty());
    let mut written = Written {
        kind: facts.kind,
        inputs: node.inputs.iter().map(name).collect(),
        attributes: given.map(|f| (f.written, f.attribute.value)).collect(),
        constants: Vec::new(),
        name: node.name.clone(),
        rank: first.map_or(0, |id| graph.values[id.0].shape.len()),
    };
    if let Some(write) = &facts.write {
        write(&mut written);
    }
    let constants = written.constants.iter();
    initializer.extend(constants.map(|(name, shape, data)| tensor(name, shape, data)));
    let attributes = written.attributes.into_iter();
    proto::Node {
        input: written.inputs,
        output: vec![name(&node.output)],
        name: written.name,
        op_type: written.kind.to_owned(),
        attribute: attributes
            .map(|(name, v)| attribute(name, &as_written(v)))
            .collect(),
        domain: String::new(),
    }
}

/// A value as ONNX has it.
fn as_written(value: AttributeValue) -> OnnxAttribute {
    match value {
        AttributeValue::Flag(flag) => OnnxAttribute::Int(flag.into()),
        AttributeValue::Int(i) => OnnxAttribute::Int(i),
        AttributeValue::Ints(ints) => OnnxAttribute::Ints(ints),
        AttributeValue::Float(f) => OnnxAttribute::Float(f as f32),
        AttributeValue::Texts(texts) => OnnxAttribute::Text(texts.concat()),
    }
}
