//! Operations before they are fused: tiles and DRAM that each touches.

use std::sync::Arc;

use vta_driver::Span;
use vta_isa::AluOp;

use super::ops::{LoadOp, StoreOp};
use super::origin::Origin;
use super::shape::Shape;
use super::tiles::Tiles;

/// One operation of the trace with what it touches.
pub(super) struct Draft {
    pub kind: Kind,
    /// Accumulator tiles.
    pub reads: Tiles,
    pub writes: Tiles,
    pub origin: Origin,
}

impl Draft {
    pub fn touches(&self, tiles: &Tiles) -> bool {
        self.reads.meets(tiles) || self.writes.meets(tiles)
    }

    /// DRAM that it reads, from the first byte to the last.
    pub fn dram_reads(&self) -> impl Iterator<Item = Span> {
        let (one, product) = match &self.kind {
            Kind::Load(op) => (Some(op.span), None),
            Kind::Matmul(op) => (None, Some(op.dram_reads())),
            Kind::Scaled(op) => (Some(op.read), None),
            Kind::Mark(_) | Kind::Store(_) | Kind::Zero | Kind::Alu(_) => (None, None),
        };
        one.into_iter().chain(product.into_iter().flatten())
    }

    /// DRAM that it writes.
    pub fn dram_write(&self) -> Option<Span> {
        match &self.kind {
            Kind::Store(op) => Some(op.span),
            Kind::Matmul(op) => op.stored.as_ref().map(|s| s.span),
            Kind::Mark(_) | Kind::Load(_) | Kind::Zero | Kind::Alu(_) | Kind::Scaled(_) => None,
        }
    }
}

pub(super) enum Kind {
    Mark(usize),
    Load(LoadOp),
    Store(StoreOp),
    /// Zeroes `writes`.
    Zero,
    Alu(AluDraft),
    Matmul(Box<Matmul>),
    Scaled(Box<Scaled>),
}

/// An ALU instruction's steps.
pub(super) struct AluDraft {
    pub op: AluOp,
    /// The immediate; without one the second of each pair is the operand's tile.
    pub imm: Option<i32>,
    /// Destination and source tiles, in order.
    pub pairs: Vec<(u16, u16)>,
    /// Where all source tiles were loaded from, if they are constants.
    pub constants: Vec<(u16, Span)>,
}

/// Where a weight tile comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Weight {
    /// Padding of a LOAD.
    Zero,
    /// A byte of a region.
    Dram { region: u32, start: u32 },
    /// The scratchpad's tile as it was before the batch.
    Held(u16),
}

/// Where an input tile comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The batch hasn't loaded it.
    Unknown,
    /// Padding of a LOAD.
    Zero,
    /// A byte of a region, as it was when `since` operations had been done.
    Dram { region: u32, start: u32, since: u32 },
}

/// A matrix product: every group's tile at every position sums the same taps.
pub(super) struct Matmul {
    pub groups: Vec<GroupDraft>,
    /// Accumulator tiles, from the group's first.
    pub positions: Vec<u16>,
    /// Bytes where the input tile of each tap and position lies, `[tap][position]`: in a region
    /// of DRAM (or padding), or in the input scratchpad.
    pub inputs: Vec<u32>,
    /// The DRAM that is read; without one inputs are read from the scratchpad.
    pub read: Option<Span>,
    /// Starts from zero, not from what the accumulators hold.
    pub from_zero: bool,
    /// Bytes that sums start from or that steps scale.
    pub side: Option<Side>,
    /// Starts from the bytes of `side`, after these steps on them.
    pub before: Option<Vec<StepDraft>>,
    /// Steps on the sums.
    pub after: Vec<StepDraft>,
    pub stored: Option<StoredTiles>,
    /// Whether somebody reads the accumulators later.
    pub write_acc: bool,
}

pub(super) struct GroupDraft {
    /// First accumulator tile.
    pub dst: u16,
    /// Weights of each tap.
    pub weights: Vec<Weight>,
}

impl Matmul {
    /// Whether there is no tap at all: only what steps and stores do.
    pub fn has_no_taps(&self) -> bool {
        self.inputs.is_empty()
    }

    /// DRAM that it reads, from the first byte to the last.
    pub fn dram_reads(&self) -> impl Iterator<Item = Span> + use<> {
        let side = self.side.as_ref().map(|s| s.span);
        self.read.into_iter().chain(side)
    }

    /// What `of` says of a group's tiles, for each group: `None` unless it is the same for every
    /// position.
    pub fn by_group<T>(
        &self,
        of: impl Fn(u16) -> Option<T>,
        same: impl Fn(&T, &T) -> bool,
    ) -> Option<Vec<T>> {
        let group = |g: &GroupDraft| {
            let mut tiles = self.positions.iter().map(|offset| of(g.dst + offset));
            let first = tiles.next()??;
            tiles
                .all(|t| t.is_some_and(|t| same(&first, &t)))
                .then_some(first)
        };
        self.groups.iter().map(group).collect()
    }
}

/// A lane-wise step on all sums of a product.
pub(super) type StepDraft = (AluOp, OperandDraft);

/// One int32 for each output of a tile, the same in all batch rows.
pub(super) type Vector = Arc<[i32]>;

#[derive(Clone, Debug)]
pub(super) enum OperandDraft {
    Imm(i32),
    /// Accumulator tiles.
    Tiles(Vec<u16>),
    /// int32 tiles in DRAM that nothing stores to, whose batch rows are the same.
    Constants(Vec<Span>),
    /// A vector for each group.
    Values(Vec<Vector>),
    /// The bytes of the product's `side` times each group's vector; only ADD has it.
    Scaled(Vec<Vector>),
}

/// Stores fused into a product: rows of one shape, one rectangle for each group.
pub(super) struct StoredTiles {
    pub span: Span,
    /// First byte of each group.
    pub first: Vec<u32>,
    pub shape: Shape,
}

/// int8 tiles in DRAM, one for each sum of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub span: Span,
    /// First byte of each group.
    pub first: Vec<u32>,
    /// Bytes from there to the tile of each position.
    pub offsets: Vec<u32>,
}

/// A GEMM whose weight tiles are diagonal: it adds an input, scaled lane by lane, to each tile.
pub(super) struct Scaled {
    /// No tile twice.
    pub terms: Vec<Term>,
    pub factors: Vec<Vector>,
    /// The DRAM that is read.
    pub read: Span,
    /// The same as products.
    pub plain: Vec<(Matmul, Tiles)>,
}

/// One tile of a [`Scaled`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    /// Accumulator tile.
    pub dst: u16,
    /// Byte of the input tile in its region.
    pub start: u32,
    /// Index of the factors.
    pub factors: u32,
}
