//! Reading: protobuf to [`Graph`].

mod constant;
mod spatial;

use std::collections::{BTreeMap, HashMap};

use prost::Message;

use super::{OnnxError, bias, host, proto, shape};
use crate::graph::{Data, Graph, Node, Op, Value, ValueId};
use crate::qgraph::Window;
use spatial::Pads;

/// Reads an ONNX model.
///
/// # Errors
/// [`OnnxError`] naming the tensor or node and what is wrong with it.
pub fn load(bytes: &[u8]) -> Result<Graph, OnnxError> {
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
    let proto = model
        .graph
        .ok_or_else(|| OnnxError::Model("the file has no graph".to_owned()))?;
    let mut import = Import {
        graph: Graph::default(),
        names: HashMap::new(),
        uses: uses(&proto),
        padded: HashMap::new(),
        opset,
    };
    import.graph.name.clone_from(&proto.name);
    let metadata = model.metadata_props.into_iter();
    import.graph.metadata = metadata
        .filter_map(|e| Some((e.key.strip_prefix("vta.")?.to_owned(), e.value)))
        .collect();
    for tensor in &proto.initializer {
        let (shape, data) = read_tensor(&tensor.name, tensor)?;
        import.define(&tensor.name, shape, Some(data))?;
    }
    for input in &proto.input {
        if !import.names.contains_key(&input.name) {
            let shape = input_shape(input)?;
            let id = import.define(&input.name, shape, None)?;
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

struct Import<'a> {
    graph: Graph,
    names: HashMap<String, ValueId>,
    /// How often nodes and the graph's outputs name a value.
    uses: HashMap<&'a String, usize>,
    /// Values with zeros around them that the next operator takes over: the graph's value has
    /// none.
    padded: HashMap<&'a str, Pads>,
    opset: i64,
}

fn uses(proto: &proto::Graph) -> HashMap<&String, usize> {
    let mut uses = HashMap::new();
    let read = proto.node.iter().flat_map(|n| &n.input);
    for name in read.chain(proto.output.iter().map(|o| &o.name)) {
        *uses.entry(name).or_insert(0) += 1;
    }
    uses
}

/// A node that can't be added.
enum PushError {
    /// Its inputs' shapes don't fit.
    Shape(String),
    /// Its output can't be defined.
    Other(OnnxError),
}

impl From<OnnxError> for PushError {
    fn from(error: OnnxError) -> Self {
        Self::Other(error)
    }
}

impl PushError {
    fn of(self, node: &proto::Node) -> OnnxError {
        match self {
            Self::Shape(reason) => node_error(node, reason),
            Self::Other(error) => error,
        }
    }
}

fn defined_twice(name: &str) -> OnnxError {
    OnnxError::Model(format!("the name {name} is defined twice"))
}

/// Nodes in topological order; a file may list them in any.
fn sorted<'a>(
    nodes: &'a [proto::Node],
    known: &HashMap<String, ValueId>,
) -> Result<Vec<&'a proto::Node>, OnnxError> {
    let mut producer: HashMap<&str, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            producer.insert(output, index);
        }
    }
    let mut waiting = vec![0usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for input in node
            .input
            .iter()
            .filter(|i| !i.is_empty() && !known.contains_key(*i))
        {
            let &from = producer
                .get(input.as_str())
                .ok_or_else(|| node_error(node, format!("input {input} is made by no node")))?;
            waiting[index] += 1;
            users[from].push(index);
        }
    }
    // The smallest ready index first keeps the file's order where it is topological.
    let ready = waiting
        .iter()
        .enumerate()
        .filter(|(_, n)| **n == 0)
        .map(|(i, _)| i);
    let mut ready: std::collections::BTreeSet<usize> = ready.collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(index) = ready.pop_first() {
        order.push(&nodes[index]);
        for &user in &users[index] {
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.insert(user);
            }
        }
    }
    match waiting.iter().position(|&n| n > 0) {
        None => Ok(order),
        Some(index) => Err(node_error(
            &nodes[index],
            "it is part of a cycle".to_owned(),
        )),
    }
}

fn node_error(node: &proto::Node, reason: String) -> OnnxError {
    let name = if node.name.is_empty() {
        node.output.first()
    } else {
        Some(&node.name)
    };
    let node_name = name.cloned().unwrap_or_default();
    OnnxError::Node {
        node: node_name,
        op: node.op_type.clone(),
        reason,
    }
}

