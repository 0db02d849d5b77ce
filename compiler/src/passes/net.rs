//! The net: tensors of whole numbers with real scales, nodes not yet planned.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::error::PassError;
use crate::graph::{Graph, ValueId};
use crate::onnx::Port;
use crate::qgraph::window::Window;
use crate::qgraph::{ChannelOf, Numbers, Spread, TensorId, Weights, listed_ids, listed_zero};
use crate::reflect::{Reflect, listed};
use crate::semantics::{Curve, Join, Requant, SemanticsError, WeightSums};

/// A tensor of the net's numbers: `real = scale * (value - zero)`.
#[derive(Clone, Debug, PartialEq)]
pub struct NetTensor {
    /// The model's name.
    pub name: String,
    /// Channels, rows, columns.
    pub chw: [usize; 3],
    /// Real value of one step.
    pub scale: f64,
    /// The zero point.
    pub zero: i32,
}

/// A node: computes in reals, rounds to steps of its output, clamps; or gives a digit of a sum.
#[derive(Clone, Debug, PartialEq)]
pub struct NetNode {
    /// The model's name.
    pub name: String,
    /// What it computes.
    pub op: NetOp,
    /// What it writes.
    pub output: TensorId,
    /// Bounds of the output, in its steps.
    pub clamp: (i16, i16),
    /// In place of rounding, which digit of the sum it gives (`NetSum`).
    pub digit: Option<usize>,
    /// How far roundings of the model that passes left out may move a value, in steps of the output.
    pub lost: f64,
}

/// What a node computes.
#[derive(Clone, Debug, PartialEq)]
pub enum NetOp {
    /// Convolution or dense layer, with an optional tensor that is added.
    Conv(NetConv),
    /// Two tensors, of which one may be `[C, 1, 1]`: its value of a channel meets all of the other's.
    Pair {
        /// How they are joined.
        join: Join,
        /// One.
        a: TensorId,
        /// The other.
        b: TensorId,
    },
    /// A tensor and constants that differ from position to position.
    Constants {
        /// How they are joined; for a difference the input is taken off the constants.
        join: Join,
        /// Input.
        input: TensorId,
        /// For each value, `[C][H][W]`, or for each position of all channels, `[H][W]`.
        constants: Arc<[f64]>,
    },
    /// A function of one tensor.
    Curve {
        /// Input.
        input: TensorId,
        /// Which.
        curve: Curve,
    },
    /// The input itself, rescaled and clamped.
    Eltwise {
        /// Input.
        input: TensorId,
    },
    /// Maximum over windows.
    MaxPool {
        /// Input.
        input: TensorId,
        /// Geometry.
        window: Window,
    },
    /// Mean over windows.
    AvgPool {
        /// Input.
        input: TensorId,
        /// Geometry.
        window: Window,
        /// Whether padding counts in the divisor.
        count_include_pad: bool,
    },
    /// Channels of tensors of one plane, in any order, and zeros; neighbouring positions may be
    /// those of several channels.
    Channels {
        /// What channels are taken of.
        inputs: Vec<TensorId>,
        /// Where each output channel comes from, for each phase; `None` is a channel of zeros.
        map: Vec<Option<ChannelOf>>,
        /// Where positions come from.
        spread: Spread,
    },
    /// What only the host computes.
    Host {
        /// Float nodes with the model's shapes, and one output. Its inputs are `inputs`, in order.
        part: Arc<Graph>,
        /// What it reads.
        inputs: Vec<TensorId>,
    },
}

/// A convolution or a dense layer.
#[derive(Clone, Debug, PartialEq)]
pub struct NetConv {
    /// Input.
    pub input: TensorId,
    /// Geometry.
    pub window: Window,
    /// `[N][CO][CI / group][KH][KW]`: N parts, which are added up. One where int8 holds the
    /// weights.
    pub weights: Weights,
    /// Groups that the channels are divided into.
    pub group: usize,
    /// For each output channel.
    pub weight_scale: Vec<f64>,
    /// Real values for each output channel.
    pub bias: Vec<f64>,
    /// Added before rounding.
    pub residual: Option<TensorId>,
    /// A dense layer.
    pub dense: bool,
}

impl NetConv {
    /// One of a group, with scales and biases of its output channels, to which nothing is added.
    pub(super) fn plain(
        input: TensorId,
        window: Window,
        weights: Weights,
        (weight_scale, bias): (Vec<f64>, Vec<f64>),
    ) -> Self {
        Self {
            input,
            window,
            weights,
            group: 1,
            weight_scale,
            bias,
            residual: None,
            dense: false,
        }
    }

    /// Weights of an output channel, of so many channels of the input.
    pub(super) fn row(&self, inputs: usize) -> usize {
        inputs / self.group.max(1) * self.window.area()
    }

