//! Operators that are kept as the file has them, and those that are computed while it is read.

mod wide;

use vta_files::printable;

use super::budget::bytes;
use super::order::node_error;
use super::state::{Arguments, Import};
use super::tensor::read_tensor;
use super::{older, refused, sizes};
use crate::engine::{self, Engine};
use crate::graph::{Data, Element, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};
use crate::onnx::{OnnxError, elements, proto};
use crate::operators::find;
use crate::operators::operator::{Found, Given, Size};

/// Up to so many elements or multiply-adds an operator is computed once to see that the host's engine can.
const MAX_CHECKED: u64 = 1 << 22;

impl Import<'_> {
    /// Keeps a node as it stands, for the reason that it isn't read in another way.
    ///
    /// # Errors
    /// An operator that the host can't compute, or one that isn't sound.
    pub(super) fn raw(&mut self, found: Found<'_>, reason: String) -> Result<(), OnnxError> {
        let node = found.node;
        let counts = found.operator.device.map(|device| device.inputs);
        let count = found.op.arguments.len();
        if counts.is_some_and(|(least, most)| !(least..=most).contains(&count)) {
            return Err(node_error(node, reason));
        }
        let fail = |text: String| node_error(node, format!("{reason}; nor does the host: {text}"));
        let wanted = self.wanted(node);
        let is_open = found.inputs.iter().any(|id| self.open.contains(id));
        let known = self.given(&found).values.iter().all(|v| v.data.is_some());
        // What sizes alone say is known where these are the largest.
        let examples = if is_open && (known || matches!(found.op.kind, "Shape" | "Size")) {
            self.compute(&found, &wanted).map_err(fail)?
        } else {
            Vec::new()
        };
        let shapes = if examples.is_empty() {
            self.shapes(&found, &wanted).map_err(fail)?
        } else {
            examples.iter().map(|(shape, _)| shape.clone()).collect()
        };
        let mut examples = examples.into_iter();
        for (output, shape) in wanted.into_iter().zip(shapes) {
            let element = found.operator.output(&self.given(&found), output);
            let element = element.map_err(fail)?;
            let made = &node.output[output];
            let example = examples.next().filter(|(_, data)| data.len() <= MAX_SMALL);
            // A Slice may take nothing, which is known: what rolls by zero is written so.
            if elements(made, &shape)? == 0 && found.op.kind == "Slice" {
                self.define(made, shape, Some(Data::zeros(element, 0)))?;
                continue;
            }
            let id = self.define(made, shape, None)?;
            self.graph.values[id.0].element = element;
            if found.op.is_open() || is_open {
                self.open.insert(id);
            }
            if let Some((_, data)) = example {
                let mut value = self.graph.values[id.0].clone();
                value.data = Some(data);
                self.examples.insert(id, value);
            }
            let op = OnnxOp {
                output,
                reason: reason.clone(),
                ..found.op.clone()
            };
            self.push_node(Node {
                name: found.name.clone(),
                op: Op::Onnx(Box::new(op)),
                inputs: found.inputs.clone(),
                output: id,
            });
        }
        Ok(())
    }

    /// Computes a node whose inputs are constants.
    ///
    /// # Errors
    /// As for [`Import::raw`].
    pub(super) fn fold(&mut self, found: &Found<'_>) -> Result<(), OnnxError> {
        let node = found.node;
        let wanted = self.wanted(node);
        let tensors = self.compute(found, &wanted);
        let tensors = tensors.map_err(|text| node_error(node, text))?;
        for (&output, (made, _)) in wanted.iter().zip(&tensors) {
            self.agree(found, output, made)
                .map_err(|text| node_error(node, text))?;
        }
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

    /// A node by its line in the table, in the form of opset 13 or later, with constants for what were attributes
    /// before.
    ///
    /// # Errors
    /// An operator that is in no line, and attributes that no later opset has, in words.
    pub(super) fn found<'n>(
        &mut self,
        node: &'n proto::Node,
        index: usize,
        mut arguments: Arguments,
    ) -> Result<Found<'n>, String> {
        let kind = match &node.op_type[..] {
            // Before opset 10 and 11.
            "Upsample" => "Resize",
            "Scatter" => "ScatterElements",
            kind => kind,
        };
        let operator = find(&node.domain, kind).ok_or_else(|| refused::unknown(node))?;
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
        let rank = |at: usize| match arguments.get(at) {
            Some(Some(id)) => self.graph.values[id.0].shape.len(),
            _ => 0,
        };
        let ranks = [rank(0), rank(1)];
        older.renew(self.opset, ranks, &mut arguments)?;
        if let Size::Window(kind) = operator.size {
            older.windows(kind, ranks[0].saturating_sub(2));
        }
        for (argument, suffix, shape, data) in older.constants {
            let output = node.output.iter().find(|output| !output.is_empty());
            let name = format!("{}.{suffix}", output.map_or("", String::as_str));
            let id = self.define(&name, shape, Some(data));
            let id = id.map_err(|e| e.to_string())?;
            if arguments.len() <= argument {
                arguments.resize(argument + 1, None);
            }
            arguments[argument] = Some(id);
        }
        let op = OnnxOp {
            kind: operator.kind,
            opset: self.opset.max(13),
            attributes: older.attributes,
            arguments: arguments.iter().map(Option::is_some).collect(),
            output: 0,
            reason: String::new(),
        };
        let name = if node.name.is_empty() {
            format!("{}_{index}", node.op_type)
        } else {
            node.name.clone()
        };
        Ok(Found {
            node,
            name,
            operator,
            op,
            inputs: arguments.into_iter().flatten().collect(),
        })
    }

    fn attribute(&mut self, attribute: &proto::Attribute) -> Result<OnnxAttribute, String> {
        let name = || printable(&attribute.name).into_owned();
        // Texts are shown in listings and errors.
        let text = |text: &bytes::Bytes| match std::str::from_utf8(text) {
            Ok(text) => Ok(printable(text).into_owned()),
            Err(_) => Err(format!("attribute {} is no UTF-8", name())),
        };
        Ok(match attribute.kind {
            proto::ATTRIBUTE_INT => OnnxAttribute::Int(attribute.i),
            proto::ATTRIBUTE_FLOAT => OnnxAttribute::Float(attribute.f),
            proto::ATTRIBUTE_STRING => OnnxAttribute::Text(text(&attribute.s)?),
            proto::ATTRIBUTE_INTS => OnnxAttribute::Ints(attribute.ints.clone()),
            proto::ATTRIBUTE_STRINGS => {
                let texts = attribute.strings.iter().map(text);
                OnnxAttribute::Texts(texts.collect::<Result<_, _>>()?)
            }
            proto::ATTRIBUTE_FLOATS => OnnxAttribute::Floats(attribute.floats.clone()),
            proto::ATTRIBUTE_TENSOR => {
                let tensor = attribute.t.as_ref();
                let tensor = tensor.ok_or_else(|| format!("{} is empty", name()))?;
                let read = read_tensor(&name(), tensor, &mut self.external);
                let (shape, data) = read.map_err(|e| e.to_string())?;
                let data = data.without_16_bits();
                OnnxAttribute::Tensor { shape, data }
            }
            other => return Err(format!("attribute {} of kind {other}", name())),
        })
    }

    /// The shapes of a node's outputs.
    fn shapes(&mut self, found: &Found<'_>, wanted: &[usize]) -> Result<Vec<Vec<usize>>, String> {
        let given = self.given(found);
        let direct = |&output: &usize| sizes::direct(found.operator.size, &given, output);
        let shapes: Vec<Option<Vec<usize>>> =
            wanted.iter().map(direct).collect::<Result<_, _>>()?;
        let Some(shapes) = shapes.into_iter().collect() else {
            return self.computed_shapes(found, wanted);
        };
        // Where computing it takes little, the engine must take the operator, and give the same shape. What is left of
        // the budget is for shapes that nothing else says.
        let cost = sizes::cost(found.operator.size, &given)?;
        if cost.work <= MAX_CHECKED.min(self.budget.work / 8) {
            for (&output, made) in wanted.iter().zip(&self.computed_shapes(found, wanted)?) {
                self.agree(found, output, made)?;
            }
        }
        Ok(shapes)
    }

    /// The engine makes what the inputs say.
    fn agree(&self, found: &Found<'_>, output: usize, made: &[usize]) -> Result<(), String> {
        let size = found.operator.size;
        match sizes::direct(size, &self.given(found), output)? {
            Some(said) if !sizes::fits(size, made, &said) => {
                Err(format!("the host makes {made:?} of it, not {said:?}"))
            }
            _ => Ok(()),
        }
    }

    /// The shapes that computing a node gives. Blocks of a network repeat: equal questions are computed once.
    fn computed_shapes(
        &mut self,
        found: &Found<'_>,
        wanted: &[usize],
    ) -> Result<Vec<Vec<usize>>, String> {
        let question = question(&self.given(found), wanted);
        if let Some(shapes) = question.as_ref().and_then(|q| self.budget.answers.get(q)) {
            return Ok(shapes.clone());
        }
        let computed = self.compute(found, wanted)?;
        let shapes: Vec<Vec<usize>> = computed.into_iter().map(|(shape, _)| shape).collect();
        if let Some(question) = question {
            self.budget.answers.insert(question, shapes.clone());
        }
        Ok(shapes)
    }

    /// A node's outputs, with zeros for inputs that aren't constants.
    fn compute(
        &mut self,
        found: &Found<'_>,
        wanted: &[usize],
    ) -> Result<Vec<(Vec<usize>, Data)>, String> {
        let given = self.given(found);
        let cost = sizes::cost(found.operator.size, &given)?;
        let outputs = wanted.iter().map(|&output| {
            let element = found.operator.output(&given, output)?;
            Ok((element, output))
        });
        let outputs: Vec<(Element, usize)> = outputs.collect::<Result<_, String>>()?;
        let zeros = given.values.iter().filter(|v| v.data.is_none());
        let zeros = zeros.map(|v| bytes(&v.shape, v.element));
        let made = outputs.iter().map(|(element, _)| element.bytes());
        let made = made.map(|bytes| cost.elements.saturating_mul(bytes));
        let held = zeros.chain(made).fold(0, u64::saturating_add);
        self.budget.spend(cost.work, held)?;
        run(&self.given(found), &outputs)
    }
}

