//! Why there is no such network.

use thiserror::Error;

use crate::passes::PassError;
use crate::quantize::QuantizeError;

/// The networks.
pub const NAMES: [&str; 7] = [
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50",
    "mobilenet-v1",
];

/// A network that isn't there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ZooError {
    /// Unknown name.
    #[error("no network '{name}' in the zoo (there are {})", NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// Its scales can't be applied.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// A topology that contradicts itself: a fault of the zoo.
    #[error("zoo: internal error: the window of {node} doesn't fit its input")]
    Window {
        /// The node.
        node: String,
    },
    /// Recorded scales that contradict the topology: a fault of the zoo.
    #[error("zoo: internal error: the scales of {0} aren't those of its layers")]
    Scales(String),
    /// The outline can't be planned.
    #[error(transparent)]
    Passes(#[from] PassError),
}
