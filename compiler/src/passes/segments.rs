//! Which nodes the host computes together, and the model of such a part.
//!
//! Nodes of the host that as many parts of the host precede on the longest way from the input are
//! one part. No way leads from such a part through a device and back into it, since what comes after a
//! device has one part more before it; and no network has fewer parts than that way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::error::PassError;
use super::net::{Net, NetNode, NetOp, NetTensor};
use super::views::views;
use crate::graph::{Data, Element, Graph, OnnxOp, Op, Value, ValueId};
use crate::host::Segment;
use crate::qgraph::{Numbers, TensorId, ordered};
use crate::reflect::Reflect;

/// A part of the host with what it reads and writes.
pub(super) struct HostPart {
    pub segment: Arc<Segment>,
    pub inputs: Vec<TensorId>,
    /// What is read elsewhere, and the node that computes it.
    pub outputs: Vec<(TensorId, usize)>,
}

/// What is planned at once, in execution order: a node of the device, or nodes of the host that are a part. Each
/// comes after those that it reads from; of several, the first of the net.
pub(super) fn units(net: &Net) -> Vec<Vec<usize>> {
    // By tensor: parts of the host before it, and whether one of them computes it.
    let mut before = vec![(0usize, false); net.tensors.len()];
    let mut units: Vec<Vec<usize>> = Vec::new();
    let mut needs: Vec<BTreeSet<usize>> = Vec::new();
    let mut parts: BTreeMap<usize, usize> = BTreeMap::new();
    let mut writer = vec![None; net.tensors.len()];
    for (index, node) in net.nodes.iter().enumerate() {
        let is_host = matches!(node.op, NetOp::Host { .. });
        let inputs = node.op.inputs();
        let count = |id: &TensorId| {
            let (count, of_host) = before[id.0];
            count + usize::from(is_host && !of_host)
        };
        // Behind a device it is of a later part, since it would else wait for itself.
        let level = inputs.iter().map(count).max();
        let level = level.unwrap_or(usize::from(is_host));
        before[node.output.0] = (level, is_host);
        let unit = if is_host {
            *parts.entry(level).or_insert(units.len())
        } else {
            units.len()
        };
        if unit == units.len() {
            units.push(Vec::new());
            needs.push(BTreeSet::new());
        }
        units[unit].push(index);
        needs[unit].extend(inputs.iter().filter_map(|id| writer[id.0]));
        needs[unit].remove(&unit);
        writer[node.output.0] = Some(unit);
    }
    let order = ordered(&needs, |ready| ready.first().copied());
    let take = |unit: usize| std::mem::take(&mut units[unit]);
    order.into_iter().map(take).collect()
}

/// Makes a part of the host of some nodes, `None` when nothing reads what they compute.
///
/// # Errors
/// What the engine can't load.
pub(super) fn part(net: &Net, nodes: &[usize]) -> Result<Option<HostPart>, PassError> {
    let inside: BTreeSet<usize> = nodes.iter().copied().collect();
    let made: BTreeSet<TensorId> = nodes.iter().map(|&i| net.nodes[i].output).collect();
    let mut read: BTreeSet<TensorId> = net.outputs.iter().copied().collect();
    for (index, node) in net.nodes.iter().enumerate() {
        if !inside.contains(&index) {
            read.extend(node.op.inputs());
        }
    }
    let outputs = nodes.iter().map(|&i| (net.nodes[i].output, i));
    let outputs: Vec<_> = outputs.filter(|(id, _)| read.contains(id)).collect();
    let Some((_, first)) = outputs.first() else {
        return Ok(None);
    };
    let inputs: BTreeSet<TensorId> = nodes
        .iter()
        .flat_map(|&i| net.nodes[i].op.inputs())
        .collect();
    let inputs: Vec<TensorId> = inputs.difference(&made).copied().collect();
    let mut model = Model::new(net);
    for id in &inputs {
        model.input(*id);
    }
    for &index in nodes {
        model.node(&net.nodes[index])?;
    }
    let ids = outputs
        .iter()
        .filter_map(|(id, _)| model.quantized.get(id).copied());
    model.graph.outputs = ids.collect();
    let each: Vec<usize> = (0..inputs.len()).collect();
    // Only an int8 has few enough values.
    let tables = match net.numbers {
        Numbers::Int8 => views(&model.graph, &each),
        Numbers::Int16 => vec![None; model.graph.outputs.len()],
    };
    let segment = Segment::with_tables(model.graph, &model.listed, &tables);
    let segment = segment.map_err(|e| error(&net.nodes[*first].name, &e.to_string()))?;
    Ok(Some(HostPart {
        segment: Arc::new(segment),
        inputs,
        outputs,
    }))
}

