//! QuantizeLinear and DequantizeLinear put into a graph, with chosen scales.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rayon::prelude::*;

use super::adaptive::Rows;
use super::calibration::Observed;
use super::correct;
use super::error::QuantizeError;
use super::method::best_scale;
use super::mode::{Mode, Scale, WeightScales};
use super::options::Options;
use super::rounded::{Kept, refuse_quantized};
use super::scales::Scales;
use super::slices::{INT4, INT8, Slices, are_finite, largest};
use crate::graph::{Data, Element, Graph, Node, Op, Value, ValueId};

/// The largest magnitude of a quantised bias; leaves the sum a bit more than the same again.
const MAX_BIAS: f64 = (1 << 30) as f64;

/// Inserts QuantizeLinear and DequantizeLinear with the given scales.
///
/// # Errors
/// [`QuantizeError::Node`] for weights that aren't float constants and an input without a scale;
/// [`QuantizeError::Quantized`] for a graph that is quantised already.
pub fn apply(graph: &Graph, scales: &Scales, mode: Mode) -> Result<Graph, QuantizeError> {
    apply_with(graph, scales, mode, &|_| None)
}

/// [`apply`] to a graph that leaves out weights and biases, which `constants` gives when they are needed.
///
/// # Errors
/// As for [`apply`].
pub(crate) fn apply_with(
    graph: &Graph,
    scales: &Scales,
    mode: Mode,
    constants: &Constants<'_>,
) -> Result<Graph, QuantizeError> {
    let given = Given {
        scales,
        options: &Options::new(mode),
        kept: &Kept::new(),
        int4: &Kept::new(),
        observed: None,
        constants,
    };
    Ok(apply_as(graph, &given)?.0)
}

/// Float constants that a graph leaves out.
pub(super) type Constants<'a> = dyn Fn(ValueId) -> Option<Vec<f32>> + 'a;

/// What a graph is quantised with.
pub(super) struct Given<'a> {
    pub scales: &'a Scales,
    pub options: &'a Options,
    /// Nodes that stay in float.
    pub kept: &'a Kept,
    /// Nodes whose weights have 4 bits.
    pub int4: &'a Kept,
    /// By whose means biases are corrected.
    pub observed: Option<&'a Observed>,
    pub constants: &'a Constants<'a>,
}

/// [`apply`], and what stands for each value that is rounded.
pub(super) fn apply_as(
    graph: &Graph,
    given: &Given<'_>,
) -> Result<(Graph, Vec<Option<ValueId>>), QuantizeError> {
    let (scales, options) = (given.scales, given.options);
    refuse_quantized(graph)?;
    let mut quantized = Quantized {
        source: graph,
        options: *options,
        kept: given.kept,
        int4: given.int4,
        observed: given.observed,
        constants: given.constants,
        out: Graph {
            name: graph.name.clone(),
            metadata: graph.metadata.clone(),
            ..Graph::default()
        },
        map: BTreeMap::new(),
    };
    for id in &graph.inputs {
        let value = graph.values[id.0].clone();
        let new = quantized.out.value(&value.name, value.shape.clone(), None);
        quantized.out.values[new.0].element = value.element;
        quantized.out.inputs.push(new);
        let missing = || QuantizeError::of(&value.name, "the input has no scale");
        let real = match (value.element, scales[id.0]) {
            (Element::F32, Some(scale)) => (quantized.round(new, scale), scale.step),
            (Element::F32, None) if given.kept.is_empty() => return Err(missing()),
            // Whole numbers are the host's, as they are, and so is what only kept nodes read.
            (_, _) => (new, 1.0),
        };
        quantized.map.insert(*id, real);
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        quantized.node(index, node, scales)?;
    }
    quantized.outputs()?;
    let real = |(index, scale): (usize, &Option<Scale>)| {
        scale
            .and(quantized.map.get(&ValueId(index)))
            .map(|(real, _)| *real)
    };
    let rounded = scales.iter().enumerate().map(real).collect();
    Ok((quantized.out, rounded))
}

/// Float data of a graph, or made for it.
type Floats<'a> = Cow<'a, [f32]>;

