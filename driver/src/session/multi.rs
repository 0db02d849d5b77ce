//! A network on several devices at once, and on the host between them.

mod steps;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use web_time::Instant;

use self::steps::{HostMarks, flush_reason, host_report, run_kernel};
use crate::packing::TensorImages;
use crate::queue::Route;
use crate::session::{Streams, by_input, bytes_of, outputs, unpack_output, wait_for_all};
use crate::{
    Counters, Device, DriverError, HostStep, MarkReport, MultiProgram, Place, Point, ProgramError,
    QueueLimits, Recording, RunOutput, Session, Step, TensorSpec, Ticket, Timeline, Traffic, Work,
};

/// A [`MultiProgram`] loaded on its devices.
///
/// A run submits everything at once and waits once: devices feed each other through timelines,
/// without the caller's thread. A part's batch is submitted when the next layer is elsewhere
/// ([`FlushReason::NextLayerElsewhere`](crate::FlushReason::NextLayerElsewhere)), and replayed by later runs. Tensors travel through the
/// host, as they are where both devices pack them alike, packed again where not.
///
/// When a device fails, the run does, with the first cause; the other devices go on.
///
/// ```
/// use std::sync::Arc;
/// use vta_driver::{Buffer, BufferId, BufferKind, Device, MultiProgram, MultiSession, NullDevice};
/// use vta_driver::{Packing, Part, Place, Program, QueueLimits, Step, TensorSpec};
/// use vta_isa::Config;
///
/// // Each part has one tensor and no layer: the input goes to the first, from there to the
/// // second, and back to the host.
/// let tensor = TensorSpec {
///     name: "x".into(), buffer: BufferId(0), offset_bytes: 0, chw: [3, 1, 2], scale: 0.5, zero: 0, packing: Packing::Tiles,
/// };
/// let buffer = Buffer { name: "x".into(), size_bytes: 32, kind: BufferKind::Input };
/// let program = Arc::new(Program {
///     buffers: vec![buffer], tensors: vec![tensor], inputs: vec![0], outputs: vec![0],
///     ..Program::default()
/// });
/// let part = |target| Part { target, program: program.clone(), network_tensors: vec![0] };
/// let [here, there] = [0, 1].map(|part| Place { part, tensor: 0 });
/// let multi = MultiProgram {
///     parts: vec![part(0), part(1)],
///     steps: vec![Step::Copy { from: here, to: there }],
///     inputs: vec![vec![here]],
///     outputs: vec![there],
///     ends: vec![],
/// };
/// let device = || Arc::new(NullDevice::with_config(Config::default())) as Arc<dyn Device>;
/// let devices = [device(), device()];
/// let mut session = MultiSession::new(Arc::new(multi), &devices, QueueLimits::default())?;
/// let image = [1, -2, 3, -4, 5, -6];
/// assert_eq!(session.run(&[&image])?.outputs[0][0], image);
/// # Ok::<(), vta_driver::DriverError>(())
/// ```
pub struct MultiSession {
    /// By part. Streams are dropped before the memory that their work names.
    streams: Vec<Streams>,
    program: Arc<MultiProgram>,
    parts: Vec<Session>,
    /// Of the steps that ran.
    recordings: HashMap<usize, Recording>,
    images: usize,
    /// The run that was started and not finished.
    flight: Option<Flight>,
}

/// A run that isn't finished.
#[derive(Default)]
struct Flight {
    tickets: Vec<Box<dyn Ticket>>,
    host: HostMarks,
}

/// What the host computed: by image, by output, in NCHW order.
type Computed = Vec<Vec<Vec<i16>>>;

/// One run being submitted.
struct Launch {
    /// By part, what its next batch waits for.
    arrivals: Vec<Vec<Point>>,
    /// By part, when all of its batches so far have ended.
    computed: Vec<Option<Point>>,
    /// When the tensors are there that were written.
    arrived: HashMap<Place, Point>,
    flight: Flight,
}

