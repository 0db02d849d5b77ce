//! A program on a device: buffers placed, constants resident, runs recorded and replayed.

mod multi;
mod pipeline;

use std::sync::Arc;

use vta_isa::Config;

pub use multi::MultiSession;
pub use pipeline::Pipeline;

use crate::packing::{TensorImages, unpack};
use crate::stream::Stream;
use crate::{
    Allocations, BufferKind, CommandQueue, Counters, Device, DramPlan, DriverError, FlushReason,
    Lane, Packing, PhysAddr, Program, ProgramError, QueueLimits, Recording, RunReport, TensorSpec,
    Ticket, Work, WorkDone,
};

/// What a run gives back.
#[derive(Clone, Debug)]
pub struct RunOutput {
    /// `[output][image][C*H*W]`, one entry for each image that was given.
    pub outputs: Vec<Vec<Vec<i16>>>,
    /// One report for each submission, and behind them one for the layers of the host, if there are
    /// any: what these took without the copies of their tensors.
    pub reports: Vec<RunReport>,
}

/// A program loaded on a device.
///
/// The first run encodes and records the batches; later runs replay them with new inputs.
/// Constants are written once. [`Self::run`] does one run after the other; a [`Pipeline`]
/// overlaps the copies of one run with the computation of another. Dropping the session frees
/// its device memory.
///
/// ```
/// use std::sync::Arc;
/// use vta_driver::{Buffer, BufferId, BufferKind, NullDevice, Packing, Program, QueueLimits};
/// use vta_driver::{Session, TensorSpec};
/// use vta_isa::Config;
///
/// // A network without layers: its output is its input of three channels and two pixels.
/// let x = TensorSpec {
///     name: "x".into(), buffer: BufferId(0), offset_bytes: 0, chw: [3, 1, 2], scale: 0.5, zero: 0, packing: Packing::Tiles,
/// };
/// let program = Program {
///     buffers: vec![Buffer { name: "x".into(), size_bytes: 32, kind: BufferKind::Input }],
///     tensors: vec![x],
///     inputs: vec![0],
///     outputs: vec![0],
///     ..Program::default()
/// };
/// let device = Arc::new(NullDevice::with_config(Config::default()));
/// let mut session = Session::new(Arc::new(program), device, QueueLimits::default())?;
/// let image = [1, -2, 3, -4, 5, -6];
/// assert_eq!(session.run(&[&image])?.outputs[0][0], image);
/// # Ok::<(), vta_driver::DriverError>(())
/// ```
pub struct Session {
    /// Made for the first pipeline. Dropped first: what streams hold names the memory below.
    streams: Option<Streams>,
    program: Arc<Program>,
    device: Arc<dyn Device>,
    limits: QueueLimits,
    /// One, or two once a pipeline alternates between them.
    sets: Vec<BufferSet>,
    /// The set of the last run.
    current: usize,
    images: usize,
    /// Buffers whose bytes others use too.
    shared: Vec<bool>,
    /// Keeps the program's buffers until the session is dropped.
    buffers: Allocations,
}

/// The streams of a program on a device. What arrives doesn't queue up behind what leaves, which waits
/// for batches.
#[derive(Clone)]
struct Streams {
    arriving: Arc<Stream>,
    compute: Arc<Stream>,
    leaving: Arc<Stream>,
}

impl Streams {
    fn start(device: &Arc<dyn Device>) -> Self {
        let start = |what, lane| {
            let name = format!("{what} of {}", device.info().name);
            Arc::new(Stream::new(name, Arc::clone(device), lane))
        };
        Self {
            arriving: start("arrivals", Lane::Copy),
            compute: start("batches", Lane::Compute),
            leaving: start("departures", Lane::Copy),
        }
    }
}

/// Waits for all, also behind an error: what runs names memory of the session.
fn wait_for_all(tickets: Vec<Box<dyn Ticket>>) -> Result<Vec<WorkDone>, DriverError> {
    let done: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
    done.into_iter().collect()
}

