//! Which device runs which node, and what travels between devices.
//!
//! The host may be one of the places, for nodes of which devices know no operation. It computes
//! between batches: what it reads comes from a device's memory, and what it writes goes there.
//!
//! Convolutions and dense layers run on the first device of a list that can run them, or where a
//! rule says. The other nodes follow their neighbours: of all placements that leave the fixed
//! nodes where they are, [`place`] takes one with the fewest copies, where a tensor that several
//! nodes of another device read travels once; among these one with the fewest values copied. It
//! depends on which nodes and edges there are, not on the order of a node's arguments, and is the
//! same on every machine: among placements that cost the same it prefers the devices that stand
//! first.
//!
//! With two devices the fewest copies are a minimum cut of the graph; with more, every pair of
//! devices in turn is improved by one until none gets better, so that no exchange between two
//! devices saves a copy.

mod cut;
mod rules;
mod split;

use std::collections::BTreeSet;

use thiserror::Error;
use vta_isa::Config;

use crate::lower::LowerError;
use crate::qgraph::{QGraph, QOp, TensorId};

pub use rules::Rules;
pub use split::{TilesOf, compile, compile_with};

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
    /// The rules can't be used.
    #[error("placement rules: {0}")]
    Rules(String),
    /// A node reads what no earlier node writes.
    #[error("placement: node {node} reads a tensor that nothing before it writes")]
    Order {
        /// The node.
        node: String,
    },
    /// Only networks with one input can be split.
    #[error("placement: the network has {inputs} inputs, not one")]
    Inputs {
        /// How many it has.
        inputs: usize,
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
    /// A device's nodes can't be lowered.
    #[error("device {device}: {source}")]
    Lower {
        /// The device.
        device: String,
        /// The cause.
        source: LowerError,
    },
}

/// A tensor that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TensorCopy {
    /// The tensor.
    pub tensor: TensorId,
    /// Index of the target that writes it.
    pub from: usize,
    /// Index of the target that reads it.
    pub to: usize,
}

/// Where every node of a network runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Index of each node's target.
    pub targets: Vec<usize>,
    /// By tensor, then target: exactly where a reader is elsewhere than the writer. The network's
    /// inputs aren't among them, since the host writes them to every target that reads them.
    pub copies: Vec<TensorCopy>,
}

/// What is known of a node before propagation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// It runs there.
    Fixed(usize),
    /// It may run on any of these, ascending and at least two, and follows its neighbours.
    Free(Vec<usize>),
}

/// Why a node of the host has no place.
const NEEDS_HOST: &str =
    "no device has such an operator; `vta run --allow-host` lets the host compute it";

/// Says of each node what it can run on: a rule's device; the first that can for convolutions,
/// dense layers and what only one device can run; any that can for the rest.
///
/// # Errors
/// [`PlacementError::Node`] when no device can run a node or a rule's can't;
/// [`PlacementError::Rules`] when rules contradict each other, name an unknown device or fit no
/// layer.
pub fn annotate(
    graph: &QGraph,
    targets: &[Target],
    rules: &Rules,
) -> Result<Vec<Annotation>, PlacementError> {
    if targets.is_empty() {
        return Err(PlacementError::NoDevice);
    }
    rules.check(targets, graph)?;
    let annotation = |node: &crate::qgraph::QNode| {
        let kind = node.op.kind();
        let host_op = match &node.op {
            QOp::Host { op, .. } => Some(op.name()),
            _ => None,
        };
        let fail = |reason: String| PlacementError::Node {
            node: node.name.clone(),
            kind: host_op.unwrap_or(kind).to_owned(),
            reason,
        };
        let can: Vec<usize> = (0..targets.len())
            .filter(|&t| targets[t].host == host_op.is_some() && !targets[t].lacks.contains(kind))
            .collect();
        if let Some(device) = rules.device_of(&node.name)? {
            let target = can.iter().find(|&&t| targets[t].name == device);
            return match target {
                Some(&target) => Ok(Annotation::Fixed(target)),
                None => Err(fail(format!("a rule wants {device}, which can't run it"))),
            };
        }
        let anchor = matches!(kind, "conv" | "dense");
        match can[..] {
            [] if host_op.is_some() => Err(fail(NEEDS_HOST.to_owned())),
            [] => Err(fail("no device can run it".to_owned())),
            [first, ..] if anchor || can.len() == 1 => Ok(Annotation::Fixed(first)),
            _ => Ok(Annotation::Free(can)),
        }
    };
    graph.nodes.iter().map(annotation).collect()
}

