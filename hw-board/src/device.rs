//! The device: allocations in the shared memory, and work in order on a thread of its own.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use vta_driver::{
    AllocError, Allocator, Batch, Device, DeviceInfo, DriverError, MarkReport, PhysAddr, RunReport,
    Ticket, Work, WorkDone,
};
use vta_isa::{Config, check};

use crate::control::Control;
use crate::error::BoardError;
use crate::file::BoardFile;
use crate::memory::MappedMemory;

/// How many pieces of work may wait before `submit` blocks.
const QUEUE_DEPTH: usize = 64;
/// Batches that were found to be sound and needn't be looked at again: those of a recording.
const KNOWN: usize = 64;
/// Bytes that are cleared at a time.
const CLEARED: usize = 1 << 16;

/// A VTA behind memory-mapped registers.
pub struct BoardDevice {
    info: DeviceInfo,
    allocator: Mutex<Allocator>,
    /// Missing while it is dropped.
    sender: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
    /// Held as long as the device is open.
    claim: Option<File>,
}

/// What the thread gets.
enum Item {
    Map(u64, u64),
    Unmap(u64),
    Work(Work, Sender<Reply>),
}

type Reply = Result<WorkDone, DriverError>;

impl BoardDevice {
    /// Opens a board by the name of its preset or file, for programs of a configuration, which the design must
    /// have.
    ///
    /// # Errors
    /// Registers or memory that can't be mapped, registers that don't answer.
    pub fn open(name: &str, config: Config) -> Result<Self, BoardError> {
        Self::from_file(name, &BoardFile::named(name)?, config)
    }

    /// As [`Self::open`], with the board's file.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn from_file(name: &str, file: &BoardFile, config: Config) -> Result<Self, BoardError> {
        let claim = claim(file)?;
        let control = Control::open(file)?;
        let memory = MappedMemory::open(&file.memory)?;
        let info = DeviceInfo {
            name: format!("board:{name}"),
            config: config.clone(),
        };
        let (first, bytes) = (memory.address(), memory.bytes());
        // Address 0 is never handed out.
        let allocator = Allocator::new(first.max(vta_driver::PAGE_BYTES), first + bytes);
        let (sender, receiver) = bounded(QUEUE_DEPTH);
        let mut worker = Worker {
            name: info.name.clone(),
            config,
            control,
            memory,
            allocations: BTreeMap::new(),
            known: VecDeque::new(),
        };
        // Without a thread the receiver is gone, so that every send says that the device is lost.
        let thread = Builder::new()
            .name(info.name.clone())
            .spawn(move || worker.serve(&receiver))
            .ok();
        Ok(Self {
            info,
            allocator: Mutex::new(allocator),
            sender: Some(sender),
            thread,
            claim: Some(claim),
        })
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        // It is consistent between calls, so a poisoned lock is harmless.
        self.allocator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, item: Item) -> Result<(), DriverError> {
        let sent = self
            .sender
            .as_ref()
            .and_then(|sender| sender.send(item).ok());
        sent.ok_or_else(|| DriverError::lost(&self.info.name))
    }

    fn refused(&self, source: AllocError) -> DriverError {
        DriverError::Alloc {
            device: self.info.name.clone(),
            source,
        }
    }
}

/// Locks the memory's file: two programs that share a board would overwrite each other's data.
fn claim(file: &BoardFile) -> Result<File, BoardError> {
    let path = &file.memory.path;
    let opened = File::open(path).map_err(BoardError::io(path, "can't be opened"))?;
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(opened),
        Err(Errno::WOULDBLOCK) => {
            let text = "the board is in use: another device has its memory";
            Err(BoardError::at(path, text))
        }
        Err(error) => Err(BoardError::io(path, "can't be locked")(error.into())),
    }
}

impl Device for BoardDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError> {
        // Held until the thread knows, so that a range is freed and allocated there in that order.
        let mut allocator = self.allocator();
        let addr = allocator.alloc(size_bytes).map_err(|e| self.refused(e))?;
        self.send(Item::Map(u64::from(addr.0), size_bytes))?;
        Ok(addr)
    }

    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError> {
        let mut allocator = self.allocator();
        let first = allocator.first();
        if u64::from(addr.0) < first {
            return Err(self.refused(AllocError::Taken {
                addr: u64::from(addr.0),
                end: u64::from(addr.0) + size_bytes,
                first,
                last: allocator.last(),
            }));
        }
        allocator
            .alloc_at(addr, size_bytes)
            .map_err(|e| self.refused(e))?;
        self.send(Item::Map(u64::from(addr.0), size_bytes))
    }

    fn free(&self, addr: PhysAddr) -> Result<(), DriverError> {
        let mut allocator = self.allocator();
        allocator.free(addr).map_err(|e| self.refused(e))?;
        self.send(Item::Unmap(u64::from(addr.0)))
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        let (reply, receiver) = bounded(1);
        self.send(Item::Work(work, reply))?;
        let lost = DriverError::lost(&self.info.name);
        Ok(Box::new(move || receiver.recv().unwrap_or(Err(lost))))
    }
}

impl Drop for BoardDevice {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been answered to every ticket.
            let _ = thread.join();
        }
        // Only now may another have the memory.
        self.claim = None;
    }
}

/// The thread's side.
struct Worker {
    name: String,
    config: Config,
    control: Control,
    memory: MappedMemory,
    /// Sizes by address.
    allocations: BTreeMap<u64, u64>,
    /// Batches that are sound with these allocations.
    known: VecDeque<Weak<Batch>>,
}

