//! Several runs in flight: copies of one overlap the computation of another.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{BufferSet, RunOutput, Session, Streams, wait_for_all};
use crate::queue::Route;
use crate::{
    BufferKind, DriverError, PhysAddr, Point, Ticket, Timeline, TimelineError, Work, WorkDone,
};

/// Inputs and outputs alternate between this many sets of buffers.
const SETS: usize = 2;

impl Session {
    /// Starts a pipeline with up to `in_flight` runs (at least 1) between [`Pipeline::push`] and
    /// their results.
    ///
    /// From two on, the session has a second set of input and output buffers and a second
    /// instruction and micro-op queue, so that the input of one run is written and the output of
    /// another is read while a third computes. Each set has its own recording.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use vta_driver::{Buffer, BufferId, BufferKind, NullDevice, Packing, Program, QueueLimits};
    /// use vta_driver::{Session, TensorSpec};
    /// use vta_isa::Config;
    ///
    /// # let x = TensorSpec {
    /// #     name: "x".into(), buffer: BufferId(0), offset_bytes: 0, chw: [1, 1, 2], scale: 0.5, zero: 0, packing: Packing::Tiles,
    /// # };
    /// # let program = Program {
    /// #     buffers: vec![Buffer { name: "x".into(), size_bytes: 32, kind: BufferKind::Input }],
    /// #     tensors: vec![x], inputs: vec![0], outputs: vec![0],
    /// #     ..Program::default()
    /// # };
    /// // `program` has no layer: its output is its input of two values.
    /// let device = Arc::new(NullDevice::with_config(Config::default()));
    /// let mut session = Session::new(Arc::new(program), device, QueueLimits::default())?;
    /// let mut results = Vec::new();
    /// let mut pipeline = session.pipeline(2)?;
    /// for n in 0..5 {
    ///     results.extend(pipeline.push(&[&[n, -n]])?);
    /// }
    /// while let Some(result) = pipeline.pop() {
    ///     results.push(result?);
    /// }
    /// let first: Vec<i16> = results.iter().map(|r| r.outputs[0][0][0]).collect();
    /// assert_eq!(first, [0, 1, 2, 3, 4]);
    /// # Ok::<(), vta_driver::DriverError>(())
    /// ```
    ///
    /// # Errors
    /// [`DriverError::Alloc`] when the device has no memory for the second set.
    pub fn pipeline(&mut self, in_flight: usize) -> Result<Pipeline<'_>, DriverError> {
        let in_flight = in_flight.max(1);
        while self.sets.len() < in_flight.min(SETS) {
            let set = self.another_set()?;
            self.sets.push(set);
        }
        let streams = self
            .streams
            .get_or_insert_with(|| Streams::start(&self.device));
        Ok(Pipeline {
            streams: streams.clone(),
            sets: in_flight.min(SETS),
            in_flight,
            flights: VecDeque::new(),
            next_set: 0,
            session: self,
        })
    }

    /// Runs the network on many groups of up to BATCH images with up to `in_flight` runs at a
    /// time: the results of [`Self::run`] on each group, in order, bit for bit.
    ///
    /// # Errors
    /// As [`Self::run`] and [`Self::pipeline`]; the first error. The session can be used again.
    pub fn run_many(
        &mut self,
        groups: &[Vec<&[i16]>],
        in_flight: usize,
    ) -> Result<Vec<RunOutput>, DriverError> {
        let mut results = Vec::with_capacity(groups.len());
        let mut pipeline = self.pipeline(in_flight)?;
        for group in groups {
            results.extend(pipeline.push(group)?);
        }
        while let Some(result) = pipeline.pop() {
            results.push(result?);
        }
        Ok(results)
    }

    /// Inputs and outputs of their own, everything else shared with the first set.
    fn another_set(&mut self) -> Result<BufferSet, DriverError> {
        let mut addresses: Vec<PhysAddr> = self.sets[0].addresses.clone();
        let align = self.program.config.max_elem_bytes();
        let ends = self.program.inputs.iter().chain(&self.program.outputs);
        let mut own: Vec<u32> = Vec::new();
        for &tensor in ends {
            own.push(self.program.tensor(tensor)?.buffer.0);
        }
        own.sort_unstable();
        own.dedup();
        for index in own {
            let buffer = &self.program.buffers[index as usize];
            if !matches!(buffer.kind, BufferKind::Constant(_)) {
                let addr = self.buffers.alloc(buffer.size_bytes, align)?;
                addresses[index as usize] = addr;
            }
        }
        BufferSet::new(&self.program, &self.device, addresses, self.limits)
    }
}

