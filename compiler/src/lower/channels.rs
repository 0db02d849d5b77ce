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

use super::LowerError;
use super::emit::{Emitter, Loops, Rect, uop};
use super::lowering::Lowering;
use super::places::kept;
use super::stage::Stage;
use super::transfer::Transfer;
use super::vector::lanes::{Constants, Piece, Shares};
use super::vector::tiles::{HALVES, Halves};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::{ChannelOf, NodeId, QOp, Spread, TensorId};
use select::{Pick, Selection};

/// What a node takes from where.
#[derive(Clone, Copy)]
struct Taken<'g> {
    output: TensorId,
    inputs: &'g [TensorId],
    map: &'g [Option<ChannelOf>],
    spread: Spread,
    gain: i8,
    ops: &'g [LaneOp],
    /// All positions of the inputs are where they were.
    is_whole: bool,
}

/// A layer that is being emitted.
struct Channels<'l, 'g> {
    halves: Halves<'l, 'g>,
    taken: Taken<'g>,
    /// Products so far.
    products: u64,
    /// Tiles of a block.
    plane: usize,
    selection: Selection,
    constants: Constants,
    /// Whether a copy of the tiles is needed to multiply them.
    copies: usize,
    /// Blocks that are stored as they are loaded; empty where selection tiles bring all.
    copied: Vec<bool>,
}

impl<'a> Lowering<'a> {
    /// Emits the layer of channels that come from elsewhere.
    pub(super) fn channels(&mut self, id: NodeId) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        let taken = self.taken(id)?;
        // An immediate factor is shifts and sums where there is no MUL.
        let several = taken.ops.iter().filter(|op| op.vector().is_some());
        self.check_lanes(&node.name, several)?;
        let chw = self.graph.tensors[node.output.0].chw;
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
        let selection = Selection::new(taken.map, chw[0], taken.gain, config);
        let copied = self.copied(taken, &selection);
        let copies = usize::from(self.multiplies(taken.ops));
        let mut constants = Constants::new(self, &node.name, taken.ops.iter(), chw);
        let limit = config.depth(MemType::Inp) / HALVES;
        let shares = constants.divide(config, HALVES, [blocks, plane], [1 + copies, limit]);
        let Shares { half, most } = shares.map_err(|fault| fault.of(&node.name))?;
        let mut e = Emitter::new(self, &node.name);
        let stage = if copied.is_empty() {
            let bytes = selection.bytes();
            let weights = e.lowering.constant(&node.name, Role::Selection, bytes);
            Stage::selecting(&mut e, weights, &selection.loaded())?
        } else {
            Stage::open(&mut e)?
        };
        let mut channels = Channels {
            halves: Halves::of(half, e, stage),
            taken,
            products: 0,
            plane,
            selection,
            constants,
            copies,
            copied,
        };
        if taken.is_whole {
            for piece in channels.selection.pieces(&shared, plane, most) {
                channels.piece(&piece)?;
            }
        } else {
            channels.spread([blocks, most[1]])?;
        }
        layer.steps = GemmSteps {
            products: channels.products,
            ..GemmSteps::default()
        };
        channels.halves.finish(layer)
    }

    /// Blocks that are stored as they are loaded, where all are that have a source; none where no position moves.
    fn copied(&self, taken: Taken<'_>, selection: &Selection) -> Vec<bool> {
        if taken.is_whole || taken.spread.phases() != 1 {
            return Vec::new();
        }
        let (from, changes) = ((taken.inputs, taken.map), (taken.gain, taken.ops));
        let of = kept(self.graph, from, changes, self.config.block());
        let copied: Vec<bool> = of.iter().map(Option::is_some).collect();
        let mut blocks = copied.iter().enumerate();
        if blocks.all(|(block, copied)| *copied || selection.picks(block).is_empty()) {
            copied
        } else {
            Vec::new()
        }
    }

    /// What a node takes, whose shapes must agree.
    fn taken(&self, id: NodeId) -> Result<Taken<'a>, LowerError> {
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
        let [channels, h, w] = graph.tensors[node.output.0].chw;
        let chw = |input: usize| inputs.get(input).map(|id| graph.tensors[id.0].chw);
        let exists = map.iter().flatten().all(|from| {
            chw(from.input).is_some_and(|[c, y, x]| from.channel < c && spread.fits([y, x], [h, w]))
        });
        let first = chw(0).map(|[_, y, x]| [y, x]);
        let alike = (0..inputs.len()).all(|at| chw(at).map(|[_, y, x]| [y, x]) == first);
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
        Ok(Taken {
            output: node.output,
            inputs,
            map,
            spread: *spread,
            gain: *gain,
            ops,
            is_whole: *spread == Spread::NONE && first == Some([h, w]),
        })
    }
}

impl Channels<'_, '_> {
    /// Whether a block is stored as it is loaded.
    fn is_copied(&self, block: usize) -> bool {
        self.copied.get(block).copied().unwrap_or(false)
    }

    /// One piece: sums cleared, products, operations, a store.
    fn piece(&mut self, piece: &Piece) -> Result<(), LowerError> {
        let base = self.halves.next()?;
        let count = piece.count();
        let first = piece.blocks.start * self.plane + piece.positions.start;
        self.halves.e.clear(Rect::run(base, count))?;
        for index in self.selection.picks(piece.blocks.start) {
            self.product(piece, index, base)?;
        }
        self.operations(piece, base)?;
        let output = self.halves.e.lowering.base(self.taken.output);
        self.halves
            .store(Transfer::run(output, [base, first], count))
    }

    /// The operations on a piece whose tiles start at `base`.
    fn operations(&mut self, piece: &Piece, base: usize) -> Result<(), LowerError> {
        self.constants.begin(&mut self.halves.e, &piece.blocks)?;
        let copy = base + self.copies * piece.count();
        self.constants
            .apply(&mut self.halves.e, self.taken.ops, piece, [base, copy])
    }

    /// Adds what one input block, and its neighbours in as many output blocks, give.
    fn product(&mut self, piece: &Piece, index: usize, base: usize) -> Result<(), LowerError> {
        let products = self.halves.stage.products(&self.halves.e)?;
        let Pick { input, block, tile } = self.selection.pick(index);
        let count = piece.count();
        let dram = block * self.plane + piece.positions.start;
        let input = self.halves.e.lowering.base(self.taken.inputs[input]);
        let rows = Transfer::run(input, [0, dram], count);
        let weights = self.selection.renew(tile);
        let src = products.fetch(&mut self.halves.e, rows, weights.as_ref())?;
        let uop = uop([base, src, self.selection.place(tile)]);
        self.halves.e.gemm(vec![uop], Loops::run(count, [1, 1]))?;
        self.products += count as u64;
        products.ring.free(&mut self.halves.e)
    }
}