/// Constants of up to so many elements may be asked for as they are: axes, sizes, scales of a Resize. Larger
/// ones are lent to the engine.
const MAX_SMALL: usize = 64;

/// What a node's shapes depend on, as text; `None` for a node with many whole numbers.
fn question(given: &Given<'_>, wanted: &[usize]) -> Option<String> {
    let Given { op, values } = given;
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
fn run(given: &Given<'_>, outputs: &[(Element, usize)]) -> Result<Vec<(Vec<usize>, Data)>, String> {
    let values = &given.values;
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
    let names: Vec<String> = outputs.iter().map(|(_, n)| format!("o{n}")).collect();
    for (&(element, output), name) in outputs.iter().zip(&names) {
        let op = OnnxOp {
            output,
            ..given.op.clone()
        };
        let id = graph.value(name, Vec::new(), None);
        graph.values[id.0].element = element;
        graph.push("node", Op::Onnx(Box::new(op)), ids.clone(), id);
        graph.outputs.push(id);
    }
    let engine = Engine::new(engine::model(&graph, &graph.outputs)).map_err(|e| e.to_string())?;
    let lent = graph.inputs.iter().filter_map(|id| {
        let Value { name, shape, .. } = &graph.values[id.0];
        let data = values[id.0].data.as_ref().or(zeros[id.0].as_ref())?;
        Some(engine::Lent { name, shape, data })
    });
    let lent: Vec<engine::Lent<'_>> = lent.collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tensors = engine.run(&lent, &names).map_err(|e| e.to_string())?;
    let typed = |(tensor, (element, _)): (engine::Tensor, &(Element, usize))| {
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
