//! What every layer is lowered into: the program so far, with the buffers of all tensors.

use std::cell::RefCell;
use std::collections::HashMap;

use vta_isa::{Config, Extension, MemType};
use vta_program::listing::{Geometry, LayerForm, Role};
use vta_program::{
    Buffer, BufferId, BufferKind, Kernel, KernelId, Layer, Packing, Program, TensorSpec,
};

use super::error::{Fault, LowerError};
use super::places::Places;
use super::readers::Readers;
use super::seam;
use super::tile::{self, ConvShape, ConvTile, Order, Room};
use super::transfer::Base;
use crate::qgraph::lane::{LaneKind, LaneOp};
use crate::qgraph::{NodeId, QConv, QGraph, QOp, QTensor, TensorId};

/// How to lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// Let the host gather the first convolution's patches where that saves GEMM steps.
    pub im2col: bool,
    /// Commands of a layer after which its next tile is the last before a [cut](Layer::cuts). As many
    /// times four micro-ops of different kernels have the same effect.
    pub part: usize,
}

impl Default for LowerOptions {
    fn default() -> Self {
        Self {
            im2col: true,
            // With the loads of micro-ops twice as many, and as many again for the largest tile: the default
            // queue holds them.
            part: 1 << 15,
        }
    }
}

/// Tiles that were found better than those of the search, by shape.
pub type Tiles = HashMap<ConvShape, ConvTile>;

/// The cheapest tile and its cost, or the limit that none meets.
type Searched = Result<(u64, ConvTile), String>;

/// A network being lowered.
pub(super) struct Lowering<'a> {
    pub(super) graph: &'a QGraph,
    pub(super) config: &'a Config,
    pub(super) program: Program,
    pub(super) kernels: HashMap<Kernel, KernelId>,
    pub(super) tiles: &'a Tiles,
    /// [`LowerOptions::part`].
    pub(super) part: usize,
    /// What the search found for shapes so far, and for two that follow each other.
    searched: RefCell<HashMap<ConvShape, Searched>>,
    pub(super) orders: RefCell<HashMap<[ConvShape; 2], Option<Order>>>,
    pub(super) readers: Readers,
    pub(super) places: Places,
    /// What the layer before may still use.
    pub(super) seam: seam::Seam,
    /// What each layer so far computes.
    pub(super) geometries: Vec<Geometry>,
    /// How many nodes are lowered, from the network's first on: with the others none takes turns.
    pub(super) nodes: usize,
    /// What the first of two layers that take turns computes.
    pub(super) before: Option<Geometry>,
    /// The constants of the node that is being lowered.
    pub(super) roles: Vec<(Role, u32)>,
    /// Whether its STOREs clamp.
    pub(super) saturate: bool,
    /// Its form, where that isn't told by the node alone.
    pub(super) form: Option<LayerForm>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(
        graph: &'a QGraph,
        config: &'a Config,
        options: &LowerOptions,
        tiles: &'a Tiles,
    ) -> Result<Self, LowerError> {
        let holds = config.holds(graph.numbers.bits(), "the network");
        holds.map_err(|error| LowerError::Network(error.to_string()))?;
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
        let readers = Readers::of(graph);
        let places = Places::of(graph, config.block());
        for (index, tensor) in graph.tensors.iter().enumerate() {
            let id = TensorId(index);
            let (body, block) = places.of[index];
            let dim = |d: usize| u32::try_from(d).map_err(|_| too_large(tensor));
            let packing = if graph.inputs.contains(&id) {
                packing(graph, &readers, id, config, options)
            } else {
                Packing::Tiles
            };
            let spec = TensorSpec {
                name: tensor.name.clone(),
                buffer: BufferId(body as u32),
                offset_bytes: bytes_of(tensor, block, config)?,
                chw: [
                    dim(tensor.chw[0])?,
                    dim(tensor.chw[1])?,
                    dim(tensor.chw[2])?,
                ],
                scale: tensor.scale,
                zero: zero(tensor)?,
                packing,
            };
            program.tensors.push(spec);
        }
        for body in &places.bodies {
            let buffer = body_buffer(graph, config, &program, body)?;
            program.buffers.push(buffer);
        }
        Ok(Self {
            graph,
            config,
            program,
            kernels: HashMap::new(),
            tiles,
            part: options.part,
            searched: RefCell::default(),
            orders: RefCell::default(),
            readers,
            places,
            seam: seam::Seam::default(),
            geometries: Vec::new(),
            nodes: graph.nodes.len(),
            before: None,
            roles: Vec::new(),
            saturate: false,
            form: None,
        })
    }

    /// The cheapest tile of a shape and its cost. Networks repeat their layers: each shape is searched once.
    pub(super) fn search(&self, shape: &ConvShape) -> Searched {
        if let Some(found) = self.searched.borrow().get(shape) {
            return found.clone();
        }
        let found = tile::search(shape, &Room::all(self.config));
        let mut searched = self.searched.borrow_mut();
        searched.insert(*shape, found.clone());
        found
    }

    /// A kernel of the program, shared with every other of the same content.
    pub(super) fn kernel(&mut self, kernel: Kernel) -> KernelId {
        let next = KernelId(self.program.kernels.len() as u32);
        let id = *self.kernels.entry(kernel.clone()).or_insert(next);
        if id == next {
            self.program.kernels.push(kernel);
        }
        id
    }

    /// Drops the kernels behind the first ones, which no command has any more.
    pub(super) fn forget_kernels(&mut self, first: usize) {
        for kernel in self.program.kernels.drain(first..) {
            self.kernels.remove(&kernel);
        }
    }

    /// Whether the machine has an extension.
    pub(super) fn has(&self, extension: Extension) -> bool {
        self.config.extensions().contains(extension)
    }

    /// Whether the machine has no operation for a factor among the operations.
    pub(super) fn multiplies<'o>(&self, ops: impl IntoIterator<Item = &'o LaneOp>) -> bool {
        !self.has(Extension::Mul) && ops.into_iter().any(|op| op.kind == LaneKind::Mul)
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
        Fault::Inconsistent(reason.to_owned()).of(&self.graph.nodes[id.0].name)
    }

    /// What no network can cause, at a node.
    pub(super) fn internal(&self, id: NodeId, reason: &str) -> LowerError {
        Fault::Internal(reason.to_owned()).of(&self.graph.nodes[id.0].name)
    }

    /// A constant of a node.
    pub(super) fn constant(&mut self, node: &str, role: Role, bytes: Vec<u8>) -> BufferId {
        let id = BufferId(self.program.buffers.len() as u32);
        let name = format!("{node}.{}", role.name());
        self.roles.push((role, id.0));
        let size_bytes = bytes.len() as u64;
        let kind = BufferKind::Constant(bytes.into());
        self.program.buffers.push(Buffer {
            name,
            size_bytes,
            kind,
        });
        id
    }

    /// Where a tensor lies.
    pub(super) fn base(&self, id: TensorId) -> Base {
        let (body, block) = self.places.of[id.0];
        let [_, h, w] = self.graph.tensors[id.0].chw;
        Base {
            buffer: BufferId(body as u32),
            tiles: block * h * w,
        }
    }

    pub(super) fn tile_chw(&self, id: TensorId) -> [usize; 3] {
        let [c, h, w] = self.graph.tensors[id.0].chw;
        [c.div_ceil(self.config.block()), h, w]
    }
}

