//! The imported network: ONNX operators over float (or QDQ-wrapped int8) values.

mod data;
mod onnx_op;
mod work;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::qgraph::window::{Pads, Window};

pub use data::{Data, Element};
pub use onnx_op::{OnnxAttribute, OnnxOp};

/// Index into [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// A value of the graph: the input, a node's output, or an initializer.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The model's name.
    pub name: String,
    /// Dimensions, all known; what the device computes has the batch first, which is 1.
    pub shape: Vec<usize>,
    /// The type of its elements; that of its data where it has some.
    pub element: Element,
    /// The data of an initializer.
    pub data: Option<Data>,
}

impl Value {
    /// An initializer, or a value of float32 that is computed.
    pub fn new(name: impl Into<String>, shape: Vec<usize>, data: Option<Data>) -> Self {
        let element = data.as_ref().map_or(Element::F32, Data::element);
        Self {
            name: name.into(),
            shape,
            element,
            data,
        }
    }
}

/// `len` entries of a dimension: `start`, `start + step` ..
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries {
    /// The dimension.
    pub axis: usize,
    /// The first entry.
    pub start: usize,
    /// How many.
    pub len: usize,
    /// From one to the next.
    pub step: usize,
}

impl Entries {
    /// Neighbouring entries.
    pub const fn run(axis: usize, start: usize, len: usize) -> Self {
        let step = 1;
        Self {
            axis,
            start,
            len,
            step,
        }
    }

    /// The entry behind the last one.
    pub const fn end(&self) -> usize {
        self.start + self.len.saturating_sub(1) * self.step + 1
    }
}

impl From<Entries> for Op {
    fn from(entries: Entries) -> Self {
        let entries = vec![entries];
        Self::Slice { entries }
    }
}

