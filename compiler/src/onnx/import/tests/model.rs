//! Models built by hand.

use prost::Message;

use super::super::{Graph, OnnxError, Op, load};
use crate::onnx::proto;

/// A model of `x`, nodes and constants.
#[derive(Default)]
pub(super) struct Model(pub(super) proto::Graph);

pub(super) fn ints(name: &str, values: &[i64]) -> proto::Attribute {
    proto::Attribute {
        name: name.to_owned(),
        ints: values.to_vec(),
        kind: proto::ATTRIBUTE_INTS,
        ..Default::default()
    }
}

pub(super) fn int(name: &str, i: i64) -> proto::Attribute {
    proto::Attribute {
        name: name.to_owned(),
        i,
        kind: proto::ATTRIBUTE_INT,
        ..Default::default()
    }
}

pub(super) fn text(name: &str, value: &str) -> proto::Attribute {
    proto::Attribute {
        name: name.to_owned(),
        s: bytes::Bytes::copy_from_slice(value.as_bytes()),
        kind: proto::ATTRIBUTE_STRING,
        ..Default::default()
    }
}

impl Model {
    pub(super) fn floats(mut self, name: &str, dims: &[i64], values: Vec<f32>) -> Self {
        self.0.initializer.push(proto::Tensor {
            dims: dims.to_vec(),
            data_type: proto::FLOAT,
            name: name.to_owned(),
            float_data: values,
            ..Default::default()
        });
        self
    }

    pub(super) fn int8(mut self, name: &str, dims: &[i64], values: &[i8]) -> Self {
        self.0.initializer.push(proto::Tensor {
            dims: dims.to_vec(),
            data_type: proto::INT8,
            name: name.to_owned(),
            int32_data: values.iter().map(|&v| v.into()).collect(),
            ..Default::default()
        });
        self
    }

    pub(super) fn longs(mut self, name: &str, values: &[i64]) -> Self {
        self.0.initializer.push(proto::Tensor {
            dims: vec![values.len() as i64],
            data_type: proto::INT64,
            name: name.to_owned(),
            int64_data: values.to_vec(),
            ..Default::default()
        });
        self
    }

    pub(super) fn long(mut self, name: &str, value: i64) -> Self {
        self = self.longs(name, &[value]);
        if let Some(tensor) = self.0.initializer.last_mut() {
            tensor.dims.clear();
        }
        self
    }

    pub(super) fn node(
        mut self,
        op: &str,
        inputs: &[&str],
        output: &str,
        attribute: &[proto::Attribute],
    ) -> Self {
        self.0.node.push(proto::Node {
            input: inputs.iter().map(|&i| i.to_owned()).collect(),
            output: vec![output.to_owned()],
            name: format!("{op} {output}"),
            op_type: op.to_owned(),
            attribute: attribute.to_vec(),
            domain: String::new(),
        });
        self
    }

    /// QuantizeLinear and DequantizeLinear with a step `s` and a zero point `z` of the model.
    pub(super) fn rounded(self, from: &str, to: &str) -> Self {
        let int8 = format!("{to} int8");
        self.node("QuantizeLinear", &[from, "s", "z"], &int8, &[])
            .node("DequantizeLinear", &[&int8, "s", "z"], to, &[])
    }

    /// A 3x3 convolution of 2 channels to 3.
    pub(super) fn conv(self, from: &str, to: &str, attribute: &[proto::Attribute]) -> Self {
        let weights = (0..54).map(|i| ((i * 7) % 11) as f32 / 8.0 - 0.6).collect();
        let (w, name) = (format!("{to} weights"), &[3, 2, 3, 3]);
        self.floats(&w, name, weights)
            .node("Conv", &[from, &w], to, attribute)
    }

    /// Read with an input `x` of `[1, 2, 5, 6]` and the output `y`.
    pub(super) fn read(self, opset: i64) -> Result<Graph, OnnxError> {
        load(&self.encoded(opset))
    }

    /// The file's bytes, with that input and output.
    pub(super) fn encoded(self, opset: i64) -> Vec<u8> {
        self.with_input(opset, &[1, 2, 5, 6].map(Some))
    }

    /// The file's bytes with an input whose dimensions may be open, by the name `n`.
    pub(super) fn with_input(mut self, opset: i64, dims: &[Option<i64>]) -> Vec<u8> {
        let info = |name: &str, dims: &[Option<i64>]| {
            let dim = |d: &Option<i64>| proto::Dimension {
                dim_value: *d,
                dim_param: d.is_none().then(|| "n".to_owned()),
            };
            let shape = proto::Shape {
                dim: dims.iter().map(dim).collect(),
            };
            let tensor_type = Some(proto::TensorType {
                elem_type: proto::FLOAT,
                shape: Some(shape),
            });
            proto::ValueInfo {
                name: name.to_owned(),
                r#type: Some(proto::Type { tensor_type }),
            }
        };
        self.0.input.push(info("x", dims));
        self.0.output.push(info("y", &[]));
        let model = proto::Model {
            ir_version: 8,
            producer_name: String::new(),
            graph: Some(self.0),
            opset_import: vec![proto::OperatorSet {
                domain: String::new(),
                version: opset,
            }],
            metadata_props: Vec::new(),
        };
        model.encode_to_vec()
    }

    /// Why the device computes no node, or the host neither.
    pub(super) fn refused(self, opset: i64) -> String {
        let graph = match self.read(opset) {
            Ok(graph) => graph,
            Err(error) => return error.to_string(),
        };
        let kept = graph.nodes.iter().find_map(|node| match &node.op {
            Op::Onnx(op) => Some(OnnxError::Node {
                node: node.name.clone(),
                op: op.kind.to_owned(),
                reason: op.reason.clone(),
            }),
            _ => None,
        });
        kept.unwrap().to_string()
    }
}
