//! Operators of onnxruntime whose channels lie last, between Transposes.
//!
//! What one of them gives another one takes as it is. What lies between them and others is turned, as integers, which
//! changes no value.

use std::collections::{HashMap, HashSet};

use super::order::{fresh, names};
use crate::onnx::proto::{ATTRIBUTE_INTS, Attribute, Graph, Node};

/// Rewrites all of them, in time linear in the number of nodes.
pub(super) fn turn(graph: &mut Graph) {
    let is_last = |node: &Node| {
        let last = node.find("channels_last").is_some_and(|a| a.i != 0);
        node.domain == "com.microsoft" && (last || node.op_type == "NhwcMaxPool")
    };
    if !graph.node.iter().any(is_last) {
        return;
    }
    let ranks = graph.initializer.iter();
    let ranks = ranks.map(|tensor| (tensor.name.clone(), tensor.dims.len()));
    let mut ranks: HashMap<String, usize> = ranks.collect();
    let mut names = names(graph);
    // Values by the names of those that have the same channels last.
    let mut first: HashMap<String, String> = HashMap::new();
    for mut node in std::mem::take(&mut graph.node) {
        let rank = rank(&node, &ranks).filter(|rank| (3..=5).contains(rank));
        let (true, Some(rank), [output]) = (is_last(&node), rank, &node.output[..]) else {
            graph.node.push(node);
            continue;
        };
        let (output, last) = (output.clone(), rank as i64 - 1);
        let Some(input) = node.input.first_mut() else {
            graph.node.push(node);
            continue;
        };
        let known = first.get(input).cloned();
        let turned = known.unwrap_or_else(|| {
            let order = [0, last].into_iter().chain(1..last);
            let turned = transposed(graph, &mut names, input, None, order.collect());
            first.insert(input.clone(), turned.clone());
            turned
        });
        *input = turned;
        let own = fresh(&mut names, format!("{output}/first"));
        node.output = vec![own.clone()];
        node.attribute.retain(|a| a.name != "channels_last");
        if node.op_type == "NhwcMaxPool" {
            "MaxPool".clone_into(&mut node.op_type);
            node.domain.clear();
        }
        graph.node.push(node);
        let order = std::iter::once(0).chain(2..=last).chain([1]);
        transposed(graph, &mut names, &own, Some(&output), order.collect());
        ranks.insert(output.clone(), rank);
        first.insert(output, own);
    }
}

/// The dimensions of what a node goes over; `None` where nothing says them.
fn rank(node: &Node, ranks: &HashMap<String, usize>) -> Option<usize> {
    match &node.op_type[..] {
        "QLinearConv" => ranks.get(node.input.get(3)?).copied(),
        // Of planes, unless it is known.
        "QLinearGlobalAveragePool" => Some(ranks.get(node.input.first()?).copied().unwrap_or(4)),
        _ => Some(node.find("kernel_shape")?.ints.len() + 2),
    }
}

/// Adds a Transpose; the name of what it gives.
fn transposed(
    graph: &mut Graph,
    names: &mut HashSet<String>,
    from: &str,
    to: Option<&str>,
    ints: Vec<i64>,
) -> String {
    let to = to.map_or_else(|| fresh(names, format!("{from}/first")), str::to_owned);
    graph.node.push(Node {
        input: vec![from.to_owned()],
        output: vec![to.clone()],
        name: format!("{to}/Transpose"),
        op_type: "Transpose".to_owned(),
        attribute: vec![Attribute {
            name: "perm".to_owned(),
            ints,
            kind: ATTRIBUTE_INTS,
            ..Attribute::default()
        }],
        domain: String::new(),
    });
    to
}
