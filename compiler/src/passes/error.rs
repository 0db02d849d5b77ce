//! Why a graph can't become an integer graph.

use thiserror::Error;

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
}
