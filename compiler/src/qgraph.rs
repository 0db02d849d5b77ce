//! The integer graph: what the network computes, bit for bit.
//!
//! Every node reads and writes tensors of one kind of [`Numbers`]. What happens between (int32 accumulation, bias,
//! residual, requantisation, clamp) is spelled out as [`LaneOp`]s. The plan of lane operations is made once (see `semantics`), with bounds that prove that int32 never wraps.

pub(crate) mod lane;
mod order;
pub(crate) mod window;

use std::collections::BTreeMap;
use std::sync::Arc;

use vta_isa::Rounding;

use crate::host::{Ends, Segment};
use crate::reflect::{Reflect, listed};

pub use lane::{LaneKind, LaneOp, LaneOperand};
pub(crate) use order::ordered;
pub use window::{Pads, Window};

/// Weights of a convolution, in the order that its operator says. All graphs that were made of one share
/// them: a clone copies nothing.
pub type Weights = Arc<Vec<i8>>;

/// The numbers of a network's tensors: inputs and outputs of a machine that runs it have as many bits. Values of both
/// kinds are held as int16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Numbers {
    /// 8 bits.
    #[default]
    Int8,
    /// 16 bits.
    Int16,
}

impl Numbers {
    /// Bits of one.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Int8 => 8,
            Self::Int16 => 16,
        }
    }

    /// The smallest and the largest.
    pub const fn bounds(self) -> (i16, i16) {
        match self {
            Self::Int8 => (-128, 127),
            Self::Int16 => (i16::MIN, i16::MAX),
        }
    }

    /// The last step on each side of 0 that both sides have.
    pub(crate) fn last(self) -> f64 {
        self.bounds().1.into()
    }

    /// How many of its steps are one of int8 where both reach as far: 1, or 256.
    pub const fn finer(self) -> f64 {
        (1 << (self.bits() - 8)) as f64
    }

    /// The nearest whole number that it holds.
    pub(crate) fn nearest(self, steps: f64) -> i16 {
        let (low, high) = self.bounds();
        steps.round().clamp(low.into(), high.into()) as i16
    }

    /// What a STORE leaves of a value: its low bits, or the nearest number.
    pub const fn stored(self, value: i32, saturates: bool) -> i16 {
        let (low, high) = self.bounds();
        match self {
            _ if saturates && value < low as i32 => low,
            _ if saturates && value > high as i32 => high,
            Self::Int8 => value as i8 as i16,
            Self::Int16 => value as i16,
        }
    }
}

impl std::fmt::Display for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "int{}", self.bits())
    }
}

/// Index into [`QGraph::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub usize);

/// Index into [`QGraph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// A tensor of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct QTensor {
    /// The model's name for it.
    pub name: String,
    /// Channels, rows, columns; `[C, 1, 1]` for vectors.
    pub chw: [usize; 3],
    /// `real = scale * (value - zero)`.
    pub scale: f32,
    /// The zero point, one of the tensor's numbers. A convolution's taps on padding read it.
    pub zero: i32,
    /// Smallest and largest value that occurs (from the producer's clamp), for bounds.
    pub range: (i16, i16),
}

/// A node of the integer graph.
#[derive(Clone, Debug, PartialEq)]
pub struct QNode {
    /// The model's name.
    pub name: String,
    /// What it computes.
    pub op: QOp,
    /// The tensor that it writes.
    pub output: TensorId,
    /// Whether results are clamped as they are stored; else their low bits are kept.
    pub saturate: bool,
}

