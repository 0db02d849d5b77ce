//! What is known of an operator that a graph holds: its attributes, its place in a network, and its node as a file
//! has it.

use crate::graph::Data;
use crate::passes::import::layout::Role;
use crate::reflect::{Attribute, AttributeValue};

/// What is known of an operator that a graph holds.
pub(crate) struct Facts<'a> {
    /// ONNX's name.
    pub kind: &'static str,
    /// The first operator set that has it, 13 or later.
    pub opset: i64,
    /// Its attributes.
    pub fields: Vec<Field>,
    /// Where the steps of its output come from.
    pub steps: Steps,
    /// How it reads and makes values.
    pub role: Role,
    /// What its node in a file has that its attributes don't say.
    pub write: Option<Write<'a>>,
}

pub(crate) type Write<'a> = Box<dyn Fn(&mut Written) + 'a>;

/// Where the steps of an operator's output come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    /// They are chosen.
    Own,
    /// They are its input's, whose values it only moves or compares.
    Input,
    /// They are chosen for it and what it bounds together.
    Activation,
}

impl<'a> Facts<'a> {
    pub fn new(kind: &'static str, role: Role) -> Self {
        Self {
            kind,
            opset: 13,
            fields: Vec::new(),
            steps: Steps::Own,
            role,
            write: None,
        }
    }

    pub fn fields(self, fields: impl IntoIterator<Item = Field>) -> Self {
        let fields = fields.into_iter().collect();
        Self { fields, ..self }
    }

    pub fn steps(self, steps: Steps) -> Self {
        Self { steps, ..self }
    }

    pub fn write(self, write: impl Fn(&mut Written) + 'a) -> Self {
        let write: Option<Write<'a>> = Some(Box::new(write));
        Self { write, ..self }
    }
}

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