impl Worker {
    fn serve(&mut self, items: &Receiver<Item>) {
        for item in items {
            match item {
                Item::Map(addr, bytes) => {
                    self.allocations.insert(addr, bytes);
                    self.known.clear();
                    self.clear(addr, bytes);
                }
                Item::Unmap(addr) => {
                    self.allocations.remove(&addr);
                    self.known.clear();
                }
                Item::Work(work, reply) => {
                    let done = self.work(work);
                    // Nobody waits for it any more.
                    let _ = reply.send(done);
                }
            }
        }
    }

    fn work(&mut self, work: Work) -> Reply {
        match work {
            Work::Write { addr, data } => {
                let offset = self.inside(u64::from(addr.0), data.len() as u64)?;
                self.memory.write(offset, &data);
                Ok(WorkDone::Written)
            }
            Work::Pack { addr, images } => {
                let offset = self.inside(u64::from(addr.0), images.packed_bytes())?;
                // Packed in the host's own memory: the board's may not be cached.
                let mut tiles = vec![0; images.packed_bytes() as usize];
                images.pack_into(&mut tiles);
                self.memory.write(offset, &tiles);
                Ok(WorkDone::Written)
            }
            Work::Read { addr, size_bytes } => {
                let offset = self.inside(u64::from(addr.0), size_bytes)?;
                let mut bytes = vec![0; size_bytes as usize];
                self.memory.read(offset, &mut bytes);
                Ok(WorkDone::Data(bytes))
            }
            Work::Run(batch) => self.run(&batch).map(WorkDone::Ran),
        }
    }

    fn run(&mut self, batch: &Arc<Batch>) -> Result<RunReport, DriverError> {
        self.sound(batch)?;
        let start = Instant::now();
        let address = u64::from(batch.insn_addr.0);
        let ran = self
            .memory
            .flush()
            .and_then(|()| self.control.run(address, batch.insns.len()));
        let ran = ran.and_then(|cycles| self.memory.invalidate().map(|()| cycles));
        let cycles = ran.map_err(|error| self.failed(&error))?;
        let wall = start.elapsed();
        tracing::debug!(
            device = self.name,
            insns = batch.insns.len(),
            cycles,
            "batch ran"
        );
        Ok(self.report(batch, cycles, wall))
    }

    /// Refuses what the hardware would hang for, or what would leave its allocations.
    fn sound(&mut self, batch: &Arc<Batch>) -> Result<(), DriverError> {
        let same = |known: &Weak<Batch>| known.as_ptr() == Arc::as_ptr(batch);
        if self.known.iter().any(same) {
            return Ok(());
        }
        if let Some(finding) = check::check(&self.config, &batch.insns).first() {
            return Err(self.failed(finding));
        }
        let words = batch.words.len() as u64 * vta_isa::INSN_BYTES as u64;
        self.inside(u64::from(batch.insn_addr.0), words)?;
        for (index, insn) in batch.insns.iter().enumerate() {
            let Some(rows) = insn.dram_rows(&self.config) else {
                continue;
            };
            for row in rows.iter() {
                let inside = self.offset(row.start, row.end - row.start);
                inside.map_err(|text| self.failed(format!("instruction {index}: {text}")))?;
            }
        }
        self.known.truncate(KNOWN - 1);
        self.known.push_front(Arc::downgrade(batch));
        Ok(())
    }

    /// Where a range lies in the memory.
    fn inside(&self, addr: u64, bytes: u64) -> Result<u64, DriverError> {
        self.offset(addr, bytes).map_err(|text| self.failed(text))
    }

    fn offset(&self, addr: u64, bytes: u64) -> Result<u64, String> {
        let end = addr.saturating_add(bytes);
        let found = self.allocations.range(..=addr).next_back();
        match found {
            Some((start, size)) if end <= start + size => Ok(addr - self.memory.address()),
            Some((start, size)) => Err(format!(
                "{addr:#x}..{end:#x} leaves its allocation {start:#x}..{:#x}",
                start + size
            )),
            None => Err(format!("{addr:#x}..{end:#x} is not allocated")),
        }
    }

    fn clear(&mut self, addr: u64, bytes: u64) {
        let zeros = vec![0; CLEARED.min(bytes as usize)];
        let first = addr - self.memory.address();
        for at in (0..bytes).step_by(CLEARED) {
            let size = (bytes - at).min(CLEARED as u64) as usize;
            self.memory.write(first + at, &zeros[..size]);
        }
    }

    fn failed(&self, what: impl std::fmt::Display) -> DriverError {
        DriverError::Device {
            device: self.name.clone(),
            message: what.to_string(),
        }
    }

    /// The wall time is the layers' by their instructions' bytes and steps, since the hardware tells no more.
    fn report(&self, batch: &Batch, cycles: u32, wall: Duration) -> RunReport {
        let mut report = RunReport::of(&batch.insns, &batch.marks, &self.config);
        let weight = |mark: &MarkReport| mark.traffic.total_bytes() + mark.traffic.gemm_steps;
        let all = report.marks.iter().map(weight).sum::<u64>().max(1);
        for mark in &mut report.marks {
            mark.wall = wall.mul_f64(weight(mark) as f64 / all as f64);
        }
        RunReport {
            wall,
            cycles: Some(u64::from(cycles)),
            ..report
        }
    }
}