/// The operations that the device runs, and those that are left to the host.
#[derive(Clone, Debug, PartialEq)]
pub enum QOp {
    /// Convolution or dense layer: `y = stored(epilogue(prologue(residual) + sum x * w))`; without a
    /// residual the sum starts at 0.
    Conv(QConv),
    /// `y = stored(epilogue(a_ops(a) + b_ops(b)))`.
    Add(QPair),
    /// `y = stored(epilogue(a_ops(a) * b_ops(b)))`.
    Mul(QPair),
    /// `y = stored(ops(x))`: a standalone ReLU, clip or change of scale.
    Eltwise {
        /// Input.
        input: TensorId,
        /// The operations.
        ops: Vec<LaneOp>,
    },
    /// Maximum over the valid part of each window, then `ops`.
    MaxPool {
        /// Input.
        input: TensorId,
        /// Geometry.
        window: Window,
        /// After the maximum (empty: keep).
        ops: Vec<LaneOp>,
    },
    /// Sum over the valid part of each window, then the operations that belong to the number of its
    /// positions.
    AvgPool {
        /// Input.
        input: TensorId,
        /// Geometry.
        window: Window,
        /// Whether all windows have one list of operations, that of the whole window. Otherwise the
        /// number of positions inside says which, as where padding counts but stands for a zero
        /// point.
        count_include_pad: bool,
        /// By number of positions: requantisation and clamp for windows with that many.
        ops_by_count: Vec<(usize, Vec<LaneOp>)>,
    },
    /// `y[c] = stored(ops(gain * x[map[c]]))`: channels of tensors of one plane, in any order, and
    /// zeros; neighbouring positions may be those of several channels.
    Channels {
        /// What channels are taken of.
        inputs: Vec<TensorId>,
        /// Where each output channel comes from, for each phase; `None` is a channel of zeros.
        map: Vec<Option<ChannelOf>>,
        /// Where positions come from.
        spread: Spread,
        /// At least 1.
        gain: i8,
        /// Requantisation, clamp.
        ops: Vec<LaneOp>,
    },
    /// What the device has no operation for: dequantised, computed and quantised on the host.
    Host {
        /// What the host computes at once. Nodes of its other outputs stand beside this one, with
        /// the same inputs.
        segment: Arc<Segment>,
        /// What it reads.
        inputs: Vec<TensorId>,
        /// Which of the segment's outputs.
        output: usize,
    },
}

/// A convolution, or a dense layer (`kernel` = the input's rows and columns, no padding). Where a tap is on
/// padding, x is the input's zero point. The epilogue ends in a clamp to the output's range, but for a digit of the
/// sum, of which the low bits are stored.
#[derive(Clone, Debug, PartialEq)]
pub struct QConv {
    /// Input tensor.
    pub input: TensorId,
    /// Geometry.
    pub window: Window,
    /// `[N][CO][CI / group][KH][KW]`: N parts, which are added up. One where int8 holds the
    /// weights, as it may not once zero points are taken off.
    pub weights: Weights,
    /// How many groups the channels are divided into; output channels read the input channels
    /// of their group only.
    pub group: usize,
    /// A tensor of the output's shape that is added.
    pub residual: Option<(TensorId, Vec<LaneOp>)>,
    /// Bias, requantisation, clamp.
    pub epilogue: Vec<LaneOp>,
    /// What STOREs make of what the epilogue leaves; `None` where they keep the low bits.
    pub store: Option<QStore>,
    /// `conv` or `dense`, for tables.
    pub dense: bool,
}

/// What STOREs that requantise make of sums.
#[derive(Clone, Debug, PartialEq)]
pub struct QStore {
    /// By channel.
    pub rounding: Arc<[Rounding]>,
    /// A tensor of the output's shape that what was rounded is added to, its factor, and how that sum is rounded.
    pub residual: Option<(TensorId, u32, Rounding)>,
}

impl QStore {
    /// Accumulator tiles of an output block's entry.
    pub const fn entry_tiles(&self) -> usize {
        Rounding::entry_words(self.residual.is_some())
    }
}

/// Two operands that are joined. One may be `[C, 1, 1]`: its value of a channel meets all of the other's.
#[derive(Clone, Debug, PartialEq)]
pub struct QPair {
    /// First operand.
    pub a: TensorId,
    /// Its lane operations.
    pub a_ops: Vec<LaneOp>,
    /// Second operand.
    pub b: TensorId,
    /// Its lane operations.
    pub b_ops: Vec<LaneOp>,
    /// Requantisation, clamp.
    pub epilogue: Vec<LaneOp>,
    /// How STOREs round what the operations give, in place of the requantisation; with the factor of the second operand
    /// they add it, too, in place of all lane operations.
    pub store: Option<(Option<u32>, Rounding)>,
}

