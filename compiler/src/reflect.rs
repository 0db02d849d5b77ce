//! What nodes say of themselves: every kind of [`Graph`](crate::graph::Graph),
//! [`Net`](crate::passes::Net) and [`QGraph`](crate::qgraph::QGraph) gives its name, its attributes and the shapes around it in one form, to listings, JSON, errors and callers.
//!
//! ```
//! use vta_compiler::reflect::{AttributeValue, Network};
//! use vta_compiler::{layer, passes, zoo};
//!
//! let graph = layer::build(&layer::parse("conv:1,16,8,8,32,3,1,1")?, 1)?;
//! let node = &graph.describe()[0];
//! assert_eq!((node.kind, &node.output.shape[..]), ("conv", &[32, 8, 8][..]));
//! let kernel = node.attributes.iter().find(|a| a.name == "kernel");
//! assert_eq!(kernel.map(|a| &a.value), Some(&AttributeValue::Ints(vec![3, 3])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod operators;

use std::fmt;

use serde::Serialize;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AttributeValue {
    /// A truth.
    Flag(bool),
    /// A whole number.
    Int(i64),
    /// A list of whole numbers.
    Ints(Vec<i64>),
    /// A real number.
    Float(f64),
    /// A list of texts.
    Texts(Vec<String>),
}

impl AttributeValue {
    /// The type's name: `flag`, `int`, `ints`, `float` or `texts`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "flag",
            Self::Int(_) => "int",
            Self::Ints(_) => "ints",
            Self::Float(_) => "float",
            Self::Texts(_) => "texts",
        }
    }

    fn ints(values: &[usize]) -> Self {
        Self::Ints(values.iter().map(|&v| v as i64).collect())
    }

    fn lanes(ops: &[impl fmt::Display]) -> Self {
        Self::Texts(ops.iter().map(ToString::to_string).collect())
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Ints(values) => write!(f, "{values:?}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Texts(texts) => write!(f, "{{{}}}", texts.join("; ")),
        }
    }
}

/// What a node is told beside its tensors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attribute {
    /// The name, unique in its node.
    pub name: &'static str,
    /// The value's type, as [`AttributeValue::kind`] names it.
    pub kind: &'static str,
    /// The value.
    pub value: AttributeValue,
    /// What it means, with units.
    pub meaning: &'static str,
}

impl Attribute {
    fn new(name: &'static str, value: AttributeValue, meaning: &'static str) -> Self {
        let kind = value.kind();
        Self {
            name,
            kind,
            value,
            meaning,
        }
    }

    fn float(name: &'static str, value: f32, meaning: &'static str) -> Self {
        Self::new(name, AttributeValue::Float(value.into()), meaning)
    }

    fn count(name: &'static str, value: usize, meaning: &'static str) -> Self {
        Self::new(name, AttributeValue::Int(value as i64), meaning)
    }

    fn flag(name: &'static str, value: bool, meaning: &'static str) -> Self {
        Self::new(name, AttributeValue::Flag(value), meaning)
    }

    fn lanes(name: &'static str, ops: &[impl fmt::Display], meaning: &'static str) -> Self {
        Self::new(name, AttributeValue::lanes(ops), meaning)
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.value)
    }
}

/// An operation that can be described: those of graphs, nets and integer graphs, and the host's.
pub trait Reflect {
    /// The kind's name: ONNX's for a [`Graph`](crate::graph::Graph), the tables' for the others.
    fn kind(&self) -> &'static str;

    /// The attributes, in a fixed order. Tensors, and constants such as weights, aren't among
    /// them.
    fn attributes(&self) -> Vec<Attribute>;
}

/// A tensor beside a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorInfo {
    /// The model's name for it.
    pub name: String,
    /// Dimensions: with the batch in a [`Graph`](crate::graph::Graph), channels, rows and columns in the others.
    pub shape: Vec<usize>,
}

/// A node with all that it says of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeInfo {
    /// The model's name.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// As [`Reflect::attributes`].
    pub attributes: Vec<Attribute>,
    /// What it reads, constants among it.
    pub inputs: Vec<TensorInfo>,
    /// What it writes.
    pub output: TensorInfo,
}

/// A network that describes its nodes.
pub trait Network {
    /// All nodes, in execution order.
    fn describe(&self) -> Vec<NodeInfo>;
}

/// The attributes of a node as a listing has them.
pub(crate) fn listed(attributes: &[Attribute]) -> String {
    attributes.iter().map(|a| format!(" {a}")).collect()
}
