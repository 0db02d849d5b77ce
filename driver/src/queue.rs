//! The command queue: resolves addresses, keeps micro-ops resident, fills one batch.

mod pending;
mod recording;
mod uop_cache;

use std::ops::Range;
use std::sync::Arc;

use vta_isa::{Finish, INSN_BYTES, Insn, UOP_BYTES};

use self::pending::{Filled, Pending};
use self::recording::Resident;
pub use self::recording::{RecordedBatch, Recording};
use crate::stream::Stream;
use crate::stream::timeline::{Point, Timeline};
use crate::{
    Allocations, Batch, Command, Counters, Device, DriverError, FlushReason, Layer, PhysAddr,
    Program, ProgramError, Symbol, Ticket, Traffic, Work,
};

/// Host bytes beyond which a recording isn't kept: segments that alternate between large
/// kernels take many times the bytes of their program.
const MAX_RECORDED_BYTES: usize = 1 << 30;

/// Sizes of the two queues in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Instructions in one batch, FINISH included.
    pub insns: usize,
    /// Micro-ops in one batch.
    pub uops: usize,
}

impl Default for QueueLimits {
    /// 4 MiB of each, the size of the original runtime's transfers.
    fn default() -> Self {
        Self {
            insns: 1 << 18,
            uops: 1 << 20,
        }
    }
}

/// Appends layers to one batch and submits it for counted reasons only.
///
/// The scratchpads mean nothing at the start of a run, so every batch starts with an empty
/// micro-op cache. Batches are cut only where the program allows it (see [`Layer::cuts`]).
/// Tickets and the recording pile up until they are taken. Dropping the queue frees its device
/// memory; commands that aren't submitted are gone with it.
///
/// ```
/// use std::sync::Arc;
/// use vta_driver::{Command, CommandQueue, FlushReason, Kernel, KernelId, Layer, NullDevice};
/// use vta_driver::{Buffer, BufferId, BufferKind, Packing, Program, QueueLimits, Symbol};
/// use vta_driver::{Allocations, TensorSpec};
/// use vta_isa::{Config, Gemm, Uop};
///
/// // One layer that clears sixteen accumulator tiles.
/// let gemm = Gemm { reset: true, uop_end: 1, iter_out: 1, iter_in: 16, dst_factor_in: 1, ..Gemm::default() };
/// let clear = Command { insn: gemm.into(), symbol: Symbol::Kernel(KernelId(0)) };
/// let program = Program {
///     kernels: vec![Kernel { uops: vec![Uop::default()] }],
///     layers: vec![Layer { name: "clear".into(), commands: vec![clear], ..Layer::default() }],
///     buffers: vec![Buffer { name: "y".into(), size_bytes: 16, kind: BufferKind::Output }],
///     tensors: vec![TensorSpec {
///         name: "y".into(), buffer: BufferId(0), offset_bytes: 0, chw: [16, 1, 1], scale: 1.0, zero: 0, packing: Packing::Tiles,
///     }],
///     ..Program::default()
/// };
///
/// let device = Arc::new(NullDevice::with_config(Config::default()));
/// let mut buffers = Allocations::new(device.clone());
/// let y = buffers.alloc(16, 16)?;
/// let mut queue = CommandQueue::new(Arc::new(program), device, vec![y], QueueLimits::default())?;
/// queue.push_layer(0)?;
/// assert_eq!(queue.counters().submissions, 0);
/// queue.submit(FlushReason::Synchronize)?;
/// let recording = queue.take_recording();
/// queue.replay(&recording)?;
/// for ticket in queue.take_tickets() {
///     ticket.wait()?;
/// }
/// assert_eq!(queue.counters().submissions, 2);
/// // LOAD UOP, GEMM and FINISH, twice.
/// assert_eq!(queue.counters().traffic.insns, 6);
/// # Ok::<(), vta_driver::DriverError>(())
/// ```
pub struct CommandQueue {
    program: Arc<Program>,
    device: Arc<dyn Device>,
    limits: QueueLimits,
    insn_addr: PhysAddr,
    uop_addr: PhysAddr,
    pending: Pending,
    recording: Recording,
    /// Lowered in tests.
    pub(crate) record_limit_bytes: usize,
    origin: Arc<()>,
    /// Whether batches are recorded and not sent.
    ahead: bool,
    /// Batches so far, by their serial numbers, of which any was sent.
    sent: u64,
    resident: Option<Resident>,
    tickets: Vec<Box<dyn Ticket>>,
    counters: Counters,
    /// Where work goes; without one to the device in its own order.
    route: Option<Route>,
    /// Whether whoever submits without a route waits next.
    pub(crate) waits: bool,
    /// Keeps the two queues in device memory until this queue is dropped.
    _memory: Allocations,
}

