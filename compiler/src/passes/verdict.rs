//! What becomes of each node of a graph: the device's, the host's, or refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::error::PassError;
use super::net::{Net, NetOp};
use super::{TABLES, import, planned};
use crate::graph::{Graph, ValueId};
use crate::operators::fields::Steps;
use crate::qgraph::QGraph;

/// What becomes of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The device computes it, maybe as a part of another node.
    Device,
    /// The host does, where it is allowed.
    Host {
        /// Why the device doesn't, in words.
        reason: String,
    },
    /// Nothing does.
    Refused {
        /// Why, in words.
        reason: String,
    },
    /// It depends on a node that is refused.
    Behind,
}

/// A graph that was judged.
pub struct Judged {
    /// One for each of its nodes.
    pub nodes: Vec<Verdict>,
    /// The integer graph, or all that is refused.
    pub network: Result<QGraph, PassError>,
}

/// Why the host computes what the device could.
const BETWEEN: &str = "operators of the host read it as floats";
/// Why, where it is quicker.
const TABLE: &str = "with what it reads it is a table of the host";

/// Says of each node of a QDQ graph what becomes of it. The verdicts are those of
/// [`quantized`](super::quantized), which reads the graph in the same way.
pub fn judged(graph: &Graph) -> Judged {
    let read = import::import(graph);
    let mut verdicts = vec![Verdict::Device; graph.nodes.len()];
    let on_device: BTreeSet<String> = match &read.net {
        Ok(net) => {
            let device = net
                .nodes
                .iter()
                .filter(|n| !matches!(n.op, NetOp::Host { .. }));
            device.map(|n| n.name.clone()).collect()
        }
        Err(_) => BTreeSet::new(),
    };
    for &index in &read.hosted {
        if !on_device.contains(&graph.nodes[index].name) {
            let reason = BETWEEN.to_owned();
            verdicts[index] = Verdict::Host { reason };
        }
    }
    for (&index, error) in &read.refused {
        let reason = error.reason();
        verdicts[index] = Verdict::Host { reason };
    }
    for &index in &read.behind {
        verdicts[index] = Verdict::Behind;
    }
    let mut tables = BTreeSet::new();
    let network = read.net.and_then(|net| {
        planned(net, &mut |name, net| {
            if name == TABLES {
                tables = of_host(net)
                    .filter(|name| on_device.contains(name))
                    .collect();
            }
        })
    });
    give(graph, &tables, &on_device, &mut verdicts);
    if let Err(error) = &network {
        refuse(graph, error, &mut verdicts);
    }
    Judged {
        nodes: verdicts,
        network,
    }
}

/// The names of all nodes that the host computes.
fn of_host(net: &Net) -> impl Iterator<Item = String> {
    let names = net.nodes.iter().filter_map(|node| match &node.op {
        NetOp::Host { part, .. } => {
            let inside = part.nodes.iter().map(|node| &node.name);
            Some(inside.chain([&node.name]).cloned().collect::<Vec<_>>())
        }
        _ => None,
    });
    names.flatten()
}

/// Marks nodes in tables, and the activation functions that belong to them.
fn give(
    graph: &Graph,
    tables: &BTreeSet<String>,
    on_device: &BTreeSet<String>,
    verdicts: &mut [Verdict],
) {
    let mut given: BTreeSet<ValueId> = BTreeSet::new();
    for (node, verdict) in graph.nodes.iter().zip(verdicts) {
        let of_given = || node.inputs.first().is_some_and(|id| given.contains(id));
        let belongs = node.op.facts().steps == Steps::Activation
            && !on_device.contains(&node.name)
            && of_given();
        if *verdict == Verdict::Device && (tables.contains(&node.name) || belongs) {
            let reason = TABLE.to_owned();
            *verdict = Verdict::Host { reason };
            given.insert(node.output);
        }
    }
}

/// Marks the nodes that errors name.
fn refuse(graph: &Graph, error: &PassError, verdicts: &mut [Verdict]) {
    let mut named: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        named.entry(&node.name).or_insert(index);
    }
    let faults = error.each().iter().filter_map(|e| Some((e.node()?, e)));
    let faults = faults.filter_map(|(name, e)| Some((*named.get(name)?, e)));
    let faults: BTreeMap<usize, &PassError> = faults.collect();
    for (index, error) in faults {
        let reason = error.reason();
        verdicts[index] = Verdict::Refused { reason };
    }
}
