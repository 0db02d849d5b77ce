//! Where nodes can be placed, and why one can't.

use std::collections::BTreeSet;

use thiserror::Error;
use vta_isa::Config;

use crate::lower::LowerError;

/// Index into the targets that a network is placed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub usize);

/// A device that nodes can be placed on, or the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The name that rules use.
    pub name: String,
    /// Its VTA instance.
    pub config: Config,
    /// Kinds of nodes that it can't run, as [`QOp::kind`](crate::qgraph::QOp::kind) names them.
    pub lacks: BTreeSet<String>,
    /// It is the host, which runs what no device can and nothing else.
    pub host: bool,
}

impl Target {
    /// A device that runs everything.
    pub fn new(name: impl Into<String>, config: Config) -> Self {
        Self {
            name: name.into(),
            config,
            lacks: BTreeSet::new(),
            host: false,
        }
    }

    /// The host, beside devices of a configuration.
    pub fn host(config: Config) -> Self {
        Self {
            host: true,
            ..Self::new("host", config)
        }
    }
}

/// A placement that isn't possible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// No target at all.
    #[error("placement: there is no device")]
    NoDevice,
    /// No target runs the node, or not the one that a rule names.
    #[error("node {node} ({kind}): {reason}")]
    Node {
        /// The node.
        node: String,
        /// Its kind.
        kind: String,
        /// Why.
        reason: String,
    },
    /// No target is the host, which alone computes the node.
    #[error("node {node} ({kind}): no device has such an operator")]
    Host {
        /// The node.
        node: String,
        /// Its operators.
        kind: String,
    },
    /// The rules can't be used.
    #[error("placement rules: {0}")]
    Rules(String),
    /// A node reads what no earlier node writes.
    #[error("placement: node {node} reads a tensor that nothing before it writes")]
    Order {
        /// The node.
        node: String,
    },
    /// Targets differ in what their images share.
    #[error("placement: {a} has a batch of {batch_a}, {b} of {batch_b}")]
    Batch {
        /// The first target.
        a: String,
        /// Its BATCH.
        batch_a: usize,
        /// The other.
        b: String,
        /// Its BATCH.
        batch_b: usize,
    },
    /// What can't be: a fault of the compiler.
    #[error("placement: internal error: {0}")]
    Internal(String),
    /// A device's nodes can't be lowered.
    #[error("device {device}: {source}")]
    Lower {
        /// The device.
        device: String,
        /// The cause.
        source: LowerError,
    },
}
