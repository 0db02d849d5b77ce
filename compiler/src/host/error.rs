//! What the host can't compute.

use thiserror::Error;

use crate::engine::EngineError;
use crate::onnx::{OnnxError, Port};

/// What is no segment, or can't be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostError {
    /// The model can't be read.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// The engine can't load or run it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A model that reads or writes what no device has, or lists no nodes.
    #[error("{0}")]
    Form(String),
    /// Inputs that aren't its own.
    #[error("its inputs have {expected:?} values, not {found:?}")]
    Inputs {
        /// Values of each.
        expected: Vec<usize>,
        /// Values given.
        found: Vec<usize>,
    },
    /// An output that isn't what the model says.
    #[error("output {0} is of another type or size")]
    Output(String),
}

impl HostError {
    /// A tensor of a type or size that isn't taken.
    pub(super) fn port(port: &Port) -> Self {
        Self::Form(format!(
            "{} is {:?} {:?}",
            port.name, port.element, port.shape
        ))
    }
}
