//! Runs side by side: engines on devices of their own, and the threads that feed them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use web_time::Instant;

use vta_compiler::qgraph::QGraph;
use vta_driver::{MultiSession, RunOutput, Session};

use crate::compile::Compiled;
use crate::device::{Setup, is_opencl, is_single};
use crate::error::{Context, Error, Result};
use crate::open::model::Tensor;
use crate::room;
use crate::run::engine::{Engine, Loaded};
use crate::run::marks::Start;
use crate::run::supply::{Images, Inputs, Supply, Taken};
use crate::run::values::{self, Output, Outputs, Values};
use crate::run::verify;
use crate::watch::Watch;

/// How long the thread that began a run waits between two looks at its watch.
const WAIT: Duration = Duration::from_millis(50);

/// A network on as many devices as run side by side. They stay from one run to the next.
pub struct Pool {
    /// What it runs.
    pub network: Compiled,
    /// The devices' options and measurements.
    pub setup: Setup,
    pub seats: Vec<Seat>,
}

/// A device's place. It is opened by the thread that uses it first.
pub struct Seat {
    threads: usize,
    engine: Option<Engine>,
}

/// What one device found, or all of them.
#[derive(Default)]
struct Share {
    /// First image, and by output the values of each image, of each run.
    steps: Vec<(usize, Vec<Vec<Vec<i16>>>)>,
    /// All else.
    found: Outputs,
}

impl Share {
    /// Adds what another device found.
    fn add(mut self, other: Self) -> Self {
        self.steps.extend(other.steps);
        let (all, more) = (&mut self.found, other.found);
        all.marks.add_all(&more.marks);
        all.counters.add(&more.counters);
        for (name, counted) in &more.devices {
            all.devices.entry(name.clone()).or_default().add(counted);
        }
        all.mismatches.extend(more.mismatches);
        self
    }
}

/// What is shared by the threads of one call.
struct Job<'a> {
    network: &'a Compiled,
    setup: &'a Setup,
    /// What every layer is compared with.
    graph: Option<&'a QGraph>,
    in_flight: usize,
    images: &'a dyn Images,
    supply: Supply<'a>,
    done: AtomicUsize,
    began: Instant,
    /// Nanoseconds from the beginning until the last device had the network, and to the first
    /// results.
    loaded: AtomicU64,
    first: AtomicU64,
    watch: &'a dyn Watch,
}

impl Pool {
    /// Runs the network on inputs, with what the host computes around it; `outputs` are what it gives.
    ///
    /// # Errors
    /// As for [`Self::run`], and what the host can't compute.
    pub fn run_inputs(
        &mut self,
        inputs: &dyn Inputs,
        outputs: &[Tensor],
        watch: &dyn Watch,
    ) -> Result<Outputs> {
        let (steps, mut found) = self.run_steps(inputs, watch)?;
        let tensors = outputs.to_vec();
        found.outputs = match &self.network.ends {
            Some(ends) => values::leave(ends, inputs, tensors, &steps)?,
            None => given(tensors, steps, inputs.count()),
        };
        Ok(found)
    }

    /// What the program gives, by output, for all images; and what a run tells beside it.
    pub fn run_steps(
        &mut self,
        images: &dyn Images,
        watch: &dyn Watch,
    ) -> Result<(Vec<Vec<i16>>, Outputs)> {
        let share = self.run(images, watch)?;
        let tensors = self.network.step_outputs()?;
        let lens: Vec<usize> = tensors.iter().map(Tensor::len).collect();
        let room = lens.iter().map(|len| vec![0; len * images.count()]);
        let mut outputs: Vec<Vec<i16>> = room.collect();
        for (first, found) in share.steps {
            for ((output, images), len) in outputs.iter_mut().zip(&found).zip(&lens) {
                for (image, values) in (first..).zip(images) {
                    output[image * len..][..*len].copy_from_slice(values);
                }
            }
        }
        Ok((outputs, share.found))
    }

