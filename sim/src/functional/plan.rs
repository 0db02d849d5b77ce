//! A batch decoded once: what remains to be done when it runs again.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use vta_driver::{DeviceMemory, MarkReport, Span, Traffic};
use vta_isa::{MemType, Uop};

use super::schedule::Schedule;
use crate::kernels::lanes::{Gather, TileRun};
use crate::kernels::{Bases, COLUMN, Inputs, Panel, Rows, Start, Step, Steps};

/// An executable plan of one batch for one kernel.
///
/// Micro-ops and weights are constants of a plan: it was made for the bytes that LOAD UOP and
/// LOAD WGT found, no STORE of the batch touches them, and [`Plan::holds`] says whether they
/// are still there. Everything else is read when the plan runs.
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    /// The layout of the memory that the spans mean.
    pub layout: u64,
    pub constants: Vec<Constant>,
    /// Whether micro-ops or weights came from the scratchpads as they were before: such a plan
    /// is good for one run.
    pub once: bool,
    /// Micro-ops that the scratchpad holds after the run.
    pub uops: Vec<(u16, Uop)>,
    /// Weight tiles that the scratchpad holds after the run.
    pub weights: Vec<(u16, Box<[u8]>)>,
    pub traffic: Traffic,
    /// Traffic of each mark; no times.
    pub marks: Vec<MarkReport>,
    pub leftover_tokens: [u32; 4],
    /// How several threads run it, once that is known; `None` inside if one does it as well.
    pub schedule: OnceLock<Option<Schedule>>,
}

/// A region whose bytes a plan was made for.
pub(crate) struct Constant {
    pub region: usize,
    /// Copies of the bytes, where they are few or often written again: by content they are the
    /// same even when somebody has written to the region.
    pub copies: Option<Vec<(Span, Box<[u8]>)>>,
}

/// Bytes that a plan keeps to compare with.
const MOST_COPIED_BYTES: usize = 4 << 20;

impl Constant {
    /// The constants of some regions, with copies of the spans that are read as far as there is
    /// room.
    pub fn new(spans: &[Span], regions: &BTreeSet<usize>, memory: &DeviceMemory) -> Vec<Self> {
        let size = |region: usize| -> usize {
            let spans = spans.iter().filter(|s| s.region == region);
            spans.map(|s| s.len).sum()
        };
        let mut sizes: Vec<(usize, usize)> = regions.iter().map(|&r| (size(r), r)).collect();
        // The small ones first: micro-ops, which a queue writes again for each batch.
        sizes.sort_unstable();
        let mut room = MOST_COPIED_BYTES;
        let mut constants = Vec::with_capacity(sizes.len());
        for (size, region) in sizes {
            let bytes = memory.region(region);
            let copy = |s: &Span| Some((*s, bytes.get(s.start..s.start + s.len)?.into()));
            let spans = || spans.iter().filter(|s| s.region == region);
            let copies = (size <= room).then(|| spans().map(copy).collect());
            room = room.saturating_sub(size);
            let copies = copies.flatten();
            constants.push(Self { region, copies });
        }
        constants
    }

    fn same_bytes(&self, memory: &DeviceMemory) -> bool {
        let bytes = memory.region(self.region);
        let same =
            |(s, copy): &(Span, Box<[u8]>)| bytes.get(s.start..s.start + s.len) == Some(&copy[..]);
        self.copies.as_ref().is_some_and(|c| c.iter().all(same))
    }
}

impl Plan {
    /// Versions of the constants' regions, for [`Self::holds`].
    pub fn versions(&self, memory: &DeviceMemory) -> Vec<u64> {
        let constants = self.constants.iter();
        constants.map(|c| memory.version(c.region)).collect()
    }

    /// Whether the plan still means the same in that memory. `versions` are those at which its
    /// bytes were last known to be there.
    pub fn holds(&self, memory: &DeviceMemory, versions: &mut [u64]) -> bool {
        !self.once
            && self.layout == memory.layout()
            && self.constants.iter().zip(versions).all(|(c, version)| {
                let now = memory.version(c.region);
                let same = now == *version || c.same_bytes(memory);
                *version = now;
                same
            })
    }
}

/// One thing to do.
pub(crate) enum Op {
    /// The compute module reaches a layer's first instruction.
    Mark(usize),
    Load(LoadOp),
    Store(StoreOp),
    /// Zeroes runs of accumulator tiles: first int32 and how many.
    Zero(Box<[(u32, u32)]>),
    /// Immediate steps on runs of accumulators that are apart: first int32 and how many.
    Chain {
        steps: Vec<Step>,
        runs: Arc<[(u32, u32)]>,
    },
    /// Steps on two accumulator tiles, in order.
    Zip {
        op: vta_isa::AluOp,
        runs: Box<[TileRun]>,
    },
    /// Tiles that take in lists of tiles.
    Gather {
        op: vta_isa::AluOp,
        table: Box<Gather>,
    },
    Product(Box<ProductOp>),
}

/// Rows of DRAM bytes into a scratchpad.
#[derive(Clone, Debug)]
pub(crate) struct LoadOp {
    pub mem: MemType,
    /// First element in the scratchpad, padding included.
    pub first: usize,
    /// From the first byte of the first row to the last byte of the last.
    pub span: Span,
    pub row_bytes: usize,
    pub stride_bytes: usize,
    /// Elements of a row, and rows.
    pub size: [usize; 2],
    /// Zero elements left and right, zero rows above and below.
    pub pads: [usize; 4],
}

/// Accumulator tiles to DRAM.
#[derive(Clone, Debug)]
pub(crate) struct StoreOp {
    /// First int32.
    pub first: usize,
    pub span: Span,
    pub row_bytes: usize,
    pub stride_bytes: usize,
    pub rows: usize,
}

impl StoreOp {
    /// The bytes of a row.
    pub fn row(&self, row: usize) -> Span {
        Span {
            region: self.span.region,
            start: self.span.start + row * self.stride_bytes,
            len: self.row_bytes,
        }
    }
}

/// A blocked matrix product with everything fused into it.
pub(crate) struct ProductOp {
    pub rows: Arc<Rows>,
    /// The bytes that inputs are read from; the scratchpad if there are none.
    pub read: Option<Span>,
    pub groups: Vec<Group>,
    pub start: Start,
    pub write_acc: bool,
    /// The bytes that are stored to; those that are read lie elsewhere.
    pub out: Option<Span>,
    /// The bytes that the sums start from.
    pub residual: Option<Span>,
}

/// Columns that a kernel works on together.
pub(crate) struct Group {
    pub inputs: Arc<Inputs>,
    pub panel: Arc<Panel>,
    /// The next other panel that the plan reads.
    pub ahead: Option<Arc<Panel>>,
    /// What every sum of a column starts from, beside `start`.
    pub first: Box<[[i32; COLUMN]]>,
    pub bases: Bases,
    pub before: Steps,
    pub after: Steps,
}
