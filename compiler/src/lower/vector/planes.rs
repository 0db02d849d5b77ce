//! Constants that differ from position to position: tiles of int32 that a LOAD brings beside the tiles that
//! they meet, a piece at a time. What all channels share is there once, with every lane alike, and meets
//! each of a piece's blocks.

use vta_isa::{Config, MemType};
use vta_program::BufferId;
use vta_program::listing::Role;

use super::super::emit::{Emitter, Loops};
use super::super::lowering::Lowering;
use super::super::transfer::Transfer;
use super::super::{Fault, LowerError};
use super::lanes::Piece;
use crate::qgraph::lane::{LaneKind, LaneOp};

/// One operation's constants.
#[derive(Clone, Copy)]
struct Plane {
    constant: BufferId,
    /// All channels have the same.
    is_shared: bool,
}

/// The constants of a layer's operations, in the order of their use.
pub(super) struct Planes {
    all: Vec<Plane>,
    /// Tiles of a block.
    plane: usize,
}

impl Planes {
    /// Those of some operations on an output of channels, rows and columns, each a value for every one of
    /// its values or positions.
    pub fn new<'o>(
        lowering: &mut Lowering<'_>,
        name: &str,
        ops: impl Iterator<Item = &'o LaneOp>,
        [channels, h, w]: [usize; 3],
    ) -> Self {
        let plane = h * w;
        let mut give = |values: &[i32]| {
            let is_shared = values.len() == plane;
            let own = if is_shared { 1 } else { channels };
            let bytes = pack(values, [own, plane], lowering.config);
            let constant = lowering.constant(name, Role::Constants, bytes);
            Plane {
                constant,
                is_shared,
            }
        };
        let all = ops.filter_map(LaneOp::plane).map(&mut give).collect();
        Self { all, plane }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// An operation of the `next`-th constants on a piece whose tiles start at `base`; they are loaded to `room`.
    pub fn apply(
        &self,
        e: &mut Emitter<'_, '_>,
        kind: LaneKind,
        next: usize,
        piece: &Piece,
        [base, room]: [usize; 2],
    ) -> Result<(), LowerError> {
        let Some(&Plane {
            constant,
            is_shared,
        }) = self.all.get(next)
        else {
            let reason = format!("it has no {next} constants of positions");
            return Err(e.fault(Fault::Internal(reason)));
        };
        let (positions, op) = (piece.positions.len(), kind);
        let (first, count) = if is_shared {
            (0, positions)
        } else {
            (piece.blocks.start * self.plane, piece.count())
        };
        let from = first + piece.positions.start;
        e.load(MemType::Acc, Transfer::run(constant, [room, from], count))?;
        let blocks = if is_shared { piece.blocks.len() } else { 1 };
        let pairs = (0..blocks).map(|block| [base + block * positions, room]);
        e.join(op, pairs, Loops::run(count, [1, 1]))
    }
}

/// Values as tiles of int32, `[C / BLOCK][H * W][BATCH][BLOCK]`; of one channel, every lane has its values.
fn pack(values: &[i32], [channels, plane]: [usize; 2], config: &Config) -> Vec<u8> {
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
