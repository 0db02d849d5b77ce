//! Reading: protobuf to [`Graph`].

mod attributes;
mod constant;
mod moves;
mod order;
mod spatial;
mod state;
mod tensor;
mod windows;

use std::collections::HashMap;

use prost::Message;

use super::external::External;
use super::{OnnxError, ReadOptions, bias, host, proto};
use crate::graph::{Data, Graph, Op, ValueId};
use crate::window::{Pads, Window};
pub(super) use attributes::Attributes;
use order::{escape_names, node_error, sorted, uses};
use state::Import;
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
    let bytes = bytes::Bytes::copy_from_slice(bytes);
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
    let mut import = Import {
        graph: Graph::default(),
        names: HashMap::new(),
        makers: HashMap::new(),
        uses: uses(&proto),
        padded: HashMap::new(),
        opset,
        external: External::new(options),
    };
    import.graph.name.clone_from(&proto.name);
    let metadata = model.metadata_props.into_iter();
    import.graph.metadata = metadata
        .filter_map(|e| Some((e.key.strip_prefix("vta.")?.to_owned(), e.value)))
        .collect();
    for tensor in &proto.initializer {
        let (shape, data) = read_tensor(&tensor.name, tensor, &mut import.external)?;
        import.define(&tensor.name, shape, Some(data))?;
    }
    for input in &proto.input {
        if !import.names.contains_key(&input.name) {
            let (shape, element) = input_type(input, options)?;
            let id = import.define(&input.name, shape, None)?;
            import.graph.values[id.0].element = element;
            import.graph.inputs.push(id);
        }
    }
    for (index, node) in sorted(&proto.node, &import.names)?.into_iter().enumerate() {
        import.node(node, index)?;
    }
    for output in &proto.output {
        if import.padded.contains_key(&output.name[..]) {
            let text = format!("output {} comes from a Pad", output.name);
            return Err(OnnxError::Model(text));
        }
        let id = import.names.get(&output.name).copied();
        let id =
            id.ok_or_else(|| OnnxError::Model(format!("no node makes output {}", output.name)))?;
        import.graph.outputs.push(id);
    }
    if import.graph.inputs.is_empty() || import.graph.outputs.is_empty() {
        return Err(OnnxError::Model(
            "the graph has no input or no output".to_owned(),
        ));
    }
    bias::fold(&mut import.graph)?;
    Ok(import.graph)
}

