//! Lane operations on blocks of tiles, with their constants.

use std::ops::Range;

use vta_isa::{AluOp, Config, MemType};
use vta_program::BufferId;
use vta_program::listing::Role;

use super::super::emit::{Emitter, Loops, Rect};
use super::super::lowering::Lowering;
use super::super::transfer::{Transfer, parts};
use super::super::{Fault, LowerError};
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
            let piece = |blocks| Self {
                blocks,
                positions: 0..plane,
            };
            return parts(blocks, whole).map(piece).collect();
        }
        let of_block = |block: usize| {
            parts(0..plane, most).map(move |positions| Self {
                blocks: block..block + 1,
                positions,
            })
        };
        blocks.flat_map(of_block).collect()
    }
}

/// The constants of a layer's operations, in the order of their use: vectors, and those that differ from position to
/// position, which are tiles of int32 that a LOAD brings beside the tiles that they meet, a piece at a time.
pub(in crate::lower) struct Constants {
    vectors: Option<BufferId>,
    count: usize,
    /// Tiles from one vector to the next in memory: one for each block, or one for all.
    pitch: usize,
    planes: Vec<Plane>,
    /// The first accumulator tile of the vectors.
    base: usize,
    /// Of the output.
    chw: [usize; 3],
    /// Blocks whose vectors were loaded last, behind so many cuts.
    loaded: (Range<usize>, usize),
    /// Which vector and which constants of positions are next.
    next: [usize; 2],
}

/// One operation's constants of positions.
struct Plane {
    constant: BufferId,
    /// All channels have the same: they are there once, with every lane alike, and meet each of a piece's blocks.
    is_shared: bool,
}

/// How the accumulators are divided.
pub(in crate::lower) struct Shares {
    /// Tiles of a part.
    pub half: usize,
    /// Whole blocks that go together at most, and tiles of a piece.
    pub most: [usize; 2],
}

