//! QuantizeLinear and DequantizeLinear.

use std::sync::Arc;

use super::super::error::PassError;
use super::super::net::{Entry, NetNode, NetOp, NetTensor};
use super::constant::Constant;
use super::islands::Island;
use super::layout::Order;
use super::storage::Storage;
use super::values::{Reading, Real, UNQUANTIZED, Val, error, ordered};
use crate::graph::Node;
use crate::qgraph::{Numbers, TensorId};

/// What the integers of an activation mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steps {
    scale: f64,
    /// As that of signed values, whatever the storage.
    zero: i32,
    storage: Storage,
}

impl Steps {
    /// What a tensor of them holds.
    fn numbers(self) -> Numbers {
        self.storage.numbers().unwrap_or_default()
    }

    /// Whether what is bounded by them has no value between two steps, of values that they hold.
    fn have(self, (low, high): (f64, f64)) -> bool {
        let (least, most) = self.numbers().bounds();
        let [least, most] = [least, most].map(f64::from);
        let [low, high] = [low, high].map(|bound| bound / self.scale + f64::from(self.zero));
        let within = |step: f64| (least..=most).contains(&step) && step == step.round();
        (low <= least || within(low)) && (high >= most || within(high))
    }
}

impl<'g> Reading<'g> {
    fn scale(&self, node: &Node) -> Result<Vec<f64>, PassError> {
        let scale: Vec<f64> = self.floats(node, 1)?.iter().map(|&s| s.into()).collect();
        if scale.is_empty() || scale.iter().any(|s| !(s.is_finite() && *s > 0.0)) {
            return Err(error(node, "a scale is not positive and finite"));
        }
        Ok(scale)
    }

    /// The zero points, one or one a slice, and the storage that they and the integers around them
    /// have; `None` without one.
    fn zero_points(&self, node: &Node) -> Result<Option<(Vec<i32>, Storage)>, PassError> {
        let Some(id) = node.inputs.get(2) else {
            return Ok(None);
        };
        let data = self.graph.values[id.0].data.as_ref();
        let known = data.and_then(|data| Some((data.integers()?, Storage::of(data.element())?)));
        let Some((zeros, storage)) = known else {
            let text = "the zero point is not a constant of 8 or 16 bits, or int32";
            return Err(error(node, text));
        };
        // Those of int32 at most.
        let zeros: Vec<i32> = zeros.iter().map(|&zero| zero as i32).collect();
        if zeros.is_empty() {
            return Err(error(node, "its zero point has no value"));
        }
        Ok(Some((zeros, storage)))
    }

    /// The steps of an activation: its scale, and its zero point as that of signed values. Without one it is 0 in
    /// storage `without`.
    fn steps(&self, node: &Node, without: Storage) -> Result<Steps, PassError> {
        let &[scale] = &self.scale(node)?[..] else {
            return Err(error(node, "activations need one scale per tensor"));
        };
        let (zeros, storage) = self.zero_points(node)?.unwrap_or((vec![0], without));
        if storage.numbers().is_none() {
            let text = "it makes more than 16 bits, which activations have at most";
            return Err(error(node, text));
        }
        let &[zero] = &zeros[..] else {
            return Err(error(node, "activations need one zero point per tensor"));
        };
        Ok(Steps {
            scale,
            zero: zero - storage.offset(),
            storage,
        })
    }

