//! Units: parts of operations, with exactly what each touches.

use std::ops::Range;
use std::sync::Arc;

use vta_driver::Span;

use super::super::run::ops::{Copied, Op};
use super::cells::Cells;
use crate::kernels::{Bases, Inputs, Panel, Rows};

/// What a unit does.
pub(crate) enum Work {
    /// An operation of the plan that is neither a product nor a store.
    Op(usize),
    /// Accumulators to DRAM.
    Store(Vec<Copied>),
    /// Some tiles of an operation that takes in lists of tiles, as one of their own.
    Gather(Op),
    Product(Box<Piece>),
}

/// Some rows of one group of a product. Offsets count from the spans.
pub(crate) struct Piece {
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
    pub copies: Vec<Copied>,
}

/// A unit with what it touches.
pub(crate) struct Unit {
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

impl Unit {
    /// A unit that touches cells alone; what it takes isn't known yet.
    pub fn new(op: usize, work: Work, reads: Vec<Range<usize>>, writes: Vec<Range<usize>>) -> Self {
        Self {
            op,
            work,
            reads: Cells::new(reads),
            writes: Cells::new(writes),
            dram_reads: Vec::new(),
            dram_writes: Vec::new(),
            cost_ns: 0,
        }
    }
}