    /// What bounds each output channel's sums, and what its input's zero point adds to them.
    ///
    /// # Errors
    /// Those of [`WeightSums::at_zero`].
    pub(super) fn sums(
        &self,
        input: &NetTensor,
    ) -> Result<(Vec<WeightSums>, Vec<i64>), SemanticsError> {
        let channels = self.weight_scale.len();
        let count = channels * self.row(input.chw[0]);
        let sums = WeightSums::of(&self.weights, channels, count);
        let zero = |(channel, sums): (usize, &WeightSums)| sums.at_zero(channel, input.zero);
        let zeros = sums
            .iter()
            .enumerate()
            .map(zero)
            .collect::<Result<_, _>>()?;
        Ok((sums, zeros))
    }
}

impl NetNode {
    /// One that may give all numbers.
    pub(super) fn new(
        name: impl Into<String>,
        op: NetOp,
        output: TensorId,
        numbers: Numbers,
    ) -> Self {
        Self {
            name: name.into(),
            op,
            output,
            clamp: numbers.bounds(),
            digit: None,
            lost: 0.0,
        }
    }
}

impl NetOp {
    /// Channels of one tensor, for each phase of `spread`.
    pub(super) fn channels_of(
        input: TensorId,
        channels: impl IntoIterator<Item = usize>,
        spread: Spread,
    ) -> Self {
        let of = |channel: usize| Some(ChannelOf { input: 0, channel });
        Self::Channels {
            inputs: vec![input],
            map: channels.into_iter().map(of).collect(),
            spread,
        }
    }

    /// Where channels of one tensor alone come from.
    pub(super) fn of_one(&self) -> Option<(TensorId, &[Option<ChannelOf>], Spread)> {
        match self {
            Self::Channels {
                inputs,
                map,
                spread,
            } => match inputs[..] {
                [input] => Some((input, map, *spread)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The tensors that the node reads.
    pub fn inputs(&self) -> Vec<TensorId> {
        match self {
            Self::Conv(conv) => std::iter::once(conv.input).chain(conv.residual).collect(),
            Self::Pair { a, b, .. } => vec![*a, *b],
            Self::Host { inputs, .. } | Self::Channels { inputs, .. } => inputs.clone(),
            Self::Eltwise { input }
            | Self::Curve { input, .. }
            | Self::Constants { input, .. }
            | Self::MaxPool { input, .. }
            | Self::AvgPool { input, .. } => vec![*input],
        }
    }

    /// The kind, for listings.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Conv(conv) if conv.dense => "dense",
            Self::Conv(_) => "conv",
            Self::Pair { join, .. } => match join {
                Join::Sum => "add",
                Join::Difference => "sub",
                Join::Product => "mul",
            },
            Self::Constants { join, .. } => match join {
                Join::Sum | Join::Difference => "offsets",
                Join::Product => "factors",
            },
            Self::Curve { curve, .. } => curve.kind(),
            Self::Eltwise { .. } => "eltwise",
            Self::MaxPool { .. } => "maxpool",
            Self::AvgPool { .. } => "avgpool",
            Self::Channels { .. } => "channels",
            Self::Host { .. } => "host",
        }
    }
}

/// What the host makes of the model's inputs, before an input of the net.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Float nodes with the model's shapes, whose one output is rounded; `None` where the input is
    /// rounded as it is.
    pub part: Option<Arc<Graph>>,
    /// The model's inputs that are those of the part, in order.
    pub reads: Vec<ValueId>,
}

/// An output of the model.
#[derive(Clone, Debug, PartialEq)]
pub enum NetOutput {
    /// A tensor.
    Tensor(TensorId),
    /// What the host makes of tensors, and isn't rounded.
    Value {
        /// The model's name for it.
        name: String,
        /// Float nodes with the model's shapes. Its inputs are `reads`, in order.
        part: Arc<Graph>,
        /// Tensors, and inputs of the model as they are.
        reads: Vec<NetRead>,
    },
}

impl NetOutput {
    /// What the host reads for it.
    pub(super) fn reads(&self) -> &[NetRead] {
        match self {
            Self::Tensor(_) => &[],
            Self::Value { reads, .. } => reads,
        }
    }
}

/// What the host reads for an output of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetRead {
    /// A tensor of the net.
    Tensor(TensorId),
    /// An input of the model.
    Input(ValueId),
    /// One of [`NetEnds::sums`].
    Sum(usize),
}

/// A real value that isn't rounded, as sums that devices compute exactly: `step * sum + rest`, with
/// `sum` the sum of `scale * (value - zero)` of its digits.
#[derive(Clone, Debug, PartialEq)]
pub struct NetSum {
    /// Tensors with scales 1, 256, 65536 .., or 1 and 65536, ([`Digits`](crate::semantics::Digits)).
    pub digits: Vec<TensorId>,
    /// Real value of one: for each channel, or one for all.
    pub step: Vec<f64>,
    /// What is added, for each channel; none where that is nothing.
    pub rest: Vec<f64>,
}

