//! A part of a network that the host computes at once.

use std::sync::OnceLock;

use vta_program::{Attribute, AttributeValue, HostKernel, HostWork};

use super::error::HostError;
use super::model::{HostModel, given, is_tensor, taken, values};
use super::view::View;
use crate::graph::{Data, Graph};
use crate::onnx::Port;

/// A part of a network: an ONNX model that reads and writes tensors of a device, with DequantizeLinear and
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
type Tables = Vec<Option<Box<[i16; 256]>>>;

impl PartialEq for Segment {
    fn eq(&self, other: &Self) -> bool {
        self.model == other.model
    }
}

impl Segment {
    /// The segment of a graph whose inputs and outputs are int8 or int16; `nodes` are names and kinds of
    /// what it computes, for listings.
    ///
    /// # Errors
    /// [`HostError`] for a graph that the engine can't load, or of other inputs and outputs.
    pub fn new(graph: Graph, nodes: &[(String, String)]) -> Result<Self, HostError> {
        let tables = vec![None; graph.outputs.len()];
        Self::with_tables(graph, nodes, &tables)
    }

    /// As [`Self::new`], with the outputs that are functions of views of inputs value by value.
    pub(crate) fn with_tables(
        graph: Graph,
        nodes: &[(String, String)],
        tables: &[Option<View>],
    ) -> Result<Self, HostError> {
        Self::checked(HostModel::new(graph, nodes, tables)?)
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
        match ports.find(|port| !is_tensor(port)) {
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
    pub fn run(&self, inputs: &[&[i16]]) -> Result<Vec<Vec<i16>>, HostError> {
        let expected: Vec<usize> = self.model.inputs.iter().filter_map(values).collect();
        let found: Vec<usize> = inputs.iter().map(|x| x.len()).collect();
        if expected != found {
            return Err(HostError::Inputs { expected, found });
        }
        let tables = self.tables()?;
        let others = (0..tables.len()).filter(|&at| tables[at].is_none());
        let others: Vec<usize> = others.collect();
        let mut computed = Vec::new();
        if !others.is_empty() {
            let inputs = self.model.inputs.iter().zip(inputs);
            let inputs = inputs.map(|(port, x)| given(port, x));
            computed = self.computed(inputs.collect(), &others)?;
        }
        let mut computed = computed.into_iter();
        let output = |(view, table): (&Option<View>, &Option<Box<[i16; 256]>>)| {
            let table = table.as_ref().zip(view.as_ref());
            match table.and_then(|(table, view)| Some((table, view, inputs.get(view.input)?))) {
                Some((table, view, input)) => Some(mapped(table, view, input)),
                None => computed.next(),
            }
        };
        let all = self.model.tables.iter().zip(tables).map(output);
        let all: Option<Vec<Vec<i16>>> = all.collect();
        all.ok_or_else(|| HostError::Form("internal error: an output is lost".to_owned()))
    }

    /// Some outputs as the engine computes them.
    fn computed(&self, inputs: Vec<Data>, outputs: &[usize]) -> Result<Vec<Vec<i16>>, HostError> {
        let made = self.model.run_some(inputs, outputs)?;
        let output = |(data, &at): (Data, &usize)| taken(&self.model.outputs[at], data);
        made.into_iter().zip(outputs).map(output).collect()
    }

    /// The tables, as the engine computes them.
    fn tables(&self) -> Result<&Tables, HostError> {
        if let Some(tables) = self.tables.get() {
            return Ok(tables);
        }
        let outputs = self.model.tables.iter().enumerate();
        let table = |(at, view): (usize, &Option<View>)| {
            let view = view.as_ref().map(|view| self.table(at, view));
            view.transpose()
        };
        let tables = outputs.map(table).collect::<Result<Tables, HostError>>()?;
        Ok(self.tables.get_or_init(|| tables))
    }

    /// What an output is for each int8 value of its input: as many in a run as it has values.
    fn table(&self, output: usize, view: &View) -> Result<Box<[i16; 256]>, HostError> {
        let mut table = Box::new([0; 256]);
        let given = view.count();
        for first in (0..256).step_by(given.max(1)) {
            let inputs = self.model.inputs.iter().enumerate().map(|(at, input)| {
                let mut data = vec![0; values(input).unwrap_or(0)];
                if at == view.input {
                    view.each(|to, from| data[from] = (first + to).wrapping_sub(128) as i8);
                }
                Data::I8(data)
            });
            let made = self.computed(inputs.collect(), &[output])?;
            let made = made.iter().flatten();
            table[first..]
                .iter_mut()
                .zip(made)
                .for_each(|(to, value)| *to = *value);
        }
        Ok(table)
    }
}

/// What a table makes of the values of a view.
fn mapped(table: &[i16; 256], view: &View, values: &[i16]) -> Vec<i16> {
    let value = |x: i16| table[usize::from((x as u8).wrapping_add(128))];
    if view.is_whole(values.len()) {
        return values.iter().map(|&x| value(x)).collect();
    }
    let mut given = vec![0; view.count()];
    view.each(|to, from| given[to] = value(values[from]));
    given
}

impl HostKernel for Segment {
    fn run(&self, inputs: &[&[i16]]) -> Result<Vec<Vec<i16>>, String> {
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