/// What a host's model has for a net's numbers.
pub(super) const fn element(numbers: Numbers) -> Element {
    match numbers {
        Numbers::Int8 => Element::I8,
        Numbers::Int16 => Element::I16,
    }
}

/// A zero point as data of the net's numbers, if it is one.
pub(super) fn zero_point(numbers: Numbers, zero: i32) -> Option<Data> {
    Data::of_integers(element(numbers), &[zero.into()]).ok()
}

/// Why the host can't compute a node, by its name.
pub(super) fn error(node: &str, reason: &str) -> PassError {
    PassError::Node {
        node: node.to_owned(),
        op: "host".to_owned(),
        reason: reason.to_owned(),
    }
}

/// The model of a part while it grows.
pub(super) struct Model<'n> {
    net: &'n Net,
    pub graph: Graph,
    /// Names and kinds of the network's nodes in it.
    pub listed: Vec<(String, String)>,
    /// The value of each tensor.
    quantized: BTreeMap<TensorId, ValueId>,
    /// The real value of each tensor that was read, in the tensor's shape.
    reals: BTreeMap<TensorId, ValueId>,
    /// Those of the net's sums that were read.
    sums: BTreeMap<usize, ValueId>,
    /// Constants by the model's names.
    constants: BTreeMap<String, ValueId>,
    /// Nodes by what they read: what two parts share is computed once.
    readers: BTreeMap<Vec<ValueId>, Vec<usize>>,
}

impl<'n> Model<'n> {
    pub(super) fn new(net: &'n Net) -> Self {
        let graph = Graph {
            name: "host".to_owned(),
            ..Graph::default()
        };
        Self {
            net,
            graph,
            listed: Vec::new(),
            quantized: BTreeMap::new(),
            reals: BTreeMap::new(),
            sums: BTreeMap::new(),
            constants: BTreeMap::new(),
            readers: BTreeMap::new(),
        }
    }

    /// A tensor that it reads.
    pub(super) fn input(&mut self, id: TensorId) {
        let value = self.tensor(id);
        self.graph.inputs.push(value);
    }

    /// Whether it reads or makes a tensor.
    pub(super) fn reads(&self, id: TensorId) -> bool {
        self.quantized.contains_key(&id)
    }

    pub(super) fn value(&mut self, what: &str, shape: Vec<usize>, data: Option<Data>) -> ValueId {
        let name = format!("v{}.{what}", self.graph.values.len());
        self.graph.value(name, shape, data)
    }

    fn push(&mut self, op: Op, inputs: Vec<ValueId>, output: ValueId) {
        let name = format!("{}.{}", self.graph.nodes.len(), op.kind());
        self.graph.push(name, op, inputs, output);
    }

    /// A new value of a tensor.
    pub(super) fn tensor(&mut self, id: TensorId) -> ValueId {
        let NetTensor { name, chw, .. } = &self.net.tensors[id.0];
        let (name, [c, h, w]) = (name.clone(), *chw);
        let value = self.value(&name, vec![1, c, h, w], None);
        self.graph.values[value.0].element = element(self.net.numbers);
        self.quantized.insert(id, value);
        value
    }

