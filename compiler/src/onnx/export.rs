//! Writing: a graph as standard ONNX (IR version 8, opset 13, or 14 where an operator needs it).

use std::borrow::Cow;
use std::collections::HashSet;

use prost::Message;

use super::{batch, proto};
use crate::graph::{Data, Element, Graph, MatMulForm, Node, OnnxAttribute, OnnxOp, Op, ValueId};
use crate::host::HostOp;
use crate::reflect::Reflect;
use crate::window::{Pads, Window};

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
    let node = nodes(graph, &mut initializer);
    let info = |ids: &[ValueId]| ids.iter().map(|id| value_info(graph, *id, batch)).collect();
    let proto = proto::Graph {
        node,
        name: graph.name.clone(),
        initializer,
        input: info(&graph.inputs),
        output: info(outputs),
    };
    let needed = |n: &Node| match &n.op {
        Op::HardSwish | Op::Host(HostOp::HardSwish) => 14,
        Op::Onnx(op) => op.opset,
        _ => 13,
    };
    let opset = graph.nodes.iter().map(needed).fold(13, i64::max);
    let entry = |(k, v): (&String, &String)| proto::StringEntry {
        key: format!("vta.{k}"),
        value: v.clone(),
    };
    let model = proto::Model {
        ir_version: 8,
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

/// ONNX's number of a type.
const fn data_type(element: Element) -> i32 {
    match element {
        Element::F32 => proto::FLOAT,
        Element::I8 => proto::INT8,
        Element::U8 => proto::UINT8,
        Element::I32 => proto::INT32,
        Element::I64 => proto::INT64,
        Element::Bool => proto::BOOL,
    }
}

pub(super) fn tensor(name: &str, shape: &[usize], data: &Data) -> proto::Tensor {
    fn bytes<T: Copy, const N: usize>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        let mut bytes = vec![0; values.len() * N];
        let all = bytes.as_chunks_mut().0.iter_mut().zip(values);
        all.for_each(|(bytes, value)| *bytes = of(*value));
        bytes
    }
    let raw = match data {
        Data::F32(v) => bytes(v, f32::to_le_bytes),
        Data::I8(v) => v.iter().map(|&x| x as u8).collect(),
        Data::U8(v) => v.clone(),
        Data::I32(v) => bytes(v, i32::to_le_bytes),
        Data::I64(v) => bytes(v, i64::to_le_bytes),
        Data::Bool(v) => v.iter().map(|&x| x.into()).collect(),
    };
    proto::Tensor {
        dims: shape.iter().map(|&d| d as i64).collect(),
        data_type: data_type(data.element()),
        name: name.to_owned(),
        raw_data: raw.into(),
        ..proto::Tensor::default()
    }
}