/// Sends a queue's work through a stream.
pub(crate) struct Route {
    pub(crate) stream: Arc<Stream>,
    /// What the next piece of work waits for; the stream keeps later ones behind it.
    pub(crate) waits: Vec<Point>,
    /// Every piece signals the next value.
    pub(crate) done: Timeline,
}

impl CommandQueue {
    /// Checks the program and allocates the two queues in device memory. `addresses[i]` is where
    /// buffer `i` lies.
    ///
    /// # Errors
    /// [`DriverError::Program`] for an inconsistent program or a buffer without an address,
    /// [`DriverError::Config`] when it was compiled for another VTA instance,
    /// [`DriverError::Alloc`] when memory is exhausted; what was allocated is freed.
    pub fn new(
        program: Arc<Program>,
        device: Arc<dyn Device>,
        addresses: Vec<PhysAddr>,
        limits: QueueLimits,
    ) -> Result<Self, DriverError> {
        program.validate()?;
        device.info().check(&program)?;
        if addresses.len() < program.buffers.len() {
            let index = addresses.len() as u32;
            return Err(ProgramError::Buffer { index }.into());
        }
        Self::of_checked(program, device, addresses, limits)
    }

    /// [`Self::new`] for a program, device and addresses that were checked already.
    pub(crate) fn of_checked(
        program: Arc<Program>,
        device: Arc<dyn Device>,
        addresses: Vec<PhysAddr>,
        limits: QueueLimits,
    ) -> Result<Self, DriverError> {
        let mut memory = Allocations::new(Arc::clone(&device));
        let mut queue = |entries: usize, bytes: usize| {
            let size = (entries as u64).saturating_mul(bytes as u64);
            memory.alloc(size, bytes as u64)
        };
        let insn_addr = queue(limits.insns, INSN_BYTES)?;
        let uop_addr = queue(limits.uops, UOP_BYTES)?;
        Ok(Self {
            pending: Pending::new(Arc::clone(&program), addresses, uop_addr),
            program,
            device,
            limits,
            insn_addr,
            uop_addr,
            recording: Recording::default(),
            record_limit_bytes: MAX_RECORDED_BYTES,
            origin: Arc::default(),
            ahead: false,
            sent: 0,
            resident: None,
            tickets: Vec::new(),
            counters: Counters::default(),
            route: None,
            waits: false,
            _memory: memory,
        })
    }

    /// Queues a layer of the program; submits only when a queue overflows.
    ///
    /// # Errors
    /// [`DriverError::Queue`] when commands that can't be cut don't fit an empty
    /// queue, [`DriverError::Program`] when an address or a field doesn't fit. The queue then
    /// [discards](Self::discard) what it holds, so that half a layer never runs.
    pub fn push_layer(&mut self, index: usize) -> Result<(), DriverError> {
        let pushed = self.try_push_layer(index);
        if pushed.is_err() {
            self.discard();
        }
        pushed
    }

    fn try_push_layer(&mut self, index: usize) -> Result<(), DriverError> {
        let program = Arc::clone(&self.program);
        let layer = program
            .layers
            .get(index)
            .ok_or(ProgramError::Layer { index })?;
        let cuts = layer.cuts.iter().map(|&c| c as usize);
        let mut start = 0;
        for end in cuts.chain([layer.commands.len()]) {
            self.push_segment(layer, start..end)?;
            start = end;
        }
        Ok(())
    }

    /// Drops commands that aren't submitted and the recording so far: the queue is as empty as
    /// a new one. What was submitted still runs, and its tickets are kept.
    pub fn discard(&mut self) {
        self.pending.clear();
        self.recording = Recording::default();
    }

