//! Reading: protobuf to [`Graph`].

pub(crate) mod attributes;
mod bounds;
mod branch;
pub(crate) mod budget;
mod constants;
mod gemm;
mod older;
mod order;
mod qoperator;
mod raw;
mod refused;
mod sizes;
pub(crate) mod state;
mod tensor;

use std::collections::{BTreeSet, HashMap};

use prost::Message;

use super::external::External;
use super::{OnnxError, ReadOptions, batch, bias, elements, pads, proto, prune, shuffle};
use crate::graph::{Element, Graph, Node, Op, ValueId};
use crate::operators;
use crate::operators::operator::Inputs;
use attributes::Attributes;
use order::{escape_names, node_error, sorted, uses};
pub use refused::Partial;
use refused::Refused;
use state::{Arguments, Import};
use tensor::{input_type, read_tensor};

/// Reads an ONNX model that lies in one file.
///
/// # Errors
/// [`OnnxError`] naming the tensor or node and what is wrong with it.
pub fn load(bytes: &[u8]) -> Result<Graph, OnnxError> {
    load_with(bytes, &ReadOptions::default())
}

/// Reads an ONNX model.
///
/// # Errors
/// [`OnnxError`] naming the tensor or node and what is wrong with it.
pub fn load_with(bytes: &[u8], options: &ReadOptions<'_>) -> Result<Graph, OnnxError> {
    load_file(bytes.to_vec(), options)
}

/// Reads an ONNX model whose file is given away: its memory is, too, once the model is read.
///
/// # Errors
/// As for [`load_with`].
pub fn load_file(bytes: Vec<u8>, options: &ReadOptions<'_>) -> Result<Graph, OnnxError> {
    load_part(bytes, options)?.whole()
}

/// Reads an ONNX model as far as it can be.
///
/// # Errors
/// As for [`load_with`], where the fault is of no node.
pub fn load_part(bytes: Vec<u8>, options: &ReadOptions<'_>) -> Result<Partial, OnnxError> {
    let bytes = bytes::Bytes::from(bytes);
    let model = proto::Model::decode(bytes).map_err(|e| OnnxError::Decode(e.to_string()))?;
    let opset = model
        .opset_import
        .iter()
        .find(|o| o.domain.is_empty() || o.domain == "ai.onnx");
    let opset = opset.map(|o| o.version).unwrap_or(0);
    if !(6..=25).contains(&opset) {
        return Err(OnnxError::Model(format!(
            "opset {opset}; 6 to 25 are supported"
        )));
    }
    let mut proto = model
        .graph
        .ok_or_else(|| OnnxError::Model("the file has no graph".to_owned()))?;
    escape_names(&mut proto);
    qoperator::expand(&mut proto);
    gemm::turn(&mut proto);
    let mut import = Import {
        graph: Graph::default(),
        names: HashMap::new(),
        makers: HashMap::new(),
        uses: uses(&proto),
        opset,
        budget: budget::Budget::default(),
        external: External::new(options),
    };
    import.graph.name.clone_from(&proto.name);
    let metadata = model.metadata_props.into_iter();
    import.graph.metadata = metadata
        .filter_map(|e| Some((e.key.strip_prefix("vta.")?.to_owned(), e.value)))
        .collect();
    for tensor in &proto.initializer {
        let (shape, data) = read_tensor(&tensor.name, tensor, &mut import.external)?;
        import.budget.add_constant(&data);
        import.define(&tensor.name, shape, Some(data))?;
    }
    let inputs = proto
        .input
        .iter()
        .filter(|i| !import.names.contains_key(&i.name));
    let inputs: Vec<&proto::ValueInfo> = inputs.collect();
    named_inputs(&inputs, options)?;
    batch::note(&mut import.graph, &inputs);
    for input in inputs {
        let (shape, element) = input_type(input, options)?;
        import.budget.add_input(&shape, element);
        let id = import.define(&input.name, shape, None)?;
        import.graph.values[id.0].element = element;
        import.graph.inputs.push(id);
    }
    let refused = import.nodes(sorted(&proto.node, &import.names)?)?;
    let ends = import.outputs(&proto, &refused)?;
    bias::fold(&mut import.graph)?;
    pads::fold(&mut import.graph);
    shuffle::fold(&mut import.graph);
    prune::prune(&mut import.graph);
    Ok(Partial {
        graph: import.graph,
        refused: refused.errors,
        behind: refused.behind,
        ends,
    })
}

