//! A device whose work is done by threads of this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use vta_isa::{Config, Extensions, check};

use crate::memory::HostBytes;
use crate::regions::{Allocation, Footprints, Held, Layouts, Regions};
use crate::{
    AllocError, Allocator, Batch, Device, DeviceInfo, DeviceMemory, DriverError, Lane, PhysAddr,
    RunReport, Ticket, Work, WorkDone,
};

/// How many pieces of work may wait in a lane before `submit` blocks.
const QUEUE_DEPTH: usize = 64;

/// Runs one batch. The memory holds the allocations that the batch's instructions name and its
/// words lie in, and no others. The error text names the instruction.
pub type Runner =
    Box<dyn FnMut(&Arc<Batch>, &mut DeviceMemory) -> Result<RunReport, String> + Send>;

type Reply = Result<WorkDone, DriverError>;

struct Item {
    work: Work,
    regions: Vec<Arc<Allocation>>,
    reply: Sender<Reply>,
}

/// A [`Device`] with memory of its own, a [`Runner`] on a worker thread, and a second thread for
/// copies that starts with the first use of [`Lane::Copy`].
///
/// Each lane works strictly in the order of submission. A piece of work has the allocations that
/// it touches to itself while it runs, so copies and batches overlap where they touch different
/// ones. Dropping the device finishes what is queued and joins the threads. If the runner panics,
/// every outstanding and later ticket gets [`DriverError::Lost`], and so does every call when the
/// system gave no thread.
pub struct WorkerDevice {
    info: DeviceInfo,
    book: Mutex<Book>,
    footprints: Footprints,
    lost: Arc<AtomicBool>,
    compute: LaneThread,
    copy: OnceLock<LaneThread>,
}

/// Which addresses are taken, and by what.
struct Book {
    allocator: Allocator,
    regions: Regions,
}

impl WorkerDevice {
    /// Starts the worker thread of a device with the whole 32-bit space.
    pub fn new(info: DeviceInfo, runner: Runner) -> Self {
        Self::with_allocator(info, Allocator::default(), runner)
    }

    /// Starts the worker thread of a device that has the allocator's memory only, like a board
    /// whose DRAM is smaller than the address space.
    pub fn with_allocator(info: DeviceInfo, allocator: Allocator, runner: Runner) -> Self {
        let lost = Arc::default();
        let runner = refusing(&info.config, runner);
        let compute = LaneThread::start(&info.name, &lost, Some(runner));
        Self {
            info,
            book: Mutex::new(Book {
                allocator,
                regions: Regions::default(),
            }),
            footprints: Footprints::default(),
            lost,
            compute,
            copy: OnceLock::new(),
        }
    }

    /// Bytes of whole free pages.
    pub fn free_bytes(&self) -> u64 {
        self.book().allocator.free_bytes()
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

    fn book(&self) -> MutexGuard<'_, Book> {
        // The book is consistent between calls, so a poisoned lock is harmless.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(
        &self,
        size_bytes: u64,
        take: impl FnOnce(&mut Allocator) -> Result<PhysAddr, AllocError>,
    ) -> Result<PhysAddr, DriverError> {
        if self.lost.load(Ordering::Acquire) {
            return Err(self.lost());
        }
        let mut book = self.book();
        let addr = take(&mut book.allocator).map_err(|e| self.refused(e))?;
        let Some(bytes) = HostBytes::zeroed(size_bytes) else {
            // The range was taken above, so this can't fail.
            let _ = book.allocator.free(addr);
            return Err(self.refused(AllocError::Host {
                requested_bytes: size_bytes,
            }));
        };
        book.regions.insert(addr.0, bytes);
        Ok(addr)
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
        let mut book = self.book();
        book.allocator.free(addr).map_err(|e| self.refused(e))?;
        book.regions.remove(addr.0);
        Ok(())
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        self.submit_on(Lane::Compute, work)
    }

