//! What the host computes before a network's int8 tensors and behind them.

use serde::{Deserialize, Serialize};
use vta_program::HostWork;

use super::error::HostError;
use super::model::{HostModel, given, is_tensor, taken};
use crate::graph::{Data, Graph};
use crate::onnx::Port;

/// What stands between a caller's values and a network's int8 tensors: an *entry* makes the tensors
/// that the network reads of the model's inputs, an *exit* the model's outputs of tensors that the
/// network gives. Each is an ONNX model, and either may be missing: then callers give, or take, the
/// int8 tensors themselves.
#[derive(Debug, PartialEq)]
pub struct Ends {
    interface: Interface,
    entry: Option<HostModel>,
    exit: Option<HostModel>,
}

/// What the models don't say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Interface {
    /// The names of the model's inputs, in its order; those of the entry.
    inputs: Vec<String>,
    /// What the exit reads.
    reads: Vec<Read>,
    /// The model's outputs, in its order.
    outputs: Vec<EndOutput>,
    /// Bytes of the entry and of the exit.
    models: [usize; 2],
}

/// What an exit reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Read {
    /// An output of the network.
    Tensor(usize),
    /// An input of the model.
    Input(usize),
}

/// An output of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EndOutput {
    /// An output of the network.
    Tensor(usize),
    /// The exit computes it.
    Value {
        /// The model's name for it.
        name: String,
        /// Which of the exit's outputs.
        index: usize,
    },
}

/// A model of an end, and what a list of its nodes says.
pub struct EndModel {
    /// The graph; its inputs are in the order of what it reads.
    pub graph: Graph,
    /// Names and kinds of the network's nodes in it.
    pub nodes: Vec<(String, String)>,
}

impl Ends {
    /// The ends of a network. The entry's inputs have the names `inputs`; its outputs are the network's
    /// inputs. The exit's inputs are `reads`; `outputs` are the model's.
    ///
    /// # Errors
    /// [`HostError`] for graphs that the engine can't load, and for ends that contradict themselves.
    pub fn new(
        entry: Option<(EndModel, Vec<String>)>,
        exit: Option<(EndModel, Vec<Read>)>,
        outputs: Vec<EndOutput>,
    ) -> Result<Self, HostError> {
        let mut interface = Interface {
            outputs,
            ..Interface::default()
        };
        let load = |end: EndModel| {
            let tables = vec![None; end.graph.outputs.len()];
            HostModel::new(end.graph, &end.nodes, &tables)
        };
        let entry = entry.map(|(end, inputs)| {
            interface.inputs = inputs;
            load(end)
        });
        let exit = exit.map(|(end, reads)| {
            interface.reads = reads;
            load(end)
        });
        Self::checked(interface, entry.transpose()?, exit.transpose()?)
    }

    /// Ends from the bytes of [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`HostError`] for bytes that are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HostError> {
        let cut = || HostError::Form("the network's ends are cut off".to_owned());
        // The bytes may be anyone's: no length is believed.
        let (len, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| cut())?;
        let (json, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
        let interface: Interface =
            serde_json::from_slice(json).map_err(|e| HostError::Form(e.to_string()))?;
        let (entry, exit) = rest.split_at_checked(interface.models[0]).ok_or_else(cut)?;
        if exit.len() != interface.models[1] {
            return Err(cut());
        }
        let load = |bytes: &[u8]| match bytes {
            [] => Ok(None),
            bytes => HostModel::from_bytes(bytes).map(Some),
        };
        Self::checked(interface, load(entry)?, load(exit)?)
    }

    /// Bytes that [`Self::from_bytes`] reads.
    ///
    /// # Errors
    /// [`HostError::Form`] for what can't be written, which there isn't.
    pub fn to_bytes(&self) -> Result<Vec<u8>, HostError> {
        let json =
            serde_json::to_vec(&self.interface).map_err(|e| HostError::Form(e.to_string()))?;
        let models = [&self.entry, &self.exit].map(|m| m.as_ref().map_or(&[][..], |m| m.bytes()));
        Ok([
            &(json.len() as u64).to_le_bytes()[..],
            &json,
            models[0],
            models[1],
        ]
        .concat())
    }

    fn checked(
        mut interface: Interface,
        entry: Option<HostModel>,
        exit: Option<HostModel>,
    ) -> Result<Self, HostError> {
        let refuse = |text: String| Err(HostError::Form(text));
        let count = |model: &Option<HostModel>| model.as_ref().map_or(0, |m| m.inputs.len());
        if interface.inputs.len() != count(&entry) || interface.reads.len() != count(&exit) {
            return refuse("the network's ends read other values than they say".to_owned());
        }
        let mut entered = entry.iter().flat_map(|e| &e.outputs);
        if let Some(port) = entered.find(|port| !is_tensor(port)) {
            return Err(HostError::port(port));
        }
        for (read, port) in interface
            .reads
            .iter()
            .zip(exit.iter().flat_map(|e| &e.inputs))
        {
            let input = |at: usize| entry.as_ref().and_then(|e| e.inputs.get(at));
            let fits = match *read {
                Read::Tensor(_) => is_tensor(port),
                Read::Input(at) => {
                    input(at).is_some_and(|i| (i.element, &i.shape) == (port.element, &port.shape))
                }
            };
            if !fits {
                return Err(HostError::port(port));
            }
        }
        let values = exit.as_ref().map_or(0, |e| e.outputs.len());
        let known = |output: &EndOutput| match output {
            EndOutput::Tensor(_) => true,
            EndOutput::Value { index, .. } => *index < values,
        };
        if !interface.outputs.iter().all(known) {
            return refuse("the network's exit has fewer outputs".to_owned());
        }
        interface.models = [&entry, &exit].map(|m| m.as_ref().map_or(0, |m| m.bytes().len()));
        Ok(Self {
            interface,
            entry,
            exit,
        })
    }

