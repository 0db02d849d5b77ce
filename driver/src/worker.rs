//! A device whose work is done by a thread of this process, in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::memory::HostBytes;
use crate::{
    AllocError, Allocator, Batch, Device, DeviceInfo, DeviceMemory, DriverError, PhysAddr,
    RunReport, Ticket, Work, WorkDone,
};

/// How many pieces of work may wait before `submit` blocks.
const QUEUE_DEPTH: usize = 64;

/// Runs one batch over the device's memory. The error text names the instruction.
pub type Runner =
    Box<dyn FnMut(&Arc<Batch>, &mut DeviceMemory) -> Result<RunReport, String> + Send>;

type Reply = Result<WorkDone, DriverError>;

enum Item {
    Map { addr: u32, bytes: HostBytes },
    Unmap { addr: u32 },
    Work { work: Work, reply: Sender<Reply> },
}

/// A [`Device`] that owns its memory and a [`Runner`] on one worker thread.
///
/// Work runs strictly in the order of submission. Dropping the device finishes what is queued
/// and joins the thread. If the runner panics, every outstanding and later ticket gets
/// [`DriverError::Lost`], and so does every call when the system gave no thread.
pub struct WorkerDevice {
    info: DeviceInfo,
    allocator: Mutex<Allocator>,
    sender: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerDevice {
    /// Starts the worker thread of a device with the whole 32-bit space.
    pub fn new(info: DeviceInfo, runner: Runner) -> Self {
        Self::with_allocator(info, Allocator::default(), runner)
    }

    /// Starts the worker thread of a device that has the allocator's memory only, like a board
    /// whose DRAM is smaller than the address space.
    pub fn with_allocator(info: DeviceInfo, allocator: Allocator, runner: Runner) -> Self {
        let (sender, receiver) = bounded(QUEUE_DEPTH);
        let name = info.name.clone();
        let work = move || {
            let served = catch_unwind(AssertUnwindSafe(|| serve(&name, &receiver, runner)));
            if served.is_err() {
                refuse(&name, &receiver);
            }
        };
        // Without a thread the closure and its receiver are gone, so every send fails as lost.
        let thread = Builder::new().spawn(work);
        let thread = thread.inspect_err(|error| {
            tracing::error!(device = info.name, %error, "starting the worker thread");
        });
        Self {
            info,
            allocator: Mutex::new(allocator),
            sender: Some(sender),
            thread: thread.ok(),
        }
    }

    /// Bytes of whole free pages.
    pub fn free_bytes(&self) -> u64 {
        self.allocator().free_bytes()
    }

    fn send(&self, item: Item) -> Result<(), DriverError> {
        let sender = self.sender.as_ref().ok_or_else(|| self.lost())?;
        sender.send(item).map_err(|_| self.lost())
    }

    fn lost(&self) -> DriverError {
        DriverError::Lost {
            device: self.info.name.clone(),
        }
    }

    fn refused(&self, source: AllocError) -> DriverError {
        DriverError::Alloc {
            device: self.info.name.clone(),
            source,
        }
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        // The allocator is consistent between calls, so a poisoned lock is harmless.
        self.allocator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a range and tells the worker. The lock is held over both: another thread could
    /// otherwise get a freed range and have it mapped before its unmapping is queued. The worker
    /// never takes the lock, so a full queue delays other threads but can't block for ever.
    fn map(
        &self,
        size_bytes: u64,
        take: impl FnOnce(&mut Allocator) -> Result<PhysAddr, AllocError>,
    ) -> Result<PhysAddr, DriverError> {
        let mut allocator = self.allocator();
        let addr = take(&mut allocator).map_err(|e| self.refused(e))?;
        let mapped = HostBytes::zeroed(size_bytes)
            .ok_or_else(|| {
                self.refused(AllocError::Host {
                    requested_bytes: size_bytes,
                })
            })
            .and_then(|bytes| {
                self.send(Item::Map {
                    addr: addr.0,
                    bytes,
                })
            });
        if mapped.is_err() {
            // The range was taken above, so this can't fail.
            let _ = allocator.free(addr);
        }
        mapped.map(|()| addr)
    }
}

impl Device for WorkerDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError> {
        self.map(size_bytes, |a| a.alloc(size_bytes))
    }

    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError> {
        self.map(size_bytes, |a| a.alloc_at(addr, size_bytes).map(|()| addr))
            .map(drop)
    }

    fn free(&self, addr: PhysAddr) -> Result<(), DriverError> {
        // Held until the worker is told, as in `map`.
        let mut allocator = self.allocator();
        allocator.free(addr).map_err(|e| self.refused(e))?;
        self.send(Item::Unmap { addr: addr.0 })
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        let (reply, receiver) = bounded(1);
        self.send(Item::Work { work, reply })?;
        Ok(Box::new(WorkerTicket {
            device: self.info.name.clone(),
            receiver,
        }))
    }
}

impl Drop for WorkerDevice {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the worker was already answered through its tickets.
            let _ = thread.join();
        }
    }
}

struct WorkerTicket {
    device: String,
    receiver: Receiver<Reply>,
}

impl Ticket for WorkerTicket {
    fn wait(self: Box<Self>) -> Reply {
        // The reply's sender is dropped when the worker stops, so this can't hang.
        self.receiver.recv().unwrap_or(Err(DriverError::Lost {
            device: self.device,
        }))
    }
}

fn serve(name: &str, receiver: &Receiver<Item>, mut runner: Runner) {
    let mut memory = DeviceMemory::new();
    for item in receiver {
        match item {
            // The allocator hands out disjoint ranges and tells of them in its order, so mapping
            // can't fail.
            Item::Map { addr, bytes } => {
                if let Err(error) = memory.insert(addr, bytes) {
                    tracing::error!(device = name, %error, "mapping device memory");
                }
            }
            Item::Unmap { addr } => {
                memory.unmap(addr);
            }
            Item::Work { work, reply } => {
                // Nobody waits for a dropped ticket's answer.
                let _ = reply.send(perform(name, &work, &mut memory, &mut runner));
            }
        }
    }
}

