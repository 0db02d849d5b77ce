//! Threads that run the tasks of one batch.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use web_time::Instant;

use vta_driver::DeviceMemory;
use vta_driver::packing::Threads;

use super::super::plan::Plan;
use super::super::run::ops::{Copied, Op};
use super::super::run::scratchpads::Scratchpads;
use super::super::run::{self, Laps};
use super::schedule::Schedule;
use super::unit::{Piece, Work};
use crate::kernels::Memory;
use crate::kernels::shared::{Grant, Hand, Shared};

/// The threads of one executor, and what each has of its own.
pub(crate) struct Crew {
    threads: Arc<Threads>,
    workers: Vec<Worker>,
}

/// What a thread works on: bounded by the configuration and by the largest product.
struct Worker {
    pads: Scratchpads,
    stage: Vec<u8>,
    acc: Left<i32>,
    inp: Left<u8>,
    laps: Vec<(usize, Instant)>,
}

/// What tasks leave in a scratchpad: at most every tile once in a run.
#[derive(Default)]
struct Left<T> {
    places: Vec<Range<usize>>,
    values: Vec<T>,
}

impl Crew {
    /// `threads`, the caller's among them; `None` when there is none to be had.
    pub fn new(threads: &Arc<Threads>, pads: &Scratchpads) -> Option<Self> {
        if threads.others() == 0 {
            return None;
        }
        let worker = |_| Worker {
            pads: pads.own_tiles(),
            stage: Vec::new(),
            acc: Left::default(),
            inp: Left::default(),
            laps: Vec::new(),
        };
        Some(Self {
            threads: Arc::clone(threads),
            workers: (0..threads.count()).map(worker).collect(),
        })
    }

    /// Runs all tasks; the wall time of each mark.
    ///
    /// # Panics
    /// When a task does, after all threads have stopped.
    pub fn run(
        &mut self,
        plan: &Plan,
        schedule: &Schedule,
        pads: &mut Scratchpads,
        memory: &mut DeviceMemory,
    ) -> Vec<Duration> {
        let shared = Shared::new(&schedule.order, memory.lend(&schedule.written));
        let job = Job {
            plan,
            schedule,
            pads,
        };
        let Some((own, others)) = self.workers.split_first_mut() else {
            return Vec::new();
        };
        let others = others.iter_mut().map(|worker| {
            let (job, hand) = (&job, shared.hand());
            move || worker.work(job, hand)
        });
        self.threads
            .run(others.collect(), || own.work(&job, shared.hand()));
        let mut laps: Vec<(usize, Instant)> = Vec::new();
        for worker in &mut self.workers {
            worker.acc.hand_over(&mut pads.acc);
            worker.inp.hand_over(&mut pads.inp);
            laps.append(&mut worker.laps);
        }
        laps.sort_unstable();
        let ended = Instant::now();
        laps.extend(schedule.last_marks.iter().map(|&mark| (mark, ended)));
        let mut all = Laps::default();
        for (mark, at) in laps {
            all.begin(mark, at);
        }
        all.finish(|| ended)
    }
}

/// What all threads read.
struct Job<'a> {
    plan: &'a Plan,
    schedule: &'a Schedule,
    /// The scratchpads as they were before the batch.
    pads: &'a Scratchpads,
}

impl Worker {
    fn work(&mut self, job: &Job<'_>, mut hand: Hand<'_>) {
        let bytes = job.schedule.stage_bytes;
        if self.stage.len() < bytes {
            self.stage.resize(bytes, 0);
        }
        while let Some(mut grant) = hand.next() {
            let task = &job.schedule.tasks[grant.task()];
            if !task.marks.is_empty() {
                let now = Instant::now();
                self.laps.extend(task.marks.iter().map(|&mark| (mark, now)));
            }
            self.pads.copy_tiles(job.pads, &task.before);
            for work in job.schedule.works(task) {
                match work {
                    Work::Op(index) => self.op(&job.plan.ops[*index], &mut grant),
                    Work::Gather(op) => run::lane_wise(op, &mut self.pads),
                    Work::Store(list) => self.store(list, &mut grant),
                    Work::Product(piece) => self.product(job.plan, piece, &mut grant),
                }
            }
            self.acc.take(&self.pads.acc, &task.after.acc);
            self.inp.take(&self.pads.inp, &task.after.inp);
        }
    }

    fn store(&mut self, list: &[Copied], grant: &mut Grant<'_>) {
        for part in list {
            run::store_part(part, &self.pads, grant.write(part.to));
        }
    }

    fn op(&mut self, op: &Op, grant: &mut Grant<'_>) {
        match op {
            Op::Load(op) => run::load(op, &mut self.pads, grant.read(op.span)),
            Op::Map(op) => {
                let staged = &mut self.stage[..op.out.len];
                let with = op.with.map_or(&[][..], |with| grant.read(with));
                op.map
                    .run(self.pads.kernel, [grant.read(op.from), with], staged);
                grant.write(op.out).copy_from_slice(staged);
            }
            // Marks belong to tasks, and the others that aren't lane-wise are work of their own.
            _ => run::lane_wise(op, &mut self.pads),
        }
    }

    fn product(&mut self, plan: &Plan, piece: &Piece, grant: &mut Grant<'_>) {
        let Some(Op::Product(op)) = plan.ops.get(piece.op) else {
            return;
        };
        let pads = &mut self.pads;
        let product = run::piece_of(op, piece, pads.block);
        let shift = op.groups[piece.group].shift as usize;
        let read = match piece.read {
            Some(span) => grant.read_runs(span, piece.inputs.runs()),
            None => (&pads.inp[shift..]).into(),
        };
        (op.way).stage(&piece.inputs, pads.block, read, &mut pads.staging);
        let mut memory = Memory {
            inp: piece.inputs.memory(read, &pads.staging),
            input_sums: &pads.staging.sums,
            zeros: &pads.zeros,
            acc: &mut pads.acc,
            out: &mut self.stage,
            residual: piece.residual.map_or(&[], |span| grant.read(span)),
        };
        op.way.run(&product, &mut memory);
        for copy in &piece.copies {
            let staged = &self.stage[copy.from..copy.from + copy.to.len];
            grant.write(copy.to).copy_from_slice(staged);
        }
    }
}

impl<T: Copy> Left<T> {
    fn take(&mut self, pad: &[T], places: &[Range<usize>]) {
        for place in places {
            self.values.extend_from_slice(&pad[place.clone()]);
        }
        self.places.extend_from_slice(places);
    }

    fn hand_over(&mut self, pad: &mut [T]) {
        let mut values = &self.values[..];
        for place in self.places.drain(..) {
            let (now, later) = values.split_at(place.len());
            pad[place].copy_from_slice(now);
            values = later;
        }
        self.values.clear();
    }
}
