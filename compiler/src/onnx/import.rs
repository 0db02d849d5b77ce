//! Reading: protobuf to [`Graph`].

mod arity;
mod attributes;
mod budget;
mod constant;
mod gemm;
mod matrix;
mod moves;
mod older;
mod order;
mod qoperator;
mod raw;
mod refused;
mod reshape;
mod sizes;
mod spatial;
mod state;
mod tensor;
mod windows;

use std::collections::HashMap;

use prost::Message;

use super::external::External;
use super::operators::element;
use super::{OnnxError, ReadOptions, batch, bias, host, proto, shuffle};
use super::{pads, prune, shape};
use crate::graph::{Data, Element, Graph, Op, ValueId};
use crate::window::Window;
use arity::input_counts;
pub(super) use attributes::Attributes;
use order::{escape_names, node_error, sorted, uses};
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
    let bytes = bytes::Bytes::from(bytes);
    let model = proto::Model::decode(bytes).map_err(|e| OnnxError::Decode(e.to_string()))?;
    let opset = model
        .opset_import
        .iter()
        .find(|o| o.domain.is_empty() || o.domain == "ai.onnx");
    let opset = opset.map(|o| o.version).unwrap_or(0);
    if !(7..=25).contains(&opset) {
        return Err(OnnxError::Model(format!(
            "opset {opset}; 7 to 25 are supported"
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
    import.nodes(sorted(&proto.node, &import.names)?)?;
    for output in &proto.output {
        let id = import.names.get(&output.name).copied();
        let id =
            id.ok_or_else(|| OnnxError::Model(format!("no node makes output {}", output.name)))?;
        if import.graph.values[id.0].data.is_some() {
            let text = format!("output {} depends on no input", output.name);
            return Err(OnnxError::Model(text));
        }
        import.graph.outputs.push(id);
    }
    if import.graph.inputs.is_empty() || import.graph.outputs.is_empty() {
        return Err(OnnxError::Model(
            "the graph has no input or no output".to_owned(),
        ));
    }
    bias::fold(&mut import.graph)?;
    pads::fold(&mut import.graph);
    shuffle::fold(&mut import.graph);
    prune::prune(&mut import.graph);
    Ok(import.graph)
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

impl<'a> Import<'a> {
    fn node(&mut self, node: &'a proto::Node, index: usize) -> Result<(), OnnxError> {
        let fail = |reason: String| node_error(node, reason);
        let output = node.output.first().filter(|o| !o.is_empty());
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

    /// What needs no computing: constants, shapes, and other names of constants. Whether the node
    /// was such.
    fn known_here(
        &mut self,
        node: &proto::Node,
        output: &str,
        arguments: &Arguments,
    ) -> Result<bool, OnnxError> {
        let fail = |reason: String| node_error(node, reason);
        let first = arguments.first().copied().flatten();
        let attributes = Attributes(node);
        let longs = |v: Vec<i64>| (vec![v.len()], Data::I64(v));
        let (shape, data) = match (&node.op_type[..], first) {
            ("Constant", _) => self.constant_node(&attributes, output)?,
            ("Shape", Some(x)) => {
                let shape = &self.graph.values[x.0].shape;
                let rank = shape.len() as i64;
                let at = |i: i64| (if i < 0 { i + rank } else { i }).clamp(0, rank) as usize;
                let (start, end) = (
                    at(attributes.int("start", 0)),
                    at(attributes.int("end", rank)),
                );
                longs(
                    shape
                        .get(start..end)
                        .unwrap_or(&[])
                        .iter()
                        .map(|&d| d as i64)
                        .collect(),
                )
            }
            ("Size", Some(x)) => {
                let count: usize = self.graph.values[x.0].shape.iter().product();
                (vec![], Data::I64(vec![count as i64]))
            }
            ("Identity" | "Dropout", Some(x)) if self.graph.values[x.0].data.is_some() => {
                return self.alias(output, x).map(|()| true);
            }
            _ => return Ok(false),
        };
        shape::elements(output, &shape).map_err(|e| fail(e.to_string()))?;
        self.define(output, shape, Some(data)).map(|_| true)
    }

    /// The tensor of a Constant.
    fn constant_node(
        &mut self,
        node: &Attributes<'_>,
        output: &str,
    ) -> Result<(Vec<usize>, Data), OnnxError> {
        if let Some(tensor) = node.find("value").and_then(|a| a.t.as_ref()) {
            let read = read_tensor(output, tensor, &mut self.external)?;
            self.budget.add_constant(&read.1);
            return Ok(read);
        }
        let list = |data: Data| (vec![data.len()], data);
        let found = [
            (
                "value_float",
                node.find("value_float")
                    .map(|a| (vec![], Data::F32(vec![a.f]))),
            ),
            (
                "value_int",
                node.find("value_int")
                    .map(|a| (vec![], Data::I64(vec![a.i]))),
            ),
            (
                "value_floats",
                node.find("value_floats")
                    .map(|a| list(Data::F32(a.floats.clone()))),
            ),
            (
                "value_ints",
                node.find("value_ints")
                    .map(|a| list(Data::I64(a.ints.clone()))),
            ),
        ];
        let found = found.into_iter().find_map(|(_, value)| value);
        found.ok_or_else(|| node_error(node.0, "its value is neither numbers nor a tensor".into()))
    }

    /// Reads a node as an operator that devices may have.
    ///
    /// # Errors
    /// Why it can't be, in words; what was defined until then must be forgotten.
    fn typed(
        &mut self,
        node: &'a proto::Node,
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
        let text = |e: OnnxError| e.to_string();
        if node.op_type == "Split" {
            let pieces = self.split(&attributes, inputs[0])?;
            for (index, (output, op)) in moves::pieces(node, pieces).enumerate() {
                let made = self.push(format!("{name}.{index}"), op, vec![inputs[0]], output);
                made.map_err(|e| text(e.of(node)))?;
            }
            return Ok(());
        }
        if self.wanted(node).iter().any(|output| *output > 0) {
            return Err("a second output is read".to_owned());
        }
        let product = self.product(&attributes, name, &mut inputs)?;
        let op = match product {
            Some(op) => op,
            None if node.op_type == "Pad" => self.pad(&attributes, name, &mut inputs)?,
            None => self.op(&attributes, &mut inputs)?,
        };
        if let Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } = op {
            return self.scaled(name, op, inputs, output);
        }
        if node.op_type == "ReduceMean" && attributes.int("keepdims", 1) == 0 {
            let mean = self.push(name.to_owned(), op, inputs, &format!("{output}.mean"));
            let mean = mean.map_err(|e| text(e.of(node)))?;
            let flat = self.push(format!("{name}.flatten"), Op::Flatten, vec![mean], output);
            return flat.map(drop).map_err(|e| text(e.of(node)));
        }
        match self.push(name.to_owned(), op, inputs, output) {
            Ok(_) => Ok(()),
            Err(state::PushError::Shape(reason)) => Err(reason),
            Err(state::PushError::Other(error)) => Err(error.to_string()),
        }
    }

    /// QuantizeLinear makes integers, of its zero point's type.
    fn scaled(
        &mut self,
        name: &str,
        op: Op,
        inputs: Vec<ValueId>,
        output: &str,
    ) -> Result<(), String> {
        let zero = inputs.get(2).map(|id| self.graph.values[id.0].element);
        let element = match op {
            Op::QuantizeLinear { .. } => zero.unwrap_or(Element::U8),
            _ => Element::F32,
        };
        let made = match self.push(name.to_owned(), op, inputs, output) {
            Ok(id) => id,
            Err(state::PushError::Shape(reason)) => return Err(reason),
            Err(state::PushError::Other(error)) => return Err(error.to_string()),
        };
        self.graph.values[made.0].element = element;
        Ok(())
    }

    fn op(&self, node: &Attributes<'_>, inputs: &mut Vec<ValueId>) -> Result<Op, String> {
        let count = inputs.len();
        let arity = |least: usize, most: usize| match (least..=most).contains(&count) {
            true => Ok(()),
            false => Err(format!("{count} inputs, not {least} to {most}")),
        };
        let op_type = node.op_type();
        let rank = inputs
            .first()
            .map_or(0, |id| self.graph.values[id.0].shape.len());
        if let Some(op) = host::read(node, self.opset, rank)? {
            let (least, most) = op.arity();
            return arity(least, most).map(|()| Op::Host(op));
        }
        if let Some((least, most)) = moves::input_counts(op_type) {
            arity(least, most)?;
        }
        if let Some(op) = self.moves(node, inputs)? {
            return Ok(op);
        }
        let known = input_counts(op_type);
        let (least, most) = known.ok_or("the device has no such operator")?;
        arity(least, most)?;
        Ok(match op_type {
            "Conv" => {
                let weights = &self.graph.values[inputs[1].0].shape;
                let kernel = match weights[..] {
                    [_, _, kh, kw] => [kh, kw],
                    [_, _, kw] => [1, kw],
                    _ => {
                        let text =
                            format!("weights of shape {weights:?}; windows have 1 or 2 axes");
                        return Err(text);
                    }
                };
                let window = windows::read(node, self.plane(inputs[0])?, kernel)?;
                Op::Conv {
                    window,
                    group: node.count("group", 1)?,
                }
            }
            "Relu" => Op::Relu,
            "Clip" => {
                let (min, max) = self.clip_bounds(node, inputs)?;
                inputs.truncate(1);
                Op::Clip { min, max }
            }
            "Add" => Op::Add,
            "Mul" => Op::Mul,
            "Sub" => Op::Sub,
            "Div" => Op::Div,
            "PRelu" => Op::PRelu,
            "LeakyRelu" => Op::LeakyRelu {
                alpha: node.float("alpha", 0.01),
            },
            "HardSigmoid" => Op::HardSigmoid {
                alpha: node.float("alpha", 0.2),
                beta: node.float("beta", 0.5),
            },
            "HardSwish" => Op::HardSwish,
            "MaxPool" => {
                if node.0.output.len() > 1 {
                    return Err("the Indices output is not supported".to_owned());
                }
                Op::MaxPool {
                    window: windows::pool(node, self.plane(inputs[0])?)?,
                }
            }
            "AveragePool" => {
                let count_include_pad = node.int("count_include_pad", 0) != 0;
                let plane = self.plane(inputs[0])?;
                let window = windows::pool(node, plane)?;
                let padded = window.pads != node.pads(plane.axes)?;
                if count_include_pad && padded && node.int("ceil_mode", 0) != 0 {
                    // What is behind the padding doesn't count.
                    return Err("ceil_mode of an average that counts padding".to_owned());
                }
                Op::AveragePool {
                    window,
                    count_include_pad,
                }
            }
            "GlobalAveragePool" => Op::GlobalAveragePool,
            "GlobalMaxPool" => {
                let plane = self.plane(inputs[0])?;
                Op::MaxPool {
                    window: Window::whole(plane.size),
                }
            }
            "ReduceMean" => {
                self.check_mean(node, inputs)?;
                inputs.truncate(1);
                Op::GlobalAveragePool
            }
            "Resize" | "Upsample" => {
                inputs.truncate(1);
                self.resize(node, inputs[0])?
            }
            "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" => {
                let op = self.reshape(node, inputs)?;
                inputs.truncate(1);
                op
            }
            "Cast" => match element(node.int("to", 0) as i32)? {
                Element::F32 => Op::Identity,
                other => return Err(format!("it makes {other:?}")),
            },
            "Gemm" | "MatMul" => self.matrix(node, inputs)?,
            "BatchNormalization" => Op::BatchNormalization {
                epsilon: node.float("epsilon", 1e-5),
            },
            "QuantizeLinear" => Op::QuantizeLinear {
                axis: node.count("axis", 1)?,
            },
            "DequantizeLinear" => Op::DequantizeLinear {
                axis: node.count("axis", 1)?,
            },
            "Identity" => Op::Identity,
            "Dropout" => {
                inputs.truncate(1);
                Op::Identity
            }
            _ => return Err("internal error: its inputs are counted, but it isn't read".to_owned()),
        })
    }

    fn clip_bounds(&self, node: &Attributes<'_>, inputs: &[ValueId]) -> Result<(f32, f32), String> {
        let bound = |i: usize, name: &str, default: f32| match inputs.get(i) {
            None => Ok(node.float(name, default)),
            Some(id) => match &self.graph.values[id.0].data {
                Some(Data::F32(v)) if v.len() == 1 => Ok(v[0]),
                _ => Err("the bounds must be float constants".to_owned()),
            },
        };
        Ok((
            bound(1, "min", f32::NEG_INFINITY)?,
            bound(2, "max", f32::INFINITY)?,
        ))
    }
}

#[cfg(test)]
mod tests;