/// An operator, with the semantics of ONNX opset 13 and later.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Inputs x, w `[CO][CI/group][KH][KW]`, optional b `[CO]`.
    Conv {
        /// Geometry, `auto_pad` resolved.
        window: Window,
        /// Groups.
        group: usize,
    },
    /// max(x, 0).
    Relu,
    /// Clamp to constants.
    Clip {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// Element-wise sum of two tensors of one shape.
    Add,
    /// Maximum over windows.
    MaxPool {
        /// Geometry; `ceil_mode` resolved into larger bottom and right pads.
        window: Window,
    },
    /// Mean over windows.
    AveragePool {
        /// Geometry.
        window: Window,
        /// Whether padding counts in the divisor.
        count_include_pad: bool,
    },
    /// Mean over all positions.
    GlobalAveragePool,
    /// `[1, C, H, W]` to `[1, C*H*W]` (also a Reshape or Squeeze with that effect).
    Flatten,
    /// `y = x * w (+ b)` with w normalised to `[K][N]` (`trans_b = false`) or `[N][K]`
    /// (`trans_b = true`); ONNX Gemm with alpha = beta = 1 and `transA = 0`, and MatMul.
    Gemm {
        /// Layout of w.
        trans_b: bool,
    },
    /// Inputs x and a constant matrix w, optional b with one value for each row of a transposed w: products of
    /// the last two dimensions of x, those before them 1 unless w is on the right. ONNX MatMul, and Gemm of
    /// several rows.
    MatMul {
        /// On which side w is.
        form: MatMulForm,
    },
    /// Inputs x, scale, bias, mean, var.
    BatchNormalization {
        /// Added to the variance.
        epsilon: f32,
    },
    /// Inputs x, scale, zero point.
    QuantizeLinear {
        /// Channel axis of per-axis scales.
        axis: usize,
    },
    /// Inputs x, scale, zero point.
    DequantizeLinear {
        /// Channel axis of per-axis scales.
        axis: usize,
    },
    /// Passes its input through (Identity, Dropout in inference).
    Identity,
    /// Zeros around rows and columns, which a convolution or an average takes over where one reads
    /// them.
    Pad {
        /// How many.
        pads: Pads,
    },
    /// Inputs x, w `[CI][CO/group][KH][KW]`, optional b `[CO]`.
    ConvTranspose {
        /// Geometry of the convolution that it is the transpose of, `auto_pad` and `output_shape`
        /// resolved: pads are cut off the output.
        window: Window,
        /// Groups.
        group: usize,
        /// Rows and columns more, below and on the right.
        output_padding: [usize; 2],
    },
    /// Tensors one after another; all other dimensions are equal.
    Concat {
        /// The dimension that grows.
        axis: usize,
    },
    /// Entries of some dimensions, each dimension at most once.
    Slice {
        /// Those that are taken.
        entries: Vec<Entries>,
    },
    /// Inputs x and a constant list of entries (int64, not negative, one dimension): those of x
    /// along a dimension, in the list's order. A shuffle of channels is one.
    Gather {
        /// The dimension.
        axis: usize,
    },
    /// `[1, C*B*B, H, W]` to `[1, C, H*B, W*B]`.
    DepthToSpace {
        /// B.
        block: usize,
        /// Where the channels of a block's positions lie.
        mode: DepthMode,
    },
    /// `[1, C, H*B, W*B]` to `[1, B*B*C, H, W]`, the inverse of [`DepthMode::Dcr`].
    SpaceToDepth {
        /// B.
        block: usize,
    },
    /// Every value repeated over rows and columns: Resize to the nearest by whole factors.
    Resize {
        /// Rows and columns for each, at least 1.
        factors: [usize; 2],
    },
    /// Element-wise product, with ONNX's broadcasting.
    Mul,
    /// Element-wise difference, with ONNX's broadcasting.
    Sub,
    /// Element-wise quotient, with ONNX's broadcasting.
    Div,
    /// `x`, and below 0 `alpha * x`.
    LeakyRelu {
        /// Slope below 0.
        alpha: f32,
    },
    /// Inputs x and slopes, which broadcast to x: `x`, and below 0 `slope * x`.
    PRelu,
    /// `max(0, min(1, alpha * x + beta))`.
    HardSigmoid {
        /// Slope.
        alpha: f32,
        /// Value at 0.
        beta: f32,
    },
    /// `x * max(0, min(1, x / 6 + 1/2))`.
    HardSwish,
    /// An operator as the file has it, which only the host computes, but for a Reshape or Transpose that keeps
    /// a tensor as it lies.
    Onnx(Box<OnnxOp>),
}

/// The side of a constant matrix in a product with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatMulForm {
    /// `x [.., M, K]` times `w [K, N]`.
    Right,
    /// `x [M, K]` times the transpose of `w [N, K]`.
    RightTransposed,
    /// `w [M, K]` times `x [.., K, N]`.
    Left,
}

impl MatMulForm {
    /// The name of each.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Right => "x * w",
            Self::RightTransposed => "x * transposed w",
            Self::Left => "w * x",
        }
    }

    /// The dimension of w that the output has, too.
    pub const fn output_axis(self) -> usize {
        match self {
            Self::Right => 1,
            Self::RightTransposed | Self::Left => 0,
        }
    }
}

/// Where the channels that become a block's positions lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthMode {
    /// Position by position: `[B][B][C]`.
    Dcr,
    /// Channel by channel: `[C][B][B]`.
    Crd,
}

impl DepthMode {
    /// ONNX's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dcr => "DCR",
            Self::Crd => "CRD",
        }
    }

    /// The input channel of an output channel, of `channels`, at a position of its block, of
    /// `area`.
    pub const fn channel(self, [output, channels]: [usize; 2], [at, area]: [usize; 2]) -> usize {
        match self {
            Self::Dcr => at * channels + output,
            Self::Crd => output * area + at,
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The model's name, or one made from its output.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// Inputs in ONNX order; absent optional ones at the end are left out.
    pub inputs: Vec<ValueId>,
    /// The output.
    pub output: ValueId,
}

/// An imported network, nodes in topological order.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    /// The graph's name.
    pub name: String,
    /// All values.
    pub values: Vec<Value>,
    /// In topological order.
    pub nodes: Vec<Node>,
    /// Inputs that aren't initializers.
    pub inputs: Vec<ValueId>,
    /// Outputs.
    pub outputs: Vec<ValueId>,
    /// `metadata_props` of the model whose keys start with `vta.`, without that prefix:
    /// `preprocess` and `labels`, JSON text.
    pub metadata: BTreeMap<String, String>,
}

