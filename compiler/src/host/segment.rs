//! A part of a network that the host computes at once.

use std::sync::OnceLock;

use vta_program::{Attribute, AttributeValue, HostKernel, HostWork};

use super::error::HostError;
use super::model::{HostModel, values};
use crate::graph::{Data, Element, Graph};
use crate::onnx::Port;

/// A part of a network: an ONNX model that reads and writes int8 tensors, with DequantizeLinear and
/// QuantizeLinear inside.
///
/// The reference interpreter and the driver run the same, so that bits are equal.
#[derive(Debug)]
pub struct Segment {
    model: HostModel,
    /// The outputs that are functions of one input value by value, once something ran.
    tables: OnceLock<Tables>,
}

/// What each int8 value becomes, from -128 up; for each output that is a table.
type Tables = Vec<Option<Box<[i8; 256]>>>;

impl PartialEq for Segment {
    fn eq(&self, other: &Self) -> bool {
        self.model == other.model
    }
}

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
            None => Ok(Self {
                model,
                tables: OnceLock::new(),
            }),
        }
    }

    /// Name and kind of each node of the network that it computes, in order.
    pub fn nodes(&self) -> &[(String, String)] {
        &self.model.nodes
    }

    /// The distinct kinds of its nodes, in the order in which they come first.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for (_, kind) in &self.model.nodes {
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
        let expected: Vec<usize> = self.model.inputs.iter().filter_map(values).collect();
        let found: Vec<usize> = inputs.iter().map(|x| x.len()).collect();
        if expected != found {
            return Err(HostError::Inputs { expected, found });
        }
        let tables = self.tables()?;
        let ports = self.model.outputs.iter().zip(tables);
        let others = ports.filter(|(_, table)| table.is_none());
        let others: Vec<&Port> = others.map(|(port, _)| port).collect();
        let mut computed = Vec::new();
        if !others.is_empty() {
            let inputs = inputs.iter().map(|x| Data::I8(x.to_vec()));
            computed = self.bytes(inputs.collect(), &others)?;
        }
        let mut computed = computed.into_iter();
        let output = |(at, table): (usize, &Option<Box<[i8; 256]>>)| {
            let input = self.model.tables[at].and_then(|input| inputs.get(input));
            match (table, input) {
                (Some(table), Some(input)) => Some(mapped(table, input)),
                _ => computed.next(),
            }
        };
        let all: Option<Vec<Vec<i8>>> = tables.iter().enumerate().map(output).collect();
        all.ok_or_else(|| HostError::Form("internal error: an output is lost".to_owned()))
    }

    /// Some outputs as the engine computes them.
    fn bytes(&self, inputs: Vec<Data>, outputs: &[&Port]) -> Result<Vec<Vec<i8>>, HostError> {
        let made = self.model.run_some(inputs, outputs)?;
        let output = |(data, port): (Data, &&Port)| match data {
            Data::I8(data) => Ok(data),
            _ => Err(HostError::Output(port.name.clone())),
        };
        made.into_iter().zip(outputs).map(output).collect()
    }

    /// The tables, as the engine computes them.
    fn tables(&self) -> Result<&Tables, HostError> {
        if let Some(tables) = self.tables.get() {
            return Ok(tables);
        }
        let sources = &self.model.tables;
        let mut tables: Tables = sources.iter().map(|_| None).collect();
        for (input, port) in self.model.inputs.iter().enumerate() {
            let own = |at: &usize| sources[*at] == Some(input);
            let own: Vec<usize> = (0..tables.len()).filter(own).collect();
            let len = values(port).unwrap_or(0);
            // As many values in a run as the input has, from the one on that the run before left off at.
            for first in (0..256).step_by(len.max(1)).filter(|_| !own.is_empty()) {
                let made = self.values_from(first, &own)?;
                for (&output, made) in own.iter().zip(&made) {
                    let table = tables[output].get_or_insert_with(|| Box::new([0; 256]));
                    for (to, value) in table[first..].iter_mut().zip(made) {
                        *to = *value;
                    }
                }
            }
        }
        Ok(self.tables.get_or_init(|| tables))
    }

    /// Some outputs where the inputs have all int8 values, one after the other, from one of them on.
    fn values_from(&self, first: usize, outputs: &[usize]) -> Result<Vec<Vec<i8>>, HostError> {
        let value = |at: usize| ((first + at) as u8).wrapping_add(128) as i8;
        let inputs = self.model.inputs.iter().map(|port| {
            let len = values(port).unwrap_or(0);
            Data::I8((0..len).map(value).collect())
        });
        let ports: Vec<&Port> = outputs.iter().map(|&at| &self.model.outputs[at]).collect();
        self.bytes(inputs.collect(), &ports)
    }
}

/// What a table makes of values.
fn mapped(table: &[i8; 256], values: &[i8]) -> Vec<i8> {
    let value = |&x: &i8| table[usize::from((x as u8).wrapping_add(128))];
    values.iter().map(value).collect()
}

impl HostKernel for Segment {
    fn run(&self, inputs: &[&[i8]]) -> Result<Vec<Vec<i8>>, String> {
        self.run(inputs).map_err(|e| e.to_string())
    }

    fn to_bytes(&self) -> Option<Vec<u8>> {
        Some(self.model.bytes().to_vec())
    }

    fn ops(&self) -> usize {
        self.model.nodes.len()
    }

    fn operators(&self) -> Vec<&str> {
        self.nodes().iter().map(|(_, kind)| &kind[..]).collect()
    }

    fn work(&self) -> HostWork {
        self.model.work
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
        Some((all(&self.model.inputs)?, all(&self.model.outputs)?))
    }
}

#[cfg(test)]
mod tests;
