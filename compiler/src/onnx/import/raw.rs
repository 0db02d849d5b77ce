//! Operators that are kept as the file has them, and those that are computed while it is read.

use super::budget::bytes;
use super::order::node_error;
use super::state::{Arguments, Import};
use super::tensor::read_tensor;
use super::{older, refused, sizes};
use crate::engine::{self, Engine};
use crate::graph::{Data, Element, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use crate::onnx::{OnnxError, elements, proto};
use crate::operators::find;
use crate::operators::operator::{Operator, Size};

/// Up to so many elements or multiply-adds an operator is computed once to see that the host's engine can.
const MAX_CHECKED: u64 = 1 << 22;

impl Import<'_> {
    /// Keeps a node as it stands, for the reason that it isn't read in another way.
    ///
    /// # Errors
    /// An operator that nothing computes, or one that isn't sound.
    pub(super) fn raw(
        &mut self,
        node: &proto::Node,
        name: &str,
        mut arguments: Arguments,
        reason: String,
    ) -> Result<(), OnnxError> {
        let fail = |text: String| node_error(node, text);
        let kind = &node.op_type[..];
        let Some(operator) = find(&node.domain, kind) else {
            return Err(fail(refused::unknown(node)));
        };
        let counts = operator.device.map(|device| device.inputs);
        if counts.is_some_and(|(least, most)| !(least..=most).contains(&arguments.len())) {
            return Err(fail(reason));
        }
        let why = reason.clone();
        let fail = |text: String| node_error(node, format!("{why}; nor does the host: {text}"));
        let (operator, op) = self.onnx_op(node, &mut arguments, reason).map_err(fail)?;
        let inputs: Vec<ValueId> = arguments.into_iter().flatten().collect();
        let wanted = self.wanted(node);
        let shapes = self
            .shapes(&operator, &op, &inputs, &wanted)
            .map_err(fail)?;
        let types: Vec<Element> = inputs
            .iter()
            .map(|id| self.graph.values[id.0].element)
            .collect();
        for (output, shape) in wanted.into_iter().zip(shapes) {
            let op = OnnxOp {
                output,
                ..op.clone()
            };
            let element = operator.output(&op, &types).map_err(fail)?;
            let made = &node.output[output];
            elements(made, &shape)?;
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
        node: &proto::Node,
        mut arguments: Arguments,
    ) -> Result<(), OnnxError> {
        let fail = |text: String| node_error(node, text);
        let (operator, op) = self
            .onnx_op(node, &mut arguments, String::new())
            .map_err(fail)?;
        let inputs: Vec<ValueId> = arguments.into_iter().flatten().collect();
        let wanted = self.wanted(node);
        let tensors = self
            .compute(&operator, &op, &inputs, &wanted)
            .map_err(fail)?;
        for (output, (shape, data)) in wanted.into_iter().zip(tensors) {
            let name = &node.output[output];
            elements(name, &shape)?;
            self.budget.held += bytes(&shape, data.element());
            let id = self.define(name, shape, Some(data))?;
            let reads = self.uses.get(name).copied().unwrap_or(0);
            self.budget.folded.insert(id, reads);
        }
        for name in &node.input {
            if let Some(&id) = self.names.get(name) {
                self.folded_again(id);
            }
        }
        Ok(())
    }

    /// A folded constant was folded into another one: after its last reader it goes.
    fn folded_again(&mut self, id: ValueId) {
        let Some(reads) = self.budget.folded.get_mut(&id) else {
            return;
        };
        *reads = reads.saturating_sub(1);
        if *reads == 0 {
            self.budget.folded.remove(&id);
            let value = &mut self.graph.values[id.0];
            self.budget.held -= bytes(&value.shape, value.element);
            value.data = None;
        }
    }

    /// The outputs of a node that something reads.
    pub(super) fn wanted(&self, node: &proto::Node) -> Vec<usize> {
        let read = |name: &String| !name.is_empty() && self.uses.contains_key(name);
        let all = node.output.iter().enumerate();
        let mut wanted: Vec<usize> = all.filter(|(_, n)| read(n)).map(|(i, _)| i).collect();
        // What nobody reads is dropped later, by its first output's name.
        if wanted.is_empty() {
            wanted.extend(node.output.iter().position(|name| !name.is_empty()));
        }
        wanted
    }

    /// A node's operator in the form of opset 13 or later, with constants for what were attributes
    /// before.
    fn onnx_op(
        &mut self,
        node: &proto::Node,
        arguments: &mut Arguments,
        reason: String,
    ) -> Result<(Operator, OnnxOp), String> {
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
        let operator = find(&node.domain, older.kind).ok_or_else(|| refused::unknown(node))?;
        if let Size::Window(kind) = operator.size {
            older.windows(kind, rank.saturating_sub(2));
        }
        for (argument, suffix, shape, data) in older.constants {
            let output = node.output.iter().find(|output| !output.is_empty());
            let output = output.map_or("", String::as_str);
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
            kind: operator.kind,
            domain: "",
            opset: self.opset.max(13),
            attributes: older.attributes,
            arguments: arguments.iter().map(Option::is_some).collect(),
            output: 0,
            reason,
        };
        Ok((operator, op))
    }

    fn attribute(&mut self, attribute: &proto::Attribute) -> Result<OnnxAttribute, String> {
        let name = || vta_files::printable(&attribute.name).into_owned();
        Ok(match attribute.kind {
            proto::ATTRIBUTE_INT => OnnxAttribute::Int(attribute.i),
            proto::ATTRIBUTE_FLOAT => OnnxAttribute::Float(attribute.f),
            proto::ATTRIBUTE_STRING => OnnxAttribute::Text(attribute.s.to_vec()),
            proto::ATTRIBUTE_INTS => OnnxAttribute::Ints(attribute.ints.clone()),
            proto::ATTRIBUTE_STRINGS => {
                let texts = attribute.strings.iter().map(|text| text.to_vec());
                OnnxAttribute::Texts(texts.collect())
            }
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
        operator: &Operator,
        op: &OnnxOp,
        inputs: &[ValueId],
        wanted: &[usize],
    ) -> Result<Vec<Vec<usize>>, String> {
        let shapes: Vec<&[usize]> = inputs
            .iter()
            .map(|id| &self.graph.values[id.0].shape[..])
            .collect();
        if let Some(shape) = sizes::direct(operator.size, op, &shapes)? {
            self.check(operator, op, inputs, wanted, &shape)?;
            return Ok(vec![shape; wanted.len()]);
        }
        self.computed_shapes(operator, op, inputs, wanted)
    }

    /// The shapes that computing a node gives. Blocks of a network repeat: equal questions are computed once.
    fn computed_shapes(
        &mut self,
        operator: &Operator,
        op: &OnnxOp,
        inputs: &[ValueId],
        wanted: &[usize],
    ) -> Result<Vec<Vec<usize>>, String> {
        let values: Vec<&Value> = inputs.iter().map(|id| &self.graph.values[id.0]).collect();
        let question = question(op, &values, wanted);
        if let Some(shapes) = question.as_ref().and_then(|q| self.budget.answers.get(q)) {
            return Ok(shapes.clone());
        }
        let computed = self.compute(operator, op, inputs, wanted)?;
        let shapes: Vec<Vec<usize>> = computed.into_iter().map(|(shape, _)| shape).collect();
        if let Some(question) = question {
            self.budget.answers.insert(question, shapes.clone());
        }
        Ok(shapes)
    }

    /// Whether the engine takes an operator, and gives the shape that is expected where computing it
    /// takes little.
    fn check(
        &mut self,
        operator: &Operator,
        op: &OnnxOp,
        inputs: &[ValueId],
        wanted: &[usize],
        shape: &[usize],
    ) -> Result<(), String> {
        let values: Vec<&Value> = inputs.iter().map(|id| &self.graph.values[id.0]).collect();
        let cost = sizes::cost(operator.size, op, &values)?;
        // What is left of the budget is for shapes that nothing else says.
        if cost.work > MAX_CHECKED.min(self.budget.work / 8) {
            return Ok(());
        }
        let computed = self.computed_shapes(operator, op, inputs, wanted)?;
        match computed.iter().find(|found| *found != shape) {
            None => Ok(()),
            Some(found) => Err(format!("the host makes {found:?} of it, not {shape:?}")),
        }
    }

    /// A node's outputs, with zeros for inputs that aren't constants.
    fn compute(
        &mut self,
        operator: &Operator,
        op: &OnnxOp,
        inputs: &[ValueId],
        wanted: &[usize],
    ) -> Result<Vec<(Vec<usize>, Data)>, String> {
        let values: Vec<&Value> = inputs.iter().map(|id| &self.graph.values[id.0]).collect();
        let cost = sizes::cost(operator.size, op, &values)?;
        let types: Vec<Element> = values.iter().map(|v| v.element).collect();
        let outputs = wanted.iter().map(|&output| {
            let op = OnnxOp {
                output,
                ..op.clone()
            };
            Ok((operator.output(&op, &types)?, op))
        });
        let outputs: Vec<(Element, OnnxOp)> = outputs.collect::<Result<_, String>>()?;
        let zeros = values.iter().filter(|v| v.data.is_none());
        let zeros = zeros.map(|v| bytes(&v.shape, v.element));
        let made = outputs.iter().map(|(element, _)| element.bytes());
        let made = made.map(|bytes| cost.elements.saturating_mul(bytes));
        let held = zeros.chain(made).fold(0, u64::saturating_add);
        self.budget.spend(cost.work, held)?;
        run(&values, &outputs)
    }
}

/// Constants of up to so many elements may be asked for as they are: axes, sizes, scales of a Resize. Larger
/// ones are lent to the engine.
const MAX_SMALL: usize = 64;

/// What a node's shapes depend on, as text; `None` for a node with many whole numbers.
fn question(op: &OnnxOp, values: &[&Value], wanted: &[usize]) -> Option<String> {
    let small = |data: &Data| data.len() <= MAX_SMALL;
    let unknown = |data: &Data| !small(data) && data.element() != Element::F32;
    if values.iter().any(|v| v.data.as_ref().is_some_and(unknown)) {
        return None;
    }
    let input = |v: &&Value| {
        let data = v.data.as_ref().filter(|data| small(data));
        format!("{:?} {:?} {data:?}", v.shape, v.element)
    };
    let inputs: Vec<String> = values.iter().map(input).collect();
    let (kind, attributes, arguments) = (op.kind, &op.attributes, &op.arguments);
    Some(format!(
        "{kind} {} {attributes:?} {arguments:?} {inputs:?} {wanted:?}",
        op.opset
    ))
}

/// Runs one operator on its own.
fn run(
    values: &[&Value],
    outputs: &[(Element, OnnxOp)],
) -> Result<Vec<(Vec<usize>, Data)>, String> {
    let mut graph = Graph::default();
    let mut ids = Vec::with_capacity(values.len());
    let mut zeros: Vec<Option<Data>> = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let id = ValueId(graph.values.len());
        let constant = value
            .data
            .as_ref()
            .filter(|data| data.len() <= MAX_SMALL)
            .cloned();
        if constant.is_none() {
            graph.inputs.push(id);
        }
        zeros.push(match value.data {
            Some(_) => None,
            None => Some(Data::zeros(value.element, value.shape.iter().product())),
        });
        graph.values.push(Value {
            element: value.element,
            ..Value::new(format!("i{index}"), value.shape.clone(), constant)
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
    let lent = graph.inputs.iter().filter_map(|id| {
        let Value { name, shape, .. } = &graph.values[id.0];
        let data = values[id.0].data.as_ref().or(zeros[id.0].as_ref())?;
        Some(engine::Lent { name, shape, data })
    });
    let lent: Vec<engine::Lent<'_>> = lent.collect();
    let names: Vec<String> = outputs
        .iter()
        .map(|(_, op)| format!("o{}", op.output))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tensors = engine.run_lent(&lent, &names).map_err(|e| e.to_string())?;
    let typed = |(tensor, (element, _)): (engine::Tensor, &(Element, OnnxOp))| {
        Ok((tensor.shape, typed(tensor.data, *element)?))
    };
    tensors.into_iter().zip(outputs).map(typed).collect()
}

/// The engine's data, which must be of the type that ONNX says.
fn typed(data: Data, element: Element) -> Result<Data, String> {
    let data = engine::widened(data, element);
    if data.element() == element {
        return Ok(data);
    }
    Err(format!("it gives {:?}, not {element:?}", data.element()))
}
