//! ONNX files: reading into a [`Graph`](crate::graph::Graph) and writing one.
//!
//! Opsets 7 to 25 of the default domain, float32 graphs and their QDQ form. The batch is 1.

mod bias;
mod export;
mod host;
mod import;
mod proto;
mod shape;

use thiserror::Error;

pub use export::save;
pub use import::load;

/// The largest number of elements that a tensor may have.
pub const MAX_ELEMENTS: usize = 1 << 28;

/// A file that isn't a supported ONNX model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// Not protobuf, or truncated.
    #[error("ONNX: not a model file, or truncated: {0}")]
    Decode(String),
    /// The model as a whole can't be read.
    #[error("ONNX: {0}")]
    Model(String),
    /// A tensor is malformed.
    #[error("ONNX tensor {tensor}: {reason}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// A node is malformed or asks for what isn't supported.
    #[error("ONNX node {node} ({op}): {reason}")]
    Node {
        /// Its name.
        node: String,
        /// Its operator.
        op: String,
        /// What is wrong.
        reason: String,
    },
}
