//! Running a plan.

use std::time::{Duration, Instant};

use vta_driver::DeviceMemory;

use super::plan::{LoadOp, Op, Plan, ProductOp, StoreOp};
use super::scratchpads::Scratchpads;
use crate::kernels::{Memory, Product, lanes};

/// Runs every operation; the wall time of each mark.
pub(super) fn run(plan: &Plan, pads: &mut Scratchpads, memory: &mut DeviceMemory) -> Vec<Duration> {
    let mut laps = Laps::default();
    for op in &plan.ops {
        match op {
            Op::Mark(mark) => laps.begin(*mark),
            Op::Load(op) => load(op, pads, memory),
            Op::Store(op) => store(op, pads, memory),
            Op::Zero(runs) => {
                for &(first, len) in runs {
                    pads.acc[first as usize..(first + len) as usize].fill(0);
                }
            }
            Op::Chain { steps, runs } => {
                for &(first, len) in runs.iter() {
                    let lanes = &mut pads.acc[first as usize..(first + len) as usize];
                    lanes::chain(pads.kernel, steps, lanes);
                }
            }
            Op::Zip { op, runs } => lanes::zip(pads.kernel, *op, runs, pads.lanes, &mut pads.acc),
            Op::Gather { op, table } => {
                lanes::gather(pads.kernel, *op, table, pads.lanes, &mut pads.acc);
            }
            Op::Product(op) => product(op, pads, memory),
        }
    }
    laps.finish()
}

fn load(op: &LoadOp, pads: &mut Scratchpads, memory: &DeviceMemory) {
    let bytes = &memory.region(op.span.region)[op.span.start..op.span.start + op.span.len];
    let [cols, rows] = op.size;
    let [left, right, above, below] = op.pads;
    if op.pads == [0; 4] && (rows == 1 || op.stride_bytes == op.row_bytes) {
        pads.fill(op.mem, op.first, bytes);
        return;
    }
    let pitch = left + cols + right;
    let mut tile = op.first;
    pads.clear(op.mem, tile, above * pitch);
    tile += above * pitch;
    for row in 0..rows {
        let from = row * op.stride_bytes;
        pads.clear(op.mem, tile, left);
        pads.fill(op.mem, tile + left, &bytes[from..from + op.row_bytes]);
        pads.clear(op.mem, tile + left + cols, right);
        tile += pitch;
    }
    pads.clear(op.mem, tile, below * pitch);
}

fn store(op: &StoreOp, pads: &Scratchpads, memory: &mut DeviceMemory) {
    let span = op.span;
    let bytes = &mut memory.region_mut(span.region)[span.start..span.start + span.len];
    for row in 0..op.rows {
        let to = row * op.stride_bytes;
        let from = op.first + row * op.row_bytes;
        let acc = &pads.acc[from..from + op.row_bytes];
        lanes::narrow(pads.kernel, acc, &mut bytes[to..to + op.row_bytes]);
    }
}

fn product(op: &ProductOp, pads: &mut Scratchpads, memory: &mut DeviceMemory) {
    let (others, out) = memory.split(op.out);
    let residual = op.residual.as_ref().map_or(&[][..], |r| others.span(r));
    let mut memory = Memory {
        inp: op.read.as_ref().map_or(&pads.inp, |r| others.span(r)),
        zeros: &pads.zeros,
        acc: &mut pads.acc,
        out,
        residual,
    };
    for group in &op.groups {
        let product = Product {
            rows: &op.rows,
            inputs: &group.inputs,
            panel: &group.panel,
            first: &group.first,
            block: pads.block,
            bases: &group.bases,
            start: op.start,
            before: &group.before,
            after: &group.after,
            write_acc: op.write_acc,
            store: op.out.is_some(),
            ahead: group.ahead.as_ref().map_or(&[], |panel| panel.lines()),
        };
        pads.kernel.run(&product, &mut memory);
    }
}

/// Wall time of each mark: from the operation that begins it to the next's.
#[derive(Default)]
pub(super) struct Laps {
    began: Option<Instant>,
    walls: Vec<Duration>,
}

impl Laps {
    /// Ends the mark before; what comes before the first counts for the first.
    pub fn begin(&mut self, mark: usize) {
        let now = Instant::now();
        if let Some(began) = self.began
            && mark > 0
        {
            self.walls.resize(mark - 1, Duration::ZERO);
            self.walls.push(now - began);
        }
        self.began = Some(now);
    }

    pub fn finish(mut self) -> Vec<Duration> {
        if let Some(began) = self.began {
            self.walls.push(began.elapsed());
        }
        self.walls
    }
}
