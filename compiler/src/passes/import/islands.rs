//! What no device computes: the host does it in floats, between int8 tensors.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::super::error::PassError;
use super::super::net::{Entry, NetOp, NetOutput, NetRead};
use super::layout::{self, Order};
use super::sums::ExactSum;
use super::values::{Reading, Real, UNQUANTIZED, Val, error};
use crate::graph::{Graph, Node, Op, Value, ValueId};
use crate::qgraph::TensorId;

/// Nodes that the parts of the host may have together, each counted in every part that needs it.
const MAX_NODES: usize = 1 << 20;

/// What computes a value on the host.
struct Needed {
    /// In order.
    nodes: Vec<usize>,
    /// Values that are int8 tensors, and which these are.
    tensors: Vec<Tensor>,
    ids: Vec<TensorId>,
    /// Values that are sums of the device, where these are looked for.
    sums: Vec<(ValueId, ExactSum)>,
    /// Inputs of the model.
    inputs: Vec<ValueId>,
}

/// A value that is a tensor, or a sum in its digits' shape: channels, rows, columns and their order.
type Tensor = (ValueId, [usize; 3], Order);

/// Where the host begins to compute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At int8 tensors.
    Tensors,
    /// At these, and at sums that the device gives as they are.
    Sums,
}

/// What the host computes for a QuantizeLinear.
pub(super) enum Island {
    /// Of int8 tensors.
    Real(Box<Real>),
    /// Of inputs of the model: channels, rows and columns of what is rounded, and their order.
    Entry(Entry, [usize; 3], Order),
}

