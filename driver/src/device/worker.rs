//! A device whose work is done by threads of this process.

mod lane;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use vta_isa::{Config, Extensions, check};

use self::lane::LaneThread;
pub use self::lane::Runner;
use crate::memory::HostBytes;
use crate::memory::regions::{Claim, Footprints, Kept, Regions};
use crate::packing::{Packers, Threads};
use crate::{
    AllocError, Allocator, Batch, Device, DeviceInfo, DriverError, InPlace, Lane, PhysAddr, Ticket,
    Traffic, Work, WorkDone,
};

/// Batches of which it is known that the machine has what they need.
const KNOWN_BATCHES: usize = 16;
/// What a small piece of work may ask for: handing more to a thread costs less than the work.
const SMALL_INSNS: usize = 64;
const SMALL_STEPS: u64 = 1 << 12;
const SMALL_BYTES: u64 = 1 << 16;

/// A [`Device`] with memory of its own, a [`Runner`] on a worker thread, and a second thread for
/// copies of [`Lane::Copy`]. Each starts with the first piece of work that it gets.
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
    fetches: bool,
    at_once: bool,
    lost: Arc<AtomicBool>,
    packers: Arc<OnceLock<Packers>>,
    kept: Arc<Kept>,
    compute: LaneThread,
    copy: OnceLock<LaneThread>,
}

/// Which addresses are taken, and by what.
struct Book {
    allocator: Allocator,
    regions: Regions,
}

impl WorkerDevice {
    /// A device with the whole 32-bit space.
    pub fn new(info: DeviceInfo, runner: Runner) -> Self {
        Self::with_allocator(info, Allocator::default(), runner)
    }

    /// A device that has the allocator's memory only, like a board
    /// whose DRAM is smaller than the address space.
    pub fn with_allocator(info: DeviceInfo, allocator: Allocator, runner: Runner) -> Self {
        let (lost, packers, kept) = (Arc::default(), Arc::default(), Arc::default());
        let runner = refusing(&info.config, runner);
        let compute = LaneThread::new(&info.name, &lost, &packers, &kept, Some(runner));
        Self {
            info,
            book: Mutex::new(Book {
                allocator,
                regions: Regions::default(),
            }),
            footprints: Footprints::default(),
            fetches: true,
            at_once: false,
            lost,
            packers,
            kept,
            compute,
            copy: OnceLock::new(),
        }
    }

    /// Packs large images on some threads, the lane's own among them. One is the default; of several calls the first
    /// counts.
    pub fn with_packing_threads(self, threads: Arc<Threads>) -> Self {
        self.packers.get_or_init(|| Packers::new(threads));
        self
    }

    /// Says that the runner needs a batch's instructions alone, without their words.
    #[must_use]
    pub fn without_words(self) -> Self {
        let fetches = false;
        Self { fetches, ..self }
    }

    /// Says that work may run on the caller's thread, if nothing waits: by [`Device::perform`], and small pieces, of some
    /// tens of microseconds, before [`Device::submit`] returns, since to hand them to another thread costs more.
    #[must_use]
    pub fn with_work_at_once(self) -> Self {
        let at_once = true;
        Self { at_once, ..self }
    }

    /// Whether a piece of work is so small that it may run on the caller's thread.
    fn is_small(&self, work: &Work) -> bool {
        self.at_once
            && match work {
                Work::Write { data, .. } => data.len() as u64 <= SMALL_BYTES,
                Work::Read { size_bytes, .. } => *size_bytes <= SMALL_BYTES,
                Work::Pack { .. } => false,
                Work::Run(batch) => {
                    let few = batch.insns.len() <= SMALL_INSNS;
                    let traffic = few.then(|| Traffic::of(&batch.insns, &self.info.config));
                    traffic
                        .is_some_and(|t| t.steps() <= SMALL_STEPS && t.total_bytes() <= SMALL_BYTES)
                }
            }
    }

    /// The allocations that a piece of work touches.
    fn claim(&self, work: &Work) -> Claim {
        let spans = self.footprints.of(work, &self.info.config);
        self.kept.claim(|| self.book().regions.touched(&spans))
    }

    /// Bytes of whole free pages.
    pub fn free_bytes(&self) -> u64 {
        self.book().allocator.free_bytes()
    }

    fn lost(&self) -> DriverError {
        DriverError::lost(&self.info.name)
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
        self.kept.change();
        Ok(addr)
    }
}

impl Device for WorkerDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn fetches(&self) -> bool {
        self.fetches
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
        self.kept.change();
        Ok(())
    }

    fn in_place(&self, addr: PhysAddr) -> Option<InPlace> {
        self.kept.taking(|| self.book().regions.in_place(addr.0))
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        self.submit_on(Lane::Compute, work)
    }

    fn perform(&self, work: &Work) -> Option<Result<WorkDone, DriverError>> {
        let may = self.at_once && self.compute.is_idle();
        may.then(|| self.compute.perform(work, || self.claim(work)))
    }

    fn submit_on(&self, lane: Lane, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        let at_once = lane == Lane::Compute && self.is_small(&work);
        if let Some(done) = at_once.then(|| self.perform(&work)).flatten() {
            return Ok(Box::new(|| done));
        }
        let thread = match (lane, &work) {
            (Lane::Compute, _) | (_, Work::Run(_)) => &self.compute,
            (Lane::Copy, _) => self.copy.get_or_init(|| {
                let Self {
                    info,
                    lost,
                    packers,
                    kept,
                    ..
                } = self;
                LaneThread::new(&info.name, lost, packers, kept, None)
            }),
        };
        let claim = self.claim(&work);
        let receiver = thread.send(work, claim).ok_or_else(|| self.lost())?;
        let lost = self.lost();
        // The reply's sender is dropped when the worker stops, so this can't hang.
        Ok(Box::new(move || receiver.recv().unwrap_or(Err(lost))))
    }
}

/// A runner that refuses batches with what the configuration's machine lacks.
fn refusing(config: &Config, mut runner: Runner) -> Runner {
    if config.extensions() == Extensions::ALL {
        return runner;
    }
    let config = config.clone();
    // Batches come again, and so few are kept that looking for one costs nothing.
    let mut fine = VecDeque::new();
    Box::new(move |batch, memory| {
        let same = |known: &Weak<Batch>| known.as_ptr() == Arc::as_ptr(batch);
        if !fine.iter().any(same) {
            check::extensions(&config, &batch.insns).map_err(|e| e.to_string())?;
            fine.push_back(Arc::downgrade(batch));
            if fine.len() > KNOWN_BATCHES {
                fine.pop_front();
            }
        }
        runner(batch, memory)
    })
}

#[cfg(test)]
mod tests;
