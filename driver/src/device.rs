//! What a device is to the driver: memory and a stream of work.

mod budget;
mod counters;
mod null;
mod traffic;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use vta_isa::{Config, Insn};

pub use self::budget::{Budget, OverBudget, StepBudget};
pub use self::counters::{Counters, DeviceCounters, FlushReason};
pub use self::null::NullDevice;
pub use self::traffic::Traffic;
pub use self::worker::{Runner, WorkerDevice};

use crate::packing::TensorImages;
use crate::{Bytes, DriverError, InPlace, PhysAddr, Program};

/// What a device says of itself.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// For tables and JSON, e.g. `sim`, `oracle`, `opencl:pocl:0`.
    pub name: String,
    /// The instance that it implements.
    pub config: Config,
}

impl DeviceInfo {
    /// Whether the device implements what a program was compiled for. The text of the target may
    /// differ; what fixes the bits must not.
    ///
    /// # Errors
    /// [`DriverError::Config`] naming the first difference.
    pub fn check(&self, program: &Program) -> Result<(), DriverError> {
        match program.config.excess(&self.config) {
            None => Ok(()),
            Some(excess) => Err(DriverError::Config {
                device: self.name.clone(),
                what: excess.to_string(),
            }),
        }
    }
}

/// Which instructions of a batch belong to which layer, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerMark {
    /// The layer's name.
    pub name: String,
    /// Index of its first instruction in the batch.
    pub first_insn: usize,
}

/// Resolved instructions, ready to run: FINISH is the last.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The encoded words as they lie in DRAM; none may be given to a device that doesn't fetch them.
    pub words: Vec<u128>,
    /// The same, decoded.
    pub insns: Vec<Insn>,
    /// Where the words lie in device memory (hardware fetches from there).
    pub insn_addr: PhysAddr,
    /// In ascending order of `first_insn`.
    pub marks: Vec<LayerMark>,
}

/// One piece of work in a device's in-order stream.
#[derive(Clone, Debug)]
pub enum Work {
    /// Copy bytes to device memory.
    Write {
        /// First byte.
        addr: PhysAddr,
        /// The bytes.
        data: Bytes,
    },
    /// Write the tiles of images to device memory: the device packs them, where it is best done.
    Pack {
        /// The tensor's first byte.
        addr: PhysAddr,
        /// What is packed.
        images: Arc<TensorImages>,
    },
    /// Copy bytes from device memory.
    Read {
        /// First byte.
        addr: PhysAddr,
        /// How many.
        size_bytes: u64,
    },
    /// Run a batch, starting from empty token queues.
    Run(Arc<Batch>),
}

/// What one layer of a batch took.
#[derive(Clone, Debug, Default)]
pub struct MarkReport {
    /// The layer's name.
    pub name: String,
    /// Counted from the instructions.
    pub traffic: Traffic,
    /// Wall time attributed to the layer.
    pub wall: Duration,
}

/// What a finished batch reports.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// Over the whole batch.
    pub traffic: Traffic,
    /// Wall time on the device.
    pub wall: Duration,
    /// Device cycles, from devices that know them.
    pub cycles: Option<u64>,
    /// By layer, in the order of the marks.
    pub marks: Vec<MarkReport>,
    /// Tokens left in the queues load->compute, compute->load, compute->store, store->compute:
    /// legal for foreign streams, reported, never carried to the next run.
    pub leftover_tokens: [u32; 4],
}

impl RunReport {
    /// What instructions say before they run: their traffic, and that of each layer.
    pub fn of(insns: &[Insn], marks: &[LayerMark], config: &Config) -> Self {
        let ends = marks.iter().skip(1).map(|mark| mark.first_insn);
        let ends = ends.chain([insns.len()]);
        let report = |(mark, end): (&LayerMark, usize)| MarkReport {
            name: mark.name.clone(),
            traffic: Traffic::of(insns.get(mark.first_insn..end).unwrap_or(&[]), config),
            ..MarkReport::default()
        };
        let reports: Vec<_> = marks.iter().zip(ends).map(report).collect();
        // Marks follow each other, so that what precedes the first is all that they leave out.
        let before = marks.first().map_or(insns.len(), |mark| mark.first_insn);
        let mut traffic = Traffic::of(insns.get(..before).unwrap_or(insns), config);
        reports.iter().for_each(|mark| traffic.add(&mark.traffic));
        Self {
            traffic,
            marks: reports,
            ..Self::default()
        }
    }
}

/// The outcome of one piece of work.
#[derive(Clone, Debug)]
pub enum WorkDone {
    /// Bytes or images were written.
    Written,
    /// The bytes read.
    Data(Vec<u8>),
    /// A batch ran.
    Ran(RunReport),
}

impl WorkDone {
    /// The reports of batches and the bytes of reads, each in order.
    pub(crate) fn sort(done: Vec<Self>) -> (Vec<RunReport>, Vec<Vec<u8>>) {
        let (mut reports, mut data) = (Vec::new(), Vec::new());
        for done in done {
            match done {
                Self::Ran(report) => reports.push(report),
                Self::Data(bytes) => data.push(bytes),
                Self::Written => {}
            }
        }
        (reports, data)
    }
}