/// The program's buffers, of which sets share all but the inputs and outputs, and what was
/// recorded for them.
struct BufferSet {
    addresses: Vec<PhysAddr>,
    queue: CommandQueue,
    recording: Option<Recording>,
    /// The last inputs, whose memory is used again once the device has let go of them.
    images: Vec<Arc<TensorImages>>,
}

/// When a session encodes its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encode {
    /// When it is made, so that the first image doesn't wait for it.
    AtOnce,
    /// In a run: layer by layer, or parts of them, as whoever runs it wants.
    InRuns,
}

impl Session {
    /// Allocates the program's buffers on the device, writes its constants, and encodes its instructions. Scratch buffers that
    /// are never in use together share memory (see [`DramPlan`]), so tensors inside the network
    /// can't be read afterwards.
    ///
    /// # Errors
    /// [`DriverError::Program`] for an inconsistent program, [`DriverError::Config`] when it
    /// was compiled for another VTA instance, [`DriverError::Alloc`] when memory is exhausted.
    /// What was allocated before the error is freed.
    pub fn new(
        program: Arc<Program>,
        device: Arc<dyn Device>,
        limits: QueueLimits,
    ) -> Result<Self, DriverError> {
        Self::with_plan(program, device, limits, DramPlan::of, Encode::AtOnce)
    }