    /// Scale and zero point of a tensor.
    fn steps(&mut self, node: &str, id: TensorId) -> Result<[ValueId; 2], PassError> {
        let NetTensor { scale, zero, .. } = self.net.tensors[id.0];
        let data = zero_point(self.net.numbers, zero);
        let zero = data.ok_or_else(|| error(node, &format!("a zero point of {zero}")))?;
        let scale = Some(Data::F32(vec![scale as f32]));
        Ok([
            self.value("scale", vec![], scale),
            self.value("zero", vec![], Some(zero)),
        ])
    }

    /// The values of `from` in another shape.
    fn reshaped(&mut self, from: ValueId, shape: &[usize]) -> ValueId {
        if self.graph.values[from.0].shape == shape {
            return from;
        }
        let sizes = Data::I64(shape.iter().map(|&d| d as i64).collect());
        let sizes = self.value("shape", vec![shape.len()], Some(sizes));
        let to = self.value("reshaped", shape.to_vec(), None);
        let op = OnnxOp::new("Reshape", 2, Vec::new());
        self.push(Op::Onnx(Box::new(op)), vec![from, sizes], to);
        to
    }

    /// A node between DequantizeLinear and QuantizeLinear.
    fn node(&mut self, node: &NetNode) -> Result<(), PassError> {
        let name = &node.name;
        let NetOp::Host { part, inputs } = &node.op else {
            return Err(error(name, "it is none of the host's"));
        };
        let reals = inputs.iter().map(|id| self.real(name, *id));
        let reals: Vec<ValueId> = reals.collect::<Result<_, _>>()?;
        let made = self.part(name, part, &reals)?;
        let [c, h, w] = self.net.tensors[node.output.0].chw;
        let mut real = self.reshaped(made, &[1, c, h, w]);
        // QuantizeLinear saturates at the numbers' bounds itself.
        if node.clamp != self.net.numbers.bounds() {
            let NetTensor { scale, zero, .. } = self.net.tensors[node.output.0];
            let bound = |q: i16| (i32::from(q) - zero) as f32 * scale as f32;
            let (min, max) = (bound(node.clamp.0), bound(node.clamp.1));
            let clamped = self.value("clamped", vec![1, c, h, w], None);
            self.push(Op::Clip { min, max }, vec![real], clamped);
            real = clamped;
        }
        self.rounded(name, real, node.output)?;
        Ok(())
    }

    /// A tensor: what a value, of any shape with as many values, is rounded to.
    pub(super) fn rounded(
        &mut self,
        node: &str,
        real: ValueId,
        id: TensorId,
    ) -> Result<ValueId, PassError> {
        let [c, h, w] = self.net.tensors[id.0].chw;
        let real = self.reshaped(real, &[1, c, h, w]);
        let [scale, zero] = self.steps(node, id)?;
        let output = self.tensor(id);
        let op = Op::QuantizeLinear { axis: 1 };
        self.push(op, vec![real, scale, zero], output);
        Ok(output)
    }

    /// A tensor's real value.
    pub(super) fn real(&mut self, node: &str, id: TensorId) -> Result<ValueId, PassError> {
        if let Some(real) = self.reals.get(&id) {
            return Ok(*real);
        }
        let from = self.quantized.get(&id).copied();
        let from = from.ok_or_else(|| error(node, "it is read before it is computed"))?;
        let [scale, zero] = self.steps(node, id)?;
        let shape = self.graph.values[from.0].shape.clone();
        let real = self.value("real", shape, None);
        let op = Op::DequantizeLinear { axis: 1 };
        self.push(op, vec![from, scale, zero], real);
        self.reals.insert(id, real);
        Ok(real)
    }