impl MultiSession {
    /// Loads every part on its device: `devices[i]` is that of [`MultiProgram::parts`]`[i]`.
    ///
    /// # Errors
    /// [`DriverError::Program`] for an inconsistent program or a part without a device; what
    /// [`Session::new`] reports.
    pub fn new(
        program: Arc<MultiProgram>,
        devices: &[Arc<dyn Device>],
        limits: QueueLimits,
    ) -> Result<Self, DriverError> {
        program.validate()?;
        if devices.len() < program.parts.len() {
            let index = devices.len();
            return Err(ProgramError::Part { index }.into());
        }
        let (mut parts, mut streams) = (Vec::new(), Vec::new());
        for (part, device) in program.parts.iter().zip(devices) {
            // Tensors go from part to part.
            let loaded =
                Session::keeping_tensors(Arc::clone(&part.program), Arc::clone(device), limits)?;
            parts.push(loaded);
            streams.push(Streams::start(device));
        }
        Ok(Self {
            streams,
            program,
            parts,
            recordings: HashMap::new(),
            images: 0,
            flight: None,
        })
    }

    /// Runs the network on up to BATCH images, as [`Session::run`].
    ///
    /// # Errors
    /// [`DriverError::Input`] for the wrong number or length of images; what the devices report,
    /// the first in the order of the steps. After an error the session can be used again unless
    /// a device is lost.
    pub fn run(&mut self, images: &[&[i16]]) -> Result<RunOutput, DriverError> {
        drop(self.finish());
        let flight = self.begin(images)?;
        self.end(flight)
    }

    /// Starts a run and returns at once; [`Self::finish`] gives its result. Several sessions on
    /// the same devices that are started in turns keep all of them busy; each has buffers of its
    /// own, constants included.
    ///
    /// A run that wasn't finished is waited for first, and its result is lost.
    ///
    /// # Errors
    /// [`DriverError::Input`] for the wrong number or length of images; what stops the run from
    /// being submitted. What the devices report is the result's.
    pub fn start(&mut self, images: &[&[i16]]) -> Result<(), DriverError> {
        drop(self.finish());
        self.flight = Some(self.begin(images)?);
        Ok(())
    }

    /// Waits for the run that was started; `None` when there is none.
    pub fn finish(&mut self) -> Option<Result<RunOutput, DriverError>> {
        let flight = self.flight.take()?;
        Some(self.end(flight))
    }

    fn begin(&mut self, images: &[&[i16]]) -> Result<Flight, DriverError> {
        let program = Arc::clone(&self.program);
        let n = self.parts.len();
        let mut launch = Launch {
            arrivals: vec![Vec::new(); n],
            computed: vec![None; n],
            arrived: HashMap::new(),
            flight: Flight::default(),
        };
        self.images = images.len();
        for part in &mut self.parts {
            part.images = images.len();
        }
        let launched = self.launch(&program, images, &mut launch);
        if let Err(error) = launched {
            for part in &mut self.parts {
                part.sets[0].queue.discard();
            }
            // A device's failure says more than that of what was to be submitted behind it.
            wait_for_all(launch.flight.tickets)?;
            return Err(error);
        }
        Ok(launch.flight)
    }

    /// Waits for a run and unpacks its outputs.
    fn end(&self, flight: Flight) -> Result<RunOutput, DriverError> {
        let program = &self.program;
        let output = |&place: &Place| {
            let config = &program.parts[place.part].program.config;
            Ok((program.tensor(place)?, config))
        };
        let done = wait_for_all(flight.tickets)?;
        let mut ran = outputs(done, program.outputs.iter().map(output), self.images)?;
        ran.reports.extend(host_report(&flight.host));
        Ok(ran)
    }

    fn launch(
        &mut self,
        program: &MultiProgram,
        images: &[&[i16]],
        launch: &mut Launch,
    ) -> Result<(), DriverError> {
        // All is looked at before anything is submitted: a wrong image changes nothing.
        let mut writes = Vec::new();
        let firsts = program.inputs.iter().filter_map(|places| places.first());
        let specs = firsts.map(|&place| program.tensor(place));
        let specs: Vec<&TensorSpec> = specs.collect::<Result<_, _>>()?;
        for (places, rows) in program.inputs.iter().zip(by_input(&specs, images)?) {
            for &place in places {
                let config = &program.parts[place.part].program.config;
                let images = TensorImages::new(program.tensor(place)?, config, &rows)?;
                writes.push((place, Arc::new(images)));
            }
        }
        for (place, images) in writes {
            let addr = self.address(place)?;
            let work = Work::Pack { addr, images };
            self.arrive(launch, place, &[], move || Ok(work))?;
        }
        for (index, step) in program.steps.iter().enumerate() {
            match step {
                Step::Run { part, layers } => {
                    self.run_layers(launch, index, *part, layers.clone())?;
                }
                Step::Copy { from, to } => self.copy(program, launch, *from, *to)?,
                Step::Host(step) => self.host(program, launch, step)?,
            }
        }
        for &output in &program.outputs {
            let (ticket, _) = self.leave(launch, output)?;
            launch.flight.tickets.push(ticket);
        }
        Ok(())
    }

