//! An ONNX model that the host's engine runs, and the nodes of a network that it stands for.

use std::fmt;

use vta_program::HostWork;

use crate::engine::{self, Engine, Lent, Tensor};
use crate::graph::{Data, Element, Graph};
use crate::onnx::{self, Port};

use super::error::HostError;
use super::view::View;

/// Key of a model's metadata that lists its nodes, names and kinds, as JSON.
const NODES: &str = "nodes";
/// Key of its multiply-adds and values, as JSON.
const WORK: &str = "work";
/// Key of its tables, as JSON: for each output the view of an input of whose values it is a table.
const TABLES: &str = "tables";
/// Key of its outputs that a run may give smaller than their shapes say, as JSON.
const OPEN: &str = "open";
/// The most tensors that a model takes or gives.
const MAX_PORTS: usize = 4096;

/// A model with inputs and outputs of any type and shape.
pub(super) struct HostModel {
    bytes: Vec<u8>,
    engine: Engine,
    pub(super) inputs: Vec<Port>,
    pub(super) outputs: Vec<Port>,
    /// Name and kind of each node of the network that it computes.
    pub(super) nodes: Vec<(String, String)>,
    pub(super) work: HostWork,
    /// For each output the view of an int8 input of which it is a function value by value, if there is one.
    pub(super) tables: Vec<Option<View>>,
    /// Outputs that may be smaller than they say: what is left of them is filled.
    open: Vec<usize>,
}

impl HostModel {
    /// The model of a graph; `nodes` are names and kinds of what it computes, for listings, and `tables` its outputs that
    /// are tables.
    pub(super) fn new(
        mut graph: Graph,
        nodes: &[(String, String)],
        tables: &[Option<View>],
    ) -> Result<Self, HostError> {
        let list = serde_json::to_string(nodes).map_err(|e| HostError::Form(e.to_string()))?;
        graph.metadata.insert(NODES.to_owned(), list);
        let work = work(&graph, tables);
        let list = serde_json::to_string(tables).map_err(|e| HostError::Form(e.to_string()))?;
        graph.metadata.insert(TABLES.to_owned(), list);
        let work = serde_json::to_string(&work).map_err(|e| HostError::Form(e.to_string()))?;
        graph.metadata.insert(WORK.to_owned(), work);
        let open = graph.open();
        let outputs = graph.outputs.clone();
        let places = (0..outputs.len()).filter(|&at| open[outputs[at].0]);
        let places: Vec<usize> = places.collect();
        if !places.is_empty() {
            let places =
                serde_json::to_string(&places).map_err(|e| HostError::Form(e.to_string()))?;
            graph.metadata.insert(OPEN.to_owned(), places);
        }
        Self::from_bytes(&engine::model(&graph, &outputs))
    }

    /// A model from the bytes of [`Self::bytes`].
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, HostError> {
        let interface = onnx::interface(bytes)?;
        let ports = || interface.inputs.iter().chain(&interface.outputs);
        if ports().count() > MAX_PORTS || interface.outputs.is_empty() {
            let text = format!("it takes and gives {} tensors", ports().count());
            return Err(HostError::Form(text));
        }
        let within = |port: &&Port| !values(port).is_some_and(|n| n > 0 && n <= onnx::MAX_ELEMENTS);
        if let Some(port) = ports().find(within) {
            return Err(HostError::port(port));
        }
        let list = interface.metadata.get(NODES).map(String::as_str);
        let nodes = serde_json::from_str(list.unwrap_or_default())
            .map_err(|e| HostError::Form(format!("the list of its nodes: {e}")))?;
        let work = interface.metadata.get(WORK).map(String::as_str);
        let [macs, values] = serde_json::from_str(work.unwrap_or_default())
            .map_err(|e| HostError::Form(format!("what it computes: {e}")))?;
        let tables = match interface.metadata.get(TABLES) {
            // Bundles before there were tables.
            None => vec![None; interface.outputs.len()],
            Some(text) => serde_json::from_str::<Vec<Option<View>>>(text)
                .map_err(|e| HostError::Form(format!("its tables: {e}")))?,
        };
        let of = |(output, view): (&Port, &Option<View>)| {
            let input = |view: &View| interface.inputs.get(view.input);
            let is_one = |view: &View| input(view).is_some_and(|i| is_table(i, output, view));
            view.as_ref().is_none_or(is_one)
        };
        let mut ends = interface.outputs.iter().zip(&tables);
        if tables.len() != interface.outputs.len() || !ends.all(of) {
            return Err(HostError::Form(
                "its tables aren't of its inputs".to_owned(),
            ));
        }
        let open = interface.metadata.get(OPEN).map_or("[]", String::as_str);
        let open = serde_json::from_str(open)
            .map_err(|e| HostError::Form(format!("its outputs that may be smaller: {e}")))?;
        Ok(Self {
            bytes: bytes.to_vec(),
            engine: Engine::new(bytes)?,
            inputs: interface.inputs,
            outputs: interface.outputs,
            nodes,
            work: HostWork { macs, values },
            tables,
            open,
        })
    }