impl<'a> Import<'a> {
    fn define(
        &mut self,
        name: &str,
        shape: Vec<usize>,
        data: Option<Data>,
    ) -> Result<ValueId, OnnxError> {
        let id = ValueId(self.graph.values.len());
        if self.names.insert(name.to_owned(), id).is_some() {
            return Err(defined_twice(name));
        }
        self.graph.values.push(Value {
            name: name.to_owned(),
            shape,
            data,
        });
        Ok(id)
    }

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
            let (shape, data) = read_tensor(output, tensor)?;
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
            self.padded
                .insert(output, std::array::from_fn(|i| pads[i] + more[i]));
            return self.alias(output, inputs[0]);
        }
        let product = self.product(&attributes, &name, &mut inputs);
        let op = match product.map_err(fail)? {
            Some(op) => op,
            None => self.op(&attributes, &mut inputs).map_err(fail)?,
        };
        let op = self.pad_op(&attributes, op, pads).map_err(fail)?;
        let moves = matches!(
            op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } | Op::Identity
        );
        if moves && pads != [0; 4] {
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

    /// Adds a node whose output has a name.
    fn push(
        &mut self,
        name: String,
        op: Op,
        inputs: Vec<ValueId>,
        output: &str,
    ) -> Result<ValueId, PushError> {
        let made = Node {
            name,
            op,
            inputs,
            output: ValueId(0),
        };
        let shape = shape::infer(&self.graph, &made).map_err(PushError::Shape)?;
        shape::elements(output, &shape)?;
        let output = self.define(output, shape, None)?;
        self.graph.nodes.push(Node { output, ..made });
        Ok(output)
    }

    /// Another name of a value.
    fn alias(&mut self, name: &str, id: ValueId) -> Result<(), OnnxError> {
        match self.names.insert(name.to_owned(), id) {
            None => Ok(()),
            Some(_) => Err(defined_twice(name)),
        }
    }

    /// The zeros around a node's first input.
    fn pads_of(&self, node: &proto::Node) -> Result<Pads, String> {
        let pads = |name: &String| self.padded.get(&name[..]).copied();
        if node.input.iter().skip(1).any(|name| pads(name).is_some()) {
            return Err("an input other than its first comes from a Pad".to_owned());
        }
        Ok(node.input.first().and_then(pads).unwrap_or([0; 4]))
    }

    fn op(&self, node: &Attributes<'_>, inputs: &mut Vec<ValueId>) -> Result<Op, String> {
        let arity = |least: usize, most: usize| match inputs.len() {
            n if (least..=most).contains(&n) => Ok(()),
            n => Err(format!("{n} inputs, not {least} to {most}")),
        };
        let op_type = node.op_type();
        let rank = inputs
            .first()
            .map_or(0, |id| self.graph.values[id.0].shape.len());
        if let Some(op) = host::read(node, self.opset, rank)? {
            let (least, most) = op.arity();
            return arity(least, most).map(|()| Op::Host(op));
        }
        match op_type {
            "Conv" => arity(2, 3)?,
            "Add" | "MatMul" | "Reshape" => arity(2, 2)?,
            "Gemm" => arity(2, 3)?,
            "BatchNormalization" => arity(5, 5)?,
            "QuantizeLinear" | "DequantizeLinear" => arity(2, 3)?,
            "Clip" => arity(1, 3)?,
            "Resize" => arity(1, 4)?,
            _ => arity(1, 2)?,
        }
        Ok(match op_type {
            "Conv" => {
                let weights = &self.graph.values[inputs[1].0].shape;
                let &[_, _, kh, kw] = &weights[..] else {
                    return Err(format!(
                        "weights of shape {weights:?}; only 2-D is supported"
                    ));
                };
                let window = self.window(node, inputs[0], [kh, kw])?;
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
            "MaxPool" => {
                if node.0.output.len() > 1 {
                    return Err("the Indices output is not supported".to_owned());
                }
                Op::MaxPool {
                    window: self.pool_window(node, inputs[0])?,
                }
            }
            "AveragePool" => {
                let count_include_pad = node.int("count_include_pad", 0) != 0;
                if node.int("ceil_mode", 0) != 0 {
                    return Err("ceil_mode of an average is not supported".to_owned());
                }
                Op::AveragePool {
                    window: self.pool_window(node, inputs[0])?,
                    count_include_pad,
                }
            }
            "GlobalAveragePool" => Op::GlobalAveragePool,
            "GlobalMaxPool" => {
                let [_, _, h, w] = self.spatial(inputs[0])?;
                let window = Window {
                    kernel: [h, w],
                    stride: [1, 1],
                    dilation: [1, 1],
                    pads: [0; 4],
                };
                Op::MaxPool { window }
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
            _ => return Err("neither the device nor the host has this operator".to_owned()),
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

    fn pool_window(&self, node: &Attributes<'_>, input: ValueId) -> Result<Window, String> {
        let kernel = node.pair("kernel_shape", None)?;
        let mut window = self.window(node, input, kernel)?;
        if node.int("ceil_mode", 0) != 0 {
            self.round_up(&mut window, input)?;
        }
        Ok(window)
    }

    /// `ceil_mode` as larger bottom and right pads; a window never starts in the padding.
    fn round_up(&self, window: &mut Window, input: ValueId) -> Result<(), String> {
        let [_, _, h, w] = self.spatial(input)?;
        for (axis, size) in [h, w].into_iter().enumerate() {
            let (stride, begin) = (window.stride[axis], window.pads[axis]);
            let span = window.dilation[axis] * (window.kernel[axis] - 1) + 1;
            let padded = size + begin + window.pads[axis + 2];
            let Some(room) = padded.checked_sub(span) else {
                continue;
            };
            let last = room.div_ceil(stride) * stride;
            if last < size + begin {
                window.pads[axis + 2] += last - room;
            }
        }
        Ok(())
    }

    fn spatial(&self, input: ValueId) -> Result<[usize; 4], String> {
        let shape = &self.graph.values[input.0].shape;
        shape[..]
            .try_into()
            .map_err(|_| format!("input of shape {shape:?}, not [1, C, H, W]"))
    }

    fn window(
        &self,
        node: &Attributes<'_>,
        input: ValueId,
        kernel: [usize; 2],
    ) -> Result<Window, String> {
        let [_, _, h, w] = self.spatial(input)?;
        let stride = node.pair("strides", Some([1, 1]))?;
        let dilation = node.pair("dilations", Some([1, 1]))?;
        let positive = |name, pair: [usize; 2]| match pair.iter().all(|&v| (1..=65535).contains(&v))
        {
            true => Ok(()),
            false => Err(format!("{name} {pair:?} must be within 1 to 65535")),
        };
        positive("kernel_shape", kernel)?;
        positive("strides", stride)?;
        positive("dilations", dilation)?;
        if node
            .find("kernel_shape")
            .is_some_and(|a| a.ints != kernel.map(|k| k as i64))
        {
            return Err(format!("kernel_shape differs from the weights' {kernel:?}"));
        }
        let same = |begin: bool| {
            let total = |size: usize, axis: usize| {
                let span = dilation[axis] * (kernel[axis] - 1) + 1;
                ((size.div_ceil(stride[axis]).max(1) - 1) * stride[axis] + span)
                    .saturating_sub(size)
            };
            let split = |t: usize| {
                if begin {
                    (t.div_ceil(2), t / 2)
                } else {
                    (t / 2, t.div_ceil(2))
                }
            };
            let ((top, bottom), (left, right)) = (split(total(h, 0)), split(total(w, 1)));
            [top, left, bottom, right]
        };
        let pads = match node.text("auto_pad").as_deref() {
            None | Some("NOTSET" | "") => node.pads()?,
            Some("VALID") => [0; 4],
            Some("SAME_UPPER") => same(false),
            Some("SAME_LOWER") => same(true),
            Some(other) => return Err(format!("auto_pad {other} is unknown")),
        };
        Ok(Window {
            kernel,
            stride,
            dilation,
            pads,
        })
    }
}

pub(super) struct Attributes<'a>(&'a proto::Node);

impl Attributes<'_> {
    fn find(&self, name: &str) -> Option<&proto::Attribute> {
        self.0.attribute.iter().find(|a| a.name == name)
    }

    /// The operator.
    pub(super) fn op_type(&self) -> &str {
        &self.0.op_type
    }

    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.find(name).map_or(default, |a| a.i)
    }

    fn count(&self, name: &str, default: i64) -> Result<usize, String> {
        let value = self.int(name, default);
        usize::try_from(value).map_err(|_| format!("{name} is {value}"))
    }

    pub(super) fn float(&self, name: &str, default: f32) -> f32 {
        self.find(name).map_or(default, |a| a.f)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.find(name)
            .map(|a| String::from_utf8_lossy(&a.s).into_owned())
    }

    fn pair(&self, name: &str, default: Option<[usize; 2]>) -> Result<[usize; 2], String> {
        let Some(attribute) = self.find(name) else {
            return default.ok_or_else(|| format!("{name} is missing"));
        };
        match attribute.ints[..] {
            [a, b] if a >= 0 && b >= 0 => Ok([a as usize, b as usize]),
            _ => Err(format!(
                "{name} is {:?}, not two sizes (only 2-D is supported)",
                attribute.ints
            )),
        }
    }

    fn pads(&self) -> Result<[usize; 4], String> {
        let Some(attribute) = self.find("pads") else {
            return Ok([0; 4]);
        };
        let pads: Option<Vec<usize>> = attribute
            .ints
            .iter()
            .map(|&p| usize::try_from(p).ok().filter(|p| *p <= 65535))
            .collect();
        let pads = pads.and_then(|p| <[usize; 4]>::try_from(p).ok());
        pads.ok_or_else(|| format!("pads are {:?}, not four sizes up to 65535", attribute.ints))
    }
}

fn input_shape(input: &proto::ValueInfo) -> Result<Vec<usize>, OnnxError> {
    let fail = |reason: &str| OnnxError::Tensor {
        tensor: input.name.clone(),
        reason: reason.to_owned(),
    };
    let tensor = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let tensor = tensor.ok_or_else(|| fail("the input is not a tensor"))?;
    if tensor.elem_type != proto::FLOAT {
        return Err(fail("the input is not float32"));
    }
    let shape = tensor
        .shape
        .as_ref()
        .ok_or_else(|| fail("the input has no shape"))?;
    let dim = |(i, d): (usize, &proto::Dimension)| match (i, d.dim_value) {
        (0, None | Some(0 | -1)) => Ok(1),
        (_, Some(n)) if n > 0 => Ok(n as usize),
        _ => Err(fail("only the first dimension may be dynamic")),
    };
    let shape = shape
        .dim
        .iter()
        .enumerate()
        .map(dim)
        .collect::<Result<Vec<_>, _>>()?;
    if shape.first().is_some_and(|&n| n != 1) {
        return Err(fail("the batch must be 1 or dynamic"));
    }
    shape::elements(&input.name, &shape)?;
    Ok(shape)
}

fn read_tensor(name: &str, tensor: &proto::Tensor) -> Result<(Vec<usize>, Data), OnnxError> {
    let fail = |reason: String| OnnxError::Tensor {
        tensor: name.to_owned(),
        reason,
    };
    if tensor.data_location != 0 {
        return Err(fail("external data is not supported".to_owned()));
    }
    let dims: Option<Vec<usize>> = tensor
        .dims
        .iter()
        .map(|&d| usize::try_from(d).ok())
        .collect();
    let dims = dims.ok_or_else(|| fail(format!("dimensions {:?}", tensor.dims)))?;
    let count = shape::elements(name, &dims)?;
    let raw = &tensor.raw_data[..];
    let checked = |found: usize| match found == count {
        true => Ok(()),
        false => Err(fail(format!("{found} elements for shape {dims:?}"))),
    };
    let has_raw = !raw.is_empty();
    let words = |size: usize| match raw.len().is_multiple_of(size) {
        true => Ok(raw.chunks_exact(size)),
        false => Err(fail(format!("{} bytes of {size}-byte elements", raw.len()))),
    };
    let narrow =
        |low: i32, high: i32| match tensor.int32_data.iter().all(|v| (low..=high).contains(v)) {
            true => Ok(tensor.int32_data.iter()),
            false => Err(fail("an element is out of range".to_owned())),
        };
    let four = |b: &[u8]| [b[0], b[1], b[2], b[3]];
    let data = match tensor.data_type {
        proto::FLOAT if has_raw => {
            Data::F32(words(4)?.map(|b| f32::from_le_bytes(four(b))).collect())
        }
        proto::FLOAT => Data::F32(tensor.float_data.clone()),
        proto::INT8 if has_raw => Data::I8(raw.iter().map(|&b| b as i8).collect()),
        proto::INT8 => Data::I8(narrow(-128, 127)?.map(|&v| v as i8).collect()),
        proto::UINT8 if has_raw => Data::U8(raw.to_vec()),
        proto::UINT8 => Data::U8(narrow(0, 255)?.map(|&v| v as u8).collect()),
        proto::INT32 if has_raw => {
            Data::I32(words(4)?.map(|b| i32::from_le_bytes(four(b))).collect())
        }
        proto::INT32 => Data::I32(tensor.int32_data.clone()),
        proto::INT64 if has_raw => {
            let long = |b: &[u8]| {
                let (low, high) = (
                    u32::from_le_bytes(four(b)),
                    u32::from_le_bytes(four(&b[4..])),
                );
                (u64::from(low) | u64::from(high) << 32) as i64
            };
            Data::I64(words(8)?.map(long).collect())
        }
        proto::INT64 => Data::I64(tensor.int64_data.clone()),
        other => {
            return Err(fail(format!(
                "data type {other} is not supported (float32, int8, uint8, int32, int64 are)"
            )));
        }
    };
    checked(match &data {
        Data::F32(v) => v.len(),
        Data::I8(v) => v.len(),
        Data::U8(v) => v.len(),
        Data::I32(v) => v.len(),
        Data::I64(v) => v.len(),
    })?;
    Ok((dims, data))
}

/// Facts of a graph that callers look up by value.
impl Graph {
    /// How many nodes read each value, graph outputs counted.
    pub fn uses(&self) -> BTreeMap<ValueId, usize> {
        let mut uses = BTreeMap::new();
        for id in self
            .nodes
            .iter()
            .flat_map(|n| &n.inputs)
            .chain(&self.outputs)
        {
            *uses.entry(*id).or_insert(0) += 1;
        }
        uses
    }
}

#[cfg(test)]
mod tests;