/// Places every node of a network.
///
/// ```
/// use vta_compiler::placement::{Rules, Target, place};
/// use vta_compiler::{passes, zoo};
/// use vta_isa::Config;
///
/// let graph = passes::quantized(&zoo::graph("resnet18")?)?;
/// let targets = ["opencl", "sim"].map(|name| Target::new(name, Config::default()));
/// // Everything on the first device that can run it: nothing travels.
/// let placement = place(&graph, &targets, &Rules::default())?;
/// assert!(placement.copies.is_empty() && placement.targets.iter().all(|&t| t == 0));
///
/// // The last layer elsewhere: one tensor travels.
/// let last = &graph.nodes.last().expect("a network").name;
/// let rules = Rules::from_toml(&format!("\"{last}\" = \"sim\""))?;
/// assert_eq!(place(&graph, &targets, &rules)?.copies.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`annotate`]; [`PlacementError::Order`] for a graph that isn't in execution order.
pub fn place(
    graph: &QGraph,
    targets: &[Target],
    rules: &Rules,
) -> Result<Placement, PlacementError> {
    let annotations = annotate(graph, targets, rules)?;
    let uses = Uses::of(graph)?;
    let placed = cut::propagate(&annotations, &uses, targets.len());
    Ok(Placement {
        copies: uses.copies(&placed),
        targets: placed,
    })
}

/// Who writes and who reads each tensor, as indices of nodes.
struct Uses {
    /// `None` for the network's inputs.
    writer: Vec<Option<usize>>,
    /// Ascending, each once.
    readers: Vec<Vec<usize>>,
    /// What it costs to copy each: one [`COPY`] and its values.
    cost: Vec<u128>,
}

/// More than all values of a network.
const COPY: u128 = 1 << 72;

impl Uses {
    fn of(graph: &QGraph) -> Result<Self, PlacementError> {
        let cost = |t: &crate::qgraph::QTensor| {
            let values = t.chw.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            COPY + values.map_or(u128::from(u64::MAX), |n| n as u128)
        };
        let n = graph.tensors.len();
        let mut uses = Self {
            writer: vec![None; n],
            readers: vec![Vec::new(); n],
            cost: graph.tensors.iter().map(cost).collect(),
        };
        let mut known = vec![false; n];
        for input in &graph.inputs {
            if let Some(known) = known.get_mut(input.0) {
                *known = true;
            }
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            let order = || PlacementError::Order {
                node: node.name.clone(),
            };
            for input in node.op.inputs() {
                if !known.get(input.0).is_some_and(|known| *known) {
                    return Err(order());
                }
                let readers = &mut uses.readers[input.0];
                if readers.last() != Some(&index) {
                    readers.push(index);
                }
            }
            let known = known.get_mut(node.output.0).ok_or_else(order)?;
            if std::mem::replace(known, true) {
                return Err(order());
            }
            uses.writer[node.output.0] = Some(index);
        }
        Ok(uses)
    }

    /// Other devices than the writer's that read a tensor; for an input all that read it.
    fn elsewhere(&self, tensor: usize, placed: &[usize]) -> BTreeSet<usize> {
        let readers = self.readers[tensor].iter().map(|&r| placed[r]);
        let home = self.writer[tensor].map(|w| placed[w]);
        readers.filter(|d| Some(*d) != home).collect()
    }

    fn copies(&self, placed: &[usize]) -> Vec<TensorCopy> {
        let mut copies = Vec::new();
        for (tensor, writer) in self.writer.iter().enumerate() {
            let Some(writer) = writer else { continue };
            for to in self.elsewhere(tensor, placed) {
                let (tensor, from) = (TensorId(tensor), placed[*writer]);
                copies.push(TensorCopy { tensor, from, to });
            }
        }
        copies
    }

    /// What placements are compared by: copies, and places that an input is written to beyond
    /// the first.
    fn cost(&self, placed: &[usize]) -> u128 {
        let cost = |(tensor, writer): (usize, &Option<usize>)| {
            let places = self.elsewhere(tensor, placed).len();
            let paid = places - usize::from(writer.is_none() && places > 0);
            paid as u128 * self.cost[tensor]
        };
        self.writer.iter().enumerate().map(cost).sum()
    }
}

#[cfg(test)]
mod tests;