    /// As [`Self::new`], but every buffer has memory of its own, so that
    /// [`Self::read_tensor`] can read every tensor after a run.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn keeping_tensors(
        program: Arc<Program>,
        device: Arc<dyn Device>,
        limits: QueueLimits,
    ) -> Result<Self, DriverError> {
        let apart = |_: &Program| DramPlan::default();
        Self::with_plan(program, device, limits, apart, Encode::InRuns)
    }

    fn with_plan(
        program: Arc<Program>,
        device: Arc<dyn Device>,
        limits: QueueLimits,
        plan: fn(&Program) -> DramPlan,
        encode: Encode,
    ) -> Result<Self, DriverError> {
        program.validate()?;
        let plan = plan(&program);
        device.info().check(&program)?;
        let align = program.config.max_elem_bytes();
        let mut buffers = Allocations::new(Arc::clone(&device));
        let mut addresses = Vec::with_capacity(program.buffers.len());
        let mut tickets = Vec::new();
        let scratch = match plan.scratch_bytes {
            0 => PhysAddr(0),
            bytes => buffers.alloc(bytes, align)?,
        };
        for (index, buffer) in program.buffers.iter().enumerate() {
            if let Some(&Some(offset)) = plan.offsets.get(index) {
                // The piece was allocated, so its end has a 32-bit address.
                addresses.push(PhysAddr(scratch.0 + offset as u32));
                continue;
            }
            let addr = buffers.alloc(buffer.size_bytes, align)?;
            addresses.push(addr);
            if let BufferKind::Constant(data) = &buffer.kind {
                let work = Work::Write {
                    addr,
                    data: data.clone(),
                };
                tickets.push(device.submit(work)?);
            }
        }
        // The device writes constants while the first run is encoded.
        let set = BufferSet::new(&program, &device, addresses, limits).map(|mut set| {
            if encode == Encode::AtOnce {
                set.recording = set.queue.prepare(FlushReason::HostRead);
            }
            set
        });
        for ticket in tickets {
            ticket.wait()?;
        }
        let set = set?;
        Ok(Self {
            streams: None,
            program,
            device,
            limits,
            sets: vec![set],
            current: 0,
            images: 0,
            shared: plan.offsets.iter().map(Option::is_some).collect(),
            buffers,
        })
    }

    /// Runs the network on up to BATCH images: each the values of all inputs, one input behind
    /// the other, in NCHW order. Queues everything, then waits once; from the second run on, a device that nobody
    /// else uses may do it all on this thread.
    ///
    /// # Errors
    /// [`DriverError::Input`] for the wrong number or length of images; what the device reports.
    /// After an error the session can be used again.
    pub fn run(&mut self, images: &[&[i16]]) -> Result<RunOutput, DriverError> {
        let writes = self.input_writes(0, images)?;
        let BufferSet {
            queue, recording, ..
        } = &mut self.sets[0];
        // The first time the program is encoded while the device works.
        queue.waits = recording.is_some();
        let inputs = writes.into_iter().map(|write| queue.emit(write));
        let inputs: Vec<Box<dyn Ticket>> = inputs.collect::<Result<_, _>>()?;
        (self.current, self.images) = (0, images.len());
        let submitted = self.submit_layers(0);
        let mut tickets = self.sets[0].queue.take_tickets();
        submitted?;
        let program = Arc::clone(&self.program);
        for &output in &program.outputs {
            let read = self.read_work(0, program.tensor(output)?);
            tickets.push(self.sets[0].queue.emit(read)?);
        }
        for input in inputs {
            input.wait()?;
        }
        let done: Result<Vec<_>, _> = tickets.into_iter().map(Ticket::wait).collect();
        self.collect(done?, images.len())
    }

    /// The reports and outputs of a run of some images.
    fn collect(&self, done: Vec<WorkDone>, images: usize) -> Result<RunOutput, DriverError> {
        let program = &self.program;
        let output = |&index| Ok((program.tensor(index)?, &program.config));
        outputs(done, program.outputs.iter().map(output), images)
    }

    /// What writes a set's inputs; the device packs them.
    fn input_writes(&mut self, set: usize, images: &[&[i16]]) -> Result<Vec<Work>, DriverError> {
        let config = &self.program.config;
        let inputs = self.program.inputs.iter();
        let specs = inputs.map(|&index| self.program.tensor(index));
        let specs: Vec<&TensorSpec> = specs.collect::<Result<_, _>>()?;
        let BufferSet {
            addresses,
            images: kept,
            ..
        } = &mut self.sets[set];
        let mut writes = Vec::with_capacity(specs.len());
        for (index, (spec, rows)) in specs.iter().zip(by_input(&specs, images)?).enumerate() {
            match kept.get_mut(index).and_then(Arc::get_mut) {
                Some(images) => images.replace(&rows)?,
                None => {
                    kept.truncate(index);
                    kept.push(Arc::new(TensorImages::new(spec, config, &rows)?));
                }
            }
            let (addr, images) = (spec.address(addresses), Arc::clone(&kept[index]));
            writes.push(Work::Pack { addr, images });
        }
        Ok(writes)
    }

    fn submit_layers(&mut self, set: usize) -> Result<(), DriverError> {
        let BufferSet {
            queue, recording, ..
        } = &mut self.sets[set];
        if let Some(recording) = recording {
            return queue.replay(recording);
        }
        for index in 0..self.program.layers.len() {
            queue.push_layer(index)?;
        }
        queue.submit(FlushReason::HostRead)?;
        // One that is too large isn't kept: every run then encodes its batches.
        *recording = Some(queue.take_recording()).filter(Recording::is_complete);
        Ok(())
    }

    fn read_work(&self, set: usize, spec: &TensorSpec) -> Work {
        let addr = spec.address(&self.sets[set].addresses);
        let size_bytes = spec.packed_bytes(&self.program.config).unwrap_or(0);
        Work::Read { addr, size_bytes }
    }

    /// A tensor of the program as the last run left it, one entry for each image, NCHW: any if
    /// the session was made by [`Self::keeping_tensors`], else inputs and outputs.
    ///
    /// # Errors
    /// For a tensor that doesn't exist, is packed as im2col or shared its memory, or when the
    /// device fails.
    pub fn read_tensor(&self, tensor: u32) -> Result<Vec<Vec<i16>>, DriverError> {
        let spec = self.program.tensor(tensor)?;
        if spec.packing != Packing::Tiles {
            let text = format!("tensor {} is packed as im2col, not as tiles", spec.name);
            return Err(DriverError::Input(text));
        }
        if self.shared.get(spec.buffer.0 as usize) == Some(&true) {
            let name = &spec.name;
            let text = format!("tensor {name} shares its memory: the session doesn't keep it");
            return Err(DriverError::Input(text));
        }
        let read = self.read_work(self.current, spec);
        let bytes = bytes_of(self.device.submit(read)?, spec)?;
        let mut images = unpack_output(spec, &self.program.config, &bytes)?;
        images.truncate(self.images.max(1));
        Ok(images)
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What the session's queues counted.
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        for set in &self.sets {
            total.add(set.queue.counters());
        }
        total
    }
}