    pub(crate) fn quantize(&mut self, node: &Node, axis: usize) -> Result<Val<'g>, PassError> {
        if self.graph.values[node.inputs[0].0].data.is_some() {
            return self.quantize_constant(node, axis, self.floats(node, 0)?);
        }
        // What a file rounds again, as where an Identity has a constant of another node.
        if let Some(Val::Constant(constant)) = self.values.get(&node.inputs[0]) {
            return self.quantize_constant(node, axis, &constant.reals(node)?);
        }
        // Without a zero point QuantizeLinear makes uint8.
        let steps = self.steps(node, Storage::Uint8)?;
        let name = self.graph.values[node.inputs[0].0].name.clone();
        let real = match self.value(node, 0)? {
            Val::Input => return self.network_input(node, name, steps),
            Val::Real(real) => real,
            Val::Float => match self.island(node)? {
                Island::Real(real) => real,
                Island::Entry(entry, chw, order) => {
                    let tensor = self.enter(name, chw, steps, entry);
                    return Ok(Val::Quantized(tensor, order));
                }
            },
            Val::Quantized(..) | Val::Constant(_) => {
                return Err(error(node, "its input is not real"));
            }
        };
        let order = real.order;
        Ok(Val::Quantized(self.round(*real, name, steps), order))
    }

    pub(crate) fn network_input(
        &mut self,
        node: &Node,
        name: String,
        steps: Steps,
    ) -> Result<Val<'g>, PassError> {
        if steps.numbers() != self.net.numbers {
            let text = "it rounds an input to 8 bits, and others are rounded to 16";
            return Err(error(node, text));
        }
        let shape = &self.graph.values[node.inputs[0].0].shape;
        // Rows of any other batch than 1 are dimensions like others.
        let image = shape.strip_prefix(&[1]).unwrap_or(shape);
        let mut chw = match *image {
            [c, h, w] => [c, h, w],
            [c, w] => [c, 1, w],
            _ => [image.iter().product(), 1, 1],
        };
        if chw.contains(&0) {
            return Err(error(node, format!("an input of shape {shape:?}")));
        }
        let (mut part, mut order) = (None, Order::First);
        if let Some(last) = self.layouts.last_of(node.inputs[0], shape) {
            (chw, order) = (last, Order::Last);
            part = Some(Arc::new(self.turned(node.inputs[0], chw)));
        }
        let entry = Entry {
            part,
            reads: vec![node.inputs[0]],
        };
        let mut known = self.net.inputs.iter().zip(&self.entries);
        let known = known.find(|(id, other)| **other == entry && self.steps_of(**id) == steps);
        let known = known.map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| self.enter(name, chw, steps, entry));
        Ok(Val::Quantized(id, order))
    }

    /// An input of the net.
    fn enter(&mut self, name: String, chw: [usize; 3], steps: Steps, entry: Entry) -> TensorId {
        let id = self.push(name, chw, steps);
        self.net.inputs.push(id);
        self.entries.push(entry);
        id
    }

    fn push(&mut self, name: String, chw: [usize; 3], steps: Steps) -> TensorId {
        let id = self.push_tensor(NetTensor {
            name,
            chw,
            scale: steps.scale,
            zero: steps.zero,
        });
        self.stored.insert(id, steps.storage);
        id
    }

    /// What a tensor's integers mean.
    fn steps_of(&self, id: TensorId) -> Steps {
        let NetTensor { scale, zero, .. } = self.net.tensors[id.0];
        let signed = match self.net.numbers {
            Numbers::Int8 => Storage::Int8,
            Numbers::Int16 => Storage::Int16,
        };
        let storage = self.stored.get(&id).copied().unwrap_or(signed);
        Steps {
            scale,
            zero,
            storage,
        }
    }

    /// Ends a real value in a tensor; rounding a tensor to its own steps changes nothing.
    fn round(&mut self, real: Real, name: String, steps: Steps) -> TensorId {
        let step = |bound: f64| {
            let whole = (bound / steps.scale).round() + f64::from(steps.zero);
            steps.numbers().nearest(whole)
        };
        let clamp = (step(real.bounds.0), step(real.bounds.1));
        if let NetOp::Eltwise { input } = real.op
            && self.steps_of(input) == steps
            && clamp == steps.numbers().bounds()
        {
            return input;
        }
        let Some(moved) = real.moved else {
            return self.write(real.op, real.name, (name, real.chw, steps), clamp);
        };
        let phases = (format!("{name}.phases"), real.chw, steps);
        let input = self.write(real.op, real.name.clone(), phases, clamp);
        let op = NetOp::channels_of(input, moved.map, moved.spread);
        let name_of = format!("{}.spread", real.name);
        self.write(op, name_of, (name, moved.chw, steps), clamp)
    }

    /// The tensor of a real value that only moves or compares values of tensors with equal steps,
    /// and bounds that are steps: rounding it to these changes nothing. `None` for any other.
    pub(crate) fn unrounded(&mut self, real: &Real, name: &str) -> Option<TensorId> {
        let inputs = match &real.op {
            NetOp::Channels { inputs, .. } => inputs.clone(),
            NetOp::MaxPool { input, .. } | NetOp::Eltwise { input } => vec![*input],
            _ => return None,
        };
        let first = *inputs.first()?;
        let steps = self.steps_of(first);
        let alike = inputs.iter().all(|&input| self.steps_of(input) == steps);
        let moves = steps.have(real.bounds) && alike && real.moved.is_none();
        moves.then(|| self.round(real.clone(), name.to_owned(), steps))
    }

    /// A node and the tensor that it writes.
    fn write(
        &mut self,
        op: NetOp,
        name: String,
        (tensor, chw, steps): (String, [usize; 3], Steps),
        clamp: (i16, i16),
    ) -> TensorId {
        let output = self.push(tensor, chw, steps);
        self.net.nodes.push(NetNode {
            clamp,
            ..NetNode::new(name, op, output, self.net.numbers)
        });
        output
    }

    /// A float constant as the integers that the file would hold.
    fn quantize_constant(
        &self,
        node: &Node,
        axis: usize,
        floats: &[f32],
    ) -> Result<Val<'g>, PassError> {
        let scale = self.scale(node)?;
        let zeros = self.zero_points(node)?;
        let (zeros, storage) = zeros.unwrap_or((vec![0], Storage::Uint8));
        let (low, high) = storage.bounds();
        let shape = self.graph.values[node.inputs[0].0].shape.clone();
        let slice = slice(node, &shape, axis, &[scale.len(), zeros.len()])?;
        let round = |(i, &x): (usize, &f32)| {
            let steps = (f64::from(x) / scale[i / slice % scale.len()]).round_ties_even();
            let zero = zeros[i / slice % zeros.len()];
            (steps + f64::from(zero)).clamp(low, high) as i32
        };
        let values = floats.iter().enumerate().map(round).collect();
        let constant = Constant::computed(values, shape, storage != Storage::Int32);
        Ok(Val::Constant(Box::new(constant)))
    }

    pub(crate) fn dequantize(&mut self, node: &Node, axis: usize) -> Result<Val<'g>, PassError> {
        let from = &self.graph.values[node.inputs[0].0];
        let mut value = self.value(node, 0)?;
        let given = Storage::of(from.element).filter(|storage| storage.numbers().is_some());
        if let (Val::Input, Some(without)) = (&value, given) {
            let steps = self.steps(node, without)?;
            value = self.network_input(node, from.name.clone(), steps)?;
        }
        match value {
            Val::Constant(constant) => self.dequantize_constant(node, axis, *constant),
            Val::Quantized(input, order) => {
                // Without a zero point it is 0, whatever the storage.
                let own = self.steps_of(input);
                if self.steps(node, own.storage)? != own {
                    let text = "its scale or zero point differs from its QuantizeLinear's";
                    return Err(error(node, text));
                }
                let chw = self.net.tensors[input.0].chw;
                Ok(ordered(node, NetOp::Eltwise { input }, chw, order))
            }
            Val::Input | Val::Real(_) | Val::Float => Err(error(node, UNQUANTIZED)),
        }
    }

    /// Integers become differences from their zero points.
    fn dequantize_constant(
        &self,
        node: &Node,
        axis: usize,
        mut constant: Constant<'g>,
    ) -> Result<Val<'g>, PassError> {
        let scale = self.scale(node)?;
        let zeros = self.zero_points(node)?.map_or(vec![0], |(zeros, _)| zeros);
        let slice = slice(node, &constant.shape, axis, &[scale.len(), zeros.len()])?;
        let less = constant.subtract(zeros, slice);
        less.ok_or_else(|| error(node, "a value and its zero point overflow"))?;
        constant.axis = if scale.len() == 1 { 0 } else { axis };
        constant.scale = scale;
        Ok(Val::Constant(Box::new(constant)))
    }
}

impl Constant<'_> {
    /// What its integers stand for, as DequantizeLinear gives it.
    fn reals(&self, node: &Node) -> Result<Vec<f32>, PassError> {
        let slice = slice(node, &self.shape, self.axis, &[self.scale.len()])?;
        let scale = |i: usize| self.scale[i / slice % self.scale.len()] as f32;
        let real = |(i, value): (usize, i32)| value as f32 * scale(i);
        Ok(self.integers().enumerate().map(real).collect())
    }
}

/// How many elements of a constant follow each other in a slice along an axis.
///
/// # Errors
/// Scales or zero points that are neither one nor one for each slice.
fn slice(node: &Node, shape: &[usize], axis: usize, counts: &[usize]) -> Result<usize, PassError> {
    let slices = shape.get(axis).copied().unwrap_or(1);
    match counts.iter().find(|&&count| count != 1 && count != slices) {
        None => Ok(shape.iter().skip(axis + 1).product::<usize>().max(1)),
        Some(count) => {
            let text = format!("{count} scales or zero points for {slices} slices");
            Err(error(node, text))
        }
    }
}