    /// Runs all images, each on a device with one thread or more; results don't depend on how
    /// many.
    ///
    /// # Errors
    /// A device that can't be opened or fails, an image that can't be had, a watch that cancels.
    fn run(&mut self, images: &dyn Images, watch: &dyn Watch) -> Result<Share> {
        let (count, batch) = (images.count(), self.network.program.config.batch());
        let runs = count.div_ceil(batch);
        let image_bytes = self.network.program.input_len()?;
        self.seat(runs);
        let loaders = self.loaders().min(count);
        let in_flight = self.setup.target.batch;
        let in_flight = in_flight.unwrap_or_else(|| 1 + usize::from(self.on_opencl()));
        let job = Job {
            network: &self.network,
            setup: &self.setup,
            graph: self.network.compared(),
            in_flight: in_flight.clamp(1, runs.max(1)),
            images,
            supply: Supply::new(images, image_bytes, batch, loaders),
            done: AtomicUsize::new(0),
            began: Instant::now(),
            loaded: AtomicU64::new(0),
            first: AtomicU64::new(u64::MAX),
            watch,
        };
        watch.progress(0, count);
        if let Some(graph) = job.graph {
            let values = graph
                .tensors
                .iter()
                .map(|t| t.chw.iter().product::<usize>());
            // What the reference computes with fusions and without, and what is read of the device.
            let bytes = 3 * values.sum::<usize>() as u64 * self.seats.len() as u64;
            room::ask(bytes, || "the reference interpreter".to_owned())?;
        }
        let (job, seats) = (&job, &mut self.seats);
        let mut share = match &mut seats[..] {
            // Nothing can stop a run that has begun, so that nobody need look whether to.
            [seat] if loaders == 0 && (runs <= 1 || cfg!(target_family = "wasm")) => {
                job.work_here(seat)?
            }
            seats => job.work_aside(seats, loaders)?,
        };
        share.found.start = Start {
            opening: self.setup.opening(),
            loading: Duration::from_nanos(job.loaded.load(Ordering::Relaxed)),
            first: match job.first.load(Ordering::Relaxed) {
                u64::MAX => Duration::ZERO,
                ns => Duration::from_nanos(ns),
            },
        };
        if job.done.load(Ordering::Relaxed) < count {
            return Err(Error::Cancelled);
        }
        Ok(share)
    }

    /// Whether a device uses all its cores by itself: the threads then prepare its images.
    fn on_opencl(&self) -> bool {
        self.setup.target.devices().into_iter().any(is_opencl)
    }

    /// Threads in all: one for each core that this process may use, unless they are given.
    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.setup.target.threads.unwrap_or_else(cores)
    }

    /// Threads that decode images ahead.
    fn loaders(&self) -> usize {
        if self.on_opencl() { self.threads() } else { 0 }
    }

    /// Devices for so many runs; those of the last call, when it had as many.
    fn seat(&mut self, runs: usize) {
        let threads = if self.setup.target.devices().into_iter().any(is_single) {
            vec![1]
        } else {
            shares(self.threads(), runs)
        };
        if !self
            .seats
            .iter()
            .map(|seat| seat.threads)
            .eq(threads.iter().copied())
        {
            let seat = |threads| Seat {
                threads,
                engine: None,
            };
            self.seats = threads.into_iter().map(seat).collect();
        }
    }
}

/// What a program gave for so many images, as outputs.
pub fn given(tensors: Vec<Tensor>, steps: Vec<Vec<i16>>, images: usize) -> Vec<Output> {
    let output = |(tensor, values): (Tensor, Vec<i16>)| Output {
        tensor,
        images,
        values: Values::Steps(values.into()),
    };
    tensors.into_iter().zip(steps).map(output).collect()
}

/// Threads of each device: independent runs come first, and what is left over goes to parts of
/// them.
fn shares(threads: usize, runs: usize) -> Vec<usize> {
    let devices = threads.min(runs).max(1);
    let share = |device: usize| threads / devices + usize::from(device < threads % devices);
    (0..devices).map(|device| share(device).max(1)).collect()
}