impl Constants {
    /// Those of some operations on an output of channels, rows and columns.
    pub fn new<'o>(
        lowering: &mut Lowering<'_>,
        name: &str,
        ops: impl Iterator<Item = &'o LaneOp> + Clone,
        chw: [usize; 3],
    ) -> Self {
        let lists: Vec<&[i32]> = ops.clone().filter_map(LaneOp::vector).collect();
        let ([channels, h, w], config) = (chw, lowering.config);
        let vectors = lowering.vectors(name, &lists, channels.div_ceil(config.block()));
        let plane = |values: &[i32]| {
            let is_shared = values.len() == h * w;
            let own = if is_shared { 1 } else { channels };
            let bytes = pack_positions(values, [own, h * w], config);
            Plane {
                constant: lowering.constant(name, Role::Constants, bytes),
                is_shared,
            }
        };
        Self {
            vectors,
            count: lists.len(),
            pitch: channels.div_ceil(config.block()),
            planes: ops.filter_map(LaneOp::plane).map(plane).collect(),
            base: 0,
            chw,
            loaded: (0..0, 0),
            next: [0; 2],
        }
    }

    /// Whether some differ from position to position.
    pub const fn has_planes(&self) -> bool {
        !self.planes.is_empty()
    }

    /// The words of an entry that all STOREs have, as vectors.
    pub fn entry(lowering: &mut Lowering<'_>, name: &str, words: &[i32], chw: [usize; 3]) -> Self {
        let tile = |word: &i32| word.to_le_bytes().repeat(lowering.config.lanes());
        let bytes: Vec<u8> = words.iter().flat_map(tile).collect();
        let vectors = Some(lowering.constant(name, Role::Roundings, bytes));
        Self {
            vectors,
            count: words.len(),
            pitch: 1,
            planes: Vec::new(),
            base: 0,
            chw,
            loaded: (0..0, 0),
            next: [0; 2],
        }
    }

    /// The accumulator tile of the first vector.
    pub const fn first(&self) -> usize {
        self.base
    }

    /// Divides the accumulators among so many `parts` of pieces of `blocks` blocks of `plane` tiles, each of which takes
    /// its tiles `places` times and at most `limit`, and the vectors behind them.
    pub fn divide(
        &mut self,
        config: &Config,
        parts: usize,
        [blocks, plane]: [usize; 2],
        [places, limit]: [usize; 2],
    ) -> Result<Shares, Fault> {
        let depth = config.depth(MemType::Acc);
        // A part holds as many whole blocks and their vectors, or a part of one.
        let each = self.count + parts * places * plane;
        let together = (depth / each.max(1)).clamp(1, blocks.max(1));
        let half = depth.saturating_sub(self.count * together.min(self.pitch)) / parts;
        let most = (half / places).min(limit);
        if most == 0 {
            return Err(Fault::NoTile(format!(
                "no tile fits: {places} accumulator tiles beside {} vectors",
                self.count
            )));
        }
        self.base = parts * half;
        Ok(Shares {
            half,
            most: [together, most],
        })
    }

    /// Begins the operations of a piece: loads the vectors of its blocks, unless they were loaded last.
    pub fn begin(
        &mut self,
        e: &mut Emitter<'_, '_>,
        blocks: &Range<usize>,
    ) -> Result<(), LowerError> {
        self.next = [0; 2];
        let last = self.pitch.saturating_sub(1);
        let blocks = blocks.start.min(last)..blocks.end.min(self.pitch);
        let wanted = (blocks.clone(), e.cuts());
        let Some(constant) = self.vectors.filter(|_| self.loaded != wanted) else {
            return Ok(());
        };
        self.loaded = wanted;
        let vectors = Transfer {
            base: constant.into(),
            sram: self.base,
            dram: blocks.start,
            size: [self.count, blocks.len()],
            stride: self.pitch,
            step: 1,
        };
        e.load(MemType::Acc, vectors)
    }

    /// Operations on a piece whose tiles start at `base`. What lies from `copy` on is a copy of them, or constants of
    /// positions.
    pub fn apply(
        &mut self,
        e: &mut Emitter<'_, '_>,
        ops: &[LaneOp],
        piece: &Piece,
        [base, copy]: [usize; 2],
    ) -> Result<(), LowerError> {
        let block = e.lowering.config.block();
        let lanes = piece.blocks.start * block..(piece.blocks.end * block).min(self.chw[0]);
        for op in ops {
            if op.plane().is_some() {
                self.positions(e, op.kind, piece, [base, copy])?;
                continue;
            }
            let row = self.base + self.next[0] * piece.blocks.len();
            self.next[0] += usize::from(op.vector().is_some());
            let op = LaneOp::new(op.kind, narrowed(&op.operand, lanes.clone()));
            match op.vector() {
                None => e.immediates(&[op], Rect::run(base, piece.count()), copy)?,
                Some(_) => by_block(e, op.kind, piece, [base, row])?,
            }
        }
        Ok(())
    }

    /// An operation with the next constants of positions, which are loaded to `room`.
    fn positions(
        &mut self,
        e: &mut Emitter<'_, '_>,
        op: AluOp,
        piece: &Piece,
        [base, room]: [usize; 2],
    ) -> Result<(), LowerError> {
        let Plane {
            constant,
            is_shared,
        } = self.planes[self.next[1]];
        self.next[1] += 1;
        let ([_, h, w], positions) = (self.chw, piece.positions.len());
        let (first, count, blocks) = if is_shared {
            (0, positions, piece.blocks.len())
        } else {
            (piece.blocks.start * h * w, piece.count(), 1)
        };
        let from = first + piece.positions.start;
        e.load(MemType::Acc, Transfer::run(constant, [room, from], count))?;
        let pairs = (0..blocks).map(|block| [base + block * positions, room]);
        e.join(op, pairs, Loops::run(count, [1, 1]))
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

/// Values as tiles of int32, `[C / BLOCK][H * W][BATCH][BLOCK]`; of one channel, every lane has its values.
fn pack_positions(values: &[i32], [channels, plane]: [usize; 2], config: &Config) -> Vec<u8> {
    let (batch, block) = (config.batch(), config.block());
    let mut bytes = Vec::with_capacity(channels.div_ceil(block) * plane * batch * block * 4);
    for first in (0..channels).step_by(block) {
        for at in 0..plane {
            let lane = |lane: usize| match channels {
                1 => values[at],
                _ if first + lane < channels => values[(first + lane) * plane + at],
                _ => 0,
            };
            let tile: Vec<u8> = (0..block).flat_map(|i| lane(i).to_le_bytes()).collect();
            (0..batch).for_each(|_| bytes.extend(&tile));
        }
    }
    bytes
}