/// Runs of a session that overlap; made by [`Session::pipeline`].
///
/// Dropping it waits for what is in flight, so that the session can go on.
pub struct Pipeline<'a> {
    session: &'a mut Session,
    streams: Streams,
    sets: usize,
    in_flight: usize,
    flights: VecDeque<Flight>,
    next_set: usize,
}

/// One run on its way.
struct Flight {
    set: usize,
    images: usize,
    tickets: Vec<Box<dyn Ticket>>,
    /// When the set's input isn't needed any more, and its output neither.
    computed: Option<Point>,
    read: Option<Point>,
    /// Why it failed before all of it was queued.
    failed: Option<DriverError>,
}

impl Flight {
    fn wait(self) -> Result<Vec<WorkDone>, DriverError> {
        let done = wait_for_all(self.tickets);
        self.failed.map_or(done, Err)
    }
}

impl Pipeline<'_> {
    /// Queues a run on up to BATCH images, each as [`Session::run`] takes it. When that makes `in_flight` runs,
    /// waits for the oldest and returns its result: the bound of the pipeline.
    ///
    /// # Errors
    /// What is wrong with these images or stops them from being queued: nothing is returned and
    /// nothing lost, [`Self::pop`] gives the runs before. Or what the oldest run reports; then
    /// these images are queued. A run that fails takes those with it that were queued before its
    /// result was seen and wait for its buffers.
    pub fn push(&mut self, images: &[&[i16]]) -> Result<Option<RunOutput>, DriverError> {
        let set = self.next_set;
        let writes = self.session.input_writes(set, images)?;
        let mut flight = Flight {
            set,
            images: images.len(),
            tickets: Vec::new(),
            computed: None,
            read: None,
            failed: None,
        };
        if let Err(error) = self.launch(&mut flight, writes) {
            // The queue may hold half a run, and what was submitted must end first.
            self.session.sets[set].queue.discard();
            let cause = wait_for_all(std::mem::take(&mut flight.tickets)).err();
            // A piece that fails while others are queued is the run's result, which has its place.
            match error {
                DriverError::Timeline(TimelineError::Failed { .. }) => {
                    flight.failed = Some(cause.unwrap_or(error));
                }
                error => return Err(error),
            }
        }
        self.flights.push_back(flight);
        self.next_set = (set + 1) % self.sets;
        if self.flights.len() < self.in_flight {
            return Ok(None);
        }
        self.pop().transpose()
    }

    /// Waits for the oldest run; `None` when there is none.
    pub fn pop(&mut self) -> Option<Result<RunOutput, DriverError>> {
        let flight = self.flights.pop_front()?;
        (self.session.current, self.session.images) = (flight.set, flight.images);
        let images = flight.images;
        let done = flight.wait();
        Some(done.and_then(|done| self.session.collect(done, images)))
    }

    /// Submits the writes of the inputs, the batches and the reads of the outputs, each to its
    /// stream, behind what the run before last still does with the same buffers.
    fn launch(&mut self, flight: &mut Flight, writes: Vec<Work>) -> Result<(), DriverError> {
        let earlier = self.flights.iter().rev().find(|f| f.set == flight.set);
        // An output may be an input, so that the read of the output frees both.
        let free: Vec<Point> = earlier.map_or_else(Vec::new, |f| {
            f.computed.iter().chain(&f.read).cloned().collect()
        });
        let [input, computed, read] = ["input", "run", "output"].map(Timeline::new);
        for write in writes {
            let signal = vec![input.promise_next()?];
            let ticket = self.streams.arriving.submit(write, &free, signal)?;
            flight.tickets.push(ticket);
        }

        let mut waits = vec![input.at(input.promised())];
        waits.extend(free);
        let queue = &mut self.session.sets[flight.set].queue;
        queue.set_route(Some(Route {
            stream: Arc::clone(&self.streams.compute),
            waits: waits.clone(),
            done: computed.clone(),
        }));
        let submitted = self.session.submit_layers(flight.set);
        let queue = &mut self.session.sets[flight.set].queue;
        let _ = queue.set_route(None);
        flight.tickets.extend(queue.take_tickets());
        submitted?;
        let computed = computed.at(computed.promised());
        flight.computed = Some(computed.clone());
        // A program without layers has nothing else that waits for these.
        waits.push(computed);

        for &output in &self.session.program.outputs {
            let spec = self.session.program.tensor(output)?;
            let work = self.session.read_work(flight.set, spec);
            let signal = vec![read.promise_next()?];
            let ticket = self.streams.leaving.submit(work, &waits, signal)?;
            flight.tickets.push(ticket);
        }
        flight.read = Some(read.at(read.promised()));
        Ok(())
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        for flight in self.flights.drain(..) {
            // Nobody asked for the result.
            let _ = flight.wait();
        }
    }
}

#[cfg(test)]
mod tests;