/// The zero point as programs hold it.
fn zero(tensor: &QTensor) -> Result<i16, LowerError> {
    i16::try_from(tensor.zero).map_err(|_| {
        let (name, zero) = (&tensor.name, tensor.zero);
        LowerError::Network(format!("tensor {name}: its zero point {zero} is no int16"))
    })
}

fn too_large(tensor: &QTensor) -> LowerError {
    LowerError::Network(format!("tensor {} is too large", tensor.name))
}

/// Bytes of some blocks of a tensor.
fn bytes_of(tensor: &QTensor, blocks: usize, config: &Config) -> Result<u64, LowerError> {
    let [_, h, w] = tensor.chw;
    let tile = config.elem_bytes(MemType::Inp);
    let bytes = [h, w, tile]
        .iter()
        .try_fold(blocks as u64, |n, &size| n.checked_mul(size as u64));
    let bytes = bytes.filter(|&n| n < 1 << 32);
    bytes.ok_or_else(|| too_large(tensor))
}

/// The buffer of a body, named after its largest tensor.
fn body_buffer(
    graph: &QGraph,
    config: &Config,
    program: &Program,
    body: &[TensorId],
) -> Result<Buffer, LowerError> {
    let mut size_bytes = 0;
    for id in body {
        let spec = &program.tensors[id.0];
        let bytes = spec.packed_bytes(config);
        let end = bytes.and_then(|n| n.checked_add(spec.offset_bytes));
        let end = end.filter(|&n| n < 1 << 32);
        size_bytes = size_bytes.max(end.ok_or_else(|| too_large(&graph.tensors[id.0]))?);
    }
    let kind = if body.iter().any(|id| graph.inputs.contains(id)) {
        BufferKind::Input
    } else if body.iter().any(|id| graph.outputs.contains(id)) {
        BufferKind::Output
    } else {
        BufferKind::Scratch
    };
    // The first of equals.
    let tensors = body.iter().rev().map(|id| &graph.tensors[id.0]);
    let largest = tensors.max_by_key(|tensor| tensor.chw[0]);
    Ok(Buffer {
        name: largest
            .map(|tensor| tensor.name.clone())
            .unwrap_or_default(),
        size_bytes,
        kind,
    })
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
    let reader = readers.only(id).map(|node| &graph.nodes[node.0].op);
    let Some(QOp::Conv(conv @ QConv { group: 1, .. })) = reader else {
        return Packing::Tiles;
    };
    let (alone, window) = (conv.input == id, &conv.window);
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
