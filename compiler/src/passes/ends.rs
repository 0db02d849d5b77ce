//! The models of what the host computes around a network.

use std::collections::{BTreeMap, BTreeSet};

use super::error::PassError;
use super::net::{Entry, Net, NetEnds, NetOutput, NetRead};
use super::segments::{Model, error};
use crate::graph::{Element, ValueId};
use crate::host::{EndModel, EndOutput, Ends, Read};
use crate::onnx::Port;
use crate::qgraph::TensorId;

/// An input of the model that is read.
type Input<'n> = &'n (ValueId, Port);

/// The ends of a net; `None` where callers give and take its tensors.
///
/// # Errors
/// What the engine can't load.
pub(super) fn ends(net: &Net) -> Result<Option<Ends>, PassError> {
    let value = |output: &NetOutput| match output {
        NetOutput::Value { name, .. } => Some(name.clone()),
        NetOutput::Tensor(_) => None,
    };
    let first = net.ends.outputs.iter().find_map(value);
    let enters = net.ends.enters();
    if first.is_none() && !enters {
        return Ok(None);
    }
    let read = net.ends.read();
    let inputs = net.ends.inputs.iter();
    let inputs: Vec<Input<'_>> = inputs.filter(|(id, _)| read.contains(id)).collect();
    let entry = if enters {
        let names = inputs.iter().map(|(_, port)| port.name.clone());
        Some((entry(net, &inputs)?, names.collect()))
    } else {
        None
    };
    let (exit, outputs) = exit(net, &inputs)?;
    let ends = Ends::new(entry, first.is_some().then_some(exit), outputs);
    let name = first.unwrap_or_else(|| "input".to_owned());
    Ok(Some(ends.map_err(|e| error(&name, &e.to_string()))?))
}

impl NetEnds {
    /// Whether an input of the net isn't just an input of the model that is rounded, and no other.
    pub(super) fn enters(&self) -> bool {
        let mut plain = BTreeSet::new();
        let just = |entry: &Entry| match (&entry.part, &entry.reads[..]) {
            (None, [read]) => plain.insert(*read),
            _ => false,
        };
        let mut reads = self.outputs.iter().flat_map(NetOutput::reads);
        !self.entries.iter().all(just) || reads.any(|read| matches!(read, NetRead::Input(_)))
    }

    /// The model's inputs that something reads.
    fn read(&self) -> BTreeSet<ValueId> {
        let entries = self.entries.iter().flat_map(|entry| &entry.reads).copied();
        let exits = self.outputs.iter().flat_map(NetOutput::reads);
        let exits = exits.filter_map(|read| match read {
            NetRead::Input(id) => Some(*id),
            NetRead::Tensor(_) | NetRead::Sum(_) => None,
        });
        entries.chain(exits).collect()
    }
}

/// An input of the model, as it is.
fn raw(model: &mut Model<'_>, port: &Port) -> ValueId {
    let id = model.value("input", port.shape.clone(), None);
    model.graph.values[id.0].element = port.element;
    model.graph.inputs.push(id);
    id
}

/// The model of the tensors that the net reads.
fn entry(net: &Net, inputs: &[Input<'_>]) -> Result<EndModel, PassError> {
    let mut model = Model::new(net);
    let mut values: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for (id, port) in inputs {
        let value = raw(&mut model, port);
        values.insert(*id, value);
    }
    for (&tensor, Entry { part, reads }) in net.inputs.iter().zip(&net.ends.entries) {
        let name = &net.tensors[tensor.0].name;
        let reads = reads.iter().map(|id| values.get(id).copied());
        let reads: Option<Vec<ValueId>> = reads.collect();
        let reads = reads.ok_or_else(|| error(name, "it reads no input of the model"))?;
        let real = match part {
            Some(part) => model.part(name, part, &reads)?,
            None => reads[0],
        };
        if model.graph.values[real.0].element != Element::F32 {
            return Err(error(name, "the host rounds what is no float32"));
        }
        let output = model.rounded(name, real, tensor)?;
        model.graph.outputs.push(output);
    }
    Ok(EndModel {
        graph: model.graph,
        nodes: model.listed,
    })
}

/// What an exit reads.
type Reads = Vec<Read>;

/// The model of the outputs that aren't tensors with what it reads, and what all outputs are.
fn exit(net: &Net, inputs: &[Input<'_>]) -> Result<((EndModel, Reads), Vec<EndOutput>), PassError> {
    let mut model = Model::new(net);
    let (mut reads, mut outputs) = (Vec::new(), Vec::new());
    let mut raws: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let number = |id: TensorId| net.outputs.iter().position(|output| *output == id);
    for output in &net.ends.outputs {
        let (name, part, parts_reads) = match output {
            NetOutput::Tensor(id) => {
                let lost = || PassError::Graph("an output of the network is lost".to_owned());
                outputs.push(EndOutput::Tensor(number(*id).ok_or_else(lost)?));
                continue;
            }
            NetOutput::Value { name, part, reads } => (name, part, reads),
        };
        let lost = || error(name, "it reads what isn't there");
        let mut values = Vec::with_capacity(parts_reads.len());
        for read in parts_reads {
            for &id in net.ends.tensors(read) {
                // What several outputs read is read once.
                if !model.reads(id) {
                    model.input(id);
                    reads.push(Read::Tensor(number(id).ok_or_else(lost)?));
                }
            }
            values.push(match read {
                NetRead::Tensor(id) => model.real(name, *id)?,
                NetRead::Sum(index) => model.sum(name, *index)?,
                NetRead::Input(id) => match raws.get(id) {
                    Some(value) => *value,
                    None => {
                        let at = inputs.iter().position(|(other, _)| other == id);
                        let at = at.ok_or_else(lost)?;
                        reads.push(Read::Input(at));
                        let value = raw(&mut model, &inputs[at].1);
                        raws.insert(*id, value);
                        value
                    }
                },
            });
        }
        let value = model.part(name, part, &values)?;
        let at = model.graph.outputs.iter().position(|other| *other == value);
        let index = at.unwrap_or(model.graph.outputs.len());
        if at.is_none() {
            model.graph.outputs.push(value);
        }
        let name = name.clone();
        outputs.push(EndOutput::Value { name, index });
    }
    let end = EndModel {
        graph: model.graph,
        nodes: model.listed,
    };
    Ok(((end, reads), outputs))
}