/// Answers everything after the runner has panicked, so that no ticket waits for ever.
fn refuse(name: &str, receiver: &Receiver<Item>) {
    for item in receiver {
        if let Item::Work { reply, .. } = item {
            // Nobody waits for a dropped ticket's answer.
            let _ = reply.send(Err(DriverError::Lost {
                device: name.to_owned(),
            }));
        }
    }
}

fn perform(name: &str, work: &Work, memory: &mut DeviceMemory, runner: &mut Runner) -> Reply {
    let fault = |source| DriverError::Memory {
        device: name.to_owned(),
        source,
    };
    match work {
        Work::Write { addr, data } => {
            memory
                .write(addr.0.into(), data.len() as u64)
                .map_err(fault)?
                .copy_from_slice(data);
            Ok(WorkDone::Written)
        }
        Work::Read { addr, size_bytes } => memory
            .read(addr.0.into(), *size_bytes)
            .map_err(fault)
            .map(<[u8]>::to_vec)
            .map(WorkDone::Data),
        Work::Run(batch) => {
            runner(batch, memory)
                .map(WorkDone::Ran)
                .map_err(|message| DriverError::Device {
                    device: name.to_owned(),
                    message,
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vta_isa::Config;

    use super::*;
    use crate::PAGE_BYTES;

    fn device(runner: Runner) -> WorkerDevice {
        WorkerDevice::new(
            DeviceInfo {
                name: "test".into(),
                config: Config::default(),
            },
            runner,
        )
    }

    fn empty_batch() -> Work {
        Work::Run(Arc::new(Batch {
            words: vec![],
            insns: vec![],
            insn_addr: PhysAddr(0),
            marks: vec![],
        }))
    }

    #[test]
    fn work_runs_in_order() {
        let d = device(Box::new(|_, memory| {
            memory.write(0x1000, 1).unwrap()[0] += 1;
            Ok(RunReport::default())
        }));
        let addr = d.alloc(4).unwrap();
        let works = [
            Work::Write {
                addr,
                data: Arc::from([41u8]),
            },
            empty_batch(),
            Work::Read {
                addr,
                size_bytes: 1,
            },
        ];
        let tickets: Vec<_> = works.into_iter().map(|w| d.submit(w).unwrap()).collect();
        let done: Vec<_> = tickets.into_iter().map(|t| t.wait().unwrap()).collect();
        assert!(matches!(&done[2], WorkDone::Data(bytes) if bytes == &[42]));
    }

    #[test]
    fn faults_name_the_device_and_leave_it_usable() {
        let d = device(Box::new(|_, _| Err("insn 3: bad".into())));
        let error = d.submit(empty_batch()).unwrap().wait().unwrap_err();
        assert_eq!(error.to_string(), "device test: insn 3: bad");
        let read = Work::Read {
            addr: PhysAddr(0),
            size_bytes: 1,
        };
        assert!(matches!(
            d.submit(read).unwrap().wait(),
            Err(DriverError::Memory { .. })
        ));
    }

    #[test]
    fn a_panicking_runner_answers_every_ticket() {
        let d = device(Box::new(|_, _| panic!("runner")));
        let first = d.submit(empty_batch()).unwrap();
        assert!(matches!(first.wait(), Err(DriverError::Lost { .. })));
        let later = d.submit(empty_batch()).map(Ticket::wait);
        assert!(matches!(
            later,
            Err(DriverError::Lost { .. }) | Ok(Err(DriverError::Lost { .. }))
        ));
    }

    #[test]
    fn a_range_is_unmapped_before_another_thread_maps_it_again() {
        // Few pages: nearly every allocation gets a range that another thread has just freed.
        // Nobody waits before the end, so the worker's queue is full and senders block.
        let info = DeviceInfo {
            name: "test".into(),
            config: Config::default(),
        };
        let allocator = Allocator::new(PAGE_BYTES, 3 * PAGE_BYTES);
        let d = WorkerDevice::with_allocator(info, allocator, Box::new(|_, _| unreachable!()));
        let turn = |value: u8| {
            let addr = d.alloc(PAGE_BYTES).ok()?;
            let write = Work::Write {
                addr,
                data: Arc::from([value]),
            };
            let read = Work::Read {
                addr,
                size_bytes: 2,
            };
            let written = d.submit(write).unwrap();
            let read = d.submit(read).unwrap();
            d.free(addr).unwrap();
            Some((written, read))
        };
        let turns = |value: u8| {
            let tickets: Vec<_> = (0..60_000).filter_map(|_| turn(value)).collect();
            for (written, read) in tickets {
                written.wait().unwrap();
                let found = read.wait().unwrap();
                assert!(matches!(found, WorkDone::Data(bytes) if bytes == [value, 0]));
            }
        };
        std::thread::scope(|scope| {
            for value in 1..=4u8 {
                let turns = &turns;
                scope.spawn(move || turns(value));
            }
        });
        assert_eq!(d.free_bytes(), 2 * PAGE_BYTES);
    }

    #[test]
    fn a_refused_allocation_leaves_the_free_memory_as_it_is() {
        let d = device(Box::new(|_, _| panic!("runner")));
        let before = d.free_bytes();
        assert!(d.alloc(u64::MAX).is_err() && d.alloc(0).is_err());
        assert!(d.alloc_at(PhysAddr(u32::MAX), 2).is_err());
        assert_eq!(d.free_bytes(), before);
    }
}
