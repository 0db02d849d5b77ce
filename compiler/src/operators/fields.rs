//! Attributes of operators, and their nodes as files have them.

use crate::graph::Data;
use crate::reflect::{Attribute, AttributeValue};

/// An attribute.
pub(crate) struct Field {
    /// As listings have it.
    pub attribute: Attribute,
    /// ONNX's name; empty where a file has it in another way.
    pub written: &'static str,
}

/// A node as it is being written.
pub(crate) struct Written {
    pub kind: &'static str,
    pub inputs: Vec<String>,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Constants that become inputs: name, shape, data.
    pub constants: Vec<(String, Vec<usize>, Data)>,
    /// The node's.
    pub name: String,
    /// Dimensions of its first input.
    pub rank: usize,
}

impl Written {
    /// A constant as the next input.
    pub fn constant(&mut self, suffix: &str, shape: &[usize], data: Data) {
        let name = format!("{}_{suffix}", self.name);
        self.constants.push((name.clone(), shape.to_vec(), data));
        self.inputs.push(name);
    }

    pub fn text(&mut self, name: &'static str, text: &str) {
        let text = AttributeValue::Texts(vec![text.to_owned()]);
        self.attributes.push((name, text));
    }
}

/// An attribute by both of its names.
pub(crate) fn field(
    (name, written): (&'static str, &'static str),
    value: AttributeValue,
    meaning: &'static str,
) -> Field {
    let attribute = Attribute::new(name, value, meaning);
    Field { attribute, written }
}

/// An attribute whose name is ONNX's.
pub(crate) fn float(name: &'static str, value: f32, meaning: &'static str) -> Field {
    field((name, name), AttributeValue::Float(value.into()), meaning)
}

/// An attribute whose name is ONNX's.
pub(crate) fn count(name: &'static str, value: usize, meaning: &'static str) -> Field {
    field((name, name), AttributeValue::Int(value as i64), meaning)
}