/// Where the positions of a tensor come from whose neighbours are those of several channels: the
/// output at `at` is at `(at + skip) / up` in the channel for the phase `(at + skip) % up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Output rows and columns for each of an input's.
    pub up: [usize; 2],
    /// Rows and columns that are left out in front.
    pub skip: [usize; 2],
    /// Rows and columns from one that is taken to the next; 1 where inputs are enlarged.
    pub step: [usize; 2],
}

impl Spread {
    /// Every position is where it was.
    pub const NONE: Self = Self {
        up: [1, 1],
        skip: [0, 0],
        step: [1, 1],
    };

    /// Phases of positions.
    pub const fn phases(&self) -> usize {
        self.up[0] * self.up[1]
    }

    /// The input position of an output position of an axis.
    pub const fn position(&self, axis: usize, at: usize) -> usize {
        (at * self.step[axis] + self.skip[axis]) / self.up[axis]
    }

    /// Its phase.
    pub const fn phase(&self, axis: usize, at: usize) -> usize {
        (at * self.step[axis] + self.skip[axis]) % self.up[axis]
    }

    /// Whether an input of some rows and columns has all that an output needs.
    pub fn fits(&self, input: [usize; 2], output: [usize; 2]) -> bool {
        (0..2).all(|axis| {
            let last = output[axis].saturating_sub(1);
            let last = last.checked_mul(self.step[axis]);
            let last = last.and_then(|last| last.checked_add(self.skip[axis]));
            let at = last.and_then(|last| last.checked_div(self.up[axis]));
            // No layer both enlarges and leaves out.
            let whole = self.step[axis] == 1 || self.up[axis] == 1;
            at.is_some_and(|at| whole && self.step[axis] > 0 && at < input[axis])
        })
    }
}

/// A channel of one of a node's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelOf {
    /// Which input.
    pub input: usize,
    /// Which of its channels.
    pub channel: usize,
}

/// An integer network, nodes in execution order.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct QGraph {
    /// What all tensors are made of.
    pub numbers: Numbers,
    /// All tensors.
    pub tensors: Vec<QTensor>,
    /// In execution order; each tensor is written once.
    pub nodes: Vec<QNode>,
    /// Network inputs.
    pub inputs: Vec<TensorId>,
    /// Network outputs.
    pub outputs: Vec<TensorId>,
    /// What the host makes of the model's inputs before, and of the outputs behind it; `None` where they
    /// are the model's.
    pub ends: Option<Arc<Ends>>,
    /// Free facts: `preprocess`, `labels` and so on.
    pub metadata: BTreeMap<String, String>,
}

impl QGraph {
    /// All nodes with their ids, in execution order.
    pub fn ids(&self) -> impl Iterator<Item = (NodeId, &QNode)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.map(|(index, node)| (NodeId(index), node))
    }
}

