//! A program on a device: buffers placed, constants resident, runs recorded and replayed.

use std::sync::Arc;

use vta_isa::MemType;

use crate::packing::{pack, unpack};
use crate::{
    Allocations, BufferKind, CommandQueue, Counters, Device, DriverError, FlushReason, Packing,
    PhysAddr, Program, QueueLimits, Recording, RunReport, TensorSpec, Ticket, Work, WorkDone,
};

/// What a run gives back.
#[derive(Clone, Debug)]
pub struct RunOutput {
    /// `[output][image][C*H*W]`, one entry for each image that was given.
    pub outputs: Vec<Vec<Vec<i8>>>,
    /// One report for each submission.
    pub reports: Vec<RunReport>,
}

/// A program loaded on a device.
///
/// The first run encodes and records the batches; later runs replay them with new inputs.
/// Constants are written once. Dropping the session frees its device memory.
///
/// ```
/// use std::sync::Arc;
/// use vta_driver::{Buffer, BufferId, BufferKind, NullDevice, Packing, Program, QueueLimits};
/// use vta_driver::{Session, TensorSpec};
/// use vta_isa::Config;
///
/// // A network without layers: its output is its input of three channels and two pixels.
/// let x = TensorSpec {
///     name: "x".into(), buffer: BufferId(0), chw: [3, 1, 2], scale: 0.5, packing: Packing::Tiles,
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
    program: Arc<Program>,
    device: Arc<dyn Device>,
    addresses: Vec<PhysAddr>,
    queue: CommandQueue,
    recording: Option<Recording>,
    images: usize,
    /// Keeps the program's buffers until the session is dropped.
    _buffers: Allocations,
}

impl Session {
    /// Allocates the program's buffers on the device, writes its constants.
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
        program.validate()?;
        program.check_device(device.info())?;
        let align = MemType::ALL.map(|mem| program.config.elem_bytes(mem) as u64);
        let align = align.into_iter().fold(1, u64::max);
        let mut buffers = Allocations::new(Arc::clone(&device));
        let mut addresses = Vec::with_capacity(program.buffers.len());
        let mut tickets = Vec::new();
        for buffer in &program.buffers {
            let addr = buffers.alloc(buffer.size_bytes, align)?;
            addresses.push(addr);
            if let BufferKind::Constant(data) = &buffer.kind {
                let work = Work::Write {
                    addr,
                    data: Arc::from(&data[..]),
                };
                tickets.push(device.submit(work)?);
            }
        }
        for ticket in tickets {
            ticket.wait()?;
        }
        let queue = CommandQueue::of_checked(
            Arc::clone(&program),
            Arc::clone(&device),
            addresses.clone(),
            limits,
        )?;
        Ok(Self {
            program,
            device,
            addresses,
            queue,
            recording: None,
            images: 0,
            _buffers: buffers,
        })
    }

    /// Runs the network on up to BATCH images, each `inputs[0].image_len()` int8 values in NCHW
    /// order. Queues everything, then waits once.
    ///
    /// # Errors
    /// [`DriverError::Input`] for the wrong number or length of images; what the device reports.
    /// After an error the session can be used again.
    pub fn run(&mut self, images: &[&[i8]]) -> Result<RunOutput, DriverError> {
        let input = self.write_input(images)?;
        self.images = images.len();
        let submitted = self.submit_layers();
        let mut tickets = self.queue.take_tickets();
        submitted?;
        let program = Arc::clone(&self.program);
        for &output in &program.outputs {
            tickets.push(self.read_buffer(program.tensor(output)?)?);
        }
        input.wait()?;
        let done: Result<Vec<_>, _> = tickets.into_iter().map(Ticket::wait).collect();
        let (mut reports, mut data) = (Vec::new(), Vec::new());
        for done in done? {
            match done {
                WorkDone::Ran(report) => reports.push(report),
                WorkDone::Data(bytes) => data.push(bytes),
                WorkDone::Written => {}
            }
        }
        let unpacked = program.outputs.iter().zip(&data).map(|(&o, bytes)| {
            let mut images = self.unpack(program.tensor(o)?, bytes)?;
            images.truncate(self.images);
            Ok(images)
        });
        let outputs = unpacked.collect::<Result<_, DriverError>>()?;
        Ok(RunOutput { outputs, reports })
    }

    fn write_input(&self, images: &[&[i8]]) -> Result<Box<dyn Ticket>, DriverError> {
        let config = &self.program.config;
        let &[index] = &self.program.inputs[..] else {
            let n = self.program.inputs.len();
            return Err(DriverError::Input(format!(
                "the program has {n} inputs, not one"
            )));
        };
        let spec = self.program.tensor(index)?;
        if images.is_empty() || images.len() > config.batch() {
            let text = format!(
                "{} images, but 1 to {} fit a run",
                images.len(),
                config.batch()
            );
            return Err(DriverError::Input(text));
        }
        let packed = pack(spec, config, images).ok_or_else(|| {
            let lens: Vec<_> = images.iter().map(|x| x.len()).collect();
            let (need, [c, h, w]) = (spec.image_len(), spec.chw);
            DriverError::Input(format!(
                "{lens:?} values, but {c}x{h}x{w} = {need} are needed"
            ))
        })?;
        let addr = self.addresses[spec.buffer.0 as usize];
        self.device.submit(Work::Write {
            addr,
            data: packed.into(),
        })
    }

    fn submit_layers(&mut self) -> Result<(), DriverError> {
        if let Some(recording) = &self.recording {
            return self.queue.replay(recording);
        }
        for index in 0..self.program.layers.len() {
            self.queue.push_layer(index)?;
        }
        self.queue.submit(FlushReason::HostRead)?;
        // One that is too large isn't kept: every run then encodes its batches.
        self.recording = Some(self.queue.take_recording()).filter(Recording::is_complete);
        Ok(())
    }

    fn read_buffer(&self, spec: &TensorSpec) -> Result<Box<dyn Ticket>, DriverError> {
        let addr = self.addresses[spec.buffer.0 as usize];
        let size_bytes = spec.packed_bytes(&self.program.config).unwrap_or(0);
        self.device.submit(Work::Read { addr, size_bytes })
    }

    fn unpack(&self, spec: &TensorSpec, bytes: &[u8]) -> Result<Vec<Vec<i8>>, DriverError> {
        unpack(spec, &self.program.config, bytes).ok_or_else(|| {
            DriverError::Input(format!(
                "tensor {} can't be unpacked from the device",
                spec.name
            ))
        })
    }

    /// Any tensor of the program as the last run left it, one entry for each image, NCHW.
    ///
    /// # Errors
    /// For a tensor that doesn't exist or is packed as im2col, or when the device fails.
    pub fn read_tensor(&mut self, tensor: u32) -> Result<Vec<Vec<i8>>, DriverError> {
        let program = Arc::clone(&self.program);
        let spec = program.tensor(tensor)?;
        if spec.packing != Packing::Tiles {
            let text = format!("tensor {} is packed as im2col, not as tiles", spec.name);
            return Err(DriverError::Input(text));
        }
        match self.read_buffer(spec)?.wait()? {
            WorkDone::Data(bytes) => {
                let mut images = self.unpack(spec, &bytes)?;
                images.truncate(self.images.max(1));
                Ok(images)
            }
            WorkDone::Written | WorkDone::Ran(_) => Err(DriverError::Lost {
                device: self.device.info().name.clone(),
            }),
        }
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What the session's queue counted.
    pub fn counters(&self) -> &Counters {
        self.queue.counters()
    }
}

#[cfg(test)]
mod tests;
