//! What every layer is lowered into: the program so far, with the buffers of all tensors.

use std::collections::HashMap;

use vta_driver::{Buffer, BufferId, BufferKind, Kernel, Layer, Packing, Program, TensorSpec};
use vta_isa::{Config, Extension};

use super::error::LowerError;
use super::readers::Readers;
use super::seam;
use super::tile::{ConvShape, ConvTile};
use crate::lane::{LaneKind, LaneOp};
use crate::qgraph::{NodeId, QGraph, QOp, QTensor, TensorId};

/// How to lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// Let the host gather the first convolution's patches where that saves GEMM steps.
    pub im2col: bool,
}

impl Default for LowerOptions {
    fn default() -> Self {
        Self { im2col: true }
    }
}

/// Tiles that were found better than those of the search, by shape.
pub type Tiles = HashMap<ConvShape, ConvTile>;

/// A network being lowered.
pub(super) struct Lowering<'a> {
    pub(super) graph: &'a QGraph,
    pub(super) config: &'a Config,
    pub(super) program: Program,
    pub(super) kernels: HashMap<Kernel, vta_driver::KernelId>,
    pub(super) tiles: &'a Tiles,
    pub(super) readers: Readers,
    /// What the layer before may still use.
    pub(super) seam: seam::Seam,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(
        graph: &'a QGraph,
        config: &'a Config,
        options: &LowerOptions,
        tiles: &'a Tiles,
    ) -> Result<Self, LowerError> {
        let mut program = Program {
            config: config.clone(),
            buffers: Vec::new(),
            kernels: Vec::new(),
            tensors: Vec::new(),
            layers: Vec::new(),
            seam_tokens: seam::TOKENS,
            inputs: graph.inputs.iter().map(|id| id.0 as u32).collect(),
            outputs: graph.outputs.iter().map(|id| id.0 as u32).collect(),
            metadata: graph.metadata.clone(),
        };
        let mut kinds = vec![BufferKind::Scratch; graph.tensors.len()];
        for id in &graph.outputs {
            kinds[id.0] = BufferKind::Output;
        }
        for id in &graph.inputs {
            kinds[id.0] = BufferKind::Input;
        }
        let readers = Readers::of(graph);
        for ((index, tensor), kind) in graph.tensors.iter().enumerate().zip(kinds) {
            let id = TensorId(index);
            let too_large = || LowerError::Network(format!("tensor {} is too large", tensor.name));
            let dim = |d: usize| u32::try_from(d).map_err(|_| too_large());
            let spec = TensorSpec {
                name: tensor.name.clone(),
                buffer: buffer(id),
                chw: [
                    dim(tensor.chw[0])?,
                    dim(tensor.chw[1])?,
                    dim(tensor.chw[2])?,
                ],
                scale: tensor.scale,
                zero: zero(tensor)?,
                packing: match kind {
                    BufferKind::Input => packing(graph, &readers, id, config, options),
                    _ => Packing::Tiles,
                },
            };
            let size_bytes = spec.packed_bytes(config).filter(|&n| n < 1 << 32);
            let size_bytes = size_bytes.ok_or_else(too_large)?;
            program.buffers.push(Buffer {
                name: tensor.name.clone(),
                size_bytes,
                kind,
            });
            program.tensors.push(spec);
        }
        Ok(Self {
            graph,
            config,
            program,
            kernels: HashMap::new(),
            tiles,
            readers,
            seam: seam::Seam::default(),
        })
    }

    /// Whether the machine has an extension.
    pub(super) fn has(&self, extension: Extension) -> bool {
        self.config.extensions().contains(extension)
    }

    /// Whether the machine has no operation for a factor among the operations.
    pub(super) fn multiplies(&self, ops: &[LaneOp]) -> bool {
        !self.has(Extension::Mul) && ops.iter().any(|op| op.kind == LaneKind::Mul)
    }

    /// A node's layer, without commands.
    pub(super) fn layer(&self, id: NodeId) -> Layer {
        let node = &self.graph.nodes[id.0];
        Layer {
            name: node.name.clone(),
            kind: node.op.kind().to_owned(),
            output: node.output.0 as u32,
            nodes: vec![self.graph.describe_node(id)],
            ..Layer::default()
        }
    }

    /// A node that contradicts itself.
    pub(super) fn inconsistent(&self, id: NodeId, reason: &str) -> LowerError {
        let node = self.graph.nodes[id.0].name.clone();
        LowerError::Inconsistent {
            node,
            reason: reason.to_owned(),
        }
    }

    /// What no network can cause, at a node.
    pub(super) fn internal(&self, id: NodeId, reason: &str) -> LowerError {
        LowerError::Internal {
            node: self.graph.nodes[id.0].name.clone(),
            reason: reason.to_owned(),
        }
    }

    pub(super) fn constant(&mut self, name: String, bytes: Vec<u8>) -> BufferId {
        let id = BufferId(self.program.buffers.len() as u32);
        let size_bytes = bytes.len() as u64;
        let kind = BufferKind::Constant(bytes.into());
        self.program.buffers.push(Buffer {
            name,
            size_bytes,
            kind,
        });
        id
    }

    pub(super) fn tile_chw(&self, id: TensorId) -> [usize; 3] {
        let [c, h, w] = self.graph.tensors[id.0].chw;
        [c.div_ceil(self.config.block()), h, w]
    }
}

/// The zero point as programs hold it.
fn zero(tensor: &QTensor) -> Result<i8, LowerError> {
    i8::try_from(tensor.zero).map_err(|_| {
        let (name, zero) = (&tensor.name, tensor.zero);
        LowerError::Network(format!("tensor {name}: its zero point {zero} is no int8"))
    })
}

/// The buffer of a tensor: it has the tensor's number.
pub(super) const fn buffer(id: TensorId) -> BufferId {
    BufferId(id.0 as u32)
}

/// Patches are gathered for a network input that one convolution alone reads, when they need
/// fewer GEMM steps: `ceil(C*KH*KW / BLOCK)` blocks a position instead of `ceil(C/BLOCK)*KH*KW`.
fn packing(
    graph: &QGraph,
    readers: &Readers,
    id: TensorId,
    config: &Config,
    options: &LowerOptions,
) -> Packing {
    let Some(QOp::Conv {
        input,
        window,
        group: 1,
        ..
    }) = readers.only(id).map(|node| &graph.nodes[node.0].op)
    else {
        return Packing::Tiles;
    };
    let alone = *input == id;
    let [c, ..] = graph.tensors[id.0].chw;
    let area = window.area();
    let direct = c.div_ceil(config.block()) * area;
    let gathered = (c * area).div_ceil(config.block());
    if !(options.im2col && alone && gathered < direct) {
        return Packing::Tiles;
    }
    let pair = |p: [usize; 2]| p.map(|v| v as u32);
    Packing::Im2col {
        kernel: pair(window.kernel),
        stride: pair(window.stride),
        dilation: pair(window.dilation),
        pads: window.pads.to_array().map(|p| p as u32),
    }
}
