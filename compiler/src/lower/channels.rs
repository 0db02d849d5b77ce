//! Channels in another order: the matrix unit multiplies blocks of inputs by selection tiles. Where rows and columns are
//! taken of whole blocks, loads address them, and nothing is multiplied.
//!
//! Row `o` of a selection tile has the gain where the input block's lane is that goes to lane `o`
//! of the output block, and zeros elsewhere. An output block is the sum of as many products as
//! input blocks have a part in it: one, where whole blocks are taken. Equal tiles are one;
//! [`select`] says which there are and when each is loaded.
//!
//! Output blocks that take whole neighbouring blocks go together, as far as the accumulators hold
//! them. Tokens are those of `stage`.

mod select;
mod spread;

use vta_isa::MemType;
use vta_program::GemmSteps;
use vta_program::listing::Role;

use super::emit::{Emitter, Loops, Rect, uop};
use super::lowering::Lowering;
use super::places::kept;
use super::stage::Stage;
use super::transfer::Transfer;
use super::vector::lanes::{Piece, Vectors};
use super::vector::tiles::{HALVES, Halves};
use super::{Fault, LowerError};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::{NodeId, QOp, Spread, TensorId};
use select::{Pick, Selection};

/// A layer that is being emitted.
struct Channels<'g> {
    /// Products so far.
    products: u64,
    output: TensorId,
    inputs: &'g [TensorId],
    ops: &'g [LaneOp],
    /// Tiles of a block.
    plane: usize,
    selection: Selection,
    vectors: Vectors,
    /// Whether a copy of the tiles is needed to multiply them.
    copies: usize,
    /// Blocks that are stored as they are loaded; empty where selection tiles bring all.
    copied: Vec<bool>,
}

impl Lowering<'_> {
    /// Emits the layer of channels that come from elsewhere.
    pub(super) fn channels(&mut self, id: NodeId) -> Result<(), LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let QOp::Channels {
            inputs,
            map,
            spread,
            gain,
            ops,
        } = &node.op
        else {
            return Err(self.internal(id, "it takes no channels"));
        };
        self.check_channels(id)?;
        // An immediate factor is shifts and sums where there is no MUL.
        let several = ops.iter().filter(|op| op.vector().is_some());
        self.check_lanes(&node.name, several)?;
        let [channels, ..] = self.graph.tensors[node.output.0].chw;
        let [blocks, h, w] = self.tile_chw(node.output);
        let mut layer = self.layer(id);
        let (plane, config) = (h * w, self.config);
        // Blocks that lie where they come from are left out.
        let shared: Vec<bool> = (0..blocks)
            .map(|block| self.places.is_shared(node.output, block))
            .collect();
        if shared.iter().all(|shared| *shared) {
            return Emitter::new(self, &node.name).finish(layer);
        }
        let selection = Selection::new(map, channels, *gain, config);
        let is_whole = self.is_whole(id);
        let copied = self.copied(id, &selection);
        let copies = usize::from(self.multiplies(ops));
        let mut vectors = Vectors::new(self, &node.name, ops.iter(), channels);
        let depth = config.depth(MemType::Acc);
        // Half the accumulators hold as many whole blocks and their vectors, or a part of one.
        let each = vectors.count() + HALVES * plane * (1 + copies);
        let together = (depth / each.max(1)).clamp(1, blocks.max(1));
        let half = depth.saturating_sub(vectors.count() * together) / HALVES;
        let most = (half / (1 + copies)).min(config.depth(MemType::Inp) / HALVES);
        if most == 0 {
            let reason = format!("no tile fits beside {} vectors", vectors.count());
            return Err(Fault::NoTile(reason).of(&node.name));
        }
        vectors.base = HALVES * half;
        let mut channels = Channels {
            products: 0,
            output: node.output,
            inputs,
            ops,
            plane,
            selection,
            vectors,
            copies,
            copied,
        };
        let mut e = Emitter::new(self, &node.name);
        let stage = if channels.copied.is_empty() {
            let (selection, role) = (&channels.selection, Role::Selection);
            let weights = e.lowering.constant(&node.name, role, selection.bytes());
            Stage::selecting(&mut e, weights, &selection.loaded())?
        } else {
            Stage::open(&mut e)?
        };
        let mut halves = Halves::of(half, stage);
        if is_whole {
            let pieces = channels.selection.pieces(&shared, plane, [together, most]);
            for piece in pieces {
                channels.piece(&mut e, &mut halves, &piece)?;
            }
        } else {
            channels.spread(&mut e, &mut halves, *spread, [blocks, most])?;
        }
        halves.close(&mut e)?;
        layer.steps = GemmSteps {
            products: channels.products,
            ..GemmSteps::default()
        };
        e.finish(layer)
    }

    /// Blocks that are stored as they are loaded, where all are that have a source; none where no position moves.
    fn copied(&self, id: NodeId, selection: &Selection) -> Vec<bool> {
        let QOp::Channels {
            inputs,
            map,
            spread,
            gain,
            ops,
        } = &self.graph.nodes[id.0].op
        else {
            return Vec::new();
        };
        if self.is_whole(id) || spread.phases() != 1 {
            return Vec::new();
        }
        let of = kept(self.graph, (inputs, map), (*gain, ops), self.config.block());
        let copied: Vec<bool> = of.iter().map(Option::is_some).collect();
        let mut blocks = copied.iter().enumerate();
        if blocks.all(|(block, copied)| *copied || selection.picks(block).is_empty()) {
            copied
        } else {
            Vec::new()
        }
    }

    /// Whether all positions of a node's inputs are where they were.
    fn is_whole(&self, id: NodeId) -> bool {
        let node = &self.graph.nodes[id.0];
        let plane = |id: TensorId| &self.graph.tensors[id.0].chw[1..];
        let QOp::Channels {
            spread: Spread::NONE,
            inputs,
            ..
        } = &node.op
        else {
            return false;
        };
        plane(inputs[0]) == plane(node.output)
    }

    /// Shapes that must agree.
    fn check_channels(&self, id: NodeId) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        let QOp::Channels {
            inputs,
            map,
            spread,
            gain,
            ops,
        } = &node.op
        else {
            return Err(self.internal(id, "it takes no channels"));
        };
        let [channels, h, w] = self.graph.tensors[node.output.0].chw;
        let chw = |input: usize| inputs.get(input).map(|id| self.graph.tensors[id.0].chw);
        let exists = map.iter().flatten().all(|from| {
            chw(from.input).is_some_and(|[c, y, x]| from.channel < c && spread.fits([y, x], [h, w]))
        });
        let alike = (0..inputs.len())
            .filter_map(chw)
            .all(|[_, y, x]| chw(0).is_some_and(|first| first[1..] == [y, x]));
        let phases = map.len() == spread.phases() * channels && spread.phases() > 0;
        if !exists || !alike || !phases || inputs.is_empty() || *gain < 1 {
            return Err(self.inconsistent(id, "it takes channels that its inputs haven't"));
        }
        if ops
            .iter()
            .any(|op| op.plane().is_some() || op.vector().is_some_and(|v| v.len() != channels))
        {
            return Err(self.inconsistent(id, "a lane vector has another length"));
        }
        Ok(())
    }
}