fn value_info(graph: &Graph, id: ValueId, batch: Option<&str>) -> proto::ValueInfo {
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

fn int(name: &str, i: usize) -> proto::Attribute {
    let kind = proto::ATTRIBUTE_INT;
    proto::Attribute {
        name: name.to_owned(),
        i: i as i64,
        kind,
        ..Default::default()
    }
}

fn ints(name: &str, values: &[usize]) -> proto::Attribute {
    let ints = values.iter().map(|&v| v as i64).collect();
    let kind = proto::ATTRIBUTE_INTS;
    proto::Attribute {
        name: name.to_owned(),
        ints,
        kind,
        ..Default::default()
    }
}

/// Kernel, stride, pads and dilation, over the axes that the node's input has.
fn window(graph: &Graph, node: &Node, w: &Window) -> Vec<proto::Attribute> {
    let input = node.inputs.first().map(|id| graph.values[id.0].shape.len());
    let [top, left, bottom, right] = w.pads.to_array();
    let (from, pads) = match input {
        Some(3) => (1, vec![left, right]),
        _ => (0, vec![top, left, bottom, right]),
    };
    vec![
        ints("kernel_shape", &w.kernel[from..]),
        ints("strides", &w.stride[from..]),
        ints("pads", &pads),
        ints("dilations", &w.dilation[from..]),
    ]
}

fn float(name: &str, f: f32) -> proto::Attribute {
    let kind = proto::ATTRIBUTE_FLOAT;
    let name = name.to_owned();
    proto::Attribute {
        name,
        f,
        kind,
        ..Default::default()
    }
}

fn text(name: &str, value: &'static str) -> proto::Attribute {
    let kind = proto::ATTRIBUTE_STRING;
    proto::Attribute {
        name: name.to_owned(),
        s: bytes::Bytes::from_static(value.as_bytes()),
        kind,
        ..Default::default()
    }
}

/// Attributes of what the host computes.
fn host(op: &HostOp) -> Vec<proto::Attribute> {
    match op {
        HostOp::HardSigmoid { alpha, beta } => {
            vec![float("alpha", *alpha), float("beta", *beta)]
        }
        HostOp::Elu { alpha } | HostOp::LeakyRelu { alpha } => vec![float("alpha", *alpha)],
        HostOp::Softmax | HostOp::Concat => vec![int("axis", 1)],
        HostOp::Resize { .. } => vec![
            text("coordinate_transformation_mode", "asymmetric"),
            text("mode", "nearest"),
            text("nearest_mode", "floor"),
        ],
        HostOp::Sigmoid | HostOp::HardSwish | HostOp::Tanh | HostOp::Mul | HostOp::Max => vec![],
    }
}

/// All nodes; those that make several outputs of one operator are one.
fn nodes(graph: &Graph, initializer: &mut Vec<proto::Tensor>) -> Vec<proto::Node> {
    let mut made: Vec<proto::Node> = Vec::with_capacity(graph.nodes.len());
    let mut first: Option<(&Node, &OnnxOp)> = None;
    for node in &graph.nodes {
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
    let argument = |given: &bool| match given {
        true => inputs.next().unwrap_or_default(),
        false => String::new(),
    };
    let mut output = Vec::new();
    set_output(&mut output, op.output, &graph.values[node.output.0].name);
    proto::Node {
        input: op.arguments.iter().map(argument).collect(),
        output,
        name: node.name.clone(),
        op_type: op.kind.to_owned(),
        attribute: op.attributes.iter().map(|(n, v)| attribute(n, v)).collect(),
        domain: op.domain.to_owned(),
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
            made.s = bytes::Bytes::copy_from_slice(text);
            proto::ATTRIBUTE_STRING
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
    let name = |id: &ValueId| graph.values[id.0].name.clone();
    let mut input: Vec<String> = node.inputs.iter().map(name).collect();
    let (op_type, attribute) = match &node.op {
        Op::Conv { window: w, group } => {
            let mut attributes = window(graph, node, w);
            attributes.push(int("group", *group));
            ("Conv", attributes)
        }
        Op::Relu => ("Relu", vec![]),
        Op::Clip { min, max } => {
            for (suffix, bound) in [("min", *min), ("max", *max)] {
                let name = format!("{}_{suffix}", node.name);
                initializer.push(tensor(&name, &[], &Data::F32(vec![bound])));
                input.push(name);
            }
            ("Clip", vec![])
        }
        Op::Add => ("Add", vec![]),
        Op::MaxPool { window: w } => ("MaxPool", window(graph, node, w)),
        Op::AveragePool {
            window: w,
            count_include_pad,
        } => {
            let mut attributes = window(graph, node, w);
            attributes.retain(|attribute| attribute.name != "dilations");
            attributes.push(int("count_include_pad", usize::from(*count_include_pad)));
            ("AveragePool", attributes)
        }
        Op::GlobalAveragePool => ("GlobalAveragePool", vec![]),
        Op::Flatten => ("Flatten", vec![int("axis", 1)]),
        Op::Gemm { trans_b } => ("Gemm", vec![int("transB", usize::from(*trans_b))]),
        // A product of dimensions before the last two has no bias.
        Op::MatMul { form } => match form {
            MatMulForm::RightTransposed => ("Gemm", vec![int("transB", 1)]),
            MatMulForm::Right if input.len() > 2 => ("Gemm", vec![]),
            MatMulForm::Right => ("MatMul", vec![]),
            MatMulForm::Left => {
                input.swap(0, 1);
                ("MatMul", vec![])
            }
        },
        Op::BatchNormalization { epsilon } => {
            ("BatchNormalization", vec![float("epsilon", *epsilon)])
        }
        Op::QuantizeLinear { axis } => ("QuantizeLinear", vec![int("axis", *axis)]),
        Op::DequantizeLinear { axis } => ("DequantizeLinear", vec![int("axis", *axis)]),
        Op::Identity => ("Identity", vec![]),
        Op::Pad { pads } => {
            let name = format!("{}_pads", node.name);
            let Pads {
                top,
                left,
                bottom,
                right,
            } = *pads;
            let all = [0, 0, top, left, 0, 0, bottom, right].map(|p| p as i64);
            initializer.push(tensor(&name, &[8], &Data::I64(all.into())));
            input.push(name);
            ("Pad", vec![])
        }
        // Written as it was read.
        Op::Onnx(op) => (op.kind, vec![]),
        Op::Mul => ("Mul", vec![]),
        Op::Sub => ("Sub", vec![]),
        Op::Div => ("Div", vec![]),
        Op::LeakyRelu { alpha } => ("LeakyRelu", vec![float("alpha", *alpha)]),
        Op::PRelu => ("PRelu", vec![]),
        Op::HardSigmoid { alpha, beta } => (
            "HardSigmoid",
            vec![float("alpha", *alpha), float("beta", *beta)],
        ),
        Op::HardSwish => ("HardSwish", vec![]),
        Op::ConvTranspose { .. }
        | Op::Concat { .. }
        | Op::Slice { .. }
        | Op::Gather { .. }
        | Op::DepthToSpace { .. }
        | Op::SpaceToDepth { .. }
        | Op::Resize { .. } => moved(graph, node, &mut input, initializer),
        Op::Host(op) => {
            if let HostOp::Resize { factors } = op {
                let name = format!("{}_scales", node.name);
                let scales = [1, 1, factors[0], factors[1]].map(|f| f as f32);
                initializer.push(tensor(&name, &[4], &Data::F32(scales.into())));
                input.extend([String::new(), name]);
            }
            (op.name(), host(op))
        }
    };
    proto::Node {
        input,
        output: vec![name(&node.output)],
        name: node.name.clone(),
        op_type: op_type.to_owned(),
        attribute,
        domain: String::new(),
    }
}

/// Name and attributes of an operator that gives values another place; lists of sizes are inputs.
fn moved(
    graph: &Graph,
    node: &Node,
    input: &mut Vec<String>,
    initializer: &mut Vec<proto::Tensor>,
) -> (&'static str, Vec<proto::Attribute>) {
    let mut constant = |suffix: &str, data: Data| {
        let name = format!("{}_{suffix}", node.name);
        initializer.push(tensor(&name, &[data.len()], &data));
        name
    };
    match &node.op {
        Op::ConvTranspose {
            window: w,
            group,
            output_padding,
        } => {
            let mut attributes = window(graph, node, w);
            attributes.push(int("group", *group));
            attributes.push(ints("output_padding", output_padding));
            ("ConvTranspose", attributes)
        }
        Op::Concat { axis } => ("Concat", vec![int("axis", *axis)]),
        Op::Gather { axis } => ("Gather", vec![int("axis", *axis)]),
        Op::Slice {
            axis,
            start,
            len,
            step,
        } => {
            let end = start + len.saturating_sub(1) * step + 1;
            for (suffix, value) in [
                ("starts", *start),
                ("ends", end),
                ("axes", *axis),
                ("steps", *step),
            ] {
                input.push(constant(suffix, Data::I64(vec![value as i64])));
            }
            ("Slice", vec![])
        }
        Op::DepthToSpace { block, mode } => {
            let attributes = vec![int("blocksize", *block), text("mode", mode.name())];
            ("DepthToSpace", attributes)
        }
        Op::SpaceToDepth { block } => ("SpaceToDepth", vec![int("blocksize", *block)]),
        Op::Resize { factors } => {
            let scales = [1, 1, factors[0], factors[1]].map(|f| f as f32);
            input.extend([String::new(), constant("scales", Data::F32(scales.into()))]);
            (
                "Resize",
                vec![
                    text("coordinate_transformation_mode", "asymmetric"),
                    text("mode", "nearest"),
                    text("nearest_mode", "floor"),
                ],
            )
        }
        _ => (node.op.kind(), vec![]),
    }
}
