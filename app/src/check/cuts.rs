//! Where a model with refused nodes can be cut: the part between them that leaves most to the device.

use std::collections::{BTreeMap, HashMap, HashSet};

use vta_compiler::graph::{Graph, ValueId};
use vta_compiler::onnx::Given;
use vta_compiler::passes::Verdict;

/// A part of a network, for [`crate::cut`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Values that it begins at.
    pub inputs: Vec<String>,
    /// Values that it ends at.
    pub outputs: Vec<String>,
    /// Its nodes on the device.
    pub device_nodes: usize,
    /// Their multiply-adds for one image.
    pub device_macs: u64,
}

/// How many refused nodes lie before each value at most; constants have no entry. What lies between two of them, as
/// many behind, reads only what is computed before it.
fn levels(graph: &Graph, verdicts: &[Verdict], given: &[Given]) -> HashMap<ValueId, usize> {
    let names = graph
        .values
        .iter()
        .enumerate()
        .map(|(at, value)| (&value.name, ValueId(at)));
    let names: HashMap<&String, ValueId> = names.collect();
    let mut levels: HashMap<ValueId, usize> = HashMap::new();
    let mut waiting: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
    for stand_in in given {
        if let Some(value) = names.get(&stand_in.value) {
            let reads = stand_in
                .reads
                .iter()
                .filter_map(|name| names.get(name).copied());
            waiting.insert(*value, reads.collect());
        }
    }
    let inputs = graph.inputs.iter().filter(|id| !waiting.contains_key(id));
    levels.extend(inputs.map(|id| (*id, 0)));
    for (node, verdict) in graph.nodes.iter().zip(verdicts) {
        // One stand-in may be read by the refused node of another.
        let mut open: Vec<ValueId> = node.inputs.clone();
        let mut order = Vec::new();
        while let Some(id) = open.pop() {
            if let Some(reads) = waiting.get(&id).filter(|_| !order.contains(&id)) {
                order.push(id);
                open.extend(reads);
            }
        }
        for id in order.into_iter().rev() {
            let before = waiting.remove(&id).unwrap_or_default();
            let most = before.iter().filter_map(|id| levels.get(id)).max();
            levels.insert(id, most.map_or(1, |most| most + 1));
        }
        let most = node.inputs.iter().filter_map(|id| levels.get(id)).max();
        if let Some(&most) = most {
            let refused = usize::from(matches!(verdict, Verdict::Refused { .. }));
            levels.insert(node.output, most + refused);
        }
    }
    levels
}

/// The part with most multiply-adds on the device, of nodes that lie behind as many refused ones; nothing where the
/// device computes none.
pub(super) fn largest(graph: &Graph, verdicts: &[Verdict], given: &[Given]) -> Option<Cut> {
    let levels = levels(graph, verdicts, given);
    let all = || graph.nodes.iter().zip(verdicts);
    let mut parts: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
    for (node, _) in all().filter(|(_, verdict)| **verdict == Verdict::Device) {
        if let Some(level) = levels.get(&node.output) {
            let part = parts.entry(*level).or_default();
            *part = (part.0.saturating_add(graph.node_macs(node)), part.1 + 1);
        }
    }
    // Of equal parts the first.
    let best = parts.into_iter().rev().max_by_key(|(_, part)| *part);
    let (level, (device_macs, device_nodes)) = best?;
    let is_refused = |verdict: &Verdict| matches!(verdict, Verdict::Refused { .. });
    let inside = |(node, verdict): &(&vta_compiler::graph::Node, &Verdict)| {
        levels.get(&node.output) == Some(&level) && !is_refused(verdict)
    };
    let made: HashSet<ValueId> = all().filter(inside).map(|(node, _)| node.output).collect();
    let mut begins: Vec<ValueId> = Vec::new();
    let mut read: HashSet<ValueId> = graph.outputs.iter().copied().collect();
    for (node, verdict) in all() {
        if !inside(&(node, verdict)) {
            read.extend(&node.inputs);
            continue;
        }
        let outside = node
            .inputs
            .iter()
            .filter(|id| levels.contains_key(id) && !made.contains(id));
        for id in outside {
            if !begins.contains(id) {
                begins.push(*id);
            }
        }
    }
    let name = |id: ValueId| graph.values[id.0].name.clone();
    let ends = graph.nodes.iter().map(|node| node.output);
    let ends = ends.filter(|id| made.contains(id) && read.contains(id));
    Some(Cut {
        inputs: begins.into_iter().map(name).collect(),
        outputs: ends.map(name).collect(),
        device_nodes,
        device_macs,
    })
}
