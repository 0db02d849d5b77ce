//! QuantizeLinear and DequantizeLinear put into a graph, with chosen scales.

pub(super) mod weights;

use std::collections::BTreeMap;

use self::weights::{Constants, Floats, Weights, floats};
use super::adaptive::Rows;
use super::calibration::Observed;
use super::correct;
use super::error::QuantizeError;
use super::mode::{Mode, Scale};
use super::options::Options;
use super::rounded::{Kept, refuse_quantized};
use super::scales::{Limits, Scales};
use super::slices::{INT4, INT8, Slices};
use crate::graph::{Data, Element, Graph, Node, Op, Value, ValueId};
use crate::qgraph::Numbers as Activations;

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
        limits: &Limits::new(),
        options: &Options::new(mode),
        kept: &Kept::new(),
        int4: &Kept::new(),
        observed: None,
        constants,
    };
    Ok(apply_as(graph, &given)?.0)
}

/// What a graph is quantised with.
pub(super) struct Given<'a> {
    pub scales: &'a Scales,
    /// How far values are cut off.
    pub limits: &'a Limits,
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
        limits: given.limits,
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
            (Element::F32, Some(scale)) => (quantized.round(new, *id, scale), scale.step),
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

struct Quantized<'a> {
    source: &'a Graph,
    limits: &'a Limits,
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

    /// QuantizeLinear and DequantizeLinear after a value of the source, and a Clip before them where it has one; the
    /// real value again.
    fn round(&mut self, id: ValueId, of: ValueId, Scale { step, zero }: Scale) -> ValueId {
        let Value { name, shape, .. } = self.out.values[id.0].clone();
        let mut given = id;
        if let Some([min, max]) = self.limits.get(&of) {
            let (min, max) = (*min, *max);
            let within = self
                .out
                .value(format!("{name}.within"), shape.clone(), None);
            let clip = format!("{name}.clip");
            self.out.push(clip, Op::Clip { min, max }, vec![id], within);
            given = within;
        }
        let (zero, element) = match self.options.activations {
            Activations::Int8 => (Data::I8(vec![zero]), Element::F32),
            Activations::Int16 => (Data::I16(vec![zero.into()]), Element::I16),
        };
        let [scale, zero] = self.steps(&name, vec![step], zero);
        let int = format!("{name}.{}", self.options.activations);
        let int = self.out.value(int, shape.clone(), None);
        self.out.values[int.0].element = element;
        let real = self.out.value(format!("{name}.real"), shape, None);
        let [quantize, dequantize] = ["quantize", "dequantize"].map(|of| format!("{name}.{of}"));
        let op = Op::QuantizeLinear { axis: 1 };
        self.out.push(quantize, op, vec![given, scale, zero], int);
        let op = Op::DequantizeLinear { axis: 1 };
        self.out.push(dequantize, op, vec![int, scale, zero], real);
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
            Some(scale) => (self.round(output, node.output, scale), scale.step),
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

    /// Weights and bias as DequantizeLinear of integer constants. Those of a dense layer have output channels first; a
    /// product with a matrix has a bias only if it had one.
    fn weights(
        &mut self,
        index: usize,
        node: &Node,
        scale_x: f32,
    ) -> Result<Vec<ValueId>, QuantizeError> {
        let weights = Weights::of(self.source, self.constants, node)?;
        let channels = weights.channels;
        let has_bias = node.inputs.len() > 2;
        let bias = if has_bias {
            floats(self.source, self.constants, node, 2)?.0
        } else {
            vec![0.0; channels * weights.group].into()
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
            scale: weights.scales(&self.options, &biases, scale_x, range),
            inner: weights.inner,
            axis: weights.axis,
            channels,
            range,
        };
        let Weights { values, shape, .. } = weights;
        let mut made = self.parameters((index, node), (values, shape), bias, slices, scale_x);
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
