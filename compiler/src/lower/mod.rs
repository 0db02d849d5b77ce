//! From the integer graph to a program: tiles, scratchpad addresses, tokens, instructions.
//!
//! Every node becomes one layer, except a max pool that joins the convolution before it. Activations lie in device memory as
//! `[C / BLOCK][H][W][BATCH][BLOCK]`, one buffer a tensor, but for those that lie in others (`places`); weights as
//! `[CO / BLOCK][CI / BLOCK][KH][KW][BLOCK_OUT][BLOCK_IN]`. Channels that don't fill a block are
//! zero. The first convolution reads patches that the host gathers ([`Im2col`](vta_program::Packing::Im2col)) when
//! that wastes less of the matrix unit than padding its few channels to a block.
//!
//! The configuration says which extensions the machine has. Without SHL a left shift is one to the
//! right by a negative immediate; without ACC8 residuals and the operands of sums and pools go
//! through the matrix unit (`stage`); without MUL an immediate factor is shifts and sums. The
//! sums of convolutions can't be multiplied then: such networks are refused.

mod channels;
mod conv;
mod emit;
mod error;
mod geometry;
mod lowering;
mod places;
mod readers;
mod ring;
mod seam;
mod stage;
mod stored;
mod tile;
mod tokens;
mod transfer;
mod vector;

use std::borrow::Cow;
use std::ops::Range;

use vta_isa::{Config, Extension};
use vta_program::Program;
use vta_program::listing::Geometry;

use crate::qgraph::{HostNeeds, NodeId, Numbers, QGraph, QOp};
use crate::semantics;

pub use error::{Fault, LowerError};
use lowering::Lowering;
pub use lowering::{LowerOptions, Tiles};
use readers::Readers;
pub use tile::{ConvShape, ConvTile, Groups, LoopOrder, candidates};

/// Lowers a network. The same graph, configuration and options give the same program.
///
/// # Errors
/// [`LowerError`] naming the node and the limit, or all nodes and their limits.
pub fn compile(
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
) -> Result<Program, LowerError> {
    compile_with(graph, config, options, &Tiles::default())
}

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
    Ok(compile_traced(graph, config, options, tiles)?.0)
}

/// As [`compile_with`], with what each layer computes.
///
/// # Errors
/// As for [`compile`].
pub fn compile_traced(
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
    tiles: &Tiles,
) -> Result<(Program, Vec<Geometry>), LowerError> {
    let graph = for_machine(graph, config);
    let lowering = lowered(&graph, config, options, tiles)?;
    Ok((lowering.program, lowering.geometries))
}

/// The network as a machine computes it. Where its STOREs requantise (REQUANT), values may differ by a step from those
/// of lane operations beside a tie; nothing else changes a value.
pub fn for_machine<'g>(graph: &'g QGraph, config: &Config) -> Cow<'g, QGraph> {
    let mut graph = stored(graph, config);
    if config.extensions().contains(Extension::Requant) {
        stored::join_sums(graph.to_mut());
    }
    if config.extensions().contains(Extension::Saturate) {
        let numbers = graph.numbers;
        let QGraph { tensors, nodes, .. } = graph.to_mut();
        for node in nodes {
            let channels = tensors[node.output.0].chw[0];
            let lists = &mut node.op.last_lists_mut();
            node.saturate |= semantics::leave_clamps(lists, channels, numbers);
        }
    }
    if config.extensions().contains(Extension::Clip) {
        let nodes = graph.to_mut().nodes.iter_mut();
        nodes
            .flat_map(|node| node.op.lists_mut())
            .for_each(semantics::join_clamps);
    }
    graph
}

/// The network with the requantisation that the machine's STORES do, node by node: they round to int8.
pub fn stored<'g>(graph: &'g QGraph, config: &Config) -> Cow<'g, QGraph> {
    let mut graph = Cow::Borrowed(graph);
    if config.extensions().contains(Extension::Requant) && graph.numbers == Numbers::Int8 {
        stored::requantize(graph.to_mut(), config);
    }
    graph
}