impl<'g> From<&'g Graph> for Cow<'g, Graph> {
    fn from(graph: &'g Graph) -> Self {
        Cow::Borrowed(graph)
    }
}

impl From<Graph> for Cow<'_, Graph> {
    fn from(graph: Graph) -> Self {
        Cow::Owned(graph)
    }
}

impl Graph {
    /// A new value.
    pub(crate) fn value(
        &mut self,
        name: impl Into<String>,
        shape: Vec<usize>,
        data: Option<Data>,
    ) -> ValueId {
        self.values.push(Value::new(name, shape, data));
        ValueId(self.values.len() - 1)
    }

    /// A new node.
    pub(crate) fn push(
        &mut self,
        name: impl Into<String>,
        op: Op,
        inputs: Vec<ValueId>,
        output: ValueId,
    ) {
        let name = name.into();
        self.nodes.push(Node {
            name,
            op,
            inputs,
            output,
        });
    }

    /// A copy without the data of some constants, which isn't copied either.
    pub(crate) fn without_data(&self, is_left_out: impl Fn(ValueId) -> bool) -> Self {
        let value = |(index, value): (usize, &Value)| {
            if is_left_out(ValueId(index)) {
                Value {
                    name: value.name.clone(),
                    shape: value.shape.clone(),
                    element: value.element,
                    data: None,
                }
            } else {
                value.clone()
            }
        };
        Self {
            name: self.name.clone(),
            values: self.values.iter().enumerate().map(value).collect(),
            nodes: self.nodes.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            metadata: self.metadata.clone(),
        }
    }

    /// By value, whether a run says how large it is: as large as its shape, or smaller. The host alone computes those.
    pub(crate) fn open(&self) -> Vec<bool> {
        let mut open = vec![false; self.values.len()];
        for node in &self.nodes {
            let finds = matches!(&node.op, Op::Onnx(op) if op.is_open());
            open[node.output.0] = finds || node.inputs.iter().any(|id| open[id.0]);
        }
        open
    }

    /// The node that makes each value, by its place.
    pub(crate) fn makers(&self) -> BTreeMap<ValueId, usize> {
        self.nodes.iter().map(|node| node.output).zip(0..).collect()
    }

    /// How many nodes read each value, graph outputs counted.
    pub fn uses(&self) -> BTreeMap<ValueId, usize> {
        let mut uses = BTreeMap::new();
        for id in self
            .nodes
            .iter()
            .flat_map(|n| &n.inputs)
            // Whoever runs the network reads its outputs: a pass must not fuse one away.
            .chain(&self.outputs)
        {
            *uses.entry(*id).or_insert(0) += 1;
        }
        uses
    }

    /// Multiply-adds of all nodes for one image, by the values' shapes: constants needn't have data.
    pub fn macs(&self) -> u64 {
        let all = self.nodes.iter().map(|node| self.node_macs(node));
        // Shapes come from a file: their products may be beyond u64.
        all.fold(0, u64::saturating_add)
    }

    /// Weights of the convolutions and dense layers, without biases, by the values' shapes.
    pub fn weights(&self) -> u64 {
        let weighted = self.nodes.iter().filter_map(|node| match node.op {
            Op::Conv { .. } | Op::Gemm { .. } | Op::MatMul { .. } | Op::ConvTranspose { .. } => {
                node.inputs.get(1)
            }
            _ => None,
        });
        let size = |id: &ValueId| {
            self.values[id.0]
                .shape
                .iter()
                .map(|&d| d as u64)
                .product::<u64>()
        };
        weighted.map(size).sum()
    }
}