    /// Encodes a part's layers, or replays them, behind what has to arrive first.
    fn run_layers(
        &mut self,
        launch: &mut Launch,
        index: usize,
        part: usize,
        layers: Range<usize>,
    ) -> Result<(), DriverError> {
        let reason = flush_reason(&self.program, index, part);
        let computed = Timeline::new(format!("step {index}"));
        let route = Route {
            stream: Arc::clone(&self.streams[part].compute),
            waits: std::mem::take(&mut launch.arrivals[part]),
            done: computed.clone(),
        };
        let queue = &mut self.parts[part].sets[0].queue;
        queue.set_route(Some(route));
        let submitted = match self.recordings.get(&index) {
            Some(recording) => queue.replay(recording),
            None => (layers.into_iter())
                .try_for_each(|layer| queue.push_layer(layer))
                .and_then(|()| queue.submit(reason)),
        };
        let route = queue.set_route(None);
        launch.flight.tickets.extend(queue.take_tickets());
        submitted?;
        let recording = queue.take_recording();
        if !self.recordings.contains_key(&index) && recording.is_complete() {
            self.recordings.insert(index, recording);
        }
        // Layers without a command leave the waits to the next batch.
        launch.arrivals[part].extend(route.into_iter().flat_map(|r| r.waits));
        launch.computed[part] = Some(computed.at(computed.promised()));
        Ok(())
    }

    /// Reads a tensor when it is there and writes it to the other part, on the streams' threads.
    fn copy(
        &mut self,
        program: &MultiProgram,
        launch: &mut Launch,
        from: Place,
        to: Place,
    ) -> Result<(), DriverError> {
        let (fetched, there) = self.leave(launch, from)?;
        let addr = self.address(to)?;
        let (source, target) = (program.tensor(from)?.clone(), program.tensor(to)?.clone());
        let [a, b] = [from, to].map(|p| program.parts[p.part].program.config.clone());
        // With the same block and batch, tiles are the same bytes.
        let alike =
            source.packing == target.packing && (a.batch(), a.block()) == (b.batch(), b.block());
        let images = self.images;
        let make = move || {
            let bytes = bytes_of(fetched, &source)?;
            if alike {
                let data = bytes.into();
                return Ok(Work::Write { addr, data });
            }
            let unpacked = unpack_output(&source, &a, &bytes)?;
            let rows: Vec<&[i16]> = unpacked.iter().take(images).map(Vec::as_slice).collect();
            let images = Arc::new(TensorImages::new(&target, &b, &rows)?);
            Ok(Work::Pack { addr, images })
        };
        self.arrive(launch, to, &[there], make)
    }