impl Reading<'_> {
    /// Whether the host may compute a node, if its engine can: all but the roundings themselves, and of these such as
    /// have steps that are computed, or read integers that the host computes.
    pub(super) fn is_hostable(&self, node: &Node) -> bool {
        let is_float = |at: usize| {
            let value = node.inputs.get(at).and_then(|id| self.values.get(id));
            matches!(value, Some(Val::Float))
        };
        match node.op {
            Op::QuantizeLinear { .. } => is_float(1),
            Op::DequantizeLinear { .. } => is_float(0),
            _ => true,
        }
    }

    /// The float that a QuantizeLinear rounds, as the host computes it: every node on the ways to
    /// it from int8 tensors. What two roundings share is in the part of both; parts of one segment
    /// compute it once.
    ///
    /// # Errors
    /// A way that begins at no int8 tensor: then why the first node wasn't read, mostly because the
    /// network isn't quantised. Ways of which some begin at inputs of the model that aren't rounded, and
    /// others at int8 tensors.
    pub(super) fn island(&mut self, node: &Node) -> Result<Island, PassError> {
        let output = node.inputs[0];
        let Needed {
            nodes,
            tensors,
            ids: inputs,
            inputs: raw,
            sums: _,
        } = self.needed(node, output, Start::Tensors)?;
        let shape = &self.graph.values[output.0].shape;
        let all: usize = shape.iter().product();
        if all == 0 || inputs.len() + raw.len() == 0 {
            return Err(error(node, "the host computes it of no int8 tensor"));
        }
        if let Some(first) = raw.first()
            && !inputs.is_empty()
        {
            let name = &self.graph.values[first.0].name;
            let text = format!(
                "the host would compute it of input {name}, which isn't quantised, and of int8 tensors; in \
                 the middle of a network it reads these alone"
            );
            return Err(error(node, text));
        }
        let single = match tensors[..] {
            [(_, chw, Order::First)] => Some(chw),
            _ => None,
        };
        let own = match shape[..] {
            [1, c, h, w] => [c, h, w],
            [1, c, w] => [c, 1, w],
            // Of a tensor that was flattened, every value keeps its place.
            [1, _] => single
                .filter(|chw| chw.iter().product::<usize>() == all)
                .unwrap_or([all, 1, 1]),
            _ => [all, 1, 1],
        };
        let last = self.layouts.last_of(output, shape);
        let (chw, order) = last.map_or((own, Order::First), |chw| (chw, Order::Last));
        let name = nodes.last().map(|&index| &self.graph.nodes[index].name[..]);
        let name = name.unwrap_or_default();
        let mut part = self.part(&nodes, &tensors, &raw, output);
        if order == Order::Last {
            let made = part.outputs[0];
            part.outputs[0] = layout::to_tensor(&mut part, made, chw);
        }
        let part = Arc::new(part);
        if !raw.is_empty() {
            let entry = Entry {
                part: Some(part),
                reads: raw,
            };
            return Ok(Island::Entry(entry, chw, order));
        }
        let op = NetOp::Host { part, inputs };
        Ok(Island::Real(Box::new(Real::new(name, op, chw, order))))
    }

    /// An output of the model that isn't rounded, as the host computes it of int8 tensors, of sums of the
    /// device and of inputs of the model; or such a sum itself.
    ///
    /// # Errors
    /// Those of [`Self::island`]; an output that depends on no int8 tensor.
    pub(super) fn exit(&mut self, id: ValueId) -> Result<NetOutput, PassError> {
        let name = self.graph.values[id.0].name.clone();
        let maker = self.makers.get(&id).map(|&index| &self.graph.nodes[index]);
        let lost = || PassError::Graph(format!("output {name} is not computed from the input"));
        let node = maker.ok_or_else(lost)?;
        let needed = self.needed(node, id, Start::Sums)?;
        if needed.ids.is_empty() && needed.sums.is_empty() {
            return Err(self.unquantized(node));
        }
        let mut read = needed.tensors;
        let mut reads: Vec<NetRead> = needed.ids.into_iter().map(NetRead::Tensor).collect();
        for (id, sum) in needed.sums {
            let name = self.graph.values[id.0].name.clone();
            read.push((id, sum.model.chw, sum.model.order));
            reads.push(NetRead::Sum(self.give_digits(sum, &name)));
        }
        reads.extend(needed.inputs.iter().map(|id| NetRead::Input(*id)));
        let part = self.part(&needed.nodes, &read, &needed.inputs, id);
        Ok(NetOutput::Value {
            part: Arc::new(part),
            reads,
            name,
        })
    }

    /// Why a way begins at no int8 tensor.
    fn unquantized(&self, node: &Node) -> PassError {
        let first = self.refused.values().next().cloned();
        first.unwrap_or_else(|| error(node, UNQUANTIZED))
    }

    /// The nodes that compute a value, in order, and what they read. They are the host's from now on.
    fn needed(&mut self, node: &Node, output: ValueId, start: Start) -> Result<Needed, PassError> {
        let mut nodes = BTreeSet::new();
        let (mut inputs, mut raw, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        let (mut open, mut seen) = (vec![output], HashSet::new());
        while let Some(id) = open.pop() {
            if self.graph.values[id.0].data.is_some() || !seen.insert(id) {
                continue;
            }
            match self.values.get(&id) {
                Some(Val::Real(real)) if let Some(tensor) = real.exactly() => {
                    let placed = (id, self.net.tensors[tensor.0].chw, real.order);
                    inputs.push((placed, tensor));
                }
                Some(Val::Real(real))
                    if start == Start::Sums
                        && let Some(sum) = self.exact_sum(real) =>
                {
                    sums.push((id, sum));
                }
                Some(Val::Input) => raw.push(id),
                Some(&Val::Quantized(tensor, order)) => {
                    self.rounding(id).ok_or_else(|| {
                        error(node, "the host reads int8 values that nothing rounds")
                    })?;
                    inputs.push(((id, self.net.tensors[tensor.0].chw, order), tensor));
                }
                _ => {
                    let index = self.makers.get(&id).copied();
                    let index = index.ok_or_else(|| self.unquantized(node))?;
                    nodes.insert(index);
                    open.extend(&self.graph.nodes[index].inputs);
                }
            }
        }
        self.host_nodes += nodes.len();
        self.hosted.extend(&nodes);
        if self.host_nodes > MAX_NODES {
            let text = format!("with it the host has more than {MAX_NODES} nodes");
            return Err(error(node, text));
        }
        // In the model's order, whatever way each was found on.
        inputs.sort_unstable_by_key(|((id, ..), _)| *id);
        let (tensors, ids) = inputs.into_iter().unzip();
        raw.sort_unstable();
        sums.sort_unstable_by_key(|(id, _)| *id);
        Ok(Needed {
            nodes: nodes.into_iter().collect(),
            tensors,
            ids,
            inputs: raw,
            sums,
        })
    }

    /// The QuantizeLinear that makes a value.
    fn rounding(&self, id: ValueId) -> Option<&Node> {
        let node = &self.graph.nodes[*self.makers.get(&id)?];
        matches!(node.op, Op::QuantizeLinear { .. }).then_some(node)
    }

    /// Some nodes as a graph of their own, with the model's names. It reads tensors, in the tensors' order,
    /// and then inputs of the model.
    fn part(&self, nodes: &[usize], tensors: &[Tensor], raw: &[ValueId], output: ValueId) -> Graph {
        let mut part = Graph::default();
        let mut ids: HashMap<ValueId, ValueId> = HashMap::new();
        let mut take = |part: &mut Graph, id: ValueId| {
            *ids.entry(id).or_insert_with(|| {
                part.values.push(self.graph.values[id.0].clone());
                ValueId(part.values.len() - 1)
            })
        };
        for (id, chw, order) in tensors {
            let mut to = take(&mut part, *id);
            // A tensor is read as reals: those that are wanted as integers are rounded once more, to what they were.
            if let Some(rounding) = self.rounding(*id) {
                let steps: Vec<ValueId> = rounding.inputs[1..]
                    .iter()
                    .map(|id| take(&mut part, *id))
                    .collect();
                let Value { name, shape, .. } = &part.values[to.0];
                let (name, shape) = (format!("{name}.real"), shape.clone());
                let real = part.value(&name, shape, None);
                let inputs = std::iter::once(real).chain(steps).collect();
                part.push(&name, rounding.op.clone(), inputs, to);
                to = real;
            }
            let from = match order {
                Order::First => to,
                Order::Last => layout::from_tensor(&mut part, *chw, to),
            };
            part.inputs.push(from);
        }
        for id in raw {
            let id = take(&mut part, *id);
            part.inputs.push(id);
        }
        for &index in nodes {
            let node = &self.graph.nodes[index];
            let inputs = node.inputs.iter().map(|id| take(&mut part, *id));
            let inputs = inputs.collect();
            let output = take(&mut part, node.output);
            part.push(&node.name, node.op.clone(), inputs, output);
        }
        let output = take(&mut part, output);
        part.outputs.push(output);
        part
    }
}