/// Every given shape is one of an input.
fn named_inputs(inputs: &[&proto::ValueInfo], options: &ReadOptions<'_>) -> Result<(), OnnxError> {
    let is_input = |name: &String| match name.is_empty() {
        true => inputs.len() == 1,
        false => inputs.iter().any(|i| i.name == *name),
    };
    let Some(name) = options.shapes.keys().find(|name| !is_input(name)) else {
        return Ok(());
    };
    let names: Vec<&str> = inputs.iter().map(|i| &i.name[..]).collect();
    Err(OnnxError::Model(format!(
        "input shape {}: the inputs are {}",
        vta_files::printable(name),
        names.join(", ")
    )))
}

impl Import<'_> {
    /// The model's outputs, as far as they are read, and then what refused nodes would read, whose names it gives.
    fn outputs(
        &mut self,
        proto: &proto::Graph,
        refused: &Refused,
    ) -> Result<Vec<String>, OnnxError> {
        for output in &proto.output {
            let id = self.names.get(&output.name).copied();
            if id.is_none() && !refused.errors.is_empty() {
                continue;
            }
            let id = id
                .ok_or_else(|| OnnxError::Model(format!("no node makes output {}", output.name)))?;
            if self.graph.values[id.0].data.is_some() {
                let text = format!("output {} depends on no input", output.name);
                return Err(OnnxError::Model(text));
            }
            self.graph.outputs.push(id);
        }
        // Constants that nodes make, as weights behind a DequantizeLinear, are no ends.
        let mut computed: BTreeSet<ValueId> = self.graph.inputs.iter().copied().collect();
        for node in &self.graph.nodes {
            if node.inputs.iter().any(|id| computed.contains(id)) {
                computed.insert(node.output);
            }
        }
        let reads: BTreeSet<ValueId> = refused.reads.intersection(&computed).copied().collect();
        let name = |id: &ValueId| self.graph.values[id.0].name.clone();
        let ends: Vec<String> = reads.iter().map(name).collect();
        let given: BTreeSet<ValueId> = self.graph.outputs.iter().copied().collect();
        self.graph.outputs.extend(reads.difference(&given));
        let is_whole = refused.errors.is_empty();
        let is_empty = self.graph.inputs.is_empty() || self.graph.outputs.is_empty();
        if is_whole && is_empty {
            return Err(OnnxError::Model(
                "the graph has no input or no output".to_owned(),
            ));
        }
        Ok(ends)
    }

    fn node(&mut self, node: &proto::Node, index: usize) -> Result<(), OnnxError> {
        let fail = |reason: String| node_error(node, reason);
        let output = node.output.iter().find(|output| !output.is_empty());
        let output = output.ok_or_else(|| fail("it has no output".to_owned()))?;
        let mut arguments = Arguments::with_capacity(node.input.len());
        for name in &node.input {
            let id = self.names.get(name).copied();
            arguments.push(match name.is_empty() {
                true => None,
                false => Some(id.ok_or_else(|| fail(format!("input {name} is not defined")))?),
            });
        }
        while let Some(None) = arguments.last() {
            arguments.pop();
        }
        let own = node.domain.is_empty() || node.domain == "ai.onnx";
        if own && self.known_here(node, output, &arguments)? {
            return Ok(());
        }
        let condition = arguments.first().copied().flatten();
        let condition = condition.and_then(|id| self.graph.values[id.0].data.as_ref());
        if own && let Some(taken) = branch::taken(node, condition) {
            return self.branch(node, taken);
        }
        if own && let Some(body) = branch::body(node) {
            return self.unrolled(node, body, &arguments);
        }
        if own && self.opset < 7 {
            let ranks = [0, 1].map(|i| match arguments.get(i) {
                Some(Some(id)) => self.graph.values[id.0].shape.len(),
                _ => 0,
            });
            older::as_opset_7(&Attributes(node), ranks).map_err(fail)?;
        }
        let constant =
            |id: &Option<ValueId>| id.is_none_or(|id| self.graph.values[id.0].data.is_some());
        let scales = matches!(&node.op_type[..], "QuantizeLinear" | "DequantizeLinear");
        if own && !scales && !arguments.is_empty() && arguments.iter().all(constant) {
            return self.fold(node, arguments);
        }
        let name = if node.name.is_empty() {
            format!("{}_{index}", node.op_type)
        } else {
            node.name.clone()
        };
        let mark = self.graph.values.len();
        let nodes = self.graph.nodes.len();
        let typed = match own {
            true => self.typed(node, &name, &arguments, output),
            false => Err(format!(
                "operators of domain {} are not supported",
                node.domain
            )),
        };
        match typed {
            Ok(()) => Ok(()),
            Err(reason) => {
                self.forget(mark, nodes);
                self.raw(node, &name, arguments, reason)
            }
        }
    }

    /// Reads a node as an operator that devices may have.
    ///
    /// # Errors
    /// Why it can't be, in words; what was defined until then must be forgotten.
    fn typed(
        &mut self,
        node: &proto::Node,
        name: &str,
        arguments: &Arguments,
        output: &str,
    ) -> Result<(), String> {
        let mut inputs: Vec<ValueId> = arguments.iter().map_while(|id| *id).collect();
        let attributes = Attributes(node);
        let reads = |id: &ValueId| self.graph.values[id.0].element;
        match inputs.first().map(reads) {
            Some(Element::F32) => {}
            Some(_) if node.op_type == "DequantizeLinear" => {}
            Some(element) => return Err(format!("it computes with {element:?}")),
            None => return Err("it has no input".to_owned()),
        }
        if node.op_type == "Split" {
            let pieces = self.split(&attributes, inputs[0])?;
            let named = node.output.iter().zip(pieces);
            let named = named.filter(|(output, _)| !output.is_empty());
            for (index, (output, op)) in named.enumerate() {
                self.push(format!("{name}.{index}"), op, vec![inputs[0]], output)?;
            }
            return Ok(());
        }
        if self.wanted(node).iter().any(|output| *output > 0) {
            return Err("a second output is read".to_owned());
        }
        let operator = operators::find(&node.domain, &node.op_type);
        let device = operator.and_then(|operator| operator.device);
        let device = device.ok_or("the device has no such operator")?;
        let (least, most) = device.inputs;
        if !(least..=most).contains(&inputs.len()) {
            return Err(format!("{} inputs, not {least} to {most}", inputs.len()));
        }
        let op = (device.read)(self, &attributes, name, &mut inputs)?;
        if node.op_type == "ReduceMean" && attributes.int("keepdims", 1) == 0 {
            let mean = self.push(name.to_owned(), op, inputs, &format!("{output}.mean"))?;
            self.push(format!("{name}.flatten"), Op::Flatten, vec![mean], output)?;
            return Ok(());
        }
        // QuantizeLinear makes integers, of its zero point's type.
        let zero = inputs.get(2).map(|id| self.graph.values[id.0].element);
        let element = match op {
            Op::QuantizeLinear { .. } => zero.unwrap_or(Element::U8),
            _ => Element::F32,
        };
        let made = self.push(name.to_owned(), op, inputs, output)?;
        self.graph.values[made.0].element = element;
        Ok(())
    }

    /// Adds a node whose output has a name.
    fn push(
        &mut self,
        name: String,
        op: Op,
        inputs: Vec<ValueId>,
        output: &str,
    ) -> Result<ValueId, String> {
        let made = Node {
            name,
            op,
            inputs,
            output: ValueId(0),
        };
        let inputs = Inputs {
            graph: &self.graph,
            node: &made,
        };
        let shape = (made.op.facts().shape)(&inputs)?;
        let defined = elements(output, &shape).and_then(|_| self.define(output, shape, None));
        let output = defined.map_err(|e| e.to_string())?;
        self.push_node(Node { output, ..made });
        Ok(output)
    }
}

#[cfg(test)]
mod tests;
