//! Writing: a graph as standard ONNX (IR version 8, opset 13, or 14 where an operator needs it).

use prost::Message;

use super::proto;
use crate::graph::{Data, Graph, Node, Op, ValueId};
use crate::host::HostOp;
use crate::window::Window;

/// The bytes of an ONNX model, the same for the same graph.
pub fn save(graph: &Graph) -> Vec<u8> {
    let initializer = graph
        .values
        .iter()
        .filter_map(|v| Some(tensor(&v.name, &v.shape, v.data.as_ref()?)));
    let mut initializer: Vec<_> = initializer.collect();
    let nodes = graph
        .nodes
        .iter()
        .map(|node| export_node(graph, node, &mut initializer));
    let node = nodes.collect();
    let info = |ids: &[ValueId]| ids.iter().map(|id| value_info(graph, *id)).collect();
    let proto = proto::Graph {
        node,
        name: graph.name.clone(),
        initializer,
        input: info(&graph.inputs),
        output: info(&graph.outputs),
    };
    // HardSwish is the only operator here that came later.
    let later = |n: &Node| n.op == Op::Host(HostOp::HardSwish);
    let opset = if graph.nodes.iter().any(later) {
        14
    } else {
        13
    };
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

fn tensor(name: &str, shape: &[usize], data: &Data) -> proto::Tensor {
    let (data_type, raw): (i32, Vec<u8>) = match data {
        Data::F32(v) => (
            proto::FLOAT,
            v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ),
        Data::I8(v) => (proto::INT8, v.iter().map(|&x| x as u8).collect()),
        Data::U8(v) => (proto::UINT8, v.clone()),
        Data::I32(v) => (
            proto::INT32,
            v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ),
        Data::I64(v) => (
            proto::INT64,
            v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ),
    };
    proto::Tensor {
        dims: shape.iter().map(|&d| d as i64).collect(),
        data_type,
        name: name.to_owned(),
        raw_data: raw.into(),
        ..proto::Tensor::default()
    }
}

fn value_info(graph: &Graph, id: ValueId) -> proto::ValueInfo {
    let value = &graph.values[id.0];
    let dim = |&d: &usize| proto::Dimension {
        dim_value: Some(d as i64),
        dim_param: None,
    };
    let shape = proto::Shape {
        dim: value.shape.iter().map(dim).collect(),
    };
    let tensor_type = proto::TensorType {
        elem_type: proto::FLOAT,
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

fn window(w: &Window) -> Vec<proto::Attribute> {
    vec![
        ints("kernel_shape", &w.kernel),
        ints("strides", &w.stride),
        ints("pads", &w.pads.to_array()),
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
        HostOp::Sigmoid | HostOp::HardSwish | HostOp::Tanh | HostOp::Mul | HostOp::Sub => vec![],
    }
}

fn export_node(graph: &Graph, node: &Node, initializer: &mut Vec<proto::Tensor>) -> proto::Node {
    let name = |id: &ValueId| graph.values[id.0].name.clone();
    let mut input: Vec<String> = node.inputs.iter().map(name).collect();
    let (op_type, attribute) = match &node.op {
        Op::Conv { window: w, group } => {
            let mut attributes = window(w);
            attributes.extend([ints("dilations", &w.dilation), int("group", *group)]);
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
        Op::MaxPool { window: w } => {
            let mut attributes = window(w);
            attributes.push(ints("dilations", &w.dilation));
            ("MaxPool", attributes)
        }
        Op::AveragePool {
            window: w,
            count_include_pad,
        } => {
            let mut attributes = window(w);
            attributes.push(int("count_include_pad", usize::from(*count_include_pad)));
            ("AveragePool", attributes)
        }
        Op::GlobalAveragePool => ("GlobalAveragePool", vec![]),
        Op::Flatten => ("Flatten", vec![int("axis", 1)]),
        Op::Gemm { trans_b } => ("Gemm", vec![int("transB", usize::from(*trans_b))]),
        Op::BatchNormalization { epsilon } => {
            ("BatchNormalization", vec![float("epsilon", *epsilon)])
        }
        Op::QuantizeLinear { axis } => ("QuantizeLinear", vec![int("axis", *axis)]),
        Op::DequantizeLinear { axis } => ("DequantizeLinear", vec![int("axis", *axis)]),
        Op::Identity => ("Identity", vec![]),
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
