//! What nodes say of themselves: every kind of [`Graph`](crate::graph::Graph),
//! [`Net`](crate::passes::Net) and [`QGraph`](crate::qgraph::QGraph) gives its name, its attributes and the
//! shapes around it in one form, to listings, JSON, errors, bundles and callers. Layers of
//! programs have it for the nodes that they compute ([`vta_program::Layer::nodes`]).
//!
//! ```
//! use vta_compiler::reflect::{AttributeValue, Network};
//! use vta_compiler::{layer, passes, zoo};
//!
//! let graph = layer::build(&layer::parse("conv:1,16,8,8,32,3,1,1")?, 1)?;
//! let node = &graph.describe()[0];
//! assert_eq!((&*node.kind, &node.output.shape[..]), ("conv", &[32, 8, 8][..]));
//! let kernel = node.attributes.iter().find(|a| a.name == "kernel");
//! assert_eq!(kernel.map(|a| &a.value), Some(&AttributeValue::Ints(vec![3, 3])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod operators;

pub use vta_program::{Attribute, AttributeValue, NodeInfo, TensorInfo};

/// An operation that can be described: those of graphs, nets and integer graphs, and the host's.
pub trait Reflect {
    /// The kind's name: ONNX's for a [`Graph`](crate::graph::Graph), the tables' for the others.
    fn kind(&self) -> &'static str;

    /// The attributes, in a fixed order. Tensors, and constants such as weights, aren't among
    /// them.
    fn attributes(&self) -> Vec<Attribute>;
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