impl QOp {
    /// The kind, for tables: `conv`, `dense`, `add`, `mul`, `eltwise`, `maxpool`, `avgpool`,
    /// `channels`, `host`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Conv(conv) if conv.dense => "dense",
            Self::Conv(_) => "conv",
            Self::Add(_) => "add",
            Self::Mul(_) => "mul",
            Self::Eltwise { .. } => "eltwise",
            Self::MaxPool { .. } => "maxpool",
            Self::AvgPool { .. } => "avgpool",
            Self::Channels { .. } => "channels",
            Self::Host { .. } => "host",
        }
    }

    /// Each list of lane operations.
    pub fn lists_mut(&mut self) -> Vec<&mut Vec<LaneOp>> {
        match self {
            Self::Conv(conv) => {
                let residual = conv.residual.as_mut().map(|(_, ops)| ops);
                residual.into_iter().chain([&mut conv.epilogue]).collect()
            }
            Self::Add(pair) | Self::Mul(pair) => {
                vec![&mut pair.a_ops, &mut pair.b_ops, &mut pair.epilogue]
            }
            Self::AvgPool { ops_by_count, .. } => {
                ops_by_count.iter_mut().map(|(_, ops)| ops).collect()
            }
            Self::Eltwise { ops, .. } | Self::MaxPool { ops, .. } | Self::Channels { ops, .. } => {
                vec![ops]
            }
            Self::Host { .. } => Vec::new(),
        }
    }

    /// Those behind which values are stored as they are left, by the low byte or clamped. They are empty where STOREs
    /// round.
    pub(crate) fn last_lists_mut(&mut self) -> Vec<&mut Vec<LaneOp>> {
        match self {
            Self::Conv(conv) => vec![&mut conv.epilogue],
            Self::Add(pair) | Self::Mul(pair) => vec![&mut pair.epilogue],
            _ => self.lists_mut(),
        }
    }

    /// The tensors that the node reads.
    pub fn inputs(&self) -> Vec<TensorId> {
        match self {
            Self::Conv(conv) => {
                let residual = conv.residual.as_ref().map(|(id, _)| *id);
                let stored = conv
                    .store
                    .as_ref()
                    .and_then(|store| store.residual.as_ref());
                let added = residual.into_iter().chain(stored.map(|(id, ..)| *id));
                std::iter::once(conv.input).chain(added).collect()
            }
            Self::Add(pair) | Self::Mul(pair) => vec![pair.a, pair.b],
            Self::Host { inputs, .. } | Self::Channels { inputs, .. } => inputs.clone(),
            Self::Eltwise { input, .. }
            | Self::MaxPool { input, .. }
            | Self::AvgPool { input, .. } => vec![*input],
        }
    }
}

/// What only the host computes of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNeeds {
    /// How many nodes of the model.
    pub nodes: usize,
    /// Segments that they are computed in.
    pub segments: usize,
    /// The name of the first node; empty where there is none.
    pub first: String,
    /// Operators, the most frequent first: `12 Sigmoid, 3 Softmax`.
    pub kinds: String,
}

impl HostNeeds {
    /// Counts the nodes of a network's segments.
    pub fn of(graph: &QGraph) -> Self {
        let segments = graph.nodes.iter().filter_map(|node| match &node.op {
            QOp::Host { segment, .. } => Some(segment),
            _ => None,
        });
        // Nodes of one segment stand together.
        let mut segments: Vec<&Arc<Segment>> = segments.collect();
        segments.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let ends = graph.ends.as_deref();
        let nodes = segments.iter().flat_map(|segment| segment.nodes());
        let nodes: Vec<_> = nodes
            .chain(ends.into_iter().flat_map(Ends::nodes))
            .collect();
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, kind) in &nodes {
            *kinds.entry(kind).or_insert(0) += 1;
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(kind, count)| (std::cmp::Reverse(*count), *kind));
        let listed = kinds.iter().map(|(kind, count)| format!("{count} {kind}"));
        Self {
            nodes: nodes.len(),
            segments: segments.len() + ends.map_or(0, Ends::segments),
            first: nodes
                .first()
                .map_or_else(String::new, |(name, _)| name.clone()),
            kinds: listed.collect::<Vec<_>>().join(", "),
        }
    }
}

/// Tensors as listings have them.
pub(crate) fn listed_ids(ids: &[TensorId]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| format!("%{}", id.0)).collect();
    ids.join(", ")
}

/// A zero point as listings have it: none is the rule.
pub(crate) fn listed_zero(zero: i32) -> String {
    if zero == 0 {
        String::new()
    } else {
        format!(" zero {zero}")
    }
}

impl std::fmt::Display for QGraph {
    /// One line a node: output, kind, inputs, attributes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for id in &self.inputs {
            let t = &self.tensors[id.0];
            let zero = listed_zero(t.zero);
            writeln!(
                f,
                "input %{} {:?} scale {:e}{zero} \"{}\"",
                id.0, t.chw, t.scale, t.name
            )?;
        }
        for node in &self.nodes {
            let t = &self.tensors[node.output.0];
            let (kind, inputs) = (node.op.kind(), listed_ids(&node.op.inputs()));
            write!(f, "%{} {:?} = {kind}({inputs})", node.output.0, t.chw)?;
            let attributes = listed(&node.op.attributes());
            writeln!(f, "{attributes} \"{}\"", node.name)?;
        }
        Ok(())
    }
}