    fn submit_on(&self, lane: Lane, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        let thread = match (lane, &work) {
            (Lane::Compute, _) | (_, Work::Run(_)) => &self.compute,
            (Lane::Copy, _) => self
                .copy
                .get_or_init(|| LaneThread::start(&self.info.name, &self.lost, None)),
        };
        let spans = self.footprints.of(&work, &self.info.config);
        let regions = self.book().regions.touched(&spans);
        let (reply, receiver) = bounded(1);
        let item = Item {
            work,
            regions,
            reply,
        };
        let sender = thread.sender.as_ref().ok_or_else(|| self.lost())?;
        sender.send(item).map_err(|_| self.lost())?;
        Ok(Box::new(WorkerTicket {
            device: self.info.name.clone(),
            receiver,
        }))
    }
}

/// A runner that refuses batches with what the configuration's machine lacks.
fn refusing(config: &Config, mut runner: Runner) -> Runner {
    if config.extensions() == Extensions::ALL {
        return runner;
    }
    let config = config.clone();
    Box::new(move |batch, memory| {
        check::extensions(&config, &batch.insns).map_err(|e| e.to_string())?;
        runner(batch, memory)
    })
}

/// A lane's thread. Dropping it finishes what is queued.
struct LaneThread {
    sender: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
}

impl LaneThread {
    fn start(device: &str, lost: &Arc<AtomicBool>, mut runner: Option<Runner>) -> Self {
        let (sender, receiver) = bounded(QUEUE_DEPTH);
        let (name, gone) = (device.to_owned(), Arc::clone(lost));
        let work = move || serve(&name, &receiver, runner.as_mut(), &gone);
        // Without a thread the closure and its receiver are gone, so every send fails as lost.
        let thread = Builder::new().spawn(work);
        let thread = thread.inspect_err(|error| {
            lost.store(true, Ordering::Release);
            tracing::error!(device, %error, "starting a worker thread");
        });
        Self {
            sender: Some(sender),
            thread: thread.ok(),
        }
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the runner was already answered through its tickets.
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

/// Does a lane's work. After a panic, here or in the other lane, it only answers.
fn serve(
    name: &str,
    receiver: &Receiver<Item>,
    mut runner: Option<&mut Runner>,
    lost: &AtomicBool,
) {
    let gone = || {
        Err(DriverError::Lost {
            device: name.to_owned(),
        })
    };
    let mut layouts = Layouts::default();
    for item in receiver {
        let answer = if lost.load(Ordering::Acquire) {
            gone()
        } else {
            let mut held = Held::take(item.regions, &mut layouts);
            let work = || perform(name, &item.work, &mut held.memory, runner.as_deref_mut());
            catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                lost.store(true, Ordering::Release);
                gone()
            })
        };
        // Nobody waits for a dropped ticket's answer.
        let _ = item.reply.send(answer);
    }
}