/// A handle on submitted work. A function that waits for it is one.
pub trait Ticket: Send {
    /// Blocks until the work is done.
    ///
    /// # Errors
    /// What went wrong on the device, or that the device is gone. Never hangs: a device that
    /// stops answers every outstanding ticket.
    fn wait(self: Box<Self>) -> Result<WorkDone, DriverError>;
}

impl<F: FnOnce() -> Result<WorkDone, DriverError> + Send> Ticket for F {
    fn wait(self: Box<Self>) -> Result<WorkDone, DriverError> {
        self()
    }
}

/// Which of a device's engines does a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Runs batches; also copies, in order with them.
    Compute,
    /// Copies only, while the other lane computes.
    Copy,
}

/// A device: physical memory and an in-order stream of work.
///
/// Allocations are separate, whatever their addresses: a copy, and each row of a LOAD or STORE
/// (`x_size` elements from `dram_base + y * x_stride` on), lies inside one of them. A row that
/// leaves its allocation is an error also where the next one begins at the byte behind it, since
/// a device may keep allocations in memory of their own, and since in a program it is a buffer
/// that is too short. Hardware has no such check; rows of one transfer may lie in different
/// allocations.
///
/// Threads may call it at the same time. A range that one thread frees and another gets is freed
/// and allocated in that order in the stream too, so neither sees the other's bytes.
pub trait Device: Send + Sync {
    /// Name and configuration.
    fn info(&self) -> &DeviceInfo;

    /// Allocates device memory on a 4 KiB page; contents are zero.
    ///
    /// # Errors
    /// When memory is exhausted, naming the request and what is free.
    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError>;

    /// Allocates at a given address, for replaying recorded runs.
    ///
    /// # Errors
    /// When the range overlaps an allocation or leaves the 32-bit space.
    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError>;

    /// Frees an allocation. Work already submitted, on either lane, still sees it.
    ///
    /// # Errors
    /// When `addr` isn't the start of an allocation.
    fn free(&self, addr: PhysAddr) -> Result<(), DriverError>;

    /// The bytes of an allocation that begins there, if the device computes with bytes of this process: they stay
    /// where they are until it is freed. The host may read and write them whenever no work that names the allocation
    /// is queued or runs; such work sees what was written before. From then on the device takes the bytes as changed
    /// by each piece of work, so that this isn't for memory of which it should know that it stays.
    fn in_place(&self, _addr: PhysAddr) -> Option<InPlace> {
        None
    }

    /// Queues work behind all earlier work of this device and returns at once; when the device's
    /// bounded queue is full it blocks until there is room (back-pressure).
    ///
    /// Work runs strictly in the order of submission (see [`Self::submit_on`] for work beside
    /// it), and each piece sees all memory effects of
    /// those before it: a write, a run and a read need no wait in between. Memory may be freed
    /// or reused right after submitting, since frees are ordered with the work. A piece that
    /// fails leaves later pieces to run.
    ///
    /// # Errors
    /// When the device is gone or the work is malformed.
    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError>;

    /// Does work on the thread that calls, for a caller that would wait for it: to hand it to another thread and back
    /// takes tens of microseconds. `None` if the device can't, or has work that waits; then it is left to
    /// [`Self::submit`].
    fn perform(&self, _work: &Work) -> Option<Result<WorkDone, DriverError>> {
        None
    }

    /// As [`Self::submit`], on one of the device's lanes.
    ///
    /// Each lane is in the order of submission; [`Self::submit`] uses [`Lane::Compute`]. Lanes
    /// are in no order with each other: who lets them touch the same bytes waits in between,
    /// as [`Stream`](crate::Stream) does. Without such a wait the order is open, but each piece
    /// of work still finds and leaves whole allocations. Batches always go to the compute lane.
    ///
    /// A device without a copy engine keeps this method as it is, which does everything in one
    /// order.
    ///
    /// # Errors
    /// As [`Self::submit`].
    fn submit_on(&self, lane: Lane, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        match lane {
            // No wildcard: another lane doesn't compile before it is decided here what such a device does
            // with it.
            Lane::Compute | Lane::Copy => self.submit(work),
        }
    }

    /// Whether it reads a batch's words: from its memory, where they must lie, or from the batch itself.
    fn fetches(&self) -> bool {
        true
    }

    /// What the device counted since it was opened; `None` from devices that launch nothing.
    fn counters(&self) -> Option<DeviceCounters> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::program;

    #[test]
    fn a_device_may_have_more_but_not_less() {
        let info = |json: &str| DeviceInfo {
            name: "d".into(),
            config: Config::from_json(json).unwrap(),
        };
        let mut program = program(&[3]);
        program.config = Config::from_json(r#"{"LOG_ACC_BUFF_SIZE": 16}"#).unwrap();
        info("{}").check(&program).unwrap();
        let less = info(r#"{"LOG_ACC_BUFF_SIZE": 15}"#).check(&program);
        assert!(
            less.unwrap_err()
                .to_string()
                .ends_with("acc scratchpad of 1024 elements, not 512")
        );
        let other = info(r#"{"LOG_BLOCK": 5}"#).check(&program);
        assert!(
            other
                .unwrap_err()
                .to_string()
                .ends_with("matrix unit 1x16x16, not 1x32x32")
        );
    }
}