    /// The bytes of an ONNX file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All outputs, in order, of data for each input.
    pub(super) fn run(&self, inputs: Vec<Data>) -> Result<Vec<Data>, HostError> {
        self.run_some(inputs, &(0..self.outputs.len()).collect::<Vec<_>>())
    }

    /// Some outputs, in order, of data for each input.
    pub(super) fn run_some(
        &self,
        inputs: Vec<Data>,
        outputs: &[usize],
    ) -> Result<Vec<Data>, HostError> {
        let expected: Vec<usize> = self.inputs.iter().filter_map(values).collect();
        let found: Vec<usize> = inputs.iter().map(Data::len).collect();
        if expected != found {
            return Err(HostError::Inputs { expected, found });
        }
        let ports = self.inputs.iter().zip(&inputs);
        if let Some((port, data)) = ports.clone().find(|(p, data)| p.element != data.element()) {
            let (name, element) = (port.name.clone(), data.element());
            let text = format!("input {name} takes {:?}, not {element:?}", port.element);
            return Err(HostError::Form(text));
        }
        let lent = ports.map(|(port, data)| Lent {
            name: &port.name,
            shape: &port.shape,
            data,
        });
        let lent: Vec<Lent<'_>> = lent.collect();
        let ports: Vec<(usize, &Port)> = outputs
            .iter()
            .filter_map(|&at| Some((at, self.outputs.get(at)?)))
            .collect();
        let names: Vec<&str> = ports.iter().map(|(_, port)| &port.name[..]).collect();
        let made = self.engine.run(&lent, &names)?;
        let output = |((at, port), tensor): ((usize, &Port), Tensor)| {
            let tensor = if self.open.contains(&at) {
                tensor.within(&port.shape)
            } else {
                Some(tensor).filter(|tensor| tensor.shape == port.shape)
            };
            let data = tensor.map(|tensor| engine::widened(tensor.data, port.element));
            let data = data.filter(|data| data.element() == port.element);
            data.ok_or_else(|| HostError::Output(port.name.clone()))
        };
        ports.into_iter().zip(made).map(output).collect()
    }
}

/// Whether an output may be a table of a view of an input.
fn is_table(input: &Port, output: &Port, view: &View) -> bool {
    let is_int8 = |port: &Port| port.element == Element::I8;
    let sizes = values(output).zip(values(input));
    is_int8(input) && is_int8(output) && sizes.is_some_and(|(given, read)| view.fits(given, read))
}

/// Multiply-adds, and values that operators give: those that something else than a table needs, and of a table
/// those that it gives.
fn work(graph: &Graph, tables: &[Option<View>]) -> [u64; 2] {
    let mut needed = vec![false; graph.values.len()];
    let mut given = 0u64;
    for (id, table) in graph.outputs.iter().zip(tables) {
        needed[id.0] |= table.is_none();
        if table.is_some() {
            let shape = graph.values[id.0].shape.iter();
            given = given.saturating_add(shape.map(|&d| d as u64).product());
        }
    }
    for node in graph.nodes.iter().rev() {
        if needed[node.output.0] {
            node.inputs.iter().for_each(|id| needed[id.0] = true);
        }
    }
    let nodes = graph.nodes.iter().filter(|node| needed[node.output.0]);
    let values = nodes.map(|node| graph.node_values(node));
    [graph.macs(), values.fold(given, u64::saturating_add)]
}

/// Whether a port may be a tensor of a device: int8, or int16, as which the library has int32.
pub(super) fn is_tensor(port: &Port) -> bool {
    matches!(port.element, Element::I8 | Element::I32)
}

/// A device's tensor as data of a port.
pub(super) fn given(port: &Port, values: &[i16]) -> Data {
    match port.element {
        Element::I32 => Data::I32(values.iter().map(|&x| x.into()).collect()),
        _ => Data::I8(values.iter().map(|&x| x as i8).collect()),
    }
}

/// Data of a port as a device's tensor.
pub(super) fn taken(port: &Port, data: Data) -> Result<Vec<i16>, HostError> {
    let values = match data {
        Data::I8(data) => Some(data.into_iter().map(i16::from).collect()),
        Data::I32(data) => data.into_iter().map(|x| x.try_into().ok()).collect(),
        _ => None,
    };
    values.ok_or_else(|| HostError::Output(port.name.clone()))
}

/// How many values a tensor has; `None` beyond the largest number.
pub(super) fn values(port: &Port) -> Option<usize> {
    port.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

impl PartialEq for HostModel {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl fmt::Debug for HostModel {
    /// The nodes, and a hash of the model, which says all that it depends on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fold =
            |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = self.bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold);
        write!(f, "({:?}, {hash:016x})", self.nodes)
    }
}
