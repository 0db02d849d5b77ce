//! The nodes of a file: their names, uses and order.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use vta_files::printable;

use crate::graph::ValueId;
use crate::onnx::{OnnxError, proto};

/// Names of a file are shown in listings, tables and errors: what could move a terminal's cursor
/// becomes an escape, everywhere alike.
pub(super) fn escape_names(graph: &mut proto::Graph) {
    let escape = |name: &mut String| {
        if let Cow::Owned(shown) = printable(name) {
            *name = shown;
        }
    };
    escape(&mut graph.name);
    for node in &mut graph.node {
        let names = node.input.iter_mut().chain(&mut node.output);
        names.for_each(escape);
        for name in [&mut node.name, &mut node.op_type, &mut node.domain] {
            escape(name);
        }
        let branches = node.attribute.iter_mut().filter_map(|a| a.g.as_mut());
        branches.for_each(escape_names);
    }
    graph
        .initializer
        .iter_mut()
        .for_each(|t| escape(&mut t.name));
    let ends = graph.input.iter_mut().chain(&mut graph.output);
    let infos = ends.chain(&mut graph.value_info);
    infos.for_each(|info| escape(&mut info.name));
}

/// All names of values.
pub(super) fn names(graph: &proto::Graph) -> HashSet<String> {
    let nodes = graph.node.iter();
    let nodes = nodes.flat_map(|node| node.input.iter().chain(&node.output));
    let tensors = graph.initializer.iter().map(|tensor| &tensor.name);
    let ends = graph.input.iter().chain(&graph.output);
    let ends = ends.map(|info| &info.name);
    nodes.chain(tensors).chain(ends).cloned().collect()
}

/// A name that nothing has yet.
pub(super) fn fresh(names: &mut HashSet<String>, mut name: String) -> String {
    while !names.insert(name.clone()) {
        name.push('\'');
    }
    name
}

/// The nodes of a node's branches and bodies, and of those inside these.
pub(super) fn inner(node: &proto::Node) -> Vec<&proto::Node> {
    let mut found = Vec::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        open.extend(graphs(node).flat_map(|graph| &graph.node));
        found.push(node);
    }
    found.split_off(1)
}

/// The branches or the body of a node.
pub(super) fn graphs(node: &proto::Node) -> impl Iterator<Item = &proto::Graph> {
    node.attribute.iter().filter_map(|a| a.g.as_ref())
}

/// Names that a node reads, its branches and bodies counted.
pub(in crate::onnx) fn read(node: &proto::Node) -> impl Iterator<Item = &String> {
    let all = inner(node);
    let given = std::iter::once(node).chain(all.clone()).flat_map(graphs);
    let given = given.flat_map(|graph| graph.output.iter().map(|output| &output.name));
    let inside = all.into_iter().flat_map(|node| &node.input);
    node.input.iter().chain(inside).chain(given)
}

/// How often nodes and the outputs name each value.
pub(super) fn uses(proto: &proto::Graph) -> HashMap<&String, usize> {
    let mut uses = HashMap::new();
    let named = proto.node.iter().flat_map(read);
    for name in named.chain(proto.output.iter().map(|o| &o.name)) {
        *uses.entry(name).or_insert(0) += 1;
    }
    uses
}

/// Nodes in topological order; a file may list them in any.
pub(super) fn sorted<'a>(
    nodes: &'a [proto::Node],
    known: &HashMap<String, ValueId>,
) -> Result<Vec<&'a proto::Node>, OnnxError> {
    let mut producer: HashMap<&str, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            producer.insert(output, index);
        }
    }
    let mut waiting = vec![0usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        let is_open = |i: &&String| !i.is_empty() && !known.contains_key(*i);
        for (at, input) in read(node).enumerate().filter(|(_, i)| is_open(i)) {
            let from = match producer.get(input.as_str()) {
                Some(&from) if from != index => from,
                // What a branch makes and reads itself.
                _ if at >= node.input.len() => continue,
                Some(&from) => from,
                None => {
                    let text = format!("input {input} is made by no node");
                    return Err(node_error(node, text));
                }
            };
            waiting[index] += 1;
            users[from].push(index);
        }
    }
    // The smallest ready index first keeps the file's order where it is topological.
    let ready = waiting
        .iter()
        .enumerate()
        .filter(|(_, n)| **n == 0)
        .map(|(i, _)| i);
    let mut ready: BTreeSet<usize> = ready.collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(index) = ready.pop_first() {
        order.push(&nodes[index]);
        for &user in &users[index] {
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.insert(user);
            }
        }
    }
    match waiting.iter().position(|&n| n > 0) {
        None => Ok(order),
        Some(index) => Err(node_error(
            &nodes[index],
            "it is part of a cycle".to_owned(),
        )),
    }
}

/// What is wrong with a node, by its name or its output's.
pub(super) fn node_error(node: &proto::Node, reason: String) -> OnnxError {
    let mut names = std::iter::once(&node.name).chain(&node.output);
    let node_name = names.find(|name| !name.is_empty());
    let node_name = node_name.cloned().unwrap_or_default();
    OnnxError::Node {
        node: node_name,
        op: node.op_type.clone(),
        reason,
    }
}