fn perform(
    name: &str,
    work: &Work,
    memory: &mut DeviceMemory,
    runner: Option<&mut Runner>,
) -> Reply {
    let device = || name.to_owned();
    let fault = |source| DriverError::Memory {
        device: device(),
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
            // `submit_on` sends batches to the lane that has the runner.
            let runner = runner.ok_or_else(|| DriverError::Lost { device: device() })?;
            runner(batch, memory)
                .map(WorkDone::Ran)
                .map_err(|message| DriverError::Device {
                    device: device(),
                    message,
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vta_isa::Config;

    use super::*;
    use crate::PAGE_BYTES;
    use crate::testing::{batch, read, write};

    fn device(runner: Runner) -> WorkerDevice {
        WorkerDevice::new(
            DeviceInfo {
                name: "test".into(),
                config: Config::default(),
            },
            runner,
        )
    }

    /// A batch that names one tile of memory.
    fn store_at(addr: PhysAddr) -> Work {
        let store = vta_isa::Store {
            dram_base: addr.0 / 16,
            y_size: 1,
            x_size: 1,
            ..vta_isa::Store::default()
        };
        batch(vec![store.into()])
    }

    #[test]
    fn work_runs_in_order() {
        let d = device(Box::new(|_, memory| {
            memory.write(0x1000, 1).unwrap()[0] += 1;
            Ok(RunReport::default())
        }));
        let addr = d.alloc(4).unwrap();
        let works = [write(addr, 41), store_at(addr), read(addr)];
        let tickets: Vec<_> = works.into_iter().map(|w| d.submit(w).unwrap()).collect();
        let done: Vec<_> = tickets.into_iter().map(|t| t.wait().unwrap()).collect();
        assert!(matches!(&done[2], WorkDone::Data(bytes) if bytes == &[42]));
    }

    #[test]
    fn faults_name_the_device_and_leave_it_usable() {
        let d = device(Box::new(|_, _| Err("insn 3: bad".into())));
        let error = d.submit(batch(vec![])).unwrap().wait().unwrap_err();
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
        let first = d.submit(batch(vec![])).unwrap();
        assert!(matches!(first.wait(), Err(DriverError::Lost { .. })));
        let later = d.submit(batch(vec![])).map(Ticket::wait);
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

    #[test]
    fn copies_overlap_a_batch_that_touches_other_memory() {
        // The batch ends only after the copies, so it would hang if they had to wait for it.
        let (done, copied) = bounded::<()>(1);
        let d = device(Box::new(move |_, memory| {
            copied.recv_timeout(Duration::from_secs(30)).unwrap();
            memory.write(0x1000, 1).unwrap()[0] += 1;
            Ok(RunReport::default())
        }));
        let [mine, other] = [d.alloc(16).unwrap(), d.alloc(16).unwrap()];
        let ran = d.submit(store_at(mine)).unwrap();
        let copy = |work| d.submit_on(Lane::Copy, work).unwrap().wait();
        copy(write(other, 7)).unwrap();
        assert!(matches!(copy(read(other)), Ok(WorkDone::Data(b)) if b == [7]));
        done.send(()).unwrap();
        ran.wait().unwrap();
        assert!(matches!(copy(read(mine)), Ok(WorkDone::Data(b)) if b == [1]));
    }

    #[test]
    fn lanes_take_turns_on_the_same_memory() {
        // Each batch and each copy leaves whole allocations, whatever order they get.
        let d = device(Box::new(|_, memory| {
            for at in [0x1000, 0x1001] {
                let byte = &mut memory.write(at, 1).unwrap()[0];
                std::thread::yield_now();
                *byte += 1;
            }
            Ok(RunReport::default())
        }));
        let addr = d.alloc(16).unwrap();
        let tickets: Vec<_> = (0..100)
            .map(|_| {
                let ran = d.submit(store_at(addr)).unwrap();
                let size_bytes = 2;
                let work = Work::Read { addr, size_bytes };
                (ran, d.submit_on(Lane::Copy, work).unwrap())
            })
            .collect();
        for (ran, read) in tickets {
            ran.wait().unwrap();
            let done = read.wait().unwrap();
            assert!(matches!(done, WorkDone::Data(b) if b[0] == b[1]));
        }
    }

    #[test]
    fn freed_memory_stays_for_work_of_either_lane_that_names_it() {
        let (go, gate) = bounded::<()>(1);
        let d = device(Box::new(move |_, memory| {
            let _ = gate.recv();
            memory.write(0x1000, 1).unwrap()[0] += 1;
            Ok(RunReport::default())
        }));
        let addr = d.alloc(16).unwrap();
        let ran = d.submit(store_at(addr)).unwrap();
        let read_later = d.submit(read(addr)).unwrap();
        d.free(addr).unwrap();
        // The same address again is other memory, and needn't wait for the batch.
        assert_eq!(d.alloc(16).unwrap(), addr);
        d.submit_on(Lane::Copy, write(addr, 9))
            .unwrap()
            .wait()
            .unwrap();
        go.send(()).unwrap();
        ran.wait().unwrap();
        let old = read_later.wait().unwrap();
        assert!(matches!(old, WorkDone::Data(b) if b == [1]));
        let new = d.submit(read(addr)).unwrap().wait().unwrap();
        assert!(matches!(new, WorkDone::Data(b) if b == [9]));
    }

    #[test]
    fn a_lost_device_refuses_on_both_lanes() {
        let d = device(Box::new(|_, _| panic!("runner")));
        let addr = d.alloc(16).unwrap();
        assert!(d.submit(store_at(addr)).unwrap().wait().is_err());
        for lane in [Lane::Copy, Lane::Compute] {
            let answer = d.submit_on(lane, read(addr)).unwrap().wait();
            assert!(matches!(answer, Err(DriverError::Lost { .. })));
        }
        assert!(matches!(d.alloc(1), Err(DriverError::Lost { .. })));
        d.free(addr).unwrap();
    }
}
