//! Units: parts of operations, with exactly what each touches.

use std::sync::Arc;

use vta_driver::Span;
use vta_isa::AluOp;

use super::cells::Cells;
use crate::kernels::lanes::Gather;
use crate::kernels::{Bases, Inputs, Panel, Rows};

/// What a unit does.
pub(super) enum Work {
    /// An operation of the plan that is neither a product nor a store.
    Op(usize),
    /// Accumulators to DRAM.
    Store(Vec<Narrowed>),
    /// Some tiles of an operation that takes in lists of tiles.
    Gather(AluOp, Box<Gather>),
    Product(Box<Piece>),
}

/// Neighbouring accumulators whose low bytes are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Narrowed {
    /// First int32.
    pub first: usize,
    pub to: Span,
}

/// Some rows of one group of a product. Offsets count from the spans.
pub(super) struct Piece {
    /// The operation, and its group.
    pub op: usize,
    pub group: usize,
    pub rows: Arc<Rows>,
    pub inputs: Arc<Inputs>,
    pub bases: Bases,
    /// The DRAM that is read; without it inputs are read from the scratchpad.
    pub read: Option<Span>,
    pub residual: Option<Span>,
    /// The weights that the thread wants next.
    pub ahead: Option<Arc<Panel>>,
    /// Bytes that are put together elsewhere before they are stored, row after row of each
    /// column: no two threads may have a region to write, even if they write different bytes.
    pub staged_bytes: usize,
    pub copies: Vec<Staged>,
}

/// Bytes that go from the stage to DRAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Staged {
    pub from: usize,
    pub to: Span,
}

/// A unit with what it touches.
pub(super) struct Unit {
    /// Index of the operation in the plan.
    pub op: usize,
    pub work: Work,
    pub reads: Cells,
    /// Cells that are overwritten whole.
    pub writes: Cells,
    pub dram_reads: Vec<Span>,
    pub dram_writes: Vec<Span>,
    /// About what it takes, in nanoseconds.
    pub cost_ns: u64,
}