impl<'a> Import<'a> {
    fn node(&mut self, node: &'a proto::Node, index: usize) -> Result<(), OnnxError> {
        let fail = |reason: String| node_error(node, reason);
        if !node.domain.is_empty() && node.domain != "ai.onnx" {
            return Err(fail(format!(
                "operators of domain {} are not supported",
                node.domain
            )));
        }
        let output = node.output.first().filter(|o| !o.is_empty());
        let output = output.ok_or_else(|| fail("it has no output".to_owned()))?;
        let mut inputs = Vec::new();
        for name in node.input.iter().take_while(|n| !n.is_empty()) {
            let id = self.names.get(name).copied();
            inputs.push(id.ok_or_else(|| fail(format!("input {name} is not defined")))?);
        }
        if node.op_type == "Constant" {
            let tensor = node
                .attribute
                .iter()
                .find(|a| a.name == "value")
                .and_then(|a| a.t.as_ref());
            let tensor = tensor.ok_or_else(|| fail("only 'value' tensors are supported".into()))?;
            let (shape, data) = read_tensor(output, tensor, &mut self.external)?;
            return self.define(output, shape, Some(data)).map(drop);
        }
        let name = if node.name.is_empty() {
            format!("{}_{index}", node.op_type)
        } else {
            node.name.clone()
        };
        let attributes = Attributes(node);
        let pads = self.pads_of(node).map_err(fail)?;
        if node.op_type == "Pad" {
            let more = self.pad(&attributes, &inputs).map_err(fail)?;
            self.padded.insert(output, pads + more);
            return self.alias(output, inputs[0]);
        }
        if node.op_type == "Split" {
            let &[input] = &inputs[..1.min(inputs.len())] else {
                return Err(fail("it has no input".to_owned()));
            };
            let pieces = self.split(&attributes, input).map_err(fail)?;
            for (index, (output, op)) in moves::pieces(node, pieces).enumerate() {
                let made = self.push(format!("{name}.{index}"), op, vec![input], output);
                made.map_err(|e| e.of(node))?;
            }
            return Ok(());
        }
        let product = self.product(&attributes, &name, &mut inputs);
        let op = match product.map_err(fail)? {
            Some(op) => op,
            None => self.op(&attributes, &mut inputs).map_err(fail)?,
        };
        let op = self.pad_op(&attributes, op, pads).map_err(fail)?;
        if let Some(constant) = self.moved(&op, &inputs) {
            let shape = self.shape_of(&op, &inputs).map_err(fail)?;
            return self.define(output, shape, Some(constant)).map(drop);
        }
        let moves = matches!(
            op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } | Op::Identity
        );
        if moves && pads != Pads::NONE {
            self.padded.insert(output, pads);
        }
        if node.op_type == "ReduceMean" && attributes.int("keepdims", 1) == 0 {
            let mean = self.push(name.clone(), op, inputs, &format!("{output}.mean"));
            let mean = mean.map_err(|e| e.of(node))?;
            let flat = self.push(format!("{name}.flatten"), Op::Flatten, vec![mean], output);
            return flat.map(drop).map_err(|e| e.of(node));
        }
        let made = self.push(name, op, inputs, output);
        made.map(drop).map_err(|e| e.of(node))
    }

    /// The data of a constant that an operator only gives another shape.
    fn moved(&self, op: &Op, inputs: &[ValueId]) -> Option<Data> {
        let first = &self.graph.values[inputs.first()?.0];
        let moves = matches!(op, Op::Flatten | Op::Identity);
        first.data.clone().filter(|_| moves)
    }

    /// The zeros around a node's first input.
    fn pads_of(&self, node: &proto::Node) -> Result<Pads, String> {
        let pads = |name: &String| self.padded.get(&name[..]).copied();
        if node.input.iter().skip(1).any(|name| pads(name).is_some()) {
            return Err("an input other than its first comes from a Pad".to_owned());
        }
        Ok(node.input.first().and_then(pads).unwrap_or_default())
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
        let (least, most) = known.ok_or("neither the device nor the host has this operator")?;
        arity(least, most)?;
        Ok(match op_type {
            "Conv" => {
                let weights = &self.graph.values[inputs[1].0].shape;
                let &[_, _, kh, kw] = &weights[..] else {
                    return Err(format!(
                        "weights of shape {weights:?}; only 2-D is supported"
                    ));
                };
                let window = windows::read(node, self.plane(inputs[0])?, [kh, kw])?;
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
                if node.int("ceil_mode", 0) != 0 {
                    return Err("ceil_mode of an average is not supported".to_owned());
                }
                Op::AveragePool {
                    window: windows::pool(node, self.plane(inputs[0])?)?,
                    count_include_pad,
                }
            }
            "GlobalAveragePool" => Op::GlobalAveragePool,
            "GlobalMaxPool" => {
                let [_, _, h, w] = self.spatial(inputs[0])?;
                Op::MaxPool {
                    window: Window::whole([h, w]),
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
            "Flatten" if node.int("axis", 1) == 1 => Op::Flatten,
            "Flatten" => return Err("only axis 1 is supported".to_owned()),
            "Reshape" | "Squeeze" => {
                self.check_flatten(node, inputs)?;
                inputs.truncate(1);
                Op::Flatten
            }
            "Gemm" => {
                if node.float("alpha", 1.0) != 1.0
                    || node.float("beta", 1.0) != 1.0
                    || node.int("transA", 0) != 0
                {
                    return Err("alpha and beta must be 1 and transA 0".to_owned());
                }
                Op::Gemm {
                    trans_b: node.int("transB", 0) != 0,
                }
            }
            "MatMul" => Op::Gemm { trans_b: false },
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

    /// A Reshape or Squeeze is supported where it flattens `[1, C, H, W]`.
    fn check_flatten(&self, node: &Attributes<'_>, inputs: &[ValueId]) -> Result<(), String> {
        let x = &self.graph.values[inputs[0].0].shape;
        let total: usize = x.iter().product();
        let wrong = || format!("only flattening {x:?} to [1, {total}] is supported");
        if node.0.op_type == "Squeeze" {
            let plane: usize = x.iter().skip(2).product();
            return if x.len() == 4 && plane == 1 {
                Ok(())
            } else {
                Err(wrong())
            };
        }
        match &self.graph.values[inputs[1].0].data {
            Some(Data::I64(shape)) => {
                let flat = [[1, -1], [0, -1], [-1, total as i64], [1, total as i64]];
                if flat.iter().any(|f| f == &shape[..]) {
                    Ok(())
                } else {
                    Err(wrong())
                }
            }
            _ => Err("its shape must be a constant".to_owned()),
        }
    }
}

/// Fewest and most inputs of an operator that [`Import::op`] reads; `None` for any other.
fn input_counts(op_type: &str) -> Option<(usize, usize)> {
    Some(match op_type {
        "Relu" | "MaxPool" | "AveragePool" | "GlobalAveragePool" | "GlobalMaxPool" | "Flatten"
        | "Identity" | "LeakyRelu" | "HardSigmoid" | "HardSwish" => (1, 1),
        "Dropout" | "ReduceMean" | "Squeeze" | "Upsample" => (1, 2),
        "Clip" => (1, 3),
        "Resize" => (1, 4),
        "Add" | "Mul" | "Sub" | "Div" | "PRelu" | "MatMul" | "Reshape" => (2, 2),
        "Conv" | "Gemm" | "QuantizeLinear" | "DequantizeLinear" => (2, 3),
        "BatchNormalization" => (5, 5),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
