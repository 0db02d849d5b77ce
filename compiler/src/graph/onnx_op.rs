//! Operators as a file has them.

use super::data::Data;

/// An operator of ONNX's own set with its attributes, as far as they are given, in the form of opset 13 or of
/// [`opset`](Self::opset) where that is later.
#[derive(Clone, Debug, PartialEq)]
pub struct OnnxOp {
    /// ONNX's name.
    pub kind: &'static str,
    /// The version of ONNX's operator set that it is meant in, 13 or later.
    pub opset: i64,
    /// Names and values, in the file's order.
    pub attributes: Vec<(String, OnnxAttribute)>,
    /// Which of its arguments are given: the node's inputs are these, in order.
    pub arguments: Vec<bool>,
    /// Which of its outputs the node makes. Nodes of equal operators and inputs that make others
    /// are one node of a file.
    pub output: usize,
    /// Why no device computes it.
    pub reason: String,
}

/// What an attribute holds.
#[derive(Clone, Debug, PartialEq)]
pub enum OnnxAttribute {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f32),
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// A tensor.
    Tensor {
        /// Dimensions.
        shape: Vec<usize>,
        /// As many elements as they say.
        data: Data,
    },
}

impl OnnxOp {
    /// An operator of opset 13 of which all arguments are given.
    pub fn new(
        kind: &'static str,
        arguments: usize,
        attributes: Vec<(String, OnnxAttribute)>,
    ) -> Self {
        Self {
            kind,
            opset: 13,
            attributes,
            arguments: vec![true; arguments],
            output: 0,
            reason: "the device has no such operator".to_owned(),
        }
    }

    /// Whether what it reads says how many values it gives.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.kind, "Compress" | "NonMaxSuppression" | "NonZero")
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&OnnxAttribute> {
        let named = self.attributes.iter().find(|(n, _)| n == name);
        named.map(|(_, value)| value)
    }

    /// A whole number, or a default where it isn't given.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        match self.attribute(name) {
            Some(OnnxAttribute::Int(value)) => *value,
            _ => default,
        }
    }

    /// A number of things, or a default where it isn't given.
    ///
    /// # Errors
    /// A number below 0, in words.
    pub(crate) fn count(&self, name: &str, default: i64) -> Result<usize, String> {
        let value = self.int(name, default);
        usize::try_from(value).map_err(|_| format!("{name} is {value}"))
    }

    /// A number, or a default where it isn't given.
    pub fn float(&self, name: &str, default: f32) -> f32 {
        match self.attribute(name) {
            Some(OnnxAttribute::Float(value)) => *value,
            _ => default,
        }
    }

    /// A text; `None` where it isn't given.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.attribute(name) {
            Some(OnnxAttribute::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whole numbers; `None` where they aren't given.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attribute(name) {
            Some(OnnxAttribute::Ints(values)) => Some(values),
            _ => None,
        }
    }

    /// The place of an argument among the node's inputs; `None` where it isn't given.
    pub fn place(&self, argument: usize) -> Option<usize> {
        let before = self.arguments.get(..argument)?;
        let given = self.arguments.get(argument).copied().unwrap_or(false);
        given.then(|| before.iter().filter(|&&given| given).count())
    }
}
