//! Sums and products of two tensors and element-wise operations.
//!
//! Where an operand has one position for every channel, or operations have vectors or constants of positions, they go
//! by blocks, so that every tile meets the tile of its block.

use vta_isa::{AluOp, Extension, Module, Requantize, Rounding};

use super::super::emit::{Emitter, Loops, Sums};
use super::super::lowering::Lowering;
use super::super::stage::Stage;
use super::super::tokens::Done;
use super::super::transfer::Transfer;
use super::super::{Fault, LowerError};
use super::lanes::{Constants, Piece, Shares, by_block};
use super::tiles::{HALVES, Halves, THIRDS};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::{NodeId, QOp, QPair, TensorId};

/// A tensor with its lane operations.
struct Operand<'a> {
    tensor: TensorId,
    ops: &'a [LaneOp],
    /// It has one position for every channel.
    spread: bool,
}

/// What is joined, and what follows.
struct Elementwise<'a> {
    /// The first has the output's shape.
    operands: Vec<Operand<'a>>,
    join: AluOp,
    epilogue: &'a [LaneOp],
    /// Where STOREs round: the words of their entry.
    entry: Vec<i32>,
    /// They make the sum, too, of operands as they are.
    added: bool,
    /// Every tile must meet the tile of its block. Otherwise channels and positions are one run of tiles.
    by_blocks: bool,
}

/// A layer that is being emitted.
struct Pairs<'e, 'g> {
    layer: &'e Elementwise<'g>,
    constants: Constants,
    /// Tiles of a block of the output.
    plane: usize,
}

impl<'a> Elementwise<'a> {
    /// All operations, in the order of their execution.
    fn ops(&self) -> impl Iterator<Item = &'a LaneOp> + Clone {
        let operands = self.operands.iter().map(|o| o.ops);
        operands.chain([self.epilogue]).flatten()
    }

    /// How STOREs round so many tiles, if they do.
    fn stores(&self, constants: &Constants, count: usize) -> Option<Requantize> {
        let distance = count.div_ceil(Requantize::RESIDUAL_TILES) as u8;
        (!self.entry.is_empty()).then(|| Requantize {
            table: constants.first() as u16,
            by_row: false,
            residual: if self.added { distance } else { 0 },
        })
    }
}

