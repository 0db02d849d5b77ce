//! The parts of ONNX's protobuf messages that the project reads and writes (field numbers from
//! the public `onnx.proto`). Lists of numbers are packed where that says so: not every reader
//! takes both.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct StringEntry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub domain: String,
}

impl Node {
    /// An attribute by its name.
    pub fn find(&self, name: &str) -> Option<&Attribute> {
        self.attribute.iter().find(|a| a.name == name)
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, tag = "2")]
    pub f: f32,
    #[prost(int64, tag = "3")]
    pub i: i64,
    #[prost(bytes = "bytes", tag = "4")]
    pub s: bytes::Bytes,
    #[prost(message, optional, tag = "5")]
    pub t: Option<Tensor>,
    #[prost(message, optional, tag = "6")]
    pub g: Option<Graph>,
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<bytes::Bytes>,
    #[prost(int32, tag = "20")]
    pub kind: i32,
}

/// `Attribute::kind` of an integer.
pub const ATTRIBUTE_INT: i32 = 2;
/// `Attribute::kind` of a float.
pub const ATTRIBUTE_FLOAT: i32 = 1;
/// `Attribute::kind` of a text.
pub const ATTRIBUTE_STRING: i32 = 3;
/// `Attribute::kind` of a tensor.
pub const ATTRIBUTE_TENSOR: i32 = 4;
/// `Attribute::kind` of a list of floats.
pub const ATTRIBUTE_FLOATS: i32 = 6;
/// `Attribute::kind` of a list of integers.
pub const ATTRIBUTE_INTS: i32 = 7;
/// `Attribute::kind` of a list of texts.
pub const ATTRIBUTE_STRINGS: i32 = 8;

#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    #[prost(string, tag = "8")]
    pub name: String,
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: bytes::Bytes,
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringEntry>,
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// `Tensor::data_location` of data in another file.
pub const EXTERNAL: i32 = 1;

/// `Tensor::data_type` of float32.
pub const FLOAT: i32 = 1;
/// `Tensor::data_type` of uint8.
pub const UINT8: i32 = 2;
/// `Tensor::data_type` of int8.
pub const INT8: i32 = 3;
/// `Tensor::data_type` of int32.
pub const INT32: i32 = 6;
/// `Tensor::data_type` of int64.
pub const INT64: i32 = 7;
/// `Tensor::data_type` of uint16.
pub const UINT16: i32 = 4;
/// `Tensor::data_type` of int16.
pub const INT16: i32 = 5;
/// `Tensor::data_type` of uint4, two in a byte.
pub const UINT4: i32 = 21;
/// `Tensor::data_type` of int4, two in a byte.
pub const INT4: i32 = 22;
/// `Tensor::data_type` of uint2, four in a byte.
pub const UINT2: i32 = 25;
/// `Tensor::data_type` of int2, four in a byte.
pub const INT2: i32 = 26;
/// `Tensor::data_type` of truth values.
pub const BOOL: i32 = 9;
/// `Tensor::data_type` of float16.
pub const FLOAT16: i32 = 10;
/// `Tensor::data_type` of float64.
pub const DOUBLE: i32 = 11;
/// `Tensor::data_type` of bfloat16.
pub const BFLOAT16: i32 = 16;

#[derive(Clone, PartialEq, Message)]
pub struct ValueInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<Type>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Type {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}