    fn push_segment(&mut self, layer: &Layer, range: Range<usize>) -> Result<(), DriverError> {
        let first = range.start;
        // The program was checked: cut points ascend and lie in the layer.
        let commands = layer.commands.get(range).unwrap_or_default();
        if commands.is_empty() {
            return Ok(());
        }
        self.make_room(layer, commands)?;
        self.pending
            .push(layer, first, commands, &mut self.counters)
    }

    /// Submits what is queued when the segment might not fit behind it. The bound counts a
    /// micro-op load for every command that has a kernel.
    fn make_room(&mut self, layer: &Layer, commands: &[Command]) -> Result<(), DriverError> {
        let kernels = commands
            .iter()
            .filter(|c| matches!(c.symbol, Symbol::Kernel(_)))
            .count();
        let seams = 4 * self.program.seam_tokens as usize;
        let insns = commands.len() + kernels + seams + 1;
        let too_large = |what: &str, need: usize, limit: usize| {
            let layer = layer.described();
            Err(DriverError::Queue(format!(
                "layer {layer}: {need} {what} between two cut points, but the queue holds {limit}"
            )))
        };
        if insns > self.limits.insns {
            return too_large("instructions", insns, self.limits.insns);
        }
        if self.pending.insns() + insns > self.limits.insns {
            self.submit(FlushReason::InsnOverflow)?;
        }
        if self.pending.uops() + self.pending.new_uops(commands) > self.limits.uops {
            let need = self.pending.all_uops(commands);
            if need > self.limits.uops {
                return too_large("micro-ops", need, self.limits.uops);
            }
            self.submit(FlushReason::UopOverflow)?;
        }
        Ok(())
    }

    /// Encodes the whole program without sending it, each layer apart or as few batches as there can
    /// be. Nothing may be queued.
    pub(crate) fn encode(
        &mut self,
        apart: bool,
        reason: FlushReason,
    ) -> Result<Recording, DriverError> {
        self.ahead = true;
        let encoded = self.encode_all(apart, reason);
        self.ahead = false;
        let recording = self.take_recording();
        encoded?;
        if recording.is_complete() {
            return Ok(recording);
        }
        Err(unplayable("it is too large to be kept"))
    }

    /// Pushes the layers as long as they are kept.
    fn encode_all(&mut self, apart: bool, reason: FlushReason) -> Result<(), DriverError> {
        for index in 0..self.program.layers.len() {
            if !self.recording.is_complete() {
                break;
            }
            self.push_layer(index)?;
            if apart {
                self.submit(reason)?;
            }
        }
        self.submit(reason)
    }

    /// Where micro-ops of a batch lie.
    pub(crate) fn uop_addr(&self) -> PhysAddr {
        self.uop_addr
    }

    /// Encodes the whole program, which [`Self::replay`] then submits the first time as it does later
    /// on. `None`, with the queue as it was, for a program that can't be encoded or is too large to
    /// be kept: whoever pushes its layers hears why. Nothing may be queued.
    pub(crate) fn prepare(&mut self, reason: FlushReason) -> Option<Recording> {
        let counters = self.counters.clone();
        let encoded = self.encode(false, reason).ok();
        if encoded.is_none() {
            self.discard();
            self.counters = counters;
        }
        encoded
    }

    /// Submits what is queued, if anything, and counts the reason.
    ///
    /// # Errors
    /// When the device is gone. The queue then [discards](Self::discard) what it holds.
    pub fn submit(&mut self, reason: FlushReason) -> Result<(), DriverError> {
        let submitted = self.try_submit(reason);
        if submitted.is_err() {
            self.discard();
        }
        submitted
    }