    /// Whether they fit a network's tensors, by their values in each.
    pub fn fits(&self, inputs: &[usize], outputs: &[usize]) -> bool {
        let len = |port: &Port| port.shape.iter().product::<usize>();
        let entry = self.entry.as_ref();
        let entry = entry.is_none_or(|e| e.outputs.iter().map(len).eq(inputs.iter().copied()));
        let ports = self.exit.iter().flat_map(|e| &e.inputs);
        let exit = self.interface.reads.iter().zip(ports);
        let exit = exit.into_iter().all(|(read, port)| match *read {
            Read::Tensor(at) => outputs.get(at) == Some(&len(port)),
            Read::Input(_) => true,
        });
        let known = |output: &EndOutput| match *output {
            EndOutput::Tensor(at) => at < outputs.len(),
            EndOutput::Value { .. } => true,
        };
        entry && exit && self.interface.outputs.iter().all(known)
    }

    /// Names and kinds of the network's nodes in both, in order.
    pub fn nodes(&self) -> impl Iterator<Item = &(String, String)> {
        self.models().flat_map(|model| &model.nodes)
    }

    /// What each of the two computes of an image, its nodes and how much, if it computes any.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &[(String, String)], HostWork)> {
        let named = ["entry", "exit"].into_iter().zip([&self.entry, &self.exit]);
        named.filter_map(|(name, model)| {
            let model = model.as_ref().filter(|m| !m.nodes.is_empty())?;
            Some((name, &model.nodes[..], model.work))
        })
    }

    /// How many of the two there are that compute nodes.
    pub fn segments(&self) -> usize {
        self.parts().count()
    }

    fn models(&self) -> impl Iterator<Item = &HostModel> {
        self.entry.iter().chain(&self.exit)
    }

    /// The model's inputs, when there is an entry; its own inputs are the network's else.
    pub fn inputs(&self) -> Option<Vec<Port>> {
        let entry = self.entry.as_ref()?;
        let named = |(port, name): (&Port, &String)| Port {
            name: name.clone(),
            ..port.clone()
        };
        let inputs = entry.inputs.iter().zip(&self.interface.inputs);
        Some(inputs.map(named).collect())
    }

    /// The model's outputs.
    pub fn outputs(&self) -> &[EndOutput] {
        &self.interface.outputs
    }

    /// An output of the exit: its type and shape; `None` where there is none.
    pub fn value(&self, index: usize) -> Option<&Port> {
        self.exit.as_ref()?.outputs.get(index)
    }

    /// Whether the exit reads inputs of the model.
    pub fn reads_inputs(&self) -> bool {
        let mut reads = self.interface.reads.iter();
        reads.any(|read| matches!(read, Read::Input(_)))
    }

    /// The network's inputs of one image, one behind the other, of data for each of
    /// [`Self::inputs`].
    ///
    /// # Errors
    /// [`HostError`] for data of another type or size, what the engine can't compute, and where there is
    /// no entry.
    pub fn enter(&self, inputs: Vec<Data>) -> Result<Vec<i16>, HostError> {
        let missing = || HostError::Form("the network has no entry".to_owned());
        let entry = self.entry.as_ref().ok_or_else(missing)?;
        let mut all = Vec::new();
        for (data, port) in entry.run(inputs)?.into_iter().zip(&entry.outputs) {
            all.extend(taken(port, data)?);
        }
        Ok(all)
    }

    /// What the exit gives for one image, in order, of the network's outputs and, where it
    /// [reads them](Self::reads_inputs), the model's inputs; nothing where there is no exit.
    ///
    /// # Errors
    /// [`HostError`] for tensors of other sizes and what the engine can't compute.
    pub fn leave(&self, tensors: &[&[i16]], inputs: &[Data]) -> Result<Vec<Data>, HostError> {
        let Some(exit) = &self.exit else {
            return Ok(Vec::new());
        };
        let read = |(read, port): (&Read, &Port)| {
            let found = match *read {
                Read::Tensor(at) => tensors.get(at).map(|x| given(port, x)),
                Read::Input(at) => inputs.get(at).cloned(),
            };
            found.ok_or_else(|| HostError::Form(format!("the exit's {read:?} isn't given")))
        };
        let reads = self.interface.reads.iter().zip(&exit.inputs).map(read);
        exit.run(reads.collect::<Result<_, _>>()?)
    }
}