struct Quantized<'a> {
    source: &'a Graph,
    options: Options,
    kept: &'a Kept,
    int4: &'a Kept,
    observed: Option<&'a Observed>,
    constants: &'a Constants<'a>,
    out: Graph,
    /// The dequantised value and its step for each source value.
    map: BTreeMap<ValueId, (ValueId, f32)>,
}

impl<'a> Quantized<'a> {
    /// The network's outputs, which keep their names.
    fn outputs(&mut self) -> Result<(), QuantizeError> {
        let source = self.source;
        let makers = source.nodes.iter().map(|n| (n.output, &n.name[..]));
        let makers: BTreeMap<ValueId, &str> = makers.collect();
        let mut named: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, value) in self.out.values.iter().enumerate() {
            named.entry(value.name.clone()).or_default().push(index);
        }
        for id in &source.outputs {
            let name = &source.values[id.0].name;
            let (real, _) = self.mapped(makers.get(id).copied().unwrap_or(name), *id)?;
            // What two outputs name has its new name by then.
            for index in named.remove(name).into_iter().flatten() {
                let value = &mut self.out.values[index];
                if value.name == *name {
                    value.name.push_str(".float");
                }
            }
            self.out.values[real.0].name.clone_from(name);
            self.out.outputs.push(real);
        }
        Ok(())
    }

    fn mapped(&self, node: &str, id: ValueId) -> Result<(ValueId, f32), QuantizeError> {
        let name = &self.source.values[id.0].name;
        let lost = || QuantizeError::of(node, format!("{name} is not computed from the input"));
        self.map.get(&id).copied().ok_or_else(lost)
    }

    /// Scales and zero points of a tensor: one, or one for each slice.
    fn steps(&mut self, name: &str, scale: Vec<f32>, zero: Data) -> [ValueId; 2] {
        let dims = match scale.len() {
            1 => vec![],
            slices => vec![slices],
        };
        let scale = Some(Data::F32(scale));
        [
            self.out.value(format!("{name}.scale"), dims.clone(), scale),
            self.out
                .value(format!("{name}.zero_point"), dims, Some(zero)),
        ]
    }

    /// QuantizeLinear and DequantizeLinear after a value; the real value again.
    fn round(&mut self, id: ValueId, Scale { step, zero }: Scale) -> ValueId {
        let Value { name, shape, .. } = self.out.values[id.0].clone();
        let [scale, zero] = self.steps(&name, vec![step], Data::I8(vec![zero]));
        let int8 = self.out.value(format!("{name}.int8"), shape.clone(), None);
        let real = self.out.value(format!("{name}.real"), shape, None);
        let [quantize, dequantize] = ["quantize", "dequantize"].map(|of| format!("{name}.{of}"));
        let op = Op::QuantizeLinear { axis: 1 };
        self.out.push(quantize, op, vec![id, scale, zero], int8);
        let op = Op::DequantizeLinear { axis: 1 };
        self.out.push(dequantize, op, vec![int8, scale, zero], real);
        real
    }

    fn node(&mut self, index: usize, node: &Node, scales: &Scales) -> Result<(), QuantizeError> {
        // A constant operand of a product or a difference has no scale of its own.
        let constant = |id: &&ValueId| self.source.values[id.0].data.is_some();
        let real = node.inputs.iter().find(|id| !constant(id));
        let (_, scale_x) = self.mapped(&node.name, *real.unwrap_or(&node.inputs[0]))?;
        let mut inputs = vec![self.operand(node, 0)?];
        let mut op = node.op.clone();
        match &node.op {
            _ if self.kept.contains(&index) => {
                for index in 1..node.inputs.len() {
                    inputs.push(self.operand(node, index)?);
                }
            }
            Op::Gemm { .. } => {
                inputs.extend(self.weights(index, node, scale_x)?);
                op = Op::Gemm { trans_b: true };
            }
            Op::Conv { .. } | Op::MatMul { .. } | Op::ConvTranspose { .. } => {
                inputs.extend(self.weights(index, node, scale_x)?);
            }
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } => {
                let node = node.name.clone();
                return Err(QuantizeError::Quantized { node });
            }
            _ => {
                for index in 1..node.inputs.len() {
                    inputs.push(self.operand(node, index)?);
                }
            }
        }
        let source = &self.source.values[node.output.0];
        let output = self.out.value(&source.name, source.shape.clone(), None);
        self.out.values[output.0].element = source.element;
        self.out.push(&node.name, op, inputs, output);
        let real = match scales[node.output.0] {
            Some(scale) => (self.round(output, scale), scale.step),
            None => (output, scale_x),
        };
        self.map.insert(node.output, real);
        Ok(())
    }

    /// An input as it is read: dequantised, or a constant as it stands.
    fn operand(&mut self, node: &Node, index: usize) -> Result<ValueId, QuantizeError> {
        let id = node.inputs[index];
        let Value {
            name, shape, data, ..
        } = &self.source.values[id.0];
        match data {
            Some(data) => Ok(self.out.value(name, shape.clone(), Some(data.clone()))),
            None => Ok(self.mapped(&node.name, id)?.0),
        }
    }

    /// A float constant, by the index of an input, and its shape.
    fn floats(&self, node: &Node, index: usize) -> Result<(Floats<'a>, Vec<usize>), QuantizeError> {
        let refuse = |reason: &str| Err(QuantizeError::of(&node.name, reason));
        let value = node
            .inputs
            .get(index)
            .map(|id| (id, &self.source.values[id.0]));
        let data = value.and_then(|(id, value)| match &value.data {
            Some(Data::F32(data)) => Some((Cow::Borrowed(&data[..]), &value.shape)),
            Some(_) => None,
            None => Some((Cow::Owned((self.constants)(*id)?), &value.shape)),
        });
        match data {
            Some((data, shape)) if are_finite(&data) => Ok((data, shape.clone())),
            Some(_) => refuse("a weight or bias is not finite"),
            None => refuse("its weights and bias must be float constants"),
        }
    }

    /// Weights and bias as DequantizeLinear of integer constants. Those of a dense layer have output channels first; a
    /// product with a matrix has a bias only if it had one.
    fn weights(
        &mut self,
        index: usize,
        node: &Node,
        scale_x: f32,
    ) -> Result<Vec<ValueId>, QuantizeError> {
        let (mut weights, mut shape) = self.floats(node, 1)?;
        if node.op == (Op::Gemm { trans_b: false }) {
            let (k, n) = (shape[0], shape[1]);
            let turned = (0..n * k).into_par_iter();
            weights = turned.map(|i| weights[i % k * n + i / k]).collect();
            shape = vec![n, k];
        }
        let (axis, group) = match node.op {
            Op::MatMul { form } => (form.output_axis(), 1),
            Op::ConvTranspose { group, .. } => (1, group),
            _ => (0, 1),
        };
        let (channels, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        let has_bias = node.inputs.len() > 2;
        let bias = if has_bias {
            self.floats(node, 2)?.0
        } else {
            vec![0.0; channels * group].into()
        };
        // All weights of a channel, of each group, have one scale.
        let of = |c: usize| {
            let slices = weights.chunks(inner.max(1)).skip(c);
            slices.step_by(channels.max(1)).flatten().copied()
        };
        let rows: Floats<'_> = match axis {
            0 => Cow::Borrowed(&weights),
            _ => (0..channels).flat_map(of).collect(),
        };
        let largest = |c: usize| {
            let all = bias.iter().skip(c).step_by(channels.max(1));
            all.fold(0f32, |m, b| m.max(b.abs()))
        };
        let biases: Vec<f32> = (0..channels).map(largest).collect();
        let range = match self.int4.contains(&index) {
            true => INT4,
            false => INT8,
        };
        let slices = Slices {
            scale: self.weight_scales(&rows, channels, &biases, scale_x, range),
            inner,
            axis,
            channels,
            range,
        };
        drop(rows);
        let mut made = self.parameters((index, node), (weights, shape), bias, slices, scale_x);
        if matches!(node.op, Op::MatMul { .. }) && !has_bias {
            made.truncate(1);
        }
        Ok(made)
    }

    /// Weights by their scales, and the bias.
    fn parameters(
        &mut self,
        (index, node): (usize, &Node),
        (weights, shape): (Floats<'_>, Vec<usize>),
        bias: Floats<'_>,
        slices: Slices,
        scale_x: f32,
    ) -> Vec<ValueId> {
        let mut bias = bias.into_owned();
        let mut int8 = slices.rounded(&weights);
        let Options {
            bias_correction,
            adaptive_rounding,
            ..
        } = self.options;
        let moments = self.observed.filter(|_| adaptive_rounding);
        if let Some(moments) = moments.and_then(|all| all.moments(index)) {
            let rows = Rows {
                count: match slices.axis {
                    0 => shape[0],
                    _ => slices.channels,
                },
                strides: match slices.axis {
                    0 => [1, shape[1..].iter().product()],
                    _ => [slices.channels, 1],
                },
                step: &|row| slices.of(row),
                range: slices.range,
            };
            moments.settle(&mut int8, &weights, &rows, bias_correction);
        }
        let means = self.observed.filter(|_| bias_correction);
        let channels = means.and_then(|all| all.channels(node.inputs[0]));
        if let Some(channels) = channels {
            let errors = correct::Errors {
                count: int8.len(),
                from: &|first, errors| slices.errors(&int8, &weights, first, errors),
            };
            let expected = correct::expected(self.source, node, &errors, &channels.means());
            for (bias, error) in bias.iter_mut().zip(expected.into_iter().flatten()) {
                *bias = (f64::from(*bias) - error) as f32;
            }
        }
        let steps = match slices.scale.len() {
            1 => 1,
            _ => bias.len(),
        };
        let bias_scale: Vec<f32> = (0..steps).map(|c| slices.of(c) * scale_x).collect();
        let step = |c: usize| bias_scale[if steps == 1 { 0 } else { c }];
        let int32 = |(c, b): (usize, &f32)| (f64::from(*b) / f64::from(step(c))).round() as i32;
        let int32 = bias.iter().enumerate().map(int32).collect();
        let Slices { scale, axis, .. } = slices;
        let name = format!("{}.weight", node.name);
        let weight = self.constant(&name, shape, Data::I8(int8), (scale, axis));
        let name = format!("{}.bias", node.name);
        let shape = vec![bias.len()];
        let bias = self.constant(&name, shape, Data::I32(int32), (bias_scale, 0));
        vec![weight, bias]
    }

    /// One scale for each output channel, or one for all.
    fn weight_scales(
        &self,
        weights: &[f32],
        channels: usize,
        bias: &[f32],
        scale_x: f32,
        range: [f32; 2],
    ) -> Vec<f32> {
        // A scale so small that the bias exceeds int32 is raised.
        let least = |b: &f32| (f64::from(b.abs()) / f64::from(scale_x) / MAX_BIAS) as f32;
        let channel = |(row, b): (&[f32], &f32)| {
            let scale = match largest(row) {
                0.0 => 1.0 / 128.0,
                // Of few steps some are better spent on many small weights than on a large one.
                _ if range == INT4 => best_scale(row, Mode::Multiply, range),
                largest => largest / 127.0,
            };
            scale.max(least(b)).max(f32::MIN_POSITIVE)
        };
        match (self.options.mode, self.options.weights) {
            (Mode::Multiply, WeightScales::PerChannel) => {
                let rows = weights.par_chunks((weights.len() / channels.max(1)).max(1));
                rows.zip(bias).map(channel).collect()
            }
            (Mode::Multiply, WeightScales::PerTensor) => {
                vec![channel((weights, &largest(bias)))]
            }
            (Mode::Shift, _) => {
                let mut scale = best_scale(weights, Mode::Shift, range);
                while bias.iter().any(|b| scale < least(b)) {
                    scale *= 2.0;
                }
                vec![scale]
            }
        }
    }

    fn constant(
        &mut self,
        name: &str,
        shape: Vec<usize>,
        data: Data,
        (scale, axis): (Vec<f32>, usize),
    ) -> ValueId {
        let zero = Data::zeros(data.element(), scale.len());
        let int = self
            .out
            .value(format!("{name}.int"), shape.clone(), Some(data));
        let [scale, zero] = self.steps(name, scale, zero);
        let real = self.out.value(name, shape, None);
        let (node, op) = (format!("{name}.dequantize"), Op::DequantizeLinear { axis });
        self.out.push(node, op, vec![int, scale, zero], real);
        real
    }
}
