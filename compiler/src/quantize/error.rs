//! Why a graph can't be quantised.

use thiserror::Error;

use crate::float::FloatError;

/// A graph that can't be quantised.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// No calibration image.
    #[error("quantisation needs at least one calibration image")]
    NoImages,
    /// The graph is quantised already.
    #[error("the model is quantised already (node {node})")]
    Quantized {
        /// The first QuantizeLinear or DequantizeLinear.
        node: String,
    },
    /// Options that don't go together.
    #[error("{0}")]
    Options(String),
    /// A node that can't be quantised.
    #[error("node {node}: {reason}")]
    Node {
        /// The node.
        node: String,
        /// Why.
        reason: String,
    },
    /// A calibration image can't be read.
    #[error("{0}")]
    Image(String),
    /// A calibration image can't be run.
    #[error("calibration: {0}")]
    Float(#[from] FloatError),
}

impl QuantizeError {
    /// That of a node.
    pub(super) fn of(node: &str, reason: impl Into<String>) -> Self {
        Self::Node {
            node: node.to_owned(),
            reason: reason.into(),
        }
    }
}
