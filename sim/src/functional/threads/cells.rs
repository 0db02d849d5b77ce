//! Counting the scratchpads in cells, and what operations cost.
//!
//! A *cell* is the least that an operation works on: 16 int32 of the accumulators (BLOCK if that
//! is less), and a batch row of an input tile. Those of the accumulators come first.

use std::ops::Range;

use vta_isa::MemType;
use vta_isa::resolve::merge;

use super::super::run::ops::{Columns, Copied, LoadOp, Narrow, Op, ProductOp};
use super::super::run::scratchpads::{PadParts, Scratchpads};
use crate::kernels::lanes::Gather;
use crate::kernels::{COLUMN, GemmKernel};

/// How the scratchpads are counted.
#[derive(Clone, Copy)]
pub(crate) struct Dims {
    pub lanes: usize,
    pub block: usize,
    /// Whether kernels that can read copies of inputs.
    pub staged_inputs: bool,
    /// int32 of an accumulator cell.
    pub width: usize,
    /// Cells of the accumulators; those of the inputs follow.
    pub acc_cells: usize,
    /// Cells of both scratchpads.
    pub cells: usize,
}

impl Dims {
    pub fn new(pads: &Scratchpads) -> Self {
        let width = pads.block.min(COLUMN);
        let acc_cells = pads.acc.len() / width;
        Self {
            lanes: pads.lanes,
            block: pads.block,
            staged_inputs: pads.staged_inputs,
            width,
            acc_cells,
            cells: acc_cells + pads.inp.len() / pads.block,
        }
    }

    /// The int32 of the accumulators and the bytes of the inputs that some cells are.
    pub fn places(&self, cells: &Cells) -> PadParts {
        let part = |all: Range<usize>, size: usize| {
            let within = |cell: usize| (cell.clamp(all.start, all.end) - all.start) * size;
            let runs = cells.0.iter().map(|run| within(run.start)..within(run.end));
            runs.filter(|run| !run.is_empty()).collect()
        };
        PadParts {
            acc: part(0..self.acc_cells, self.width),
            inp: part(self.acc_cells..self.cells, self.block),
        }
    }

    /// Cells of `len` int32 from `first` on.
    pub fn acc(&self, first: usize, len: usize) -> Range<usize> {
        first / self.width..(first + len) / self.width
    }

    /// Cells of an accumulator tile.
    pub fn tile(&self, first: u32) -> Range<usize> {
        self.acc(first as usize, self.lanes)
    }

    /// Cells that elements of the accumulators are stored from, and those of their constants and residuals.
    pub fn stored(&self, part: &Copied) -> impl Iterator<Item = Range<usize>> {
        let sums = self.acc(part.from, part.to.len);
        let operands = match part.how {
            Narrow::Low | Narrow::Saturate => [None, None],
            Narrow::Requantize(how) => {
                let residual = how.residual;
                let residual = residual.map(|far| self.acc(part.from + far, part.to.len));
                [Some(self.acc(how.entry, how.entry_len)), residual]
            }
        };
        [sums].into_iter().chain(operands.into_iter().flatten())
    }

    /// About what an operation takes, in nanoseconds.
    pub fn cost_ns(&self, op: &Op) -> u64 {
        let lanes = |lanes: u64| 50 + lanes / 16;
        match op {
            Op::Mark(_) => 0,
            Op::Load(op) => lanes(op.span.len as u64),
            Op::Store(op) => lanes((op.shape.rows * op.shape.row_bytes) as u64),
            Op::Fill { runs, .. } => lanes(runs.iter().map(|run| u64::from(run.len)).sum()),
            Op::Chain { steps, runs } => {
                let all: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
                lanes(all * steps.len() as u64)
            }
            Op::Zip { runs, .. } => {
                lanes(runs.iter().map(|r| u64::from(r.tiles)).sum::<u64>() * self.lanes as u64)
            }
            Op::Gather { table, .. } => self.gather_ns(table),
            Op::Map(op) => lanes((op.out.len * (3 + op.map.steps().count()) / 4) as u64),
            Op::Product(op) => op.groups.iter().map(|g| self.product_ns(op, g)).sum(),
        }
    }

    pub fn gather_ns(&self, table: &Gather) -> u64 {
        50 + ((table.tiles.len() + table.operands.len()) * self.lanes / 16) as u64
    }

    /// About what a group of a product takes, in nanoseconds.
    pub fn product_ns(&self, op: &ProductOp, group: &Columns) -> u64 {
        // Beside the taps a row costs about as much as one of them.
        let taps = group.inputs.taps() + 1;
        let columns = group.bases.list().len();
        let inputs = if op.way.format.is_diagonal() {
            DIAGONAL_INPUTS
        } else {
            self.block
        };
        let macs = op.rows.list().len() * taps * columns * self.width * inputs;
        100 + macs as u64 / macs_per_ns(op.way.kernel)
    }

    /// Cells that a load overwrites; none of memories that plans don't load.
    pub fn loaded(&self, op: &LoadOp) -> Range<usize> {
        let Range { start, end } = op.entries;
        match op.mem {
            MemType::Uop | MemType::Wgt | MemType::Wgt4 => 0..0,
            MemType::Inp => {
                let cells = |tiles: usize| self.acc_cells + tiles * self.lanes / self.block;
                cells(start)..cells(end)
            }
            MemType::Acc | MemType::Acc8 | MemType::Out => {
                self.acc(start * self.lanes, op.entries.len() * self.lanes)
            }
        }
    }
}

/// What a row takes of a tap of diagonal weights, in inputs of others.
const DIAGONAL_INPUTS: usize = 4;

/// The multiply-adds that a kernel does in a nanosecond, about.
fn macs_per_ns(kernel: GemmKernel) -> u64 {
    match kernel {
        GemmKernel::Scalar => 2,
        GemmKernel::Neon => 60,
        GemmKernel::Simd128 => 20,
        GemmKernel::Avx2 => 60,
        GemmKernel::Avx512Bw => 80,
        GemmKernel::AvxVnni => 120,
        GemmKernel::Avx512Vnni => 300,
        GemmKernel::Amx => 600,
    }
}

/// Runs of cells, ascending, apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cells(Vec<Range<usize>>);

impl Cells {
    pub fn new(mut runs: Vec<Range<usize>>) -> Self {
        merge(&mut runs);
        Self(runs)
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().cloned().flatten()
    }

    pub fn runs(&self) -> &[Range<usize>] {
        &self.0
    }
}
