//! A batch decoded once: what remains to be done when it runs again.

use std::sync::Arc;

use vta_driver::{DeviceMemory, MarkReport, Span, Traffic};
use vta_isa::{MemType, Uop};

use crate::kernels::lanes::{Gather, TileRun};
use crate::kernels::{Bases, Inputs, Panel, Rows, Start, Step, Steps};

/// An executable plan of one batch for one kernel.
///
/// Micro-ops and weights are constants of a plan: it was made for the bytes that LOAD UOP and
/// LOAD WGT found, no STORE of the batch touches them, and [`Plan::holds`] says whether they
/// are still there. Everything else is read when the plan runs.
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    /// The layout of the memory that the spans mean.
    pub layout: u64,
    /// Regions that micro-ops and weights came from, with their versions.
    pub constants: Vec<(usize, u64)>,
    /// Micro-ops that the scratchpad holds after the run.
    pub uops: Vec<(u16, Uop)>,
    /// Weight tiles that the scratchpad holds after the run.
    pub weights: Vec<(u16, Box<[u8]>)>,
    pub traffic: Traffic,
    /// Traffic of each mark; no times.
    pub marks: Vec<MarkReport>,
    pub leftover_tokens: [u32; 4],
}

impl Plan {
    /// Whether the plan still means the same in that memory.
    pub fn holds(&self, memory: &DeviceMemory) -> bool {
        self.layout == memory.layout()
            && self
                .constants
                .iter()
                .all(|&(region, version)| memory.version(region) == version)
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
    /// Immediate steps on runs of accumulators: first int32 and how many.
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

/// A blocked matrix product with everything fused into it.
pub(crate) struct ProductOp {
    pub rows: Arc<Rows>,
    pub inputs: Arc<Inputs>,
    /// The region that inputs are read from; the scratchpad if there is none.
    pub read: Option<usize>,
    pub groups: Vec<Group>,
    pub start: Start,
    pub write_acc: bool,
    /// The region that is stored to.
    pub out: Option<usize>,
    /// The region that the sums start from.
    pub residual: Option<usize>,
}

/// Columns that a kernel works on together.
pub(crate) struct Group {
    pub panel: Arc<Panel>,
    pub bases: Bases,
    pub before: Steps,
    pub after: Steps,
}