impl<'a> Lowering<'a> {
    /// Emits the layer of a sum, a product or element-wise operations.
    pub(in crate::lower) fn elementwise(&mut self, id: NodeId) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        let layer = self.operands(id)?;
        if layer.join == AluOp::Mul && !self.has(Extension::Mul) {
            let lacks = Fault::lacks("it multiplies two tensors", Extension::Mul);
            return Err(lacks.of(&node.name));
        }
        self.check_operations(id, &layer)?;
        let chw = self.graph.tensors[node.output.0].chw;
        let [blocks, h, w] = self.tile_chw(node.output);
        let (blocks, plane) = if layer.by_blocks {
            (blocks, h * w)
        } else {
            (1, blocks * h * w)
        };
        let mut constants = match &layer.entry[..] {
            [] => Constants::new(self, &node.name, layer.ops(), chw),
            words => Constants::entry(self, &node.name, words, chw),
        };
        let copies = self.multiplies(layer.ops());
        // Every operand has a place of its own, as large as the output, and one is for copies or constants.
        let places = layer.operands.len() + usize::from(copies || constants.has_planes());
        let limits = [places, Stage::most(self.config)];
        let mut divide = |parts| {
            let shares = constants.divide(self.config, parts, [blocks, plane], limits);
            let Shares { half, mut most } = shares.map_err(|fault| fault.of(&node.name))?;
            if layer.added {
                most[1] -= most[1] % Requantize::RESIDUAL_TILES;
            }
            Ok((half, Piece::of_blocks(0..blocks, plane, most)))
        };
        let halves = divide(HALVES)?;
        // What is one piece has nothing that loads could be beside.
        let preloads = self.has(Extension::Preload) && self.has(Extension::Acc8);
        let is_apart = preloads && halves.1.len() > 1;
        let thirds = is_apart.then(|| divide(THIRDS).ok()).flatten();
        let is_ahead = thirds.is_some();
        let (part, pieces) = thirds.unwrap_or(halves);
        let mut pairs = Pairs {
            layer: &layer,
            constants,
            plane,
        };
        let emitted = self.layer(id);
        let output = self.base(node.output);
        let mut e = Emitter::new(self, &node.name);
        let open = if is_ahead { Stage::ahead } else { Stage::open };
        let stage = open(&mut e)?;
        let mut halves = Halves::of(part, e, stage);
        let mut bases = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            while bases.len() < pieces.len().min(at + 1 + halves.ahead()) {
                let (base, piece) = (halves.next()?, &pieces[bases.len()]);
                if is_ahead {
                    pairs.load_ahead(&mut halves, piece, base)?;
                }
                bases.push(base);
            }
            if bases.len() == pieces.len() {
                halves.release()?;
            }
            let base = bases[at];
            pairs.piece(&mut halves, piece, base)?;
            let first = piece.blocks.start * plane + piece.positions.start;
            let rows = Transfer::run(output, [base, first], piece.count());
            let how = pairs.layer.stores(&pairs.constants, piece.count());
            halves.store_rounded(rows, how)?;
        }
        halves.finish(emitted)
    }

    /// What is joined with its operations, and what follows.
    fn operands(&self, id: NodeId) -> Result<Elementwise<'a>, LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let chw = |id: TensorId| graph.tensors[id.0].chw;
        let out = chw(node.output);
        let operand = |tensor: &TensorId, ops: &'a [LaneOp]| Operand {
            tensor: *tensor,
            ops,
            spread: chw(*tensor) != out,
        };
        let both = |p: &'a QPair| vec![operand(&p.a, &p.a_ops), operand(&p.b, &p.b_ops)];
        let (mut operands, join, epilogue): (Vec<Operand<'a>>, AluOp, &[LaneOp]) = match &node.op {
            QOp::Add(pair) => (both(pair), AluOp::Add, &pair.epilogue),
            QOp::Mul(pair) => (both(pair), AluOp::Mul, &pair.epilogue),
            QOp::Eltwise { input, ops } => (vec![operand(input, &[])], AluOp::Add, ops),
            _ => return Err(self.internal(id, "it is neither a sum, a product nor element-wise")),
        };
        // The one without operations comes last, one that is spread in any case. Both are without where STOREs join them.
        let bare = |o: &Operand<'_>| !self.has(Extension::Acc8) && o.ops.is_empty();
        operands.sort_by_key(|o| (o.spread, bare(o)));
        let fits =
            |(i, o): (usize, &Operand<'_>)| !o.spread || (i > 0 && chw(o.tensor) == [out[0], 1, 1]);
        if !operands.iter().enumerate().all(fits) {
            return Err(self.inconsistent(id, "the operands have other shapes"));
        }
        let store = match &node.op {
            QOp::Add(QPair { store, .. }) | QOp::Mul(QPair { store, .. }) => *store,
            _ => None,
        };
        let entry = match store {
            Some((Some(factor), sum)) => {
                // The first operand is rounded to itself, and the other added to it.
                let first = Rounding {
                    multiplier: 1,
                    low: -128,
                    high: 127,
                    ..Rounding::default()
                };
                first.entry(Some((factor, sum)))
            }
            Some((None, rounding)) => rounding.entry(None),
            None => Vec::new(),
        };
        let mut layer = Elementwise {
            entry,
            added: store.is_some_and(|(factor, _)| factor.is_some()),
            by_blocks: operands.iter().any(|o| o.spread),
            operands,
            join,
            epilogue,
        };
        let several = layer.ops().any(has_several);
        layer.by_blocks |= several;
        Ok(layer)
    }

    /// Operands of operations that must agree with the output.
    fn check_operations(&self, id: NodeId, layer: &Elementwise<'_>) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        self.check_lanes(&node.name, layer.ops().filter(|op| has_several(op)))?;
        let [channels, h, w] = self.graph.tensors[node.output.0].chw;
        let is_plane = |len: usize| len == h * w || len == channels * h * w;
        let fits = |op: &LaneOp| {
            op.vector().is_none_or(|v| v.len() == channels)
                && op.plane().is_none_or(|v| is_plane(v.len()))
        };
        if !layer.ops().all(fits) {
            return Err(self.inconsistent(id, "a lane vector has another length"));
        }
        let mut spread = layer.operands.iter().filter(|o| o.spread);
        if spread.any(|o| o.ops.iter().any(|op| op.plane().is_some())) {
            return Err(self.inconsistent(id, "one position has constants of several"));
        }
        Ok(())
    }
}

