//! Reading: protobuf to [`Graph`].

mod bounds;
mod branch;
pub(crate) mod budget;
mod constants;
mod fused;
mod gemm;
mod nhwc;
mod older;
pub(super) mod order;
mod qoperator;
mod raw;
mod refused;
pub(crate) mod sizes;
pub(crate) mod state;
mod tensor;

use std::collections::{BTreeSet, HashMap, HashSet};

use prost::Message;

use super::external::External;
use super::{
    OnnxError, ReadOptions, batch, bias, elements, interface, pads, proto, prune, sequences,
    shuffle,
};
use crate::graph::{Element, Graph, Node, Op, ValueId};
use crate::operators::moves::split;
use crate::operators::operator::{Found, Made};
use order::{escape_names, node_error, sorted, uses};
use refused::Refused;
pub use refused::{Given, Partial};
use state::{Arguments, Import};
use tensor::input_type;
pub(crate) use tensor::read_tensor;

/// Reads an ONNX model that lies in one file.
///
/// # Errors
/// [`OnnxError`] naming the tensor or node and what is wrong with it.
pub fn load(bytes: &[u8]) -> Result<Graph, OnnxError> {
    load_part(bytes.to_vec(), &ReadOptions::default())?.whole()
}

/// Reads an ONNX model as far as it can be. The file's memory is given away, too, once the model is read.
///
/// # Errors
/// As for [`load`], where the fault is of no node.
pub fn load_part(bytes: Vec<u8>, options: &ReadOptions<'_>) -> Result<Partial, OnnxError> {
    let bytes = bytes::Bytes::from(bytes);
    let model = proto::Model::decode(bytes).map_err(|e| OnnxError::Decode(e.to_string()))?;
    let opset = model
        .opset_import
        .iter()
        .find(|o| o.domain.is_empty() || o.domain == "ai.onnx");
    let opset = opset.map(|o| o.version).unwrap_or(0);
    if !(6..=28).contains(&opset) {
        return Err(OnnxError::Model(format!(
            "opset {opset}; 6 to 28 are supported"
        )));
    }
    let mut proto = model
        .graph
        .ok_or_else(|| OnnxError::Model("the file has no graph".to_owned()))?;
    escape_names(&mut proto);
    nhwc::turn(&mut proto);
    qoperator::expand(&mut proto);
    gemm::turn(&mut proto);
    let mut import = Import {
        graph: Graph::default(),
        names: HashMap::new(),
        makers: HashMap::new(),
        uses: uses(&proto),
        open: HashSet::new(),
        examples: HashMap::new(),
        opset,
        budget: budget::Budget::default(),
        external: External::new(options),
    };
    import.graph.name.clone_from(&proto.name);
    import.graph.metadata = interface::own(model.metadata_props);
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
    let types = proto.value_info.iter().map(|info| (&info.name[..], info));
    let refused = import.nodes(sorted(&proto.node, &import.names)?, &types.collect())?;
    let ends = import.outputs(&proto, &refused)?;
    bias::fold(&mut import.graph)?;
    pads::fold(&mut import.graph);
    shuffle::fold(&mut import.graph);
    sequences::fold(&mut import.graph, &import.open);
    prune::prune(&mut import.graph);
    Ok(Partial {
        graph: import.graph,
        refused: refused.errors,
        behind: refused.behind,
        ends,
        given: refused.given,
    })
}

