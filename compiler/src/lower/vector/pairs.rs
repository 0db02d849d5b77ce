//! Sums and products of two tensors of which one has one position for every channel, or whose
//! operations have vectors or constants of positions: by blocks, so that every tile meets the tile of its
//! block.

use vta_isa::MemType;

use super::super::emit::{Emitter, Loops};
use super::super::lowering::Lowering;
use super::super::stage::{Stage, Sums};
use super::super::transfer::Transfer;
use super::super::{Fault, LowerError};
use super::elementwise::Elementwise;
use super::lanes::{Piece, Vectors, by_block};
use super::planes::Planes;
use super::tiles::{HALVES, Halves};
use crate::qgraph::NodeId;
use crate::qgraph::lane::LaneOp;

/// A layer that is being emitted.
struct Pairs<'e, 'g> {
    layer: &'e Elementwise<'g>,
    vectors: Vectors,
    planes: Planes,
    /// Tiles of a block of the output.
    plane: usize,
}

/// Which vector and which constants of positions are next.
#[derive(Default)]
struct Next {
    vector: usize,
    plane: usize,
}

impl Lowering<'_> {
    /// Emits a layer by blocks.
    pub(super) fn by_blocks(
        &mut self,
        id: NodeId,
        elementwise: &Elementwise<'_>,
    ) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        let lists = || elementwise.lists().flatten();
        self.check_by_blocks(id, elementwise)?;
        let chw @ [channels, ..] = self.graph.tensors[node.output.0].chw;
        let layer = self.layer(id);
        let [blocks, h, w] = self.tile_chw(node.output);
        let (plane, depth) = (h * w, self.config.depth(MemType::Acc));
        let mut vectors = Vectors::new(self, &node.name, lists(), channels);
        let planes = Planes::new(self, &node.name, lists(), chw);
        let copies = elementwise.lists().any(|ops| self.multiplies(ops));
        // Every operand has a place of its own, as large as the output, and one is for copies or constants.
        let places = elementwise.operands.len() + usize::from(copies || !planes.is_empty());
        let each = vectors.count() + HALVES * places * plane;
        let together = (depth / each.max(1)).clamp(1, blocks.max(1));
        let half = depth.saturating_sub(vectors.count() * together) / HALVES;
        let most = (half / places).min(Stage::most(self.config));
        if most == 0 {
            let reason = format!(
                "no tile fits: {places} accumulator tiles beside {} vectors",
                vectors.count()
            );
            return Err(Fault::NoTile(reason).of(&node.name));
        }
        vectors.base = HALVES * half;
        let mut pairs = Pairs {
            layer: elementwise,
            vectors,
            planes,
            plane,
        };
        let mut e = Emitter::new(self, &node.name);
        let mut halves = Halves::open(half, &mut e)?;
        for piece in Piece::of_blocks(0..blocks, plane, [together, most]) {
            let base = pairs.piece(&mut e, &mut halves, &piece)?;
            let first = piece.blocks.start * plane + piece.positions.start;
            let output = e.lowering.base(node.output);
            halves.store(&mut e, Transfer::run(output, [base, first], piece.count()))?;
        }
        halves.close(&mut e)?;
        e.finish(layer)
    }

    /// Operands of operations that must agree with the output.
    fn check_by_blocks(&self, id: NodeId, elementwise: &Elementwise<'_>) -> Result<(), LowerError> {
        let node = &self.graph.nodes[id.0];
        let lists = || elementwise.lists().flatten();
        let several = |op: &&LaneOp| op.vector().or(op.plane()).is_some();
        self.check_lanes(&node.name, lists().filter(several))?;
        let [channels, h, w] = self.graph.tensors[node.output.0].chw;
        let is_plane = |len: usize| len == h * w || len == channels * h * w;
        let fits = |op: &LaneOp| {
            op.vector().is_none_or(|v| v.len() == channels)
                && op.plane().is_none_or(|v| is_plane(v.len()))
        };
        if !lists().all(fits) {
            return Err(self.inconsistent(id, "a lane vector has another length"));
        }
        let mut spread = elementwise.operands.iter().filter(|o| o.spread);
        if spread.any(|o| o.ops.iter().any(|op| op.plane().is_some())) {
            Err(self.inconsistent(id, "one position has constants of several"))
        } else {
            Ok(())
        }
    }
}

impl Pairs<'_, '_> {
    /// All of a piece but its store; where it lies.
    fn piece(
        &mut self,
        e: &mut Emitter<'_, '_>,
        halves: &mut Halves,
        piece: &Piece,
    ) -> Result<usize, LowerError> {
        let (base, count) = (halves.next(e)?, piece.count());
        let places = self.layer.operands.len();
        let copy = base + places * count;
        self.vectors.load(e, &piece.blocks)?;
        let mut next = Next::default();
        for (i, operand) in self.layer.operands.iter().enumerate() {
            let sram = base + i * count;
            let own = if operand.spread {
                Piece {
                    blocks: piece.blocks.clone(),
                    positions: 0..1,
                }
            } else {
                piece.clone()
            };
            let plane = if operand.spread { 1 } else { self.plane };
            let dram = own.blocks.start * plane + own.positions.start;
            let tensor = e.lowering.base(operand.tensor);
            let rows = Transfer::run(tensor, [sram, dram], own.count());
            halves.stage.load(e, rows, Sums::Set)?;
            self.apply(e, operand.ops, &mut next, &own, [sram, copy])?;
            match (i, operand.spread) {
                (0, _) => {}
                (_, true) => by_block(e, self.layer.join, piece, [base, sram])?,
                (_, false) => {
                    e.join(self.layer.join, [[base, sram]], Loops::run(count, [1, 1]))?;
                }
            }
        }
        let epilogue = self.layer.epilogue;
        self.apply(e, epilogue, &mut next, piece, [base, copy])?;
        Ok(base)
    }

    /// Operations on a piece whose tiles start at `base`. What lies from `copy` on is a copy of them, or constants.
    fn apply(
        &self,
        e: &mut Emitter<'_, '_>,
        ops: &[LaneOp],
        next: &mut Next,
        piece: &Piece,
        [base, copy]: [usize; 2],
    ) -> Result<(), LowerError> {
        for op in ops {
            if op.plane().is_some() {
                self.planes
                    .apply(e, op.kind, next.plane, piece, [base, copy])?;
                next.plane += 1;
            } else {
                let op = std::slice::from_ref(op);
                self.vectors
                    .apply(e, op, &mut next.vector, piece, [base, copy])?;
            }
        }
        Ok(())
    }
}
