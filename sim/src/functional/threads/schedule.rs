//! What may run at the same time within one batch.
//!
//! A plan is a list of operations in an order that the tokens allow. To run them on several
//! threads, operations are cut into [units](super::unit), and units are put together into tasks.
//! - What a unit leaves in a scratchpad for another makes them one task. A task runs on one
//!   thread, on scratchpads of that thread's own. So tasks that use the same tiles one after the
//!   other, as those of programs that double-buffer do, needn't wait for each other: that is
//!   renaming. It also means that a unit may be done more than once: if a task needs little of
//!   what another one computes, a bias or the last row of a pooling window, it computes that
//!   again.
//! - A task that reads what was in a scratchpad before the batch begins with a copy of that, and
//!   one that writes a tile last hands it over at the end, so that scratchpads are after a run
//!   what they would be in order.
//! - DRAM is shared. A task waits for the tasks before it that touch bytes that it writes, or
//!   write bytes that it touches. What it writes is known exactly; what it reads, but for short gaps
//!   between inputs. Of residuals, the first and the last byte count.
//!
//! Tasks are handed out in the order of their first units, to whichever thread asks next: a thread
//! that was held up takes fewer, and costs needn't be known well. Results are those of one thread
//! because every unit finds what it would find in order.
//!
//! Why so: the plan of a network has one or two thousand operations of 0.2 to 40 us. Cut into
//! slices with a barrier after each operation, threads would meet a thousand times an image; these
//! tasks take tens of microseconds and wait only where a layer needs the layer before.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::super::plan::unplanned::GoOn;
use super::super::run::ops::Op;
use super::super::run::scratchpads::{PadParts, Scratchpads};
use super::cells::Dims;
use super::flow::Flow;
use super::tasks::{self, Outline};
use super::unit::{Unit, Work};
use crate::kernels::Panel;
use crate::kernels::shared::{Footprint, Order};

/// Batches that take less than this, in nanoseconds, aren't worth waking a thread for.
pub(crate) const LEAST_COST_NS: u64 = 100_000;
/// Products that take more, in nanoseconds, are cut however few threads there are.
const MOST_GRAIN_NS: u64 = 60_000;
/// Products that take less than this share of the least that a batch must take aren't cut however
/// many threads there are.
const LEAST_SHARE: u64 = 32;
/// Tasks for each thread that cutting aims at: a network has some tens of layers, one after the
/// other.
const TASKS_PER_THREAD: u64 = 64;

/// The tasks of a plan.
pub(crate) struct Schedule {
    works: Vec<Work>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) order: Order,
    /// Regions that are written.
    pub(crate) written: Vec<usize>,
    /// Bytes of the largest stage of a product.
    pub(crate) stage_bytes: usize,
    /// Marks behind all tasks.
    pub(crate) last_marks: Vec<usize>,
}

/// What one thread does.
pub(crate) struct Task {
    /// In order.
    units: Vec<u32>,
    /// What it needs of the scratchpads as they were before the batch.
    pub before: PadParts,
    /// What it leaves in the scratchpads after the batch.
    pub after: PadParts,
    /// Marks that are reached when it begins.
    pub marks: Vec<usize>,
}

impl Schedule {
    /// The schedule of a plan's operations for a number of threads with such scratchpads; `None`
    /// if the plan takes less than the least cost, in nanoseconds, if nothing may run at the same
    /// time, if it would take too many parts, or at the word of `go_on`.
    ///
    /// The number of threads says how finely to cut; any number may run the schedule.
    pub fn new(
        ops: &[Op],
        pads: &Scratchpads,
        threads: usize,
        least_cost_ns: u64,
        go_on: GoOn<'_>,
    ) -> Option<Self> {
        let dims = Dims::new(pads);
        let cost: u64 = ops.iter().map(|op| dims.cost_ns(op)).sum();
        if cost < least_cost_ns {
            return None;
        }
        let tasks = threads as u64 * TASKS_PER_THREAD;
        let least = least_cost_ns / LEAST_SHARE;
        let grain = (cost / tasks).min(MOST_GRAIN_NS).max(least);
        let flow = Flow::new(ops, dims, grain, threads, go_on)?;
        let outlines = tasks::outline(&flow, threads)?;
        if outlines.len() < 2 || !go_on() {
            return None;
        }
        let mut schedule = Self::of_outlines(ops, flow.units, outlines, dims);
        if !go_on() {
            return None;
        }
        schedule.look_ahead(ops, threads);
        Some(schedule)
    }

    fn of_outlines(ops: &[Op], units: Vec<Unit>, outlines: Vec<Outline>, dims: Dims) -> Self {
        let marks = ops.iter().enumerate().filter_map(|(at, op)| match op {
            Op::Mark(mark) => Some((at, *mark)),
            _ => None,
        });
        let mut marks = marks.peekable();
        let mut footprints = Vec::with_capacity(outlines.len());
        let mut tasks = Vec::with_capacity(outlines.len());
        for outline in outlines {
            let first = units[outline.first as usize].op;
            // A layer's first effect: what it loads may be there long before.
            let mut reached = Vec::new();
            let stores = !outline.footprint.writes().is_empty();
            while let Some((_, mark)) = marks.next_if(|m| m.0 < first && stores) {
                reached.push(mark);
            }
            footprints.push(outline.footprint);
            tasks.push(Task {
                units: outline.units,
                before: dims.places(&outline.before),
                after: dims.places(&outline.after),
                marks: reached,
            });
        }
        let written = footprints.iter().flat_map(Footprint::writes);
        let written: BTreeSet<usize> = written.map(|span| span.region).collect();
        let staged = |work: &Work| match work {
            Work::Product(piece) => piece.staged_bytes,
            Work::Op(index) => match &ops[*index] {
                Op::Map(op) => op.out.len,
                _ => 0,
            },
            Work::Store(_) | Work::Gather(..) => 0,
        };
        let works: Vec<Work> = units.into_iter().map(|unit| unit.work).collect();
        Self {
            stage_bytes: works.iter().map(staged).max().unwrap_or(0),
            works,
            tasks,
            order: Order::new(footprints),
            written: written.into_iter().collect(),
            last_marks: marks.map(|m| m.1).collect(),
        }
    }

    /// Tells each product which weights its thread will want next, if threads take tasks in turns.
    fn look_ahead(&mut self, ops: &[Op], threads: usize) {
        for first in 0..threads.min(self.tasks.len()) {
            let tasks = self.tasks.iter().skip(first).step_by(threads);
            let units: Vec<u32> = tasks.flat_map(|t| t.units.iter().copied()).collect();
            let mut seen = HashSet::new();
            let mut pieces: Vec<(u32, &Arc<Panel>, bool)> = Vec::new();
            for unit in units {
                if let Work::Product(piece) = &self.works[unit as usize]
                    && let Some(Op::Product(op)) = ops.get(piece.op)
                {
                    let panel = &op.groups[piece.group].panel;
                    pieces.push((unit, panel, seen.insert(Arc::as_ptr(panel))));
                }
            }
            // Weights that were used before are near.
            let mut next: Option<&Arc<Panel>> = None;
            for (unit, panel, new) in pieces.into_iter().rev() {
                if let Work::Product(piece) = &mut self.works[unit as usize] {
                    piece.ahead = next.cloned();
                }
                if new {
                    next = Some(panel);
                }
            }
        }
    }

    /// What a task does, in order.
    pub(crate) fn works(&self, task: &Task) -> impl Iterator<Item = &Work> {
        task.units.iter().map(|&unit| &self.works[unit as usize])
    }
}
