//! [`OpenClDevice`]: an OpenCL device as a [`Device`] of the driver.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use vta_driver::{
    AllocError, Allocator, Device, DeviceCounters, DeviceInfo, DriverError, Lane, PAGE_BYTES,
    PhysAddr, Ticket, Work, WorkDone,
};
use vta_isa::Config;

use crate::cache::BinaryCache;
use crate::engine::Engine;
use crate::error::OpenClError;
use crate::select::{DeviceEntry, Selector, Structure};
use crate::worker::{self, Item, Reply};

/// How many pieces of work may wait before `submit` blocks.
const QUEUE_DEPTH: usize = 64;
/// How long a wait lasts before the time limit is looked at again.
const LOOK: Duration = Duration::from_millis(200);

/// How the throughput structure forms products. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Math {
    /// int8 widened to int32.
    Int = 0,
    /// Pairs of int16, for processors that multiply and add pairs.
    Pairs = 1,
    /// float, which is exact as long as sums stay below 2^24; they are emptied before.
    Float = 2,
    /// Fours of int8 by work-items of one lane, for GPUs that have an instruction for them.
    Fours = 3,
}

/// Where built kernels are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// `$XDG_CACHE_HOME/vta/opencl`, or `~/.cache/vta/opencl`.
    #[default]
    User,
    /// A folder of choice.
    Folder(PathBuf),
    /// Nowhere: every opening builds.
    None,
}

/// How a device is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Instead of the one that the device's kind gets. A selector's has precedence.
    pub structure: Option<Structure>,
    /// Instead of the one that suits the device.
    pub math: Option<Math>,
    /// A binary for the core, instead of its source.
    pub bitstream: Option<PathBuf>,
    /// Where built kernels are kept.
    pub cache: Cache,
    /// When nothing is finished for so long, the device is given up as hung.
    pub time_limit: Duration,
    /// GEMM and ALU steps of one batch, at most.
    pub max_steps: u64,
    /// Take the times of kernels, for [`DeviceCounters::kernel_ns`]. That costs some time itself.
    pub profile: bool,
    /// Whether copies go through pinned host memory, instead of where the device has memory of
    /// its own.
    pub pinned: Option<bool>,
    /// Whether the throughput structure runs a batch in one launch, whose work-groups wait for
    /// each other on the device, instead of where that is known to work: on NVIDIA's GPUs. On
    /// other devices it is a launch of one work-group, which is slow.
    pub one_launch: Option<bool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            structure: None,
            math: None,
            bitstream: None,
            cache: Cache::User,
            time_limit: Duration::from_secs(120),
            max_steps: 1 << 40,
            profile: false,
            pinned: None,
            one_launch: None,
        }
    }
}

impl Options {
    /// The defaults, with the time limit of `VTA_OPENCL_TIMEOUT_S` (seconds), the cache of
    /// `VTA_OPENCL_CACHE` (a folder; empty for none) and `VTA_OPENCL_ONE_LAUNCH` (0 or 1) where
    /// they are set.
    pub fn from_env() -> Self {
        let mut options = Self::default();
        let seconds = std::env::var("VTA_OPENCL_TIMEOUT_S").ok();
        let seconds = seconds.and_then(|s| s.parse::<f64>().ok());
        let limit = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        if let Some(limit) = limit.filter(|l| !l.is_zero()) {
            options.time_limit = limit;
        }
        match std::env::var_os("VTA_OPENCL_CACHE") {
            None => {}
            Some(folder) if folder.is_empty() => options.cache = Cache::None,
            Some(folder) => options.cache = Cache::Folder(folder.into()),
        }
        options.one_launch = match std::env::var("VTA_OPENCL_ONE_LAUNCH").as_deref() {
            Ok("0") => Some(false),
            Ok("1") => Some(true),
            _ => None,
        };
        options
    }