impl BufferSet {
    fn new(
        program: &Arc<Program>,
        device: &Arc<dyn Device>,
        addresses: Vec<PhysAddr>,
        limits: QueueLimits,
    ) -> Result<Self, DriverError> {
        let (program, device) = (Arc::clone(program), Arc::clone(device));
        Ok(Self {
            queue: CommandQueue::of_checked(program, device, addresses.clone(), limits)?,
            addresses,
            recording: None,
            images: Vec::new(),
        })
    }
}

/// What each input takes of images that hold the values of all inputs, one behind the other.
fn by_input<'i>(
    specs: &[&TensorSpec],
    images: &[&'i [i16]],
) -> Result<Vec<Vec<&'i [i16]>>, DriverError> {
    match specs {
        [] => return Err(DriverError::Input("the program has no input".to_owned())),
        [_] => return Ok(vec![images.to_vec()]),
        _ => {}
    }
    let total: usize = specs.iter().map(|spec| spec.image_len()).sum();
    if let Some(image) = images.iter().find(|image| image.len() != total) {
        let (len, inputs) = (image.len(), specs.len());
        return Err(DriverError::Input(format!(
            "an image of {len} values, but {inputs} inputs have {total}"
        )));
    }
    let mut rest = images.to_vec();
    let rows = specs.iter().map(|spec| {
        let row = |image: &mut &'i [i16]| image.split_off(..spec.image_len()).unwrap_or_default();
        rest.iter_mut().map(row).collect()
    });
    Ok(rows.collect())
}

/// The reports and outputs of a run of some images, with the tensor of each read.
fn outputs<'p>(
    done: Vec<WorkDone>,
    tensors: impl Iterator<Item = Result<(&'p TensorSpec, &'p Config), ProgramError>>,
    images: usize,
) -> Result<RunOutput, DriverError> {
    let (reports, data) = WorkDone::sort(done);
    let unpacked = tensors.zip(&data).map(|(tensor, bytes)| {
        let (spec, config) = tensor?;
        let mut unpacked = unpack_output(spec, config, bytes)?;
        unpacked.truncate(images);
        Ok(unpacked)
    });
    let outputs = unpacked.collect::<Result<_, DriverError>>()?;
    Ok(RunOutput { outputs, reports })
}

/// What was read of a tensor.
fn bytes_of(ticket: Box<dyn Ticket>, spec: &TensorSpec) -> Result<Vec<u8>, DriverError> {
    match ticket.wait()? {
        WorkDone::Data(bytes) => Ok(bytes),
        WorkDone::Written | WorkDone::Ran(_) => {
            let text = format!("tensor {} was not read", spec.name);
            Err(DriverError::Input(text))
        }
    }
}

/// Unpacks what was read of a tensor, one entry for each batch row.
fn unpack_output(
    spec: &TensorSpec,
    config: &Config,
    bytes: &[u8],
) -> Result<Vec<Vec<i16>>, DriverError> {
    unpack(spec, config, bytes).ok_or_else(|| {
        let name = &spec.name;
        DriverError::Input(format!("tensor {name} can't be unpacked from the device"))
    })
}

#[cfg(test)]
mod tests;