/// What the host computes around the net.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct NetEnds {
    /// The model's inputs, in its order.
    pub inputs: Vec<(ValueId, Port)>,
    /// For each input of the net.
    pub entries: Vec<Entry>,
    /// The model's outputs, in its order.
    pub outputs: Vec<NetOutput>,
    /// What outputs read that isn't rounded.
    pub sums: Vec<NetSum>,
}

impl NetEnds {
    /// The tensors that are read for an output.
    pub fn tensors<'n>(&'n self, read: &'n NetRead) -> &'n [TensorId] {
        match read {
            NetRead::Tensor(id) => std::slice::from_ref(id),
            NetRead::Input(_) => &[],
            NetRead::Sum(index) => self.sums.get(*index).map_or(&[], |sum| &sum.digits),
        }
    }
}

/// The network between import and plan, nodes in execution order.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Net {
    /// What all tensors are made of.
    pub numbers: Numbers,
    /// All tensors; passes may leave some unused.
    pub tensors: Vec<NetTensor>,
    /// In execution order.
    pub nodes: Vec<NetNode>,
    /// Network inputs.
    pub inputs: Vec<TensorId>,
    /// Network outputs: those of the model, and what its other outputs are made of.
    pub outputs: Vec<TensorId>,
    /// What the host computes around it.
    pub ends: NetEnds,
    /// How closely fixed point follows the reals.
    pub requant: Requant,
    /// Whether sums take what convolutions give them as it is, where nothing else reads it: neither rounded nor
    /// bounded, though there is a QuantizeLinear. Networks of the zoo say so.
    pub wide_sums: bool,
    /// Free facts of the model.
    pub metadata: BTreeMap<String, String>,
}

impl Net {
    /// The key in a graph's metadata that says `wide` where [`Self::wide_sums`].
    pub const SUMS: &'static str = "sums";

    /// How often each tensor is read, network outputs counted.
    pub fn uses(&self) -> Vec<usize> {
        // An output has a reader outside, so that what one node reads besides isn't that node's alone.
        let mut uses = vec![0; self.tensors.len()];
        for id in self
            .nodes
            .iter()
            .flat_map(|n| n.op.inputs())
            .chain(self.outputs.iter().copied())
        {
            uses[id.0] += 1;
        }
        uses
    }

    /// The place of the node that writes each tensor; none of the network's inputs.
    pub(super) fn writers(&self) -> Vec<Option<usize>> {
        let mut writers = vec![None; self.tensors.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            writers[node.output.0] = Some(index);
        }
        writers
    }

    /// Every tensor is written once, before it is read.
    ///
    /// # Errors
    /// [`PassError::Graph`] naming the tensor.
    pub fn verify(&self) -> Result<(), PassError> {
        let mut written = vec![false; self.tensors.len()];
        for id in &self.inputs {
            written[id.0] = true;
        }
        let wrong = |id: TensorId, what: String| {
            let tensor = &self.tensors[id.0].name;
            Err(PassError::Graph(format!("tensor {tensor} is {what}")))
        };
        for node in &self.nodes {
            if let Some(id) = node.op.inputs().into_iter().find(|id| !written[id.0]) {
                return wrong(id, format!("read by {} before it is written", node.name));
            }
            if std::mem::replace(&mut written[node.output.0], true) {
                return wrong(node.output, "written twice".to_owned());
            }
        }
        match self.outputs.iter().find(|id| !written[id.0]) {
            None => Ok(()),
            Some(id) => wrong(*id, "an output and never written".to_owned()),
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = |id: TensorId| {
            let t = &self.tensors[id.0];
            let [c, h, w] = t.chw;
            let zero = listed_zero(t.zero);
            format!("%{} {c}x{h}x{w} scale {:.6e}{zero}", id.0, t.scale)
        };
        for id in &self.inputs {
            writeln!(f, "input {} \"{}\"", tensor(*id), self.tensors[id.0].name)?;
        }
        for node in &self.nodes {
            let (kind, inputs) = (node.op.kind(), listed_ids(&node.op.inputs()));
            let out = tensor(node.output);
            write!(f, "{out} = {kind}({inputs}) ")?;
            match (node.digit, node.clamp) {
                (Some(place), _) => write!(f, "digit {place}")?,
                (None, (low, high)) => write!(f, "clamp {low}..{high}")?,
            }
            let attributes = listed(&node.op.attributes());
            writeln!(f, "{attributes} \"{}\"", node.name)?;
        }
        for id in &self.outputs {
            writeln!(f, "output %{}", id.0)?;
        }
        Ok(())
    }
}
