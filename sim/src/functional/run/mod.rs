//! Running a plan.

mod ahead;
pub(super) mod direct;
mod gemm_loops;
pub(super) mod near;
pub(super) mod ops;
pub(super) mod scratchpads;
pub(super) mod script;
pub(super) mod shape;
mod windows;

use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

use vta_driver::DeviceMemory;

use self::ops::{Columns, Copied, LoadOp, MapOp, Narrow, Op, ProductOp, StoreOp};
use self::scratchpads::Scratchpads;
use self::shape::Shape;
use super::plan::Plan;
use super::threads::unit::Piece;
use crate::kernels::lanes::{self, TileOp};
use crate::kernels::{Memory, Product};

/// Runs every operation; the wall time of each mark.
pub(crate) fn run(plan: &Plan, pads: &mut Scratchpads, memory: &mut DeviceMemory) -> Vec<Duration> {
    let mut laps = Laps::default();
    for (at, op) in plan.ops.iter().enumerate() {
        ahead::bring_closer(&plan.ops[at + 1..]);
        match op {
            Op::Mark(mark) => laps.begin(*mark, Instant::now()),
            Op::Load(op) => {
                let span = op.span;
                let bytes = &memory.region(span.region)[span.start..span.start + span.len];
                load(op, pads, bytes);
            }
            Op::Store(op) => store(op, pads, memory),
            Op::Map(op) => map(op, pads, memory),
            Op::Product(op) => product(op, pads, memory),
            Op::Fill { .. } | Op::Chain { .. } | Op::Zip { .. } | Op::Gather { .. } => {
                lane_wise(op, pads);
            }
        }
    }
    laps.finish(Instant::now)
}

/// Runs an operation that touches nothing but accumulators.
pub(crate) fn lane_wise(op: &Op, pads: &mut Scratchpads) {
    match op {
        Op::Mark(_) | Op::Load(_) | Op::Store(_) | Op::Map(_) | Op::Product(_) => {}
        Op::Fill { runs, values } => {
            for run in runs {
                let tile = &values[run.from as usize..][..pads.lanes];
                let to = &mut pads.acc[run.first as usize..][..run.len as usize];
                let tiles = to.chunks_exact_mut(pads.lanes);
                tiles.for_each(|to| to.copy_from_slice(tile));
            }
        }
        Op::Chain { steps, runs } => {
            for &(first, len) in runs.iter() {
                let lanes = &mut pads.acc[first as usize..(first + len) as usize];
                lanes::chain(pads.kernel, steps, lanes);
            }
        }
        Op::Zip { op, runs } => {
            let (op, on, lanes) = (*op, &**runs, pads.lanes);
            lanes::zip(pads.kernel, TileOp { op, on, lanes }, &mut pads.acc);
        }
        Op::Gather { op, table } => {
            let (op, on, lanes) = (*op, &**table, pads.lanes);
            lanes::gather(pads.kernel, TileOp { op, on, lanes }, &mut pads.acc);
        }
    }
}

/// Loads the bytes of the operation's span.
pub(crate) fn load(op: &LoadOp, pads: &mut Scratchpads, bytes: &[u8]) {
    let Shape {
        row_bytes,
        stride_bytes,
        rows,
    } = op.shape;
    let [left, right, above, below] = op.padding;
    let mut tile = op.entries.start;
    if op.padding == [0; 4] && op.shape.is_dense() {
        pads.fill(op.mem, tile, bytes);
        return;
    }
    let (pitch, padding) = (left + op.cols + right, (op.mem, op.pad_value));
    pads.clear(padding, tile, above * pitch);
    tile += above * pitch;
    for row in 0..rows {
        let from = row * stride_bytes;
        pads.clear(padding, tile, left);
        pads.fill(op.mem, tile + left, &bytes[from..from + row_bytes]);
        pads.clear(padding, tile + left + op.cols, right);
        tile += pitch;
    }
    pads.clear(padding, tile, below * pitch);
}