    pub(crate) fn cache_folder(&self) -> Option<PathBuf> {
        match &self.cache {
            Cache::User => BinaryCache::default_folder(),
            Cache::Folder(path) => Some(path.clone()),
            Cache::None => None,
        }
    }
}

/// What a device did, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Kernel launches.
    pub launches: u64,
    /// Times that the host waited for something enqueued to end.
    pub waits: u64,
    /// Those of the waits that were in the middle of a batch.
    pub stalls: u64,
    /// Copies enqueued between host and device.
    pub copies: u64,
    /// Nanoseconds that kernels ran; 0 unless [`Options::profile`] is set.
    pub kernel_ns: u64,
    /// Batches run.
    pub batches: u64,
    /// Batches that were planned; the others were run again from an earlier plan.
    pub planned: u64,
    /// Bytes copied to the device for the host's writes.
    pub bytes_written: u64,
    /// Bytes copied to the device as plans: operations, instructions, micro-ops.
    pub plan_bytes: u64,
    /// Bytes copied from the device.
    pub bytes_read: u64,
    /// Programs built from source.
    pub builds: u64,
    /// Programs loaded from the cache.
    pub cache_hits: u64,
}

/// [`Stats`] while they are counted.
#[derive(Debug, Default)]
pub(crate) struct StatsInner {
    pub launches: AtomicU64,
    pub waits: AtomicU64,
    pub stalls: AtomicU64,
    pub copies: AtomicU64,
    pub kernel_ns: AtomicU64,
    pub batches: AtomicU64,
    pub planned: AtomicU64,
    pub bytes_written: AtomicU64,
    pub plan_bytes: AtomicU64,
    pub bytes_read: AtomicU64,
    pub builds: AtomicU64,
    pub cache_hits: AtomicU64,
}

impl StatsInner {
    /// Notes a copy of so many bytes.
    pub fn copied(&self, bytes: &AtomicU64, len: u64) {
        self.copies.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(len, Ordering::Relaxed);
    }

    /// Notes that enqueuing was held up.
    pub fn stalled(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.stalls.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the device's threads and tickets share.
pub(crate) struct Shared {
    pub device: String,
    /// Whether kernels' times are taken.
    pub profile: bool,
    pub stats: StatsInner,
    limit: Duration,
    clock: Mutex<Clock>,
    hung: AtomicBool,
}

struct Clock {
    in_flight: usize,
    /// When something was last finished, or begun on an idle device.
    last: Instant,
}

impl Shared {
    fn clock(&self) -> MutexGuard<'_, Clock> {
        // Two numbers are consistent whoever panicked.
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        let mut clock = self.clock();
        if clock.in_flight == 0 {
            clock.last = Instant::now();
        }
        clock.in_flight += 1;
    }

    pub fn done(&self) {
        let mut clock = self.clock();
        clock.in_flight = clock.in_flight.saturating_sub(1);
        clock.last = Instant::now();
    }

    /// Whether nothing was finished for too long although something is under way. Once hung, a
    /// device stays so.
    fn is_hung(&self) -> bool {
        let clock = self.clock();
        if clock.in_flight > 0 && clock.last.elapsed() >= self.limit {
            self.hung.store(true, Ordering::Relaxed);
        }
        self.hung.load(Ordering::Relaxed)
    }

    fn hung_error(&self) -> DriverError {
        self.error(&OpenClError::Hung {
            device: self.device.clone(),
            limit: self.limit,
        })
    }

    fn lost(&self) -> DriverError {
        DriverError::Lost {
            device: self.device.clone(),
        }
    }

    pub fn error(&self, error: &OpenClError) -> DriverError {
        let text = error.to_string();
        // The driver's error names the device itself.
        let prefix = format!("device {}: ", self.device);
        DriverError::Device {
            device: self.device.clone(),
            message: text.strip_prefix(&prefix).unwrap_or(&text).to_owned(),
        }
    }
}

/// A VTA on an OpenCL device.
///
/// One thread decodes batches and enqueues everything without waiting; for each lane another
/// answers tickets as work is finished. Each lane is a command queue of its own, so that copies
/// overlap batches; work that touches the same bytes on both lanes keeps the order in which it
/// was submitted, through events. A batch is checked wholly before anything of it runs. A device on which
/// nothing is finished for [`Options::time_limit`] is given up: its tickets get an error, its
/// threads are left behind, and the process and other devices go on.
pub struct OpenClDevice {
    info: DeviceInfo,
    entry: DeviceEntry,
    structure: Structure,
    keeps_scratchpads: bool,
    allocator: Mutex<Allocator>,
    shared: Arc<Shared>,
    sender: Option<Sender<Item>>,
    finished: Receiver<Infallible>,
}

impl OpenClDevice {
    /// Opens the device that a selector means.
    ///
    /// # Errors
    /// [`OpenClError`]: no platform, no such device, kernels that don't build, a bitstream that
    /// doesn't fit, no memory for the scratchpads.
    pub fn open(
        selector: &Selector,
        config: Config,
        mut options: Options,
    ) -> Result<Self, OpenClError> {
        options.structure = selector.structure().or(options.structure);
        Self::open_entry(&selector.find()?, config, options)
    }