    /// The real value of one of the net's sums, in its digits' shape: they are whole numbers, of which the
    /// greatest is added first, and what they add up to is multiplied once.
    pub(super) fn sum(&mut self, node: &str, index: usize) -> Result<ValueId, PassError> {
        if let Some(sum) = self.sums.get(&index) {
            return Ok(*sum);
        }
        let missing = || error(node, "it reads no sum of the network");
        let net = self.net;
        let sum = net.ends.sums.get(index).ok_or_else(missing)?;
        let mut whole = None;
        for id in sum.digits.iter().rev() {
            let digit = self.real(node, *id)?;
            whole = Some(match whole {
                Some(high) => self.joined(Op::Add, high, digit),
                None => digit,
            });
        }
        let mut real = whole.ok_or_else(missing)?;
        for (op, operand) in [(Op::Mul, &sum.step), (Op::Add, &sum.rest)] {
            if !operand.is_empty() {
                let data = operand.iter().map(|&x| x as f32).collect();
                let shape = vec![1, operand.len(), 1, 1];
                let operand = self.value("operand", shape, Some(Data::F32(data)));
                real = self.joined(op, real, operand);
            }
        }
        self.sums.insert(index, real);
        Ok(real)
    }

    /// A node of two values, of the shape of the first.
    fn joined(&mut self, op: Op, a: ValueId, b: ValueId) -> ValueId {
        let shape = self.graph.values[a.0].shape.clone();
        let output = self.value("joined", shape, None);
        self.push(op, vec![a, b], output);
        output
    }

    /// A constant of a part.
    fn constant(&mut self, value: &Value) -> ValueId {
        if let Some(known) = self.constants.get(&value.name)
            && self.graph.values[known.0].data == value.data
        {
            return *known;
        }
        let id = self.value(&value.name, value.shape.clone(), value.data.clone());
        self.constants.insert(value.name.clone(), id);
        id
    }

    /// The output of a part that reads some values. Nodes that another part has, too, aren't copied again;
    /// new ones are listed.
    pub(super) fn part(
        &mut self,
        node: &str,
        part: &Graph,
        inputs: &[ValueId],
    ) -> Result<ValueId, PassError> {
        let mut ids = vec![None; part.values.len()];
        if part.inputs.len() != inputs.len() {
            return Err(error(node, "its inputs aren't those of its part"));
        }
        for (value, &real) in part.inputs.iter().zip(inputs) {
            ids[value.0] = Some(self.reshaped(real, &part.values[value.0].shape));
        }
        for (index, value) in part.values.iter().enumerate() {
            if ids[index].is_none() && value.data.is_some() {
                ids[index] = Some(self.constant(value));
            }
        }
        let missing = || error(node, "its part has no such value");
        for inner in &part.nodes {
            let inputs = inner
                .inputs
                .iter()
                .map(|id| ids.get(id.0).copied().flatten());
            let inputs: Vec<ValueId> = inputs.collect::<Option<_>>().ok_or_else(missing)?;
            let known = self.readers.get(&inputs).and_then(|readers| {
                let same = |index: &&usize| self.graph.nodes[**index].op == inner.op;
                readers.iter().find(same)
            });
            let output = match known {
                Some(&index) => self.graph.nodes[index].output,
                None => {
                    let value = part.values.get(inner.output.0).ok_or_else(missing)?;
                    let output = self.value(&value.name, value.shape.clone(), None);
                    self.graph.values[output.0].element = value.element;
                    let index = self.graph.nodes.len();
                    self.readers.entry(inputs.clone()).or_default().push(index);
                    self.push(inner.op.clone(), inputs, output);
                    // What only gives values another order is none of the network's.
                    let own = !inner.name.is_empty();
                    if own && !matches!(inner.op, Op::DequantizeLinear { .. }) {
                        let kind = inner.op.kind().to_owned();
                        self.listed.push((inner.name.clone(), kind));
                    }
                    output
                }
            };
            *ids.get_mut(inner.output.0).ok_or_else(missing)? = Some(output);
        }
        let output = part.outputs.first().and_then(|id| ids.get(id.0));
        output.copied().flatten().ok_or_else(missing)
    }
}