    fn try_submit(&mut self, reason: FlushReason) -> Result<(), DriverError> {
        if self.pending.insns() == 0 {
            return Ok(());
        }
        let finish = Insn::Finish(Finish::default());
        self.pending.append_all(self.program.closing())?;
        self.pending.append_all([finish])?;
        let Filled {
            insns,
            words,
            marks,
            uops,
        } = self.pending.take();
        let insn_bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let batch = Batch {
            words,
            insns,
            insn_addr: self.insn_addr,
            marks,
        };
        let recorded = RecordedBatch {
            traffic: Traffic::of(&batch.insns, &self.program.config),
            batch: Arc::new(batch),
            insn_bytes: insn_bytes.into(),
            uop_bytes: uops.into(),
            reason,
            origin: Arc::clone(&self.origin),
            serial: self.counters.encoded_batches,
        };
        self.counters.encoded_batches += 1;
        if !self.ahead {
            self.send(&recorded)?;
        }
        self.recording.push(recorded, self.record_limit_bytes);
        Ok(())
    }

    /// Uploads the batch unless it is what lies in device memory, and runs it.
    fn send(&mut self, recorded: &RecordedBatch) -> Result<(), DriverError> {
        let resident = self.resident.as_ref();
        if !resident.is_some_and(|r| r.holds(recorded.serial)) {
            self.upload(recorded)?;
        }
        let ran = self.emit(Work::Run(Arc::clone(&recorded.batch)))?;
        self.tickets.push(ran);
        self.counters.submissions += 1;
        self.counters.replayed_batches += u64::from(recorded.serial < self.sent);
        self.sent = self.sent.max(recorded.serial + 1);
        self.counters.flushes[recorded.reason as usize] += 1;
        self.counters.traffic.add(&recorded.traffic);
        Ok(())
    }

    /// Sends a piece of work where the queue's go.
    pub(crate) fn emit(&mut self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        let Some(route) = &mut self.route else {
            let done = self.waits.then(|| self.device.perform(&work)).flatten();
            return match done {
                Some(done) => Ok(Box::new(|| done)),
                None => self.device.submit(work),
            };
        };
        let signal = route.done.promise_next()?;
        let waits = std::mem::take(&mut route.waits);
        route.stream.submit(work, &waits, vec![signal])
    }

    /// Sends what is submitted from now on through a stream, or to the device again; the route
    /// so far.
    pub(crate) fn set_route(&mut self, route: Option<Route>) -> Option<Route> {
        std::mem::replace(&mut self.route, route)
    }

    fn upload(&mut self, recorded: &RecordedBatch) -> Result<(), DriverError> {
        // Nothing is known of the bytes while a write may still fail.
        self.resident = None;
        let resident = Resident::new(recorded.serial);
        for (addr, data) in [
            (self.uop_addr, &recorded.uop_bytes),
            (self.insn_addr, &recorded.insn_bytes),
        ] {
            if data.is_empty() {
                continue;
            }
            let ticket = self.emit(Work::Write {
                addr,
                data: data.clone(),
            })?;
            self.tickets.push(resident.watch(ticket));
        }
        self.resident = Some(resident);
        Ok(())
    }

    /// Takes the recording of everything submitted since the last call.
    pub fn take_recording(&mut self) -> Recording {
        std::mem::take(&mut self.recording)
    }

    /// Submits a recording of this queue again: nothing is encoded. What is queued is submitted
    /// first, as an explicit synchronise. Instructions and micro-ops are written again unless
    /// those of the same batch were the last to be written and their tickets said so.
    ///
    /// # Errors
    /// [`DriverError::Queue`] for another queue's recording or one that isn't complete; when
    /// the device is gone.
    pub fn replay(&mut self, recording: &Recording) -> Result<(), DriverError> {
        let refuse = |reason| Err(unplayable(reason));
        if !recording.is_complete() {
            return refuse("it was too large to be kept");
        }
        let foreign = |b: &RecordedBatch| !Arc::ptr_eq(&b.origin, &self.origin);
        if recording.batches.iter().any(foreign) {
            return refuse("another queue made it, whose addresses it names");
        }
        self.submit(FlushReason::Synchronize)?;
        for recorded in &recording.batches {
            self.send(recorded)?;
        }
        Ok(())
    }

    /// The tickets of all work submitted since the last call, in order.
    pub fn take_tickets(&mut self) -> Vec<Box<dyn Ticket>> {
        std::mem::take(&mut self.tickets)
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

fn unplayable(reason: &str) -> DriverError {
    DriverError::Queue(format!("the recording can't be replayed: {reason}"))
}

#[cfg(test)]
mod tests;
