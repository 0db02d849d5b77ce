//! Nodes that nothing computes: all of them are told, not only the first.

use std::collections::HashSet;

use super::state::Import;
use crate::onnx::{OnnxError, proto};

/// Refused nodes after which no more are read.
const MAX_REFUSED: usize = 1000;

impl<'a> Import<'a> {
    /// Reads nodes in their order. Behind one that is refused those that depend on it are passed
    /// over.
    ///
    /// # Errors
    /// That of the only node that is refused, or [`OnnxError::Nodes`].
    pub(super) fn nodes(&mut self, nodes: Vec<&'a proto::Node>) -> Result<(), OnnxError> {
        let (mut refused, mut behind) = (Vec::new(), 0);
        let mut blocked: HashSet<&str> = HashSet::new();
        for (index, node) in nodes.into_iter().enumerate() {
            if node.input.iter().any(|name| blocked.contains(&name[..])) {
                behind += 1;
            } else {
                match self.node(node, index) {
                    Ok(()) => continue,
                    Err(error @ OnnxError::Node { .. }) => refused.push(error),
                    Err(error) if refused.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
            if refused.len() == MAX_REFUSED {
                break;
            }
            let outputs = node.output.iter().filter(|name| !name.is_empty());
            blocked.extend(outputs.map(String::as_str));
        }
        match refused.len() {
            0 => Ok(()),
            1 => Err(refused.remove(0)),
            _ => Err(OnnxError::Nodes {
                nodes: refused,
                behind,
            }),
        }
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
        "If" | "Loop" | "Scan" => {
            "export the model with fixed shapes, so that no branch or loop is left"
        }
        _ => "cut the model before it",
    };
    format!("{UNKNOWN}: {help}")
}
