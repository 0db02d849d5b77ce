//! Why a network can't be lowered.

use thiserror::Error;
use vta_isa::{Extension, FieldError};

use crate::qgraph::HostNeeds;
use crate::refusals::together;

/// A graph that can't be lowered for a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LowerError {
    /// A node at fault.
    #[error("node {node}: {fault}")]
    Node {
        /// The node.
        node: String,
        /// Why.
        fault: Fault,
    },
    /// Nodes that the device has no operation for, but the host has.
    #[error(
        "the device has no operator for {} of the nodes ({}; the first is {})",
        .0.nodes, .0.kinds, .0.first
    )]
    Host(HostNeeds),
    /// The network as a whole.
    #[error("{0}")]
    Network(String),
    /// Several nodes, each for a reason of its own.
    #[error("{}", together(.0.iter().map(|e| (e.node(), e.to_string()))))]
    Nodes(Vec<LowerError>),
}

/// Why a node can't be lowered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// No tile fits the scratchpads or the instruction fields: which limit, with figures.
    #[error("{0}")]
    NoTile(String),
    /// Its tensors or vectors contradict each other.
    #[error("its shapes or lane operations are inconsistent: {0}")]
    Inconsistent(String),
    /// A field doesn't fit its bits.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// It needs what the configuration's machine lacks.
    #[error("{reason}, and this machine has no {extension}{hint}")]
    Lacks {
        /// What it does.
        reason: String,
        /// What that needs.
        extension: Extension,
        /// What to do, after a colon, or nothing.
        hint: &'static str,
    },
    /// What can't be: a fault of the compiler.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Fault {
    /// What a machine without an extension can't do.
    pub(super) fn lacks(reason: impl Into<String>, extension: Extension) -> Self {
        Self::Lacks {
            reason: reason.into(),
            extension,
            hint: "",
        }
    }

    /// The fault of a node.
    pub(super) fn of(self, node: &str) -> LowerError {
        let node = node.to_owned();
        LowerError::Node { node, fault: self }
    }
}

impl LowerError {
    /// Whether no tile fits a node.
    pub(super) const fn is_no_tile(&self) -> bool {
        matches!(
            self,
            Self::Node {
                fault: Fault::NoTile(_),
                ..
            }
        )
    }

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
            Self::Node { node, .. } => Some(node),
            Self::Host(_) | Self::Network(_) | Self::Nodes(_) => None,
        }
    }
}