/// Stores where the operation says.
pub(crate) fn store(op: &StoreOp, pads: &Scratchpads, memory: &mut DeviceMemory) {
    let bytes = memory.region_mut(op.span.region);
    for row in op.rows() {
        let to = row.to.start..row.to.start + row.to.len;
        store_part(&row, pads, &mut bytes[to]);
    }
}

/// Stores elements of the accumulators to the bytes that they go to.
pub(crate) fn store_part(part: &Copied, pads: &Scratchpads, to: &mut [u8]) {
    let sums = || &pads.acc[part.from..part.from + to.len()];
    match part.how {
        Narrow::Low => lanes::narrow(pads.kernel, sums(), to),
        Narrow::Saturate => lanes::saturate(pads.kernel, sums(), to),
        Narrow::Requantize(how) => lanes::requantize(pads.kernel, how, part.from, &pads.acc, to),
    }
}

fn map(op: &MapOp, pads: &Scratchpads, memory: &mut DeviceMemory) {
    let (others, out) = memory.split(Some(op.out));
    let with = op.with.map_or(&[][..], |with| others.span(&with));
    op.map.run(pads.kernel, [others.span(&op.from), with], out);
}

fn product(op: &ProductOp, pads: &mut Scratchpads, memory: &mut DeviceMemory) {
    let (others, out) = memory.split(op.out);
    let residual = op.residual.as_ref().map_or(&[][..], |r| others.span(r));
    let read = op.read.as_ref().map_or(&pads.inp[..], |r| others.span(r));
    let mut before: Option<&Columns> = None;
    for group in &op.groups {
        let inputs = &group.inputs;
        let read = (&read[group.shift as usize..]).into();
        // Neighbouring groups mostly have the same inputs, which are copied or summed once.
        let same = |b: &Columns| Arc::ptr_eq(&b.inputs, inputs) && b.shift == group.shift;
        if !before.is_some_and(same) {
            op.way.stage(inputs, pads.block, read, &mut pads.staging);
        }
        before = Some(group);
        let mut memory = Memory {
            inp: inputs.memory(read, &pads.staging),
            input_sums: &pads.staging.sums,
            zeros: &pads.zeros,
            acc: &mut pads.acc,
            out: &mut *out,
            residual,
        };
        op.way.run(&whole(op, group, pads.block), &mut memory);
    }
}

/// All rows of a group.
fn whole<'a>(op: &'a ProductOp, group: &'a Columns, block: usize) -> Product<'a> {
    Product {
        rows: &op.rows,
        inputs: &group.inputs,
        panel: &group.panel,
        first: &group.first,
        block,
        bases: &group.bases,
        start: op.start,
        before: &group.before,
        after: &group.after,
        write_acc: op.write_acc,
        store: op.out.is_some(),
        ahead: group.ahead.as_ref().map_or(&[], |panel| panel.lines()),
    }
}

/// A piece of the operation that it belongs to.
pub(crate) fn piece_of<'a>(op: &'a ProductOp, piece: &'a Piece, block: usize) -> Product<'a> {
    Product {
        rows: &piece.rows,
        inputs: &piece.inputs,
        bases: &piece.bases,
        ahead: piece.ahead.as_ref().map_or(&[], |panel| panel.lines()),
        ..whole(op, &op.groups[piece.group], block)
    }
}

/// Wall time of each mark: from the operation that begins it to the next's.
#[derive(Default)]
pub(crate) struct Laps {
    began: Option<Instant>,
    walls: Vec<Duration>,
}

impl Laps {
    /// Ends the mark before; what comes before the first counts for the first.
    pub fn begin(&mut self, mark: usize, now: Instant) {
        if let Some(began) = self.began
            && mark > 0
        {
            // Marks without an operation are left out of a plan. They took no time.
            self.walls.resize(mark - 1, Duration::ZERO);
            self.walls.push(now.saturating_duration_since(began));
        }
        self.began = Some(now);
    }

    /// The clock is read only if there are marks.
    pub fn finish(mut self, now: impl FnOnce() -> Instant) -> Vec<Duration> {
        if let Some(began) = self.began {
            self.walls.push(now().saturating_duration_since(began));
        }
        self.walls
    }
}