/// A network with all its layers.
fn lowered<'a>(
    graph: &'a QGraph,
    config: &'a Config,
    options: &LowerOptions,
    tiles: &'a Tiles,
) -> Result<Lowering<'a>, LowerError> {
    let mut lowering = Lowering::new(graph, config, options, tiles)?;
    let (mut next, mut faults) = (NodeId(0), Vec::new());
    while next.0 < graph.nodes.len() {
        match lowering.node(next) {
            Ok(nodes) => next.0 += nodes,
            // It counts all nodes of the host.
            Err(error @ LowerError::Host(_)) => return Err(error),
            // The nodes behind it are lowered, too, so that all that are at fault are told; what
            // contradicts itself there may do so for the layer that is missing.
            Err(error) => {
                let is_internal = |error: &LowerError| match error {
                    LowerError::Node { fault, .. } => matches!(fault, Fault::Internal(_)),
                    _ => false,
                };
                if faults.is_empty() || !is_internal(&error) {
                    faults.push(error);
                }
                lowering.seam = seam::Seam::default();
                next.0 += 1;
            }
        }
    }
    match faults.len() {
        0 => Ok(lowering),
        1 => Err(faults.remove(0)),
        _ => Err(LowerError::Nodes(faults)),
    }
}

/// Layers that a network becomes: one a node, but none for a max pool that joins the convolution
/// before it. [`compile`] gives as many, unless no tile fits such a pair.
pub fn layers(graph: &QGraph) -> usize {
    let readers = Readers::of(graph);
    let joins = |(id, _): &(NodeId, _)| conv::fusable(graph, &readers, *id).is_some();
    graph.nodes.len() - graph.ids().filter(joins).count()
}

/// Lowers some nodes alone, as far as there are so many (and the pool that joins the last convolution): to measure them. Their
/// numbers are those [`for_machine`]. The other tensors are there, but nothing computes them.
///
/// # Errors
/// As for [`compile`]; [`LowerError::Network`] without a first one.
pub fn compile_nodes(
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
    tiles: &Tiles,
    nodes: Range<usize>,
) -> Result<Program, LowerError> {
    let graph = for_machine(graph, config);
    let count = graph.nodes.len();
    if nodes.start >= count {
        let first = nodes.start;
        return Err(LowerError::Network(format!("there is no node {first}")));
    }
    let mut lowering = Lowering::new(&graph, config, options, tiles)?;
    let mut next = nodes.start;
    lowering.nodes = nodes.end.min(count);
    while next < lowering.nodes {
        next += lowering.node(NodeId(next))?;
    }
    Ok(lowering.program)
}

/// The shape and the tile of each convolution and of each average pool that the matrix unit sums, by node: the search
/// alone, nothing is emitted.
///
/// # Errors
/// As for [`compile`], as far as these and operators of the host are concerned.
pub fn conv_tiles(
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
    tiles: &Tiles,
) -> Result<Vec<(NodeId, ConvShape, ConvTile)>, LowerError> {
    let graph = for_machine(graph, config);
    let lowering = Lowering::new(&graph, config, options, tiles)?;
    let mut found = Vec::new();
    for (id, node) in graph.ids() {
        match &node.op {
            QOp::Host { .. } => return Err(of_host(&graph)),
            QOp::Conv(conv) => {
                let (shape, tile) = lowering.conv_tile(id, conv)?;
                found.push((id, shape, tile));
            }
            QOp::AvgPool { .. } => {
                let planned = lowering.average_tile(id)?;
                found.extend(planned.map(|(shape, tile)| (id, shape, tile)));
            }
            _ => {}
        }
    }
    Ok(found)
}

impl Lowering<'_> {
    /// Lowers a node, or several that become one layer; how many it were.
    fn node(&mut self, id: NodeId) -> Result<usize, LowerError> {
        let node = &self.graph.nodes[id.0];
        self.roles.clear();
        (self.form, self.before) = (None, None);
        self.saturate = node.saturate;
        let nodes = match &node.op {
            QOp::Conv(conv) => self.conv(id, conv),
            QOp::Add(_) | QOp::Mul(_) | QOp::Eltwise { .. } => self.elementwise(id).map(|()| 1),
            QOp::MaxPool { .. } | QOp::AvgPool { .. } => self.pool(id).map(|()| 1),
            QOp::Channels { .. } => self.channels(id).map(|()| 1),
            QOp::Host { .. } => Err(of_host(self.graph)),
        }?;
        // What takes turns with the node before is described by both.
        let last = id.0 + usize::from(self.before.is_some());
        let mut geometry = self.describe(NodeId(last));
        if let Some(layer) = self.program.layers.last() {
            geometry.output = layer.output;
            self.geometries.push(geometry);
        }
        Ok(nodes)
    }
}

/// What the host would have to compute of a network, as the error of one that it may not.
pub fn of_host(graph: &QGraph) -> LowerError {
    LowerError::Host(HostNeeds::of(graph))
}
