//! ONNX files: reading into a [`Graph`](crate::graph::Graph) and writing one.
//!
//! Opsets 6 to 28 of the default domain, float graphs and their QDQ form. The batch is 1; one that a file leaves open is open again in what [`save`] writes.

mod batch;
mod bias;
mod cut;
mod elements;
mod export;
mod external;
pub(crate) mod import;
mod interface;
mod newer;
mod pads;
pub(crate) mod proto;
mod prune;
mod sequences;
mod shuffle;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;

use thiserror::Error;

use crate::refusals::together;

pub(crate) use batch::KEY as BATCH;
pub use cut::{CutError, Part, cut};
pub(crate) use elements::{data_type, element, elements};
pub(crate) use export::with_unique_names;
pub use export::{save, save_with_outputs};
pub(crate) use external::External;
pub(crate) use import::read_tensor;
pub use import::{Given, Partial, load, load_part};
pub use interface::{Interface, Port, interface};

/// What a file doesn't say of itself.
#[derive(Clone)]
pub struct ReadOptions<'a> {
    /// Shapes of inputs by name, for dimensions that the file leaves open; an empty name is the only
    /// input's. A batch of another size than 1 may be cut to 1.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// The model's folder: tensors may lie in files in it and below it.
    pub folder: Option<&'a Path>,
    /// Asked before so many bytes of such a file are read; an error says why they can't be.
    pub ask: &'a dyn Fn(u64) -> Result<(), String>,
}

impl Default for ReadOptions<'_> {
    /// Shapes as the file has them, no other files.
    fn default() -> Self {
        Self {
            shapes: BTreeMap::new(),
            folder: None,
            ask: &|_| Ok(()),
        }
    }
}

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
    /// Several nodes, each for a reason of its own.
    #[error("ONNX {}{}", together(.nodes.iter().map(OnnxError::told)), unread(*.behind))]
    Nodes {
        /// The errors.
        nodes: Vec<OnnxError>,
        /// Nodes that weren't read, since they depend on these.
        behind: usize,
    },
}

fn unread(behind: usize) -> String {
    match behind {
        0 => String::new(),
        1 => "; a node behind them wasn't read".to_owned(),
        n => format!("; {n} nodes behind them weren't read"),
    }
}

impl OnnxError {
    /// The errors that it consists of: each of one node, or of the model as a whole.
    pub fn each(&self) -> &[Self] {
        match self {
            Self::Nodes { nodes, .. } => nodes,
            _ => std::slice::from_ref(self),
        }
    }

    /// The name of the node at fault, and the message without the word ONNX.
    fn told(&self) -> (Option<&str>, String) {
        let text = self.to_string();
        let text = text.strip_prefix("ONNX ").unwrap_or(&text).to_owned();
        match self {
            Self::Node { node, .. } => (Some(node), text),
            _ => (None, text),
        }
    }
}
