//! A part of a network that the host computes at once.

use std::fmt;

use thiserror::Error;
use vta_driver::{Attribute, AttributeValue, HostKernel};

use crate::engine::{self, Engine, EngineError, Tensor};
use crate::graph::{Data, Element, Graph};
use crate::onnx::{self, OnnxError, Port};

/// Key of a segment's metadata that lists its nodes, names and kinds, as JSON.
const NODES: &str = "nodes";
/// The most tensors that a segment takes or gives.
const MAX_PORTS: usize = 4096;

/// What is no segment, or can't be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostError {
    /// The model can't be read.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// The engine can't load or run it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A model that reads or writes what no device has, or lists no nodes.
    #[error("{0}")]
    Form(String),
    /// Inputs that aren't its own.
    #[error("its inputs have {expected:?} values, not {found:?}")]
    Inputs {
        /// Values of each.
        expected: Vec<usize>,
        /// Values given.
        found: Vec<usize>,
    },
    /// An output that isn't what the model says.
    #[error("output {0} is of another type or size")]
    Output(String),
}

/// A part of a network: an ONNX model that reads and writes int8 tensors, with DequantizeLinear and
/// QuantizeLinear inside.
///
/// The reference interpreter and the driver run the same, so that bits are equal.
pub struct Segment {
    model: Vec<u8>,
    engine: Engine,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Name and kind of each node of the network that it computes.
    nodes: Vec<(String, String)>,
}

impl Segment {
    /// The segment of a graph whose inputs and outputs are int8; `nodes` are names and kinds of
    /// what it computes, for listings.
    ///
    /// # Errors
    /// [`HostError`] for a graph that the engine can't load, or of other inputs and outputs.
    pub fn new(mut graph: Graph, nodes: &[(String, String)]) -> Result<Self, HostError> {
        let list = serde_json::to_string(nodes).map_err(|e| HostError::Form(e.to_string()))?;
        graph.metadata.insert(NODES.to_owned(), list);
        let outputs = graph.outputs.clone();
        Self::from_bytes(&engine::model(&graph, &outputs))
    }

    /// A segment from its bytes, those of an ONNX model.
    ///
    /// # Errors
    /// [`HostError`] for bytes that are no segment.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HostError> {
        let interface = onnx::interface(bytes)?;
        let ports = || interface.inputs.iter().chain(&interface.outputs);
        if ports().count() > MAX_PORTS || interface.outputs.is_empty() {
            let text = format!("it takes and gives {} tensors", ports().count());
            return Err(HostError::Form(text));
        }
        for port in ports() {
            let within = values(port).is_some_and(|n| n > 0 && n <= onnx::MAX_ELEMENTS);
            if port.element != Element::I8 || !within {
                let text = format!("{} is {:?} {:?}", port.name, port.element, port.shape);
                return Err(HostError::Form(text));
            }
        }
        let list = interface.metadata.get(NODES).map(String::as_str);
        let nodes = serde_json::from_str(list.unwrap_or_default())
            .map_err(|e| HostError::Form(format!("the list of its nodes: {e}")))?;
        Ok(Self {
            model: bytes.to_vec(),
            engine: Engine::new(bytes)?,
            inputs: interface.inputs,
            outputs: interface.outputs,
            nodes,
        })
    }

    /// Name and kind of each node of the network that it computes, in order.
    pub fn nodes(&self) -> &[(String, String)] {
        &self.nodes
    }

    /// The distinct kinds of its nodes, in the order in which they come first.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for (_, kind) in &self.nodes {
            if !kinds.contains(&&kind[..]) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// The outputs of one image, in order, `[C][H][W]`.
    ///
    /// # Errors
    /// [`HostError`] for inputs of other sizes, and what the engine can't compute.
    pub fn run(&self, inputs: &[&[i8]]) -> Result<Vec<Vec<i8>>, HostError> {
        let expected: Vec<usize> = self.inputs.iter().filter_map(values).collect();
        let found: Vec<usize> = inputs.iter().map(|x| x.len()).collect();
        if expected != found {
            return Err(HostError::Inputs { expected, found });
        }
        let tensor = |(port, x): (&Port, &&[i8])| Tensor {
            shape: port.shape.clone(),
            data: Data::I8(x.to_vec()),
        };
        let tensors: Vec<Tensor> = self.inputs.iter().zip(inputs).map(tensor).collect();
        let named = self.inputs.iter().zip(&tensors);
        let named: Vec<(&str, &Tensor)> = named.map(|(port, x)| (&port.name[..], x)).collect();
        let names: Vec<&str> = self.outputs.iter().map(|port| &port.name[..]).collect();
        let made = self.engine.run(&named, &names)?;
        let output = |(port, tensor): (&Port, Tensor)| match tensor.data {
            Data::I8(data) if Some(data.len()) == values(port) => Ok(data),
            _ => Err(HostError::Output(port.name.clone())),
        };
        self.outputs.iter().zip(made).map(output).collect()
    }
}

fn values(port: &Port) -> Option<usize> {
    port.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

impl PartialEq for Segment {
    fn eq(&self, other: &Self) -> bool {
        self.model == other.model
    }
}

impl fmt::Debug for Segment {
    /// The nodes, and a hash of the model, which says all that it depends on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fold =
            |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = self.model.iter().fold(0xcbf2_9ce4_8422_2325, fold);
        write!(f, "Segment({:?}, {hash:016x})", self.nodes)
    }
}

impl HostKernel for Segment {
    fn run(&self, inputs: &[&[i8]]) -> Result<Vec<Vec<i8>>, String> {
        self.run(inputs).map_err(|e| e.to_string())
    }

    fn to_bytes(&self) -> Option<Vec<u8>> {
        Some(self.model.clone())
    }

    fn ops(&self) -> usize {
        self.nodes.len()
    }

    fn attributes(&self) -> Vec<Attribute> {
        let named = self
            .nodes
            .iter()
            .map(|(name, kind)| format!("{name} ({kind})"));
        let nodes = AttributeValue::Texts(named.collect());
        vec![Attribute::new(
            "nodes",
            nodes,
            "what it computes, with ONNX's operators",
        )]
    }

    fn sizes(&self) -> Option<(Vec<usize>, Vec<usize>)> {
        let all = |ports: &[Port]| ports.iter().map(values).collect::<Option<_>>();
        Some((all(&self.inputs)?, all(&self.outputs)?))
    }
}

#[cfg(test)]
mod tests;
