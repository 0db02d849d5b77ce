//! A device whose work is done by a thread of this process, in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::{
    AllocError, Allocator, Batch, Device, DeviceInfo, DeviceMemory, DriverError, PhysAddr,
    RunReport, Ticket, Work, WorkDone,
};

/// How many pieces of work may wait before `submit` blocks.
const QUEUE_DEPTH: usize = 64;

/// Runs one batch over the device's memory. The error text names the instruction.
pub type Runner = Box<dyn FnMut(&Batch, &mut DeviceMemory) -> Result<RunReport, String> + Send>;

type Reply = Result<WorkDone, DriverError>;

enum Item {
    Map { addr: u32, size_bytes: u64 },
    Unmap { addr: u32 },
    Work { work: Work, reply: Sender<Reply> },
}

/// A [`Device`] that owns its memory and a [`Runner`] on one worker thread.
///
/// Work runs strictly in the order of submission. Dropping the device finishes what is queued
/// and joins the thread. If the runner panics, every outstanding and later ticket gets
/// [`DriverError::Lost`].
pub struct WorkerDevice {
    info: DeviceInfo,
    allocator: Mutex<Allocator>,
    sender: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerDevice {
    /// Starts the worker thread.
    pub fn new(info: DeviceInfo, runner: Runner) -> Self {
        let (sender, receiver) = bounded(QUEUE_DEPTH);
        let name = info.name.clone();
        let thread = std::thread::spawn(move || {
            let served = catch_unwind(AssertUnwindSafe(|| serve(&name, &receiver, runner)));
            if served.is_err() {
                refuse(&name, &receiver);
            }
        });
        Self {
            info,
            allocator: Mutex::new(Allocator::default()),
            sender: Some(sender),
            thread: Some(thread),
        }
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

    fn with_allocator<T>(
        &self,
        f: impl FnOnce(&mut Allocator) -> Result<T, AllocError>,
    ) -> Result<T, DriverError> {
        // The allocator is consistent between calls, so a poisoned lock is harmless.
        let mut allocator = self
            .allocator
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        f(&mut allocator).map_err(|source| DriverError::Alloc {
            device: self.info.name.clone(),
            source,
        })
    }
}

impl Device for WorkerDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError> {
        let addr = self.with_allocator(|a| a.alloc(size_bytes))?;
        self.send(Item::Map {
            addr: addr.0,
            size_bytes,
        })?;
        Ok(addr)
    }

    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError> {
        self.with_allocator(|a| a.alloc_at(addr, size_bytes))?;
        self.send(Item::Map {
            addr: addr.0,
            size_bytes,
        })
    }

    fn free(&self, addr: PhysAddr) -> Result<(), DriverError> {
        self.with_allocator(|a| a.free(addr))?;
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
            // The allocator hands out disjoint ranges, so mapping can't fail.
            Item::Map { addr, size_bytes } => {
                if let Err(error) = memory.map(addr, size_bytes) {
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
}