/// Whether an operation's constants differ between channels or positions.
fn has_several(op: &LaneOp) -> bool {
    op.vector().or(op.plane()).is_some()
}

impl Pairs<'_, '_> {
    /// Where the tiles of an operand go, of a piece that starts at `base`: behind those of the operands before.
    fn place(&self, i: usize, piece: &Piece, base: usize) -> usize {
        let count = piece.count();
        base + i * if self.layer.added {
            count.next_multiple_of(Requantize::RESIDUAL_TILES)
        } else {
            count
        }
    }

    /// The part of an operand that a piece needs, and its tiles, which go to `sram`.
    fn part(
        &self,
        e: &Emitter<'_, '_>,
        operand: &Operand<'_>,
        piece: &Piece,
        sram: usize,
    ) -> (Piece, Transfer) {
        let (positions, plane) = if operand.spread {
            (0..1, 1)
        } else {
            (piece.positions.clone(), self.plane)
        };
        let own = Piece {
            blocks: piece.blocks.clone(),
            positions,
        };
        let dram = own.blocks.start * plane + own.positions.start;
        let tensor = e.lowering.base(operand.tensor);
        let rows = Transfer::run(tensor, [sram, dram], own.count());
        (own, rows)
    }

    /// Lets the load module bring what a piece reads, which starts at `base`.
    fn load_ahead(
        &self,
        halves: &mut Halves<'_, '_>,
        piece: &Piece,
        base: usize,
    ) -> Result<(), LowerError> {
        let Halves { e, stage, .. } = halves;
        for (i, operand) in self.layer.operands.iter().enumerate() {
            let (_, rows) = self.part(e, operand, piece, self.place(i, piece, base));
            stage.load(e, rows, Sums::Set)?;
        }
        e.tell(Done::Preloaded)
    }

    /// All of a piece that starts at `base` but its store.
    fn piece(
        &mut self,
        halves: &mut Halves<'_, '_>,
        piece: &Piece,
        base: usize,
    ) -> Result<(), LowerError> {
        let is_ahead = halves.is_ahead();
        let (Halves { e, stage, .. }, count) = (halves, piece.count());
        let layer = self.layer;
        let copy = base + layer.operands.len() * count;
        if is_ahead {
            e.wait(Done::Preloaded)?;
        }
        self.constants.begin(e, &piece.blocks)?;
        let by_store = layer.added;
        for (i, operand) in layer.operands.iter().enumerate() {
            // An operand as it is joins the sum on its way.
            let adds = layer.join == AluOp::Add && stage.adds() && !layer.by_blocks;
            let joins = i > 0 && operand.ops.is_empty() && adds;
            let (sram, sums) = if joins {
                (base, Sums::Add)
            } else {
                (self.place(i, piece, base), Sums::Set)
            };
            let (own, rows) = self.part(e, operand, piece, sram);
            if !is_ahead {
                stage.load(e, rows, sums)?;
            }
            let constants = &mut self.constants;
            constants.apply(e, operand.ops, &own, [sram, copy])?;
            if i > 0 && operand.spread {
                by_block(e, layer.join, piece, [base, sram])?;
            } else if i > 0 && !joins && !by_store {
                e.join(layer.join, [[base, sram]], Loops::run(count, [1, 1]))?;
            }
        }
        let constants = &mut self.constants;
        constants.apply(e, layer.epilogue, piece, [base, copy])?;
        // Where STOREs do all, it still waits for the tiles.
        e.settle(Module::Compute)
    }
}
