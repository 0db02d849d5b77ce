//! Why a graph can't become an integer graph.

use thiserror::Error;

use crate::refusals::together;
use crate::semantics::SemanticsError;

/// A graph that can't become an integer graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PassError {
    /// A node isn't quantised, or not in a supported way.
    #[error("node {node} ({op}): {reason}")]
    Node {
        /// The node's name.
        node: String,
        /// Its operator.
        op: String,
        /// Why.
        reason: String,
    },
    /// The graph as a whole.
    #[error("{0}")]
    Graph(String),
    /// What can't be: a fault of the compiler.
    #[error("node {node}: internal error: {reason}")]
    Internal {
        /// The node's name.
        node: String,
        /// What.
        reason: String,
    },
    /// No integer form keeps a node's arithmetic inside int32.
    #[error("node {node}: {source}")]
    Semantics {
        /// The node's name.
        node: String,
        /// The cause.
        source: SemanticsError,
    },
    /// Several nodes, each for a reason of its own.
    #[error("{}", together(.0.iter().map(|e| (e.node(), e.to_string()))))]
    Nodes(Vec<PassError>),
}

impl PassError {
    /// Errors of several nodes as one; `None` where there are none.
    pub(super) fn of(mut errors: Vec<Self>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(Self::Nodes(errors)),
        }
    }

    /// The errors that it consists of: each of one node, or of the graph as a whole.
    pub fn each(&self) -> &[Self] {
        match self {
            Self::Nodes(errors) => errors,
            _ => std::slice::from_ref(self),
        }
    }

    /// The name of the node at fault; `None` for the graph as a whole and for several.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Node { node, .. }
            | Self::Internal { node, .. }
            | Self::Semantics { node, .. } => Some(node),
            Self::Graph(_) | Self::Nodes(_) => None,
        }
    }

    /// Why, without the node's name.
    pub fn reason(&self) -> String {
        match self {
            Self::Node { reason, .. } => reason.clone(),
            Self::Semantics { source, .. } => source.to_string(),
            Self::Internal { reason, .. } => format!("internal error: {reason}"),
            Self::Graph(_) | Self::Nodes(_) => self.to_string(),
        }
    }
}
