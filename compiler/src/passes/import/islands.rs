//! What no device computes: the host does it in floats, between int8 tensors.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::super::error::PassError;
use super::super::net::NetOp;
use super::values::{Reading, Real, UNQUANTIZED, Val, error};
use crate::graph::{Graph, Node, Op, ValueId};
use crate::qgraph::TensorId;

/// Nodes that the parts of the host may have together, each counted in every part that needs it.
const MAX_NODES: usize = 1 << 20;

/// A value that is an int8 tensor.
type Read = (ValueId, TensorId);

impl Reading<'_> {
    /// Whether the host may compute a node, if its engine can: all but the roundings themselves.
    pub(super) const fn is_hostable(node: &Node) -> bool {
        !matches!(
            node.op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. }
        )
    }

    /// The float that a QuantizeLinear rounds, as the host computes it: every node on the ways to
    /// it from int8 tensors. What two roundings share is in the part of both; parts of one segment
    /// compute it once.
    ///
    /// # Errors
    /// A way that begins at no int8 tensor: then why the first node wasn't read, mostly because the
    /// network isn't quantised.
    pub(super) fn island(&mut self, node: &Node) -> Result<Real, PassError> {
        let output = node.inputs[0];
        let (nodes, inputs) = self.needed(node, output)?;
        self.host_nodes += nodes.len();
        if self.host_nodes > MAX_NODES {
            let text = format!("with it the host has more than {MAX_NODES} nodes");
            return Err(error(node, text));
        }
        let shape = &self.graph.values[output.0].shape;
        let all: usize = shape.iter().product();
        if all == 0 || inputs.is_empty() {
            return Err(error(node, "the host computes it of no int8 tensor"));
        }
        let single = match inputs[..] {
            [(_, only)] => Some(self.net.tensors[only.0].chw),
            _ => None,
        };
        let chw = match shape[..] {
            [1, c, h, w] => [c, h, w],
            [1, c, w] => [c, 1, w],
            // Of a tensor that was flattened, every value keeps its place.
            [1, _] => single
                .filter(|chw| chw.iter().product::<usize>() == all)
                .unwrap_or([all, 1, 1]),
            _ => [all, 1, 1],
        };
        let name = nodes
            .last()
            .map(|&index| self.graph.nodes[index].name.clone());
        let part = self.part(&nodes, &inputs, output);
        let op = NetOp::Host {
            part: Arc::new(part),
            inputs: inputs.into_iter().map(|(_, tensor)| tensor).collect(),
            output: 0,
        };
        Ok(Real {
            op,
            name: name.unwrap_or_default(),
            chw,
            bounds: (f64::NEG_INFINITY, f64::INFINITY),
            moved: None,
        })
    }

    /// The nodes that compute a value, in order, and the int8 tensors that they read.
    fn needed(&self, node: &Node, output: ValueId) -> Result<(Vec<usize>, Vec<Read>), PassError> {
        let mut nodes = BTreeSet::new();
        let mut inputs = Vec::new();
        let (mut open, mut seen) = (vec![output], HashSet::new());
        while let Some(id) = open.pop() {
            if self.graph.values[id.0].data.is_some() || !seen.insert(id) {
                continue;
            }
            match self.values.get(&id) {
                Some(Val::Real(real)) if let Some(tensor) = real.exactly() => {
                    inputs.push((id, tensor));
                }
                Some(Val::Quantized(_)) => {
                    return Err(error(node, "the host reads int8 values as they are"));
                }
                _ => {
                    let first = || {
                        self.refused
                            .clone()
                            .unwrap_or_else(|| error(node, UNQUANTIZED))
                    };
                    let index = *self.makers.get(&id).ok_or_else(first)?;
                    nodes.insert(index);
                    open.extend(&self.graph.nodes[index].inputs);
                }
            }
        }
        inputs.sort_unstable();
        Ok((nodes.into_iter().collect(), inputs))
    }

    /// Some nodes as a graph of their own, with the model's names.
    fn part(&self, nodes: &[usize], inputs: &[Read], output: ValueId) -> Graph {
        let mut part = Graph::default();
        let mut ids: HashMap<ValueId, ValueId> = HashMap::new();
        let mut take = |part: &mut Graph, id: ValueId| {
            *ids.entry(id).or_insert_with(|| {
                part.values.push(self.graph.values[id.0].clone());
                ValueId(part.values.len() - 1)
            })
        };
        for (id, _) in inputs {
            let id = take(&mut part, *id);
            part.inputs.push(id);
        }
        for &index in nodes {
            let node = &self.graph.nodes[index];
            let inputs = node.inputs.iter().map(|id| take(&mut part, *id));
            let inputs = inputs.collect();
            let output = take(&mut part, node.output);
            part.nodes.push(Node {
                name: node.name.clone(),
                op: node.op.clone(),
                inputs,
                output,
            });
        }
        let output = take(&mut part, output);
        part.outputs.push(output);
        part
    }
}
