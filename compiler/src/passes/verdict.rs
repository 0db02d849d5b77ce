//! What becomes of each node of a graph: the device's, the host's, or refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::error::PassError;
use super::net::NetOp;
use super::{import, planned};
use crate::graph::Graph;
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
    let network = read.net.and_then(|net| planned(net, &mut |_, _| {}));
    if let Err(error) = &network {
        refuse(graph, error, &mut verdicts);
    }
    Judged {
        nodes: verdicts,
        network,
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