/// Every given shape is one of an input.
fn named_inputs(inputs: &[&proto::ValueInfo], options: &ReadOptions<'_>) -> Result<(), OnnxError> {
    let is_input = |name: &String| {
        if name.is_empty() {
            inputs.len() == 1
        } else {
            inputs.iter().any(|i| i.name == *name)
        }
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
            let stands_in = refused.given.iter().any(|given| given.value == output.name);
            let id = self.names.get(&output.name).filter(|_| !stands_in).copied();
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
        let computed = self.behind(self.graph.inputs.iter().copied().collect());
        let reads: BTreeSet<ValueId> = refused.reads.intersection(&computed).copied().collect();
        let given = refused.given.iter().map(|given| self.names[&given.value]);
        let late = self.behind(given.collect());
        let name = |id: &ValueId| self.graph.values[id.0].name.clone();
        let ends: Vec<String> = reads.difference(&late).map(name).collect();
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

    /// Values and all that is computed from them.
    fn behind(&self, mut values: BTreeSet<ValueId>) -> BTreeSet<ValueId> {
        for node in &self.graph.nodes {
            if node.inputs.iter().any(|id| values.contains(id)) {
                values.insert(node.output);
            }
        }
        values
    }

    fn node(&mut self, node: &proto::Node, index: usize) -> Result<(), OnnxError> {
        let fail = |reason: String| node_error(node, reason);
        let output = node.output.iter().find(|output| !output.is_empty());
        let output = output.ok_or_else(|| fail("it has no output".to_owned()))?;
        let mut arguments = Arguments::with_capacity(node.input.len());
        for name in &node.input {
            let id = self.names.get(name).copied();
            if id.is_none() && !name.is_empty() {
                return Err(fail(format!("input {name} is not defined")));
            }
            arguments.push(id.filter(|_| !name.is_empty()));
        }
        while let Some(None) = arguments.last() {
            arguments.pop();
        }
        if node.op_type == "Concat" {
            self.leave_out_empty(&mut arguments);
        }
        self.without_16_bits(node, &mut arguments)?;
        let is_open = arguments.iter().flatten().any(|id| self.open.contains(id));
        let own = node.domain.is_empty() || node.domain == "ai.onnx";
        // What is of another domain has no line in the table.
        if own && !is_open && self.known_here(node, output, &arguments)? {
            return Ok(());
        }
        if self.fused(node, &arguments, index)? {
            return Ok(());
        }
        if own && self.structured(node, &arguments)? {
            return Ok(());
        }
        let constant =
            |id: &Option<ValueId>| id.is_none_or(|id| self.graph.values[id.0].data.is_some());
        // Weights are read with their steps.
        let folds = node.op_type != "DequantizeLinear"
            && !arguments.is_empty()
            && arguments.iter().all(constant);
        let found = self.found(node, index, arguments).map_err(fail)?;
        if folds {
            return self.fold(&found);
        }
        if is_open {
            return self.raw(found, "a run says how large its input is".to_owned());
        }
        let [values, nodes] = [self.graph.values.len(), self.graph.nodes.len()];
        match self.device(&found, output) {
            Ok(()) => Ok(()),
            Err(reason) => {
                self.forget(values, nodes);
                self.raw(found, reason)
            }
        }
    }

    /// What has no elements adds nothing to a Concat.
    fn leave_out_empty(&self, arguments: &mut Arguments) {
        let is_empty =
            |id: &Option<ValueId>| id.is_some_and(|id| self.graph.values[id.0].shape.contains(&0));
        if !arguments.iter().all(is_empty) {
            arguments.retain(|id| !is_empty(id));
        }
    }

    /// Reads a node as an operator that devices may have.
    ///
    /// # Errors
    /// Why it can't be, in words; what was defined until then must be forgotten.
    fn device(&mut self, found: &Found<'_>, output: &str) -> Result<(), String> {
        let kind = found.op.kind;
        match found
            .inputs
            .first()
            .map(|id| self.graph.values[id.0].element)
        {
            Some(Element::F32) => {}
            Some(_) if kind == "DequantizeLinear" => {}
            Some(element) => return Err(format!("it computes with {element:?}")),
            None => return Err("it has no input".to_owned()),
        }
        if kind == "Split" {
            let named = found.node.output.iter().zip(split(self, found)?);
            let named = named.filter(|(output, _)| !output.is_empty());
            for (index, (output, piece)) in named.enumerate() {
                self.push(format!("{}.{index}", found.name), piece, output)?;
            }
            return Ok(());
        }
        if self.wanted(found.node).iter().any(|output| *output > 0) {
            return Err("a second output is read".to_owned());
        }
        let device = found.operator.device;
        let device = device.ok_or("the device has no such operator")?;
        let ((least, most), count) = (device.inputs, found.op.arguments.len());
        if !(least..=most).contains(&count) {
            return Err(format!("{count} inputs, not {least} to {most}"));
        }
        let made = (device.read)(self, found)?;
        if kind == "ReduceMean" && found.op.int("keepdims", 1) == 0 {
            let flat = made.shape[..2].to_vec();
            let mean = self.push(found.name.clone(), made, &format!("{output}.mean"))?;
            let flatten = Made {
                op: Op::Flatten,
                inputs: vec![mean],
                shape: flat,
            };
            return self
                .push(format!("{}.flatten", found.name), flatten, output)
                .map(drop);
        }
        // QuantizeLinear makes integers, of its zero point's type.
        let zero = made.inputs.get(2).map(|id| self.graph.values[id.0].element);
        let element = match made.op {
            Op::QuantizeLinear { .. } => zero.unwrap_or(Element::U8),
            _ => Element::F32,
        };
        let id = self.push(found.name.clone(), made, output)?;
        self.graph.values[id.0].element = element;
        Ok(())
    }

    /// Adds a node whose output has a name.
    fn push(&mut self, name: String, made: Made, output: &str) -> Result<ValueId, String> {
        let Made { op, inputs, shape } = made;
        let defined = elements(output, &shape).and_then(|_| self.define(output, shape, None));
        let output = defined.map_err(|e| e.to_string())?;
        self.push_node(Node {
            name,
            op,
            inputs,
            output,
        });
        Ok(output)
    }
}

#[cfg(test)]
mod tests;
