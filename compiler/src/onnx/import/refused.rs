//! Nodes that nothing computes: all of them are told, not only the first.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::state::Import;
use super::tensor::input_type;
use crate::graph::{Graph, ValueId};
use crate::onnx::{OnnxError, ReadOptions, proto};

/// Refused nodes after which no more are read.
const MAX_REFUSED: usize = 1000;

/// Why an operator isn't computed whose output has as many values as its input says.
const FOUND: &str = "how many values it gives depends on its input: cut the model before it";

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
    /// Inputs of the graph that stand for what refused nodes give.
    pub given: Vec<Given>,
}

/// A value that a refused node gives, of the type that the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The value.
    pub value: String,
    /// What the node reads that is computed, or given itself.
    pub reads: Vec<String>,
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
    pub given: Vec<Given>,
}

impl<'a> Import<'a> {
    /// Reads nodes in their order. What a refused one gives is an input, where the file says its type among `types`;
    /// else those that depend on it are passed over.
    ///
    /// # Errors
    /// What is of no node.
    pub(super) fn nodes(
        &mut self,
        nodes: Vec<&'a proto::Node>,
        types: &HashMap<&str, &proto::ValueInfo>,
    ) -> Result<Refused, OnnxError> {
        let mut refused = Refused::default();
        let mut blocked: HashSet<&str> = HashSet::new();
        for (index, node) in nodes.into_iter().enumerate() {
            let is_behind = node.input.iter().any(|name| blocked.contains(&name[..]));
            if is_behind {
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
            let computed = read.copied().filter(|id| self.maker(*id).is_some());
            let computed: Vec<ValueId> = computed.collect();
            refused.reads.extend(&computed);
            if refused.errors.len() == MAX_REFUSED {
                break;
            }
            let outputs = node.output.iter().filter(|name| !name.is_empty());
            for output in outputs {
                let said = types.get(&output[..]).filter(|_| !is_behind);
                match said.and_then(|info| self.stand_in(info)) {
                    Some(()) => refused.given.push(Given {
                        value: output.clone(),
                        reads: node
                            .input
                            .iter()
                            .filter(|name| self.names.contains_key(*name))
                            .cloned()
                            .collect(),
                    }),
                    None => {
                        blocked.insert(output);
                    }
                }
            }
        }
        Ok(refused)
    }

    /// Takes a value as an input, if its type is known.
    fn stand_in(&mut self, info: &proto::ValueInfo) -> Option<()> {
        let (shape, element) = input_type(info, &ReadOptions::default()).ok()?;
        self.budget.add_input(&shape, element);
        let id = self.define(&info.name, shape, None).ok()?;
        self.graph.values[id.0].element = element;
        self.graph.inputs.push(id);
        Some(())
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
        "Unique" => FOUND,
        _ => "cut the model before it",
    };
    format!("{UNKNOWN}: {help}")
}
