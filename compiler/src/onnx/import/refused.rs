//! Nodes that nothing computes: all of them are told, not only the first.

use std::collections::{BTreeSet, HashSet};

use super::state::Import;
use crate::graph::{Graph, ValueId};
use crate::onnx::{OnnxError, proto};

/// Refused nodes after which no more are read.
const MAX_REFUSED: usize = 1000;

/// Why an operator isn't computed whose output has as many values as its input says.
pub(super) const FOUND: &str =
    "how many values it gives depends on its input: cut the model before it";

/// A model as far as it can be read: before the nodes that nothing computes.
pub struct Partial {
    /// What can be read. It gives the values that the refused nodes would read, too.
    pub graph: Graph,
    /// An error for each refused node.
    pub refused: Vec<OnnxError>,
    /// Nodes that weren't read, since they depend on these.
    pub behind: usize,
    /// The values that the refused nodes, and those behind them, would read.
    pub ends: Vec<String>,
}

impl Partial {
    /// The whole model.
    ///
    /// # Errors
    /// That of the only node that is refused, or [`OnnxError::Nodes`].
    pub fn whole(mut self) -> Result<Graph, OnnxError> {
        match self.refused.len() {
            0 => Ok(self.graph),
            1 => Err(self.refused.remove(0)),
            _ => Err(OnnxError::Nodes {
                nodes: self.refused,
                behind: self.behind,
            }),
        }
    }
}

/// Nodes that weren't read.
#[derive(Default)]
pub(super) struct Refused {
    pub errors: Vec<OnnxError>,
    pub behind: usize,
    /// What they would read that is computed.
    pub reads: BTreeSet<ValueId>,
}

impl<'a> Import<'a> {
    /// Reads nodes in their order. Behind one that is refused those that depend on it are passed
    /// over.
    ///
    /// # Errors
    /// What is of no node.
    pub(super) fn nodes(&mut self, nodes: Vec<&'a proto::Node>) -> Result<Refused, OnnxError> {
        let mut refused = Refused::default();
        let mut blocked: HashSet<&str> = HashSet::new();
        for (index, node) in nodes.into_iter().enumerate() {
            if node.input.iter().any(|name| blocked.contains(&name[..])) {
                refused.behind += 1;
            } else {
                match self.node(node, index) {
                    Ok(()) => continue,
                    Err(error @ OnnxError::Node { .. }) => refused.errors.push(error),
                    Err(error) if refused.errors.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
            let read = node.input.iter().filter_map(|name| self.names.get(name));
            let computed = read.filter(|id| self.maker(**id).is_some());
            refused.reads.extend(computed);
            if refused.errors.len() == MAX_REFUSED {
                break;
            }
            let outputs = node.output.iter().filter(|name| !name.is_empty());
            blocked.extend(outputs.map(String::as_str));
        }
        Ok(refused)
    }
}

/// Why no one computes an operator of no known name, and what would help.
pub(super) fn unknown(node: &proto::Node) -> String {
    const UNKNOWN: &str = "neither the device nor the host has this operator";
    let help = match &node.op_type[..] {
        _ if !node.domain.is_empty() && node.domain != "ai.onnx" => {
            let domain = &node.domain;
            return format!("{UNKNOWN} (of {domain}): save the model with ONNX's own operators");
        }
        "If" | "Scan" => "export the model with fixed shapes, so that no branch or loop is left",
        "NonMaxSuppression" | "Unique" | "Compress" => FOUND,
        _ => "cut the model before it",
    };
    format!("{UNKNOWN}: {help}")
}