    /// Opens a listed device.
    ///
    /// # Errors
    /// As [`OpenClDevice::open`].
    pub fn open_entry(
        entry: &DeviceEntry,
        config: Config,
        options: Options,
    ) -> Result<Self, OpenClError> {
        let default = match options.bitstream {
            Some(_) => Structure::Core,
            None => entry.structure,
        };
        let structure = options.structure.unwrap_or(default);
        let name = if structure == entry.structure {
            entry.selector.clone()
        } else {
            format!("{}+{structure}", entry.selector)
        };
        let shared = Arc::new(Shared {
            device: name.clone(),
            profile: options.profile,
            stats: StatsInner::default(),
            limit: options.time_limit,
            clock: Mutex::new(Clock {
                in_flight: 0,
                last: Instant::now(),
            }),
            hung: AtomicBool::new(false),
        });
        let engine = Engine::new(entry, structure, &config, &options, &shared)?;
        let keeps_scratchpads = !engine.clears_scratchpads();
        let (sender, receiver) = bounded(QUEUE_DEPTH);
        let finished = worker::start(engine, receiver, &shared)?;
        // Device memory is one buffer, so it ends where the largest one does.
        let last = entry.max_alloc_bytes().min(1 << 32);
        Ok(Self {
            info: DeviceInfo { name, config },
            entry: entry.clone(),
            structure,
            keeps_scratchpads,
            allocator: Mutex::new(Allocator::new(PAGE_BYTES, last)),
            shared,
            sender: Some(sender),
            finished,
        })
    }

    /// The device that this runs on.
    pub fn entry(&self) -> &DeviceEntry {
        &self.entry
    }

    /// The structure that it runs.
    pub fn structure(&self) -> Structure {
        self.structure
    }

    /// Whether scratchpads keep their contents from one batch to the next. On-chip ones are zero
    /// at the start of each. No program may count on either.
    pub fn keeps_scratchpads(&self) -> bool {
        self.keeps_scratchpads
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        let s = &self.shared.stats;
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Stats {
            launches: get(&s.launches),
            waits: get(&s.waits),
            stalls: get(&s.stalls),
            copies: get(&s.copies),
            kernel_ns: get(&s.kernel_ns),
            batches: get(&s.batches),
            planned: get(&s.planned),
            bytes_written: get(&s.bytes_written),
            plan_bytes: get(&s.plan_bytes),
            bytes_read: get(&s.bytes_read),
            builds: get(&s.builds),
            cache_hits: get(&s.cache_hits),
        }
    }

