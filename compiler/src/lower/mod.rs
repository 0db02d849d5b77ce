//! From the integer graph to a program: tiles, scratchpad addresses, tokens, instructions.
//!
//! Every node becomes one layer, except a max pool that joins the convolution before it. Activations lie in device memory as
//! `[C / BLOCK][H][W][BATCH][BLOCK]`, one buffer a tensor; weights as
//! `[CO / BLOCK][CI / BLOCK][KH][KW][BLOCK_OUT][BLOCK_IN]`. Channels that don't fill a block are
//! zero. The first convolution reads patches that the host gathers ([`Packing::Im2col`]) when
//! that wastes less of the matrix unit than padding its few channels to a block.
//!
//! The configuration says which extensions the machine has. Without SHL a left shift is one to the
//! right by a negative immediate; without ACC8 residuals and the operands of sums and pools go
//! through the matrix unit ([`stage`]); without MUL an immediate factor is shifts and sums. The
//! sums of convolutions can't be multiplied then: such networks are refused.

mod conv;
mod emit;
mod groups;
mod readers;
mod seam;
mod stage;
mod tile;
mod vector;

use std::collections::HashMap;

use thiserror::Error;
use vta_driver::{Buffer, BufferId, BufferKind, Kernel, Packing, Program, TensorSpec};
use vta_isa::{Config, Extension, FieldError};

use crate::host::HostOp;
use crate::qgraph::{QGraph, QNode, QOp, TensorId};

pub use groups::Groups;
use readers::Readers;
pub use tile::{ConvShape, ConvTile, LoopOrder, ResidualForm, candidates};

/// A graph that can't be lowered for a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LowerError {
    /// No tile fits the scratchpads or the instruction fields.
    #[error("node {node}: {reason}")]
    NoTile {
        /// The node.
        node: String,
        /// Which limit, with figures.
        reason: String,
    },
    /// The node's tensors or vectors contradict each other.
    #[error("node {node}: its shapes or lane operations are inconsistent: {reason}")]
    Inconsistent {
        /// The node.
        node: String,
        /// What.
        reason: String,
    },
    /// A field doesn't fit its bits.
    #[error("node {node}: {source}")]
    Field {
        /// The node.
        node: String,
        /// The field.
        source: FieldError,
    },
    /// A node that needs what the configuration's machine lacks.
    #[error("node {node}: {reason}, and this machine has no {extension}{hint}")]
    Lacks {
        /// The node.
        node: String,
        /// What it does.
        reason: String,
        /// What that needs.
        extension: Extension,
        /// What to do, after a colon, or nothing.
        hint: &'static str,
    },
    /// A node that the device has no operation for, but the host has.
    #[error(
        "node {node} ({op}): the device has no such operator; `vta run --allow-host` lets the \
         host compute it"
    )]
    Host {
        /// The node.
        node: String,
        /// Its operator.
        op: &'static str,
    },
    /// The network as a whole.
    #[error("{0}")]
    Network(String),
}

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

/// Lowers a network. The same graph, configuration and options give the same program.
///
/// # Errors
/// [`LowerError`] naming the node and the limit.
pub fn compile(
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
) -> Result<Program, LowerError> {
    compile_with(graph, config, options, &Tiles::default())
}

/// Tiles that were found better than those of the search, by shape.
pub type Tiles = HashMap<ConvShape, ConvTile>;

/// As [`compile`], with known tiles. One that doesn't fit its shape and the configuration is
/// passed over.
///
/// # Errors
/// As for [`compile`].
pub fn compile_with(
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
    tiles: &Tiles,
) -> Result<Program, LowerError> {
    let mut lowering = Lowering::new(graph, config, options, tiles)?;
    let mut index = 0;
    while index < graph.nodes.len() {
        index += lowering.node(index)?;
    }
    Ok(lowering.program)
}

/// Layers that a network becomes: one a node, but none for a max pool that joins the convolution
/// before it. [`compile`] gives as many, unless no tile fits such a pair.
pub fn layers(graph: &QGraph) -> usize {
    let readers = Readers::of(graph);
    let joins = |&index: &usize| conv::takes_pool(graph, &readers, index);
    graph.nodes.len() - (0..graph.nodes.len()).filter(joins).count()
}

/// Lowers one node alone (a convolution with the pool that joins it): to measure it. The other
/// tensors are there, but nothing computes them.
///
/// # Errors
/// As for [`compile`]; [`LowerError::Network`] without such a node.
pub fn compile_node(
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
    tiles: &Tiles,
    node: usize,
) -> Result<Program, LowerError> {
    if node >= graph.nodes.len() {
        return Err(LowerError::Network(format!("there is no node {node}")));
    }
    let mut lowering = Lowering::new(graph, config, options, tiles)?;
    lowering.node(node)?;
    Ok(lowering.program)
}

/// The shape and the tile of each convolution, by node: the search alone, nothing is emitted.
///
/// # Errors
/// As for [`compile`], as far as convolutions and operators of the host are concerned.
pub fn conv_tiles(
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
    tiles: &Tiles,
) -> Result<Vec<(usize, ConvShape, ConvTile)>, LowerError> {
    let lowering = Lowering::new(graph, config, options, tiles)?;
    let mut found = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        if let QOp::Host { op, .. } = &node.op {
            return Err(of_host(node, *op));
        }
        found.extend(
            lowering
                .conv_tile(index)?
                .map(|(shape, tile)| (index, shape, tile)),
        );
    }
    Ok(found)
}

/// A network being lowered.
struct Lowering<'a> {
    graph: &'a QGraph,
    config: &'a Config,
    program: Program,
    kernels: HashMap<Kernel, vta_driver::KernelId>,
    tiles: &'a Tiles,
    readers: Readers,
    /// What the layer before may still use.
    seam: seam::Seam,
}

impl<'a> Lowering<'a> {
    fn new(
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
                buffer: BufferId(index as u32),
                chw: [
                    dim(tensor.chw[0])?,
                    dim(tensor.chw[1])?,
                    dim(tensor.chw[2])?,
                ],
                scale: tensor.scale,
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

    /// Lowers a node, or several that become one layer; how many it were.
    fn node(&mut self, index: usize) -> Result<usize, LowerError> {
        match &self.graph.nodes[index].op {
            QOp::Conv { .. } => self.conv(index),
            QOp::Add { .. } | QOp::Eltwise { .. } => self.elementwise(index).map(|()| 1),
            QOp::MaxPool { .. } | QOp::AvgPool { .. } => self.pool(index).map(|()| 1),
            QOp::Host { op, .. } => Err(of_host(&self.graph.nodes[index], *op)),
        }
    }

    fn constant(&mut self, name: String, bytes: Vec<u8>) -> BufferId {
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

    fn tile_chw(&self, id: TensorId) -> [usize; 3] {
        let [c, h, w] = self.graph.tensors[id.0].chw;
        [c.div_ceil(self.config.block()), h, w]
    }
}

fn of_host(node: &QNode, op: HostOp) -> LowerError {
    LowerError::Host {
        node: node.name.clone(),
        op: op.name(),
    }
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
    }) = readers.only(id).map(|node| &graph.nodes[node].op)
    else {
        return Packing::Tiles;
    };
    let alone = *input == id;
    let [c, ..] = graph.tensors[id.0].chw;
    let area = window.kernel[0] * window.kernel[1];
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
        pads: window.pads.map(|p| p as u32),
    }
}
