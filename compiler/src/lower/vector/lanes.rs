//! Lane operations on blocks of tiles, with vectors of constants.

use std::ops::Range;

use vta_isa::{AluOp, MemType};
use vta_program::BufferId;
use vta_program::listing::Role;

use super::super::emit::{Emitter, Loops, Rect};
use super::super::lowering::Lowering;
use super::super::transfer::Transfer;
use super::super::{LowerError, conv};
use crate::qgraph::lane::{LaneOp, LaneOperand};

/// Output tiles that are made together: whole blocks, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lower) struct Piece {
    pub blocks: Range<usize>,
    pub positions: Range<usize>,
}

impl Piece {
    /// Tiles.
    pub fn count(&self) -> usize {
        self.blocks.len() * self.positions.len()
    }

    /// Blocks of `plane` tiles in pieces of at most `together` whole ones, or of `most` tiles.
    pub fn of_blocks(
        blocks: Range<usize>,
        plane: usize,
        [together, most]: [usize; 2],
    ) -> Vec<Self> {
        let whole = together.min(most / plane.max(1));
        if whole > 0 {
            let firsts = blocks.clone().step_by(whole);
            let piece = |first: usize| Self {
                blocks: first..(first + whole).min(blocks.end),
                positions: 0..plane,
            };
            return firsts.map(piece).collect();
        }
        let parts = |block: usize| {
            (0..plane).step_by(most.max(1)).map(move |first| Self {
                blocks: block..block + 1,
                positions: first..(first + most).min(plane),
            })
        };
        blocks.flat_map(parts).collect()
    }
}

/// The vectors of a layer's operations, in the order of their use.
pub(in crate::lower) struct Vectors {
    constant: Option<BufferId>,
    /// The first accumulator tile.
    pub base: usize,
    count: usize,
    channels: usize,
    /// Blocks whose vectors were loaded last.
    loaded: Range<usize>,
}

impl Vectors {
    /// The constants of some operations on `channels`.
    pub fn new<'o>(
        lowering: &mut Lowering<'_>,
        name: &str,
        ops: impl Iterator<Item = &'o LaneOp>,
        channels: usize,
    ) -> Self {
        let lists: Vec<&[i32]> = ops.filter_map(LaneOp::vector).collect();
        let config = lowering.config;
        let blocks = channels.div_ceil(config.block());
        let constant = (!lists.is_empty()).then(|| {
            let bytes = conv::pack_vectors(&lists, blocks, config.batch(), config.block());
            lowering.constant(name, Role::Vectors, bytes)
        });
        Self {
            constant,
            base: 0,
            count: lists.len(),
            channels,
            loaded: 0..0,
        }
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Loads those of some blocks, unless they were loaded last.
    pub fn load(
        &mut self,
        e: &mut Emitter<'_, '_>,
        blocks: &Range<usize>,
    ) -> Result<(), LowerError> {
        let Some(constant) = self.constant.filter(|_| self.loaded != *blocks) else {
            return Ok(());
        };
        self.loaded = blocks.clone();
        let all = self.channels.div_ceil(e.lowering.config.block());
        let vectors = Transfer {
            base: constant.into(),
            sram: self.base,
            dram: blocks.start,
            size: [self.count, blocks.len()],
            stride: all,
            step: 1,
        };
        e.load(MemType::Acc, vectors)
    }

    /// Operations on a piece whose tiles start at `base`; the first vector is the `next`-th. A
    /// copy of the tiles may lie from `copy` on.
    pub fn apply(
        &self,
        e: &mut Emitter<'_, '_>,
        ops: &[LaneOp],
        next: &mut usize,
        piece: &Piece,
        [base, copy]: [usize; 2],
    ) -> Result<(), LowerError> {
        let block = e.lowering.config.block();
        let lanes = piece.blocks.start * block..(piece.blocks.end * block).min(self.channels);
        for op in ops {
            let row = self.base + *next * piece.blocks.len();
            *next += usize::from(op.vector().is_some());
            let op = LaneOp::new(op.kind, narrowed(&op.operand, lanes.clone()));
            match op.vector() {
                None => e.immediates(&[op], Rect::run(base, piece.count()), copy)?,
                Some(_) => by_block(e, op.kind, piece, [base, row])?,
            }
        }
        Ok(())
    }
}

/// An operation of every tile of a piece from `base` on with the tile of its block, from `row` on.
pub(in crate::lower) fn by_block(
    e: &mut Emitter<'_, '_>,
    op: AluOp,
    piece: &Piece,
    [base, row]: [usize; 2],
) -> Result<(), LowerError> {
    let positions = piece.positions.len();
    let pairs = (0..piece.blocks.len()).map(|i| [base + i * positions, row + i]);
    e.join(op, pairs, Loops::run(positions, [1, 0]))
}

/// A vector of which some channels have the same small value is an immediate for them.
fn narrowed(operand: &LaneOperand, channels: Range<usize>) -> LaneOperand {
    let LaneOperand::Vec(all) = operand else {
        return operand.clone();
    };
    let part = all.get(channels).unwrap_or(all);
    match part.first().map(|&first| i16::try_from(first)) {
        Some(Ok(imm)) if part.iter().all(|&y| y == i32::from(imm)) && imm >= 0 => imm.into(),
        _ => operand.clone(),
    }
}