    /// Reads a host layer's inputs when they are there, and computes on the thread of the first
    /// place's stream; every place of an output but its first gets it from there.
    fn host(
        &mut self,
        program: &MultiProgram,
        launch: &mut Launch,
        step: &HostStep,
    ) -> Result<(), DriverError> {
        let (mut fetched, mut ready) = (Vec::new(), Vec::new());
        for &place in &step.inputs {
            let (ticket, there) = self.leave(launch, place)?;
            let config = program.parts[place.part].program.config.clone();
            fetched.push((ticket, program.tensor(place)?.clone(), config));
            ready.push(there);
        }
        let (images, count) = (self.images, step.outputs.len());
        let (name, kernel) = (step.name.clone(), Arc::clone(&step.kernel));
        let marks = Arc::clone(&launch.flight.host);
        let mut compute = Some(move || {
            let inputs = fetched.into_iter();
            let inputs = inputs.map(|(ticket, spec, config)| {
                unpack_output(&spec, &config, &bytes_of(ticket, &spec)?)
            });
            let inputs: Vec<Vec<Vec<i16>>> = inputs.collect::<Result<_, _>>()?;
            let one = |image| {
                let layer = name.clone();
                let out = run_kernel(&*kernel, &inputs, image, count);
                out.map_err(|reason| DriverError::Host { layer, reason })
            };
            let started = Instant::now();
            let computed: Result<Computed, DriverError> = (0..images).map(one).collect();
            let mark = MarkReport {
                name: name.clone(),
                traffic: Traffic::default(),
                wall: started.elapsed(),
            };
            let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
            marks.push(mark);
            computed
        });
        // The first output's thread computes all, the others' wait until its tensor is there.
        let shared = Arc::new(Mutex::new(Computed::new()));
        for (index, output) in step.outputs.iter().enumerate() {
            let Some((&to, others)) = output.places.split_first() else {
                continue;
            };
            let (addr, target) = (self.address(to)?, program.tensor(to)?.clone());
            let config = program.parts[to.part].program.config.clone();
            let (shared, compute) = (Arc::clone(&shared), compute.take());
            let make = move || {
                let mut computed = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(compute) = compute {
                    *computed = compute()?;
                }
                let rows = computed
                    .iter_mut()
                    .map(|all| std::mem::take(&mut all[index]));
                let rows: Vec<Vec<i16>> = rows.collect();
                drop(computed);
                let rows: Vec<&[i16]> = rows.iter().map(Vec::as_slice).collect();
                let images = Arc::new(TensorImages::new(&target, &config, &rows)?);
                Ok(Work::Pack { addr, images })
            };
            self.arrive(launch, to, &ready, make)?;
            if index == 0 {
                ready.extend(launch.arrived.get(&to).cloned());
            }
            for &other in others {
                self.copy(program, launch, to, other)?;
            }
        }
        Ok(())
    }

    /// Writes a tensor before the part's next batch.
    fn arrive(
        &self,
        launch: &mut Launch,
        to: Place,
        waits: &[Point],
        make: impl FnOnce() -> Result<Work, DriverError> + Send + 'static,
    ) -> Result<(), DriverError> {
        let arrived = Timeline::new("arrival");
        let signal = vec![arrived.promise(1)?];
        let stream = &self.streams[to.part].arriving;
        let ticket = stream.submit_with(make, waits, signal)?;
        launch.flight.tickets.push(ticket);
        launch.arrivals[to.part].push(arrived.at(1));
        launch.arrived.insert(to, arrived.at(1));
        Ok(())
    }

    /// Reads a tensor that the part's batches so far have computed, or that was written.
    fn leave(&self, launch: &Launch, from: Place) -> Result<(Box<dyn Ticket>, Point), DriverError> {
        let fetched = Timeline::new("departure");
        let signal = vec![fetched.promise(1)?];
        let stream = &self.streams[from.part].leaving;
        let read = self.parts[from.part].read_work(0, self.program.tensor(from)?);
        let computed = launch.computed[from.part].iter();
        let waits: Vec<Point> = computed.chain(launch.arrived.get(&from)).cloned().collect();
        let ticket = stream.submit(read, &waits, signal)?;
        Ok((ticket, fetched.at(1)))
    }

    fn address(&self, place: Place) -> Result<crate::PhysAddr, DriverError> {
        let spec = self.program.tensor(place)?;
        Ok(spec.address(&self.parts[place.part].sets[0].addresses))
    }

    /// A tensor of a part as the last run left it, as [`Session::read_tensor`].
    ///
    /// # Errors
    /// As there; [`ProgramError::Part`].
    pub fn read_tensor(&self, place: Place) -> Result<Vec<Vec<i16>>, DriverError> {
        let index = place.part;
        let part = self.parts.get(index);
        part.ok_or(ProgramError::Part { index })?
            .read_tensor(place.tensor)
    }

    /// The program.
    pub fn program(&self) -> &Arc<MultiProgram> {
        &self.program
    }

    /// What all parts counted.
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        for part in &self.parts {
            total.add(&part.counters());
        }
        total
    }
}

#[cfg(test)]
mod tests;
