//! Reads the QDQ pattern: QuantizeLinear after, DequantizeLinear before every operator.

pub(crate) mod affine;
mod constant;
mod islands;
mod kept;
mod layers;
pub(crate) mod layout;
mod moves;
mod positions;
mod reshaped;
mod scales;
mod storage;
mod sums;
mod transposed;
pub(crate) mod values;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::error::PassError;
use super::net::{Entry, Net, NetOutput};
use crate::graph::{Graph, ValueId};
use crate::onnx::Port;
use crate::qgraph::TensorId;
use crate::semantics::Requant;
use layout::{Layouts, Order};
use values::{Reading, Val};

/// What a QDQ graph is read as.
pub(super) struct Imported {
    /// One node for each quantised operator, or why there is none: all that is refused.
    pub net: Result<Net, PassError>,
    /// Why nodes are left to the host, by their index.
    pub refused: BTreeMap<usize, PassError>,
    /// Nodes that the host computes, by their index. Some of them the device could.
    pub hosted: BTreeSet<usize>,
    /// Nodes that weren't read since they depend on one that is refused.
    pub behind: BTreeSet<usize>,
}

/// Reads a QDQ graph.
pub(super) fn import(graph: &Graph) -> Imported {
    let mut reading = Reading {
        graph,
        net: Net {
            numbers: storage::numbers(graph),
            ..Net::default()
        },
        values: HashMap::new(),
        layouts: Layouts::of(graph),
        stored: HashMap::new(),
        makers: graph
            .nodes
            .iter()
            .enumerate()
            .map(|(i, n)| (n.output, i))
            .collect(),
        refused: BTreeMap::new(),
        hosted: BTreeSet::new(),
        host_nodes: 0,
        entries: Vec::new(),
        sums: Vec::new(),
    };
    for id in &graph.inputs {
        reading.values.insert(*id, Val::Input);
    }
    let (mut faults, mut behind) = (Vec::new(), BTreeSet::new());
    let mut blocked: HashSet<ValueId> = HashSet::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        if node.inputs.iter().any(|id| blocked.contains(id)) {
            blocked.insert(node.output);
            behind.insert(index);
            continue;
        }
        let value = match node.op.device(&mut reading, node) {
            Ok(value) => value,
            Err(error) if reading.is_hostable(node) => {
                reading.refused.insert(index, error);
                Val::Float
            }
            Err(error) => {
                faults.push(error);
                blocked.insert(node.output);
                continue;
            }
        };
        reading.values.insert(node.output, value);
    }
    let net = match PassError::of(faults) {
        Some(error) => Err(error),
        None => reading.ended(graph),
    };
    Imported {
        net: net.map(|()| reading.net),
        refused: reading.refused,
        hosted: reading.hosted,
        behind,
    }
}

impl Reading<'_> {
    /// The net's facts and outputs, once all nodes are read.
    fn ended(&mut self, graph: &Graph) -> Result<(), PassError> {
        self.net.metadata.clone_from(&graph.metadata);
        // It is the file's matter.
        self.net.metadata.remove(crate::onnx::BATCH);
        if let Some(name) = graph.metadata.get(Requant::KEY) {
            let requant = name.parse::<Requant>();
            self.net.requant = requant.map_err(|e| PassError::Graph(format!("metadata: {e}")))?;
        }
        self.net.wide_sums = match graph.metadata.get(Net::SUMS).map(String::as_str) {
            None => false,
            Some("wide") => true,
            Some(other) => {
                let text = format!("metadata: sums are wide, or nothing is said, not '{other}'");
                return Err(PassError::Graph(text));
            }
        };
        let mut named: HashSet<TensorId> = self.net.inputs.iter().copied().collect();
        for id in &graph.outputs {
            let output = self.output(*id)?;
            if let NetOutput::Tensor(tensor) = output {
                // The model's name for it, not that of the value before its QuantizeLinear.
                if named.insert(tensor) {
                    let name = &graph.values[id.0].name;
                    self.net.tensors[tensor.0].name.clone_from(name);
                }
                self.net.outputs.push(tensor);
            }
            let reads = output.reads().iter();
            for tensor in reads.flat_map(|read| self.net.ends.tensors(read)) {
                if !self.net.outputs.contains(tensor) {
                    self.net.outputs.push(*tensor);
                }
            }
            self.net.ends.outputs.push(output);
        }
        if self.net.inputs.is_empty() {
            return Err(PassError::Graph(
                "the network's input is never quantised".to_owned(),
            ));
        }
        self.enter_in_order();
        self.net.verify()?;
        Ok(())
    }

    /// The net's inputs in the model's order, with what they are of the model's.
    fn enter_in_order(&mut self) {
        let inputs = self.graph.inputs.iter().map(|&id| {
            let value = &self.graph.values[id.0];
            let port = Port {
                name: value.name.clone(),
                element: value.element,
                shape: value.shape.clone(),
            };
            (id, port)
        });
        let inputs: Vec<(ValueId, Port)> = inputs.collect();
        let at = |id: &ValueId| inputs.iter().position(|(other, _)| other == id);
        let tensors = std::mem::take(&mut self.net.inputs);
        let entries = std::mem::take(&mut self.entries);
        let mut all: Vec<(TensorId, Entry)> = tensors.into_iter().zip(entries).collect();
        all.sort_by_key(|(_, entry)| entry.reads.iter().map(at).min());
        (self.net.inputs, self.net.ends.entries) = all.into_iter().unzip();
        self.net.ends.inputs = inputs;
    }

    fn output(&mut self, id: ValueId) -> Result<NetOutput, PassError> {
        let name = &self.graph.values[id.0].name;
        match self.values.get(&id).cloned() {
            Some(Val::Real(value)) if value.order == Order::First => {
                let tensor = value.exactly().or_else(|| self.unrounded(&value, name));
                match tensor {
                    Some(tensor) => Ok(NetOutput::Tensor(tensor)),
                    None => self.exit(id),
                }
            }
            Some(Val::Float | Val::Real(_)) => self.exit(id),
            Some(Val::Quantized(id, Order::First)) => Ok(NetOutput::Tensor(id)),
            _ => Err(PassError::Graph(format!(
                "output {name} is not computed from the input"
            ))),
        }
    }
}
