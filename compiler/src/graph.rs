//! The imported network: ONNX operators over float (or QDQ-wrapped int8) values.

use std::collections::BTreeMap;

use crate::host::HostOp;
use crate::window::Window;

/// Index into [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// Constant data.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// float32.
    F32(Vec<f32>),
    /// int8.
    I8(Vec<i8>),
    /// uint8 (zero points of models that are then refused by name).
    U8(Vec<u8>),
    /// int32.
    I32(Vec<i32>),
    /// int64 (shapes).
    I64(Vec<i64>),
}

/// A value of the graph: the input, a node's output, or an initializer.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The model's name.
    pub name: String,
    /// Dimensions as inferred, batch first (the batch dimension is always 1).
    pub shape: Vec<usize>,
    /// The data of an initializer.
    pub data: Option<Data>,
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
    /// An operator that only the host computes.
    Host(HostOp),
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

    /// Multiply-adds of the convolutions and dense layers for one image, by the values' shapes:
    /// constants needn't have data.
    pub fn macs(&self) -> u64 {
        self.weighted().map(|(weights, at)| weights * at).sum()
    }

    /// Weights of the convolutions and dense layers, without biases, by the values' shapes.
    pub fn weights(&self) -> u64 {
        self.weighted().map(|(weights, _)| weights).sum()
    }

    /// Weights, and positions of the output, of each convolution and dense layer.
    fn weighted(&self) -> impl Iterator<Item = (u64, u64)> {
        self.nodes.iter().filter_map(|node| {
            if !matches!(node.op, Op::Conv { .. } | Op::Gemm { .. }) {
                return None;
            }
            let size = |shape: &[usize]| shape.iter().map(|&d| d as u64).product::<u64>();
            let weights = &self.values[node.inputs.get(1)?.0].shape;
            // Behind the batch and the channels.
            let positions = self.values[node.output.0].shape.get(2..).unwrap_or(&[]);
            Some((size(weights), size(positions)))
        })
    }
}