    /// Queues an item, waiting for room as long as the device isn't hung.
    fn send(&self, mut item: Item) -> Result<(), DriverError> {
        let sender = self.sender.as_ref().ok_or_else(|| self.shared.lost())?;
        loop {
            if self.shared.is_hung() {
                return Err(self.shared.hung_error());
            }
            match sender.send_timeout(item, LOOK) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Timeout(back)) => item = back,
                Err(SendTimeoutError::Disconnected(_)) => return Err(self.shared.lost()),
            }
        }
    }

    /// Takes or gives back memory and tells the worker in the same order: the lock is held over
    /// both, so that another thread can't get a freed range before its unmapping is queued. The
    /// worker never takes the lock.
    fn with_allocator<T>(
        &self,
        f: impl FnOnce(&mut Allocator) -> Result<T, AllocError>,
        tell: impl FnOnce(&T) -> Item,
    ) -> Result<T, DriverError> {
        // The allocator is consistent between calls, so a poisoned lock is harmless.
        let lock = self.allocator.lock();
        let mut allocator = lock.unwrap_or_else(PoisonError::into_inner);
        let done = f(&mut allocator).map_err(|source| DriverError::Alloc {
            device: self.info.name.clone(),
            source,
        })?;
        self.send(tell(&done))?;
        Ok(done)
    }
}

impl Device for OpenClDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError> {
        self.with_allocator(
            |a| a.alloc(size_bytes),
            |addr| Item::Map {
                addr: addr.0,
                size_bytes,
            },
        )
    }

    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError> {
        self.with_allocator(
            |a| a.alloc_at(addr, size_bytes),
            |()| Item::Map {
                addr: addr.0,
                size_bytes,
            },
        )
    }

    fn free(&self, addr: PhysAddr) -> Result<(), DriverError> {
        self.with_allocator(|a| a.free(addr), |()| Item::Unmap { addr: addr.0 })
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        self.submit_on(Lane::Compute, work)
    }

    fn submit_on(&self, lane: Lane, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        let lane = match work {
            Work::Run(_) => Lane::Compute,
            Work::Write { .. } | Work::Read { .. } => lane,
        };
        let (reply, receiver) = bounded(1);
        self.shared.begin();
        if let Err(error) = self.send(Item::Work { lane, work, reply }) {
            self.shared.done();
            return Err(error);
        }
        Ok(Box::new(OpenClTicket {
            shared: Arc::clone(&self.shared),
            receiver,
        }))
    }

    fn counters(&self) -> Option<DeviceCounters> {
        let s = self.stats();
        Some(DeviceCounters {
            batches: s.batches,
            launches: s.launches,
            waits: s.waits,
            stalls: s.stalls,
            copies: s.copies,
            bytes_to_device: s.bytes_written + s.plan_bytes,
            bytes_from_device: s.bytes_read,
            kernel_ns: self.shared.profile.then_some(s.kernel_ns),
        })
    }
}

impl Drop for OpenClDevice {
    fn drop(&mut self) {
        // The threads finish what is queued; the last one closes the channel. Hung ones are left
        // behind.
        self.sender = None;
        while let Err(RecvTimeoutError::Timeout) = self.finished.recv_timeout(LOOK) {
            if self.shared.is_hung() {
                tracing::warn!(device = self.info.name, "leaving a hung device behind");
                return;
            }
        }
    }
}

struct OpenClTicket {
    shared: Arc<Shared>,
    receiver: Receiver<Reply>,
}

impl Ticket for OpenClTicket {
    fn wait(self: Box<Self>) -> Result<WorkDone, DriverError> {
        loop {
            let look = LOOK.min(self.shared.limit);
            match self.receiver.recv_timeout(look) {
                Ok(reply) => return reply,
                Err(RecvTimeoutError::Disconnected) => return Err(self.shared.lost()),
                Err(RecvTimeoutError::Timeout) => {
                    if self.shared.is_hung() {
                        return Err(self.shared.hung_error());
                    }
                }
            }
        }
    }
}
