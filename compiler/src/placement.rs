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
mod target;
mod uses;

use self::uses::Uses;
use crate::qgraph::{QGraph, QNode, QOp};

pub use rules::Rules;
pub use split::{TilesOf, compile, compile_with};
pub use target::{PlacementError, Target, TargetId};
pub use uses::TensorCopy;

/// Where every node of a network runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// By node.
    pub targets: Vec<TargetId>,
    /// By tensor, then target: exactly where a reader is elsewhere than the writer. The network's
    /// inputs aren't among them, since the host writes them to every target that reads them.
    pub copies: Vec<TensorCopy>,
}

/// The targets that each node may run on, ascending: a rule's device; the first that can for convolutions
/// and dense layers; all that can for the rest, which follows its neighbours and is on the first where nothing
/// pulls it elsewhere.
fn candidates(
    graph: &QGraph,
    targets: &[Target],
    rules: &Rules,
) -> Result<Vec<Vec<TargetId>>, PlacementError> {
    if targets.is_empty() {
        return Err(PlacementError::NoDevice);
    }
    rules.check(targets, graph)?;
    let of_node = |node: &QNode| {
        let kind = node.op.kind();
        let host_op = match &node.op {
            QOp::Host { segment, .. } => Some(segment.kinds().join(", ")),
            _ => None,
        };
        let fail = |reason: String| PlacementError::Node {
            node: node.name.clone(),
            kind: host_op.as_deref().unwrap_or(kind).to_owned(),
            reason,
        };
        let fits = |t: &Target| t.host == host_op.is_some() && !t.lacks.contains(kind);
        let can: Vec<TargetId> = (0..targets.len())
            .filter(|&t| fits(&targets[t]))
            .map(TargetId)
            .collect();
        if let Some(device) = rules.device_of(&node.name)? {
            let target = can.iter().find(|t| targets[t.0].name == device);
            return match target {
                Some(&target) => Ok(vec![target]),
                None => Err(fail(format!("a rule wants {device}, which can't run it"))),
            };
        }
        match can[..] {
            [] if host_op.is_some() => Err(PlacementError::Host {
                node: node.name.clone(),
                kind: host_op.unwrap_or_default(),
            }),
            [] => Err(fail("no device can run it".to_owned())),
            [first, ..] if matches!(kind, "conv" | "dense") => Ok(vec![first]),
            _ => Ok(can),
        }
    };
    graph.nodes.iter().map(of_node).collect()
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
/// assert!(placement.copies.is_empty() && placement.targets.iter().all(|t| t.0 == 0));
///
/// // The last layer elsewhere: one tensor travels.
/// let last = &graph.nodes.last().expect("a network").name;
/// let rules = Rules::from_toml(&format!("\"{last}\" = \"sim\""))?;
/// assert_eq!(place(&graph, &targets, &rules)?.copies.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PlacementError::Node`] when no device can run a node or a rule's can't;
/// [`PlacementError::Rules`] when rules contradict each other, name an unknown device or fit no
/// layer; [`PlacementError::Order`] for a graph that isn't in execution order.
pub fn place(
    graph: &QGraph,
    targets: &[Target],
    rules: &Rules,
) -> Result<Placement, PlacementError> {
    let can = candidates(graph, targets, rules)?;
    let uses = Uses::of(graph)?;
    let placed = cut::propagate(&can, &uses, targets.len());
    Ok(Placement {
        copies: uses.copies(&placed),
        targets: placed,
    })
}

#[cfg(test)]
mod tests;
