//! Why a network can't be lowered.

use thiserror::Error;
use vta_isa::{Extension, FieldError};

use crate::refusals::together;

/// A graph that can't be lowered for a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LowerError {
    /// No tile fits the scratchpads or the instruction fields.
    #[error("node {node}: {reason}")]
    NoTile {
        /// The node.
        node: String,
        /// Which limit, with figures.
        reason: String,
    },
    /// The node's tensors or vectors contradict each other.
    #[error("node {node}: its shapes or lane operations are inconsistent: {reason}")]
    Inconsistent {
        /// The node.
        node: String,
        /// What.
        reason: String,
    },
    /// A field doesn't fit its bits.
    #[error("node {node}: {source}")]
    Field {
        /// The node.
        node: String,
        /// The field.
        source: FieldError,
    },
    /// A node that needs what the configuration's machine lacks.
    #[error("node {node}: {reason}, and this machine has no {extension}{hint}")]
    Lacks {
        /// The node.
        node: String,
        /// What it does.
        reason: String,
        /// What that needs.
        extension: Extension,
        /// What to do, after a colon, or nothing.
        hint: &'static str,
    },
    /// Nodes that the device has no operation for, but the host has.
    #[error("the device has no operator for {nodes} of the nodes ({kinds}; the first is {first})")]
    Host {
        /// How many.
        nodes: usize,
        /// The name of the first.
        first: String,
        /// Their operators, the most frequent first, with how many there are of each.
        kinds: String,
    },
    /// What can't be: a fault of the compiler.
    #[error("node {node}: internal error: {reason}")]
    Internal {
        /// The node.
        node: String,
        /// What.
        reason: String,
    },
    /// The network as a whole.
    #[error("{0}")]
    Network(String),
    /// Several nodes, each for a reason of its own.
    #[error("{}", together(.0.iter().map(|e| (e.node(), e.to_string()))))]
    Nodes(Vec<LowerError>),
}

impl LowerError {
    /// The errors that it consists of: each of one node, or of the network as a whole.
    pub fn each(&self) -> &[Self] {
        match self {
            Self::Nodes(errors) => errors,
            _ => std::slice::from_ref(self),
        }
    }

    /// The name of the node at fault; `None` for the network as a whole and for several.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::NoTile { node, .. }
            | Self::Inconsistent { node, .. }
            | Self::Field { node, .. }
            | Self::Lacks { node, .. }
            | Self::Internal { node, .. } => Some(node),
            Self::Host { .. } | Self::Network(_) | Self::Nodes(_) => None,
        }
    }
}
