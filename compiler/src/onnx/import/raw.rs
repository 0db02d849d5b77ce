//! Operators that are kept as the file has them, and those that are computed while it is read.

use std::collections::HashMap;

use super::arity::input_counts;
use super::order::node_error;
use super::state::{Arguments, Import};
use super::tensor::read_tensor;
use super::{moves, older, refused, sizes};
use crate::engine::{self, Engine};
use crate::graph::{Data, Element, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use crate::onnx::operators::{Known, Size, known};
use crate::onnx::{OnnxError, proto, shape};

/// Elements that operators may have while a file is read, all together: what computing them for their
/// shapes or values takes is in proportion.
const MAX_COMPUTED: u64 = 1 << 34;

/// Up to so many an operator is computed once to see that the host's engine can.
const MAX_CHECKED: u64 = 1 << 22;

impl<'a> Import<'a> {
    /// Keeps a node as it stands, for the reason that it isn't read in another way.
    ///
    /// # Errors
    /// An operator that nothing computes, or one that isn't sound.
    pub(super) fn raw(
        &mut self,
        node: &'a proto::Node,
        name: &str,
        mut arguments: Arguments,
        reason: String,
    ) -> Result<(), OnnxError> {
        let fail = |text: String| node_error(node, text);
        let kind = &node.op_type[..];
        let counts = moves::input_counts(kind).or_else(|| input_counts(kind));
        if counts.is_some_and(|(least, most)| !(least..=most).contains(&arguments.len())) {
            return Err(fail(reason));
        }
        if known(&node.domain, kind).is_none() && kind != "Upsample" {
            return Err(fail(refused::unknown(node)));
        }
        let why = reason.clone();
        let fail = |text: String| node_error(node, format!("{why}; nor does the host: {text}"));
        let (known, op) = self.onnx_op(node, &mut arguments, reason).map_err(fail)?;
        let inputs: Vec<ValueId> = arguments.into_iter().flatten().collect();
        let wanted = self.wanted(node);
        let shapes = self.shapes(&known, &op, &inputs, &wanted).map_err(fail)?;
        let elements: Vec<Element> = inputs
            .iter()
            .map(|id| self.graph.values[id.0].element)
            .collect();
        for (output, shape) in wanted.into_iter().zip(shapes) {
            let op = OnnxOp {
                output,
                ..op.clone()
            };
            let element = known.output(&op, &elements).map_err(fail)?;
            let made = &node.output[output];
            shape::elements(made, &shape)?;
            let id = self.define(made, shape, None)?;
            self.graph.values[id.0].element = element;
            self.push_node(Node {
                name: name.to_owned(),
                op: Op::Onnx(Box::new(op)),
                inputs: inputs.clone(),
                output: id,
            });
        }
        Ok(())
    }

    /// Computes a node whose inputs are constants.
    ///
    /// # Errors
    /// As for [`Import::raw`].
    pub(super) fn fold(
        &mut self,
        node: &'a proto::Node,
        mut arguments: Arguments,
    ) -> Result<(), OnnxError> {
        let fail = |text: String| node_error(node, text);
        let (known, op) = self
            .onnx_op(node, &mut arguments, String::new())
            .map_err(fail)?;
        let inputs: Vec<ValueId> = arguments.into_iter().flatten().collect();
        let wanted = self.wanted(node);
        let tensors = self.compute(&known, &op, &inputs, &wanted).map_err(fail)?;
        for (output, (shape, data)) in wanted.into_iter().zip(tensors) {
            shape::elements(&node.output[output], &shape)?;
            self.define(&node.output[output], shape, Some(data))?;
        }
        Ok(())
    }

    /// The outputs of a node that something reads.
    pub(super) fn wanted(&self, node: &proto::Node) -> Vec<usize> {
        let read = |name: &String| !name.is_empty() && self.uses.contains_key(name);
        let all = node.output.iter().enumerate();
        let mut wanted: Vec<usize> = all.filter(|(_, n)| read(n)).map(|(i, _)| i).collect();
        // What nobody reads is dropped later, by its first output's name.
        if wanted.is_empty() && node.output.first().is_some_and(|n| !n.is_empty()) {
            wanted.push(0);
        }
        wanted
    }

    /// A node's operator in the form of opset 13 or later, with constants for what were attributes
    /// before.
    fn onnx_op(
        &mut self,
        node: &'a proto::Node,
        arguments: &mut Arguments,
        reason: String,
    ) -> Result<(Known, OnnxOp), String> {
        let mut attributes = Vec::with_capacity(node.attribute.len());
        for attribute in &node.attribute {
            let value = self.attribute(attribute)?;
            attributes.push((attribute.name.clone(), value));
        }
        let mut older = older::Older {
            kind: &node.op_type,
            attributes,
            constants: Vec::new(),
        };
        let first = arguments.first().copied().flatten();
        let rank = first.map_or(0, |id| self.graph.values[id.0].shape.len());
        older.renew(self.opset, rank, arguments)?;
        let known = known(&node.domain, older.kind).ok_or_else(|| refused::unknown(node))?;
        if let Size::Window(kind) = known.size {
            older.windows(kind, rank.saturating_sub(2));
        }
        for (argument, suffix, shape, data) in older.constants {
            let output = node.output.first().map_or("", String::as_str);
            let name = format!("{output}.{suffix}");
            let id = self
                .define(&name, shape, Some(data))
                .map_err(|e| e.to_string())?;
            if arguments.len() <= argument {
                arguments.resize(argument + 1, None);
            }
            arguments[argument] = Some(id);
        }
        let op = OnnxOp {
            kind: known.kind,
            domain: known.domain,
            opset: self.opset.max(13),
            attributes: older.attributes,
            arguments: arguments.iter().map(Option::is_some).collect(),
            output: 0,
            reason,
        };
        Ok((known, op))
    }

    fn attribute(&mut self, attribute: &proto::Attribute) -> Result<OnnxAttribute, String> {
        let name = || vta_files::printable(&attribute.name).into_owned();
        Ok(match attribute.kind {
            proto::ATTRIBUTE_INT => OnnxAttribute::Int(attribute.i),
            proto::ATTRIBUTE_FLOAT => OnnxAttribute::Float(attribute.f),
            proto::ATTRIBUTE_STRING => OnnxAttribute::Text(attribute.s.to_vec()),
            proto::ATTRIBUTE_INTS => OnnxAttribute::Ints(attribute.ints.clone()),
            proto::ATTRIBUTE_FLOATS => OnnxAttribute::Floats(attribute.floats.clone()),
            proto::ATTRIBUTE_TENSOR => {
                let tensor = attribute.t.as_ref();
                let tensor = tensor.ok_or_else(|| format!("{} is empty", name()))?;
                let read = read_tensor(&name(), tensor, &mut self.external);
                let (shape, data) = read.map_err(|e| e.to_string())?;
                OnnxAttribute::Tensor { shape, data }
            }
            other => return Err(format!("attribute {} of kind {other}", name())),
        })
    }

    /// The shapes of a node's outputs.
    fn shapes(
        &mut self,
        known: &Known,
        op: &OnnxOp,
        inputs: &[ValueId],
        wanted: &[usize],
    ) -> Result<Vec<Vec<usize>>, String> {
        let shapes: Vec<&[usize]> = inputs
            .iter()
            .map(|id| &self.graph.values[id.0].shape[..])
            .collect();
        if let Some(shape) = sizes::direct(known.size, op, &shapes)? {
            self.check(known, op, inputs, wanted, &shape)?;
            return Ok(vec![shape; wanted.len()]);
        }
        let computed = self.compute(known, op, inputs, wanted)?;
        Ok(computed.into_iter().map(|(shape, _)| shape).collect())
    }

    /// Whether the engine takes an operator, and gives the shape that is expected where computing it
    /// takes little.
    fn check(
        &mut self,
        known: &Known,
        op: &OnnxOp,
        inputs: &[ValueId],
        wanted: &[usize],
        shape: &[usize],
    ) -> Result<(), String> {
        let values: Vec<&Value> = inputs.iter().map(|id| &self.graph.values[id.0]).collect();
        let read = values
            .iter()
            .map(|v| v.shape.iter().map(|&d| d as u64).product());
        let work = sizes::work(known.size, op, &values)?;
        if read.fold(work, u64::saturating_add) > MAX_CHECKED {
            return Ok(());
        }
        let computed = self.compute(known, op, inputs, wanted)?;
        match computed.iter().find(|(found, _)| found != shape) {
            None => Ok(()),
            Some((found, _)) => Err(format!("the host makes {found:?} of it, not {shape:?}")),
        }
    }

    /// A node's outputs, with zeros for inputs that aren't constants.
    fn compute(
        &mut self,
        known: &Known,
        op: &OnnxOp,
        inputs: &[ValueId],
        wanted: &[usize],
    ) -> Result<Vec<(Vec<usize>, Data)>, String> {
        let values: Vec<&Value> = inputs.iter().map(|id| &self.graph.values[id.0]).collect();
        let work = sizes::work(known.size, op, &values)?;
        let read = values
            .iter()
            .map(|v| v.shape.iter().map(|&d| d as u64).product());
        let work = read.fold(work, u64::saturating_add);
        self.computed = self.computed.saturating_add(work);
        if self.computed > MAX_COMPUTED {
            return Err(format!(
                "with it, reading the model computes more than {MAX_COMPUTED} elements"
            ));
        }
        let types: Vec<Element> = values.iter().map(|v| v.element).collect();
        let outputs = wanted.iter().map(|&output| {
            let op = OnnxOp {
                output,
                ..op.clone()
            };
            Ok((known.output(&op, &types)?, op))
        });
        let outputs: Vec<(Element, OnnxOp)> = outputs.collect::<Result<_, String>>()?;
        run(&values, &outputs)
    }
}

/// Runs one operator on its own.
fn run(
    values: &[&Value],
    outputs: &[(Element, OnnxOp)],
) -> Result<Vec<(Vec<usize>, Data)>, String> {
    let mut graph = Graph::default();
    let mut ids = Vec::with_capacity(values.len());
    let mut zeros: HashMap<String, engine::Tensor> = HashMap::new();
    for (index, value) in values.iter().enumerate() {
        let name = format!("i{index}");
        let id = ValueId(graph.values.len());
        if value.data.is_none() {
            graph.inputs.push(id);
            let data = Data::zeros(value.element, value.shape.iter().product());
            let shape = value.shape.clone();
            zeros.insert(name.clone(), engine::Tensor { shape, data });
        }
        graph.values.push(Value {
            name,
            ..(*value).clone()
        });
        ids.push(id);
    }
    for (element, op) in outputs {
        let output = ValueId(graph.values.len());
        graph.values.push(Value {
            element: *element,
            ..Value::new(format!("o{}", op.output), Vec::new(), None)
        });
        graph.nodes.push(Node {
            name: "node".to_owned(),
            op: Op::Onnx(Box::new(op.clone())),
            inputs: ids.clone(),
            output,
        });
        graph.outputs.push(output);
    }
    let engine = Engine::new(engine::model(&graph, &graph.outputs)).map_err(|e| e.to_string())?;
    let given: Vec<(&str, &engine::Tensor)> = zeros.iter().map(|(n, t)| (&n[..], t)).collect();
    let names: Vec<String> = outputs
        .iter()
        .map(|(_, op)| format!("o{}", op.output))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tensors = engine.run(&given, &names).map_err(|e| e.to_string())?;
    let typed = |(tensor, (element, _)): (engine::Tensor, &(Element, OnnxOp))| {
        Ok((tensor.shape, typed(tensor.data, *element)?))
    };
    tensors.into_iter().zip(outputs).map(typed).collect()
}

/// The engine's data as the type that ONNX says: it has one width of integers.
fn typed(data: Data, element: Element) -> Result<Data, String> {
    if data.element() == element {
        return Ok(data);
    }
    match (data, element) {
        (Data::I32(v), Element::I64) => Ok(Data::I64(v.into_iter().map(i64::from).collect())),
        (Data::I32(v), Element::Bool) => Ok(Data::Bool(v.into_iter().map(|x| x != 0).collect())),
        (data, _) => Err(format!("it gives {:?}, not {element:?}", data.element())),
    }
}