impl Channels<'_> {
    /// Whether a block is stored as it is loaded.
    fn is_copied(&self, block: usize) -> bool {
        self.copied.get(block).copied().unwrap_or(false)
    }

    /// One piece: sums cleared, products, operations, a store.
    fn piece(
        &mut self,
        e: &mut Emitter<'_, '_>,
        halves: &mut Halves,
        piece: &Piece,
    ) -> Result<(), LowerError> {
        let base = halves.next(e)?;
        let count = piece.count();
        let first = piece.blocks.start * self.plane + piece.positions.start;
        e.clear(Rect::run(base, count))?;
        for index in self.selection.picks(piece.blocks.start) {
            self.product(e, halves, piece, index, base)?;
        }
        self.vectors.load(e, &piece.blocks)?;
        let copy = base + self.copies * count;
        self.vectors
            .apply(e, self.ops, &mut 0, piece, [base, copy])?;
        let output = e.lowering.base(self.output);
        halves.store(e, Transfer::run(output, [base, first], count))
    }

    /// Adds what one input block, and its neighbours in as many output blocks, give.
    fn product(
        &mut self,
        e: &mut Emitter<'_, '_>,
        halves: &mut Halves,
        piece: &Piece,
        index: usize,
        base: usize,
    ) -> Result<(), LowerError> {
        let products = halves.stage.products(e)?;
        let Pick { input, block, tile } = self.selection.pick(index);
        let count = piece.count();
        let dram = block * self.plane + piece.positions.start;
        let rows = Transfer::run(e.lowering.base(self.inputs[input]), [0, dram], count);
        let weights = self.selection.renew(tile);
        let src = products.fetch(e, rows, weights.as_ref())?;
        let uop = uop([base, src, self.selection.place(tile)]);
        e.gemm(vec![uop], Loops::run(count, [1, 1]))?;
        self.products += count as u64;
        products.ring.free(e)
    }
}
