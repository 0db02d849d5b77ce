//! A part of a network that the host computes at once.

use vta_program::{Attribute, AttributeValue, HostKernel, HostWork};

use super::error::HostError;
use super::model::{HostModel, values};
use crate::graph::{Data, Element, Graph};
use crate::onnx::Port;

/// A part of a network: an ONNX model that reads and writes int8 tensors, with DequantizeLinear and
/// QuantizeLinear inside.
///
/// The reference interpreter and the driver run the same, so that bits are equal.
#[derive(Debug, PartialEq)]
pub struct Segment(HostModel);

impl Segment {
    /// The segment of a graph whose inputs and outputs are int8; `nodes` are names and kinds of
    /// what it computes, for listings.
    ///
    /// # Errors
    /// [`HostError`] for a graph that the engine can't load, or of other inputs and outputs.
    pub fn new(graph: Graph, nodes: &[(String, String)]) -> Result<Self, HostError> {
        Self::checked(HostModel::new(graph, nodes)?)
    }

    /// A segment from its bytes, those of an ONNX model.
    ///
    /// # Errors
    /// [`HostError`] for bytes that are no segment.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HostError> {
        Self::checked(HostModel::from_bytes(bytes)?)
    }

    fn checked(model: HostModel) -> Result<Self, HostError> {
        let mut ports = model.inputs.iter().chain(&model.outputs);
        match ports.find(|port| port.element != Element::I8) {
            Some(port) => Err(HostError::port(port)),
            None => Ok(Self(model)),
        }
    }

    /// Name and kind of each node of the network that it computes, in order.
    pub fn nodes(&self) -> &[(String, String)] {
        &self.0.nodes
    }

    /// The distinct kinds of its nodes, in the order in which they come first.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for (_, kind) in &self.0.nodes {
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
        let inputs = inputs.iter().map(|x| Data::I8(x.to_vec()));
        let made = self.0.run(inputs.collect())?;
        let output = |(data, port): (Data, &Port)| match data {
            Data::I8(data) => Ok(data),
            _ => Err(HostError::Output(port.name.clone())),
        };
        made.into_iter().zip(&self.0.outputs).map(output).collect()
    }
}

impl HostKernel for Segment {
    fn run(&self, inputs: &[&[i8]]) -> Result<Vec<Vec<i8>>, String> {
        self.run(inputs).map_err(|e| e.to_string())
    }

    fn to_bytes(&self) -> Option<Vec<u8>> {
        Some(self.0.bytes().to_vec())
    }

    fn ops(&self) -> usize {
        self.0.nodes.len()
    }

    fn operators(&self) -> Vec<&str> {
        self.nodes().iter().map(|(_, kind)| &kind[..]).collect()
    }

    fn work(&self) -> HostWork {
        self.0.work
    }

    fn attributes(&self) -> Vec<Attribute> {
        let named = self
            .nodes()
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
        Some((all(&self.0.inputs)?, all(&self.0.outputs)?))
    }
}

#[cfg(test)]
mod tests;
