//! A network on a device, submitted in steps of choice: everything at once, a layer at a time, an
//! instruction at a time.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use vta_driver::packing::TensorImages;
use vta_driver::{
    Allocations, Batch, BufferKind, CommandQueue, Device, FlushReason, PhysAddr, Program,
    QueueLimits, Recording, TensorSpec, Ticket, Work, WorkDone,
};
use vta_isa::{Deps, Finish, Insn};

/// A program whose buffers lie on a device.
pub struct Steps {
    device: Arc<dyn Device>,
    program: Arc<Program>,
    addresses: Vec<PhysAddr>,
    /// Keeps the buffers.
    _buffers: Allocations,
}

/// What is submitted and waited for before the next: recordings of a queue of their own each, so
/// that instructions and micro-ops stay on the device.
pub struct Recorded {
    queues: Vec<(CommandQueue, Recording)>,
}

impl Steps {
    /// Allocates the program's buffers and writes its constants.
    pub fn new(program: &Arc<Program>, device: &Arc<dyn Device>) -> Result<Self> {
        let mut buffers = Allocations::new(Arc::clone(device));
        let align = program.config.max_elem_bytes();
        let mut addresses = Vec::new();
        for buffer in &program.buffers {
            let addr = buffers.alloc(buffer.size_bytes, align)?;
            addresses.push(addr);
            if let BufferKind::Constant(data) = &buffer.kind {
                let data = data.clone();
                device.submit(Work::Write { addr, data })?.wait()?;
            }
        }
        Ok(Self {
            device: Arc::clone(device),
            program: Arc::clone(program),
            addresses,
            _buffers: buffers,
        })
    }

    /// Encodes the first `layers` layers, `step` of them in each recording.
    pub fn record(&self, layers: usize, step: usize) -> Result<Recorded> {
        let mut queues = Vec::new();
        for first in (0..layers).step_by(step.max(1)) {
            let range = first..(first + step).min(layers);
            let commands = range.clone().map(|i| self.program.layers[i].commands.len());
            // Encoding adds a load of micro-ops for a command, and a few instructions around them.
            let insns = 3 * commands.sum::<usize>() + 64;
            let uops: usize = self.program.kernels.iter().map(|k| k.uops.len()).sum();
            let limits = QueueLimits {
                insns: insns.min(QueueLimits::default().insns),
                uops: uops.clamp(1, QueueLimits::default().uops),
            };
            let mut queue = CommandQueue::new(
                Arc::clone(&self.program),
                Arc::clone(&self.device),
                self.addresses.clone(),
                limits,
            )?;
            for layer in range {
                queue.push_layer(layer)?;
            }
            queue.submit(FlushReason::Synchronize)?;
            let recording = queue.take_recording();
            ensure!(
                recording.is_complete(),
                "the program is too large to record"
            );
            for ticket in queue.take_tickets() {
                ticket.wait()?;
            }
            queues.push((queue, recording));
        }
        Ok(Recorded { queues })
    }

    /// Writes the images, runs the steps with a wait after each but the last, reads a layer's
    /// output.
    pub fn run(&self, images: &[&[i16]], steps: &mut Recorded, last: usize) -> Result<Vec<u8>> {
        let mut tickets = vec![self.write(images)?];
        let count = steps.queues.len();
        for (index, (queue, recording)) in steps.queues.iter_mut().enumerate() {
            queue.replay(recording)?;
            tickets.extend(queue.take_tickets());
            if index + 1 < count {
                wait(tickets.drain(..))?;
            }
        }
        self.read(last, tickets)
    }

    /// As [`Self::run`], for batches of one instruction each.
    pub fn run_each(&self, images: &[&[i16]], each: &[Arc<Batch>], last: usize) -> Result<Vec<u8>> {
        let mut tickets = vec![self.write(images)?];
        for batch in each {
            tickets.push(self.device.submit(Work::Run(Arc::clone(batch)))?);
            wait(tickets.drain(..))?;
        }
        self.read(last, tickets)
    }

    fn write(&self, images: &[&[i16]]) -> Result<Box<dyn Ticket>> {
        let input = self.program.inputs.first();
        let spec = self
            .program
            .tensor(*input.context("the program has no input")?)?;
        let images = Arc::new(TensorImages::new(spec, &self.program.config, images)?);
        let addr = self.address(spec);
        Ok(self.device.submit(Work::Pack { addr, images })?)
    }

    fn read(&self, layer: usize, tickets: Vec<Box<dyn Ticket>>) -> Result<Vec<u8>> {
        let spec = self.program.tensor(self.program.layers[layer].output)?;
        let size = spec.packed_bytes(&self.program.config);
        let read = self.device.submit(Work::Read {
            addr: self.address(spec),
            size_bytes: size.context("a layer's output has no size")?,
        })?;
        wait(tickets)?;
        match read.wait()? {
            WorkDone::Data(bytes) => Ok(bytes),
            other => anyhow::bail!("a read answered {other:?}"),
        }
    }

    fn address(&self, spec: &TensorSpec) -> PhysAddr {
        spec.address(&self.addresses)
    }
}

impl Recorded {
    /// Every instruction as a batch of its own. Waiting after each does what its dependency flags
    /// did, which are left out.
    pub fn one_by_one(&self) -> Result<Vec<Arc<Batch>>> {
        let recordings = self.queues.iter().map(|(_, recording)| recording);
        let batches = recordings.flat_map(|r| &r.batches);
        let insns = batches.flat_map(|b| &b.batch.insns);
        let real = insns.filter(|insn| !matches!(insn, Insn::Finish(_)));
        real.map(|insn| alone(*insn)).collect()
    }
}

fn alone(mut insn: Insn) -> Result<Arc<Batch>> {
    *insn.deps_mut() = Deps::NONE;
    let insns = vec![insn, Finish::default().into()];
    let words = insns.iter().map(Insn::encode).collect::<Result<_, _>>()?;
    Ok(Arc::new(Batch {
        words,
        insns,
        insn_addr: PhysAddr(0),
        marks: Vec::new(),
    }))
}

fn wait(tickets: impl IntoIterator<Item = Box<dyn Ticket>>) -> Result<()> {
    // All are waited for, also behind an error: what runs names memory of the steps.
    let done: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
    done.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(())
}