impl Job<'_> {
    /// On the thread that calls.
    fn work_here(&self, seat: &mut Seat) -> Result<Share> {
        let work = AssertUnwindSafe(|| self.work(seat));
        catch_unwind(work).unwrap_or_else(|_| Err(Error::thread()))
    }

    /// On a thread for each seat, with others that load images; the one that calls looks at the watch.
    fn work_aside(&self, seats: &mut [Seat], loaders: usize) -> Result<Share> {
        std::thread::scope(|scope| {
            let few = "the system gives no more threads; a run with fewer needs fewer";
            let _stop = self.supply.stop();
            for _ in 0..loaders {
                let loader = std::thread::Builder::new();
                let loader = loader.spawn_scoped(scope, || self.supply.load());
                loader.context(few)?;
            }
            // Every worker holds an end of it, which goes when the worker does.
            let (works, working) = mpsc::channel::<()>();
            let start = |seat| {
                let (worker, works) = (std::thread::Builder::new(), works.clone());
                let worker = worker.spawn_scoped(scope, move || {
                    let _works = works;
                    self.work(seat)
                });
                worker.context(few)
            };
            let workers: Vec<_> = seats.iter_mut().map(start).collect::<Result<_>>()?;
            drop(works);
            while working.recv_timeout(WAIT) == Err(RecvTimeoutError::Timeout) {
                self.watch.waiting();
            }
            let join = |w: ScopedJoinHandle<'_, Result<Share>>| {
                w.join().unwrap_or_else(|_| Err(Error::thread()))
            };
            let mut shares = workers.into_iter().map(join);
            shares.try_fold(Share::default(), |all, share| Ok(all.add(share?)))
        })
    }

    /// Runs images on a device, or on several, that may use so many threads for each run.
    fn work(&self, seat: &mut Seat) -> Result<Share> {
        let engine = match &mut seat.engine {
            Some(engine) => engine,
            none => {
                let (threads, in_flight) = (seat.threads, self.in_flight);
                none.insert(Engine::open(self.network, self.setup, threads, in_flight)?)
            }
        };
        self.loaded.fetch_max(self.elapsed_ns(), Ordering::Relaxed);
        let mut share = Share::default();
        match (self.graph, &mut engine.loaded) {
            (None, Loaded::One(session)) if self.in_flight > 1 => {
                self.in_flight(session, &mut share)?;
            }
            (None, Loaded::Several(sessions)) if self.in_flight > 1 => {
                self.in_turns(sessions, &mut share)?;
            }
            (graph, _) => self.one_by_one(engine, graph, &mut share)?,
        }
        share.found.counters = engine.counters();
        for device in &engine.devices {
            if let Some(counted) = device.counters() {
                let name = device.info().name.clone();
                share.found.devices.entry(name).or_default().add(&counted);
            }
        }
        Ok(share)
    }

    /// One run after the other: layers are compared before the next run overwrites them.
    fn one_by_one(
        &self,
        engine: &mut Engine,
        graph: Option<&QGraph>,
        share: &mut Share,
    ) -> Result<()> {
        while let Some((first, images)) = self.take()? {
            let refs: Vec<&[i16]> = images.iter().map(|image| &**image).collect();
            let out = engine.run(&refs)?;
            if let Some(graph) = graph {
                let unfused = self.network.unfused.as_deref();
                let found = verify::mismatches(engine, graph, unfused, &refs, first)?;
                share.found.mismatches.extend(found);
            }
            self.add(share, first, out);
        }
        Ok(())
    }

    /// Several runs in flight on one device.
    fn in_flight(&self, session: &mut Session, share: &mut Share) -> Result<()> {
        let mut flying = VecDeque::new();
        let mut pipeline = session.pipeline(self.in_flight)?;
        while let Some((first, images)) = self.take()? {
            let refs: Vec<&[i16]> = images.iter().map(|image| &**image).collect();
            flying.push_back(first);
            if let Some(out) = pipeline.push(&refs)? {
                self.add(share, flying.pop_front().unwrap_or(first), out);
            }
        }
        for first in flying {
            let out = pipeline.pop().context("a run has no result")??;
            self.add(share, first, out);
        }
        Ok(())
    }

    /// Several runs in flight over several devices: each session has one.
    fn in_turns(&self, sessions: &mut [MultiSession], share: &mut Share) -> Result<()> {
        let mut flying: Vec<Option<usize>> = vec![None; sessions.len()];
        let mut land = |session: &mut MultiSession, flying: &mut Option<usize>| -> Result<()> {
            if let Some(first) = flying.take() {
                let out = session.finish().context("a run has no result")??;
                self.add(share, first, out);
            }
            Ok(())
        };
        let mut turn = 0;
        while let Some((first, images)) = self.take()? {
            let refs: Vec<&[i16]> = images.iter().map(|image| &**image).collect();
            land(&mut sessions[turn], &mut flying[turn])?;
            sessions[turn].start(&refs)?;
            flying[turn] = Some(first);
            turn = (turn + 1) % sessions.len();
        }
        for (session, flying) in sessions.iter_mut().zip(&mut flying) {
            land(session, flying)?;
        }
        Ok(())
    }

    /// The next images that make a run, and the index of the first; `None` when all are taken or
    /// nobody wants more.
    fn take(&self) -> Result<Option<Taken<'_>>> {
        if self.watch.cancelled() {
            return Ok(None);
        }
        self.supply.take()
    }

    /// Since the beginning.
    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn add(&self, share: &mut Share, first: usize, out: RunOutput) {
        if self.first.load(Ordering::Relaxed) == u64::MAX {
            self.first.fetch_min(self.elapsed_ns(), Ordering::Relaxed);
        }
        let batch = self.network.program.config.batch();
        let images = batch.min(self.images.count() - first);
        let before = self.done.fetch_add(images, Ordering::Relaxed);
        self.watch.progress(before + images, self.images.count());
        share.steps.push((first, out.outputs));
        let marks = &mut share.found.marks;
        out.reports.iter().for_each(|r| marks.add_report(r));
    }
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn threads_that_images_leave_over_share_images() {
        let cases: [(usize, usize, &[usize]); 7] = [
            (1, 1, &[1]),
            (2, 1, &[2]),
            (2, 2, &[1, 1]),
            (2, 200, &[1, 1]),
            (8, 3, &[3, 3, 2]),
            (3, 2, &[2, 1]),
            (4, 0, &[4]),
        ];
        for (threads, runs, expected) in cases {
            assert_eq!(shares(threads, runs), expected, "{threads} {runs}");
        }
    }
}
