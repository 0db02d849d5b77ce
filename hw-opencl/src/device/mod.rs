//! [`OpenClDevice`]: an OpenCL device as a [`Device`] of the driver.

mod engine;
mod worker;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use vta_driver::{
    AllocError, Allocator, Device, DeviceCounters, DeviceInfo, DriverError, Lane, PAGE_BYTES,
    PhysAddr, Ticket, Work,
};
use vta_isa::Config;

use self::engine::Engine;
use self::worker::Item;
use crate::build::measured::remembered_scopes;
use crate::build::program::Builder;
use crate::cl::Ctx;
use crate::error::OpenClError;
use crate::options::Options;
use crate::scopes::Scopes;
use crate::select::{DeviceEntry, Selector, Structure};
use crate::shared::Shared;

/// How many pieces of work may wait before `submit` blocks.
const QUEUE_DEPTH: usize = 64;
/// How long a wait lasts before the time limit is looked at again.
const LOOK: Duration = Duration::from_millis(200);

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
    scopes: Scopes,
    keeps_scratchpads: bool,
    allocator: Mutex<Allocator>,
    shared: Arc<Shared>,
    sender: Option<Sender<Item>>,
    finished: Receiver<Infallible>,
}

/// The memory scopes of a device: those that are asked for, or else what was measured to be
/// faster where that can be had, or else buffers.
fn scopes(
    entry: &DeviceEntry,
    structure: Structure,
    config: &Config,
    options: &Options,
) -> Result<Scopes, OpenClError> {
    let asked = options.scopes;
    let reason = match structure {
        Structure::Core | Structure::Channels => "only the throughput structure has them",
        Structure::Throughput if options.one_launch == Some(true) => {
            "a batch in one launch fills the buffers that it reads"
        }
        Structure::Throughput => {
            let measured = || remembered_scopes(entry, config, options);
            return Ok(asked.or_else(measured).unwrap_or_default());
        }
    };
    let scopes = asked.unwrap_or_default();
    if scopes.are_buffers() {
        return Ok(scopes);
    }
    Err(OpenClError::Scope {
        device: entry.selector.clone(),
        scopes: scopes.to_string(),
        reason: reason.to_owned(),
    })
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
        config.int8("an OpenCL device")?;
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
        let shared = Arc::new(Shared::new(name.clone(), &options));
        let scopes = scopes(entry, structure, &config, &options)?;
        let ctx = Ctx::new(&entry.facts).map_err(|fault| fault.of(&name))?;
        let builder = Builder {
            entry,
            config: &config,
            options: &options,
            scopes,
            stats: &shared.stats,
            ctx: &Arc::new(ctx),
        };
        let engine = Engine::new(&builder, structure, &shared)?;
        let keeps_scratchpads = !engine.clears_scratchpads();
        let (sender, receiver) = bounded(QUEUE_DEPTH);
        let finished = worker::start(engine, receiver, &shared)?;
        // Device memory is one buffer, so it ends where the largest one does.
        let last = entry.facts.max_alloc_bytes.min(1 << 32);
        Ok(Self {
            info: DeviceInfo { name, config },
            entry: entry.clone(),
            structure,
            scopes,
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

    /// The memory scopes that products read weights and inputs in.
    pub fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// Whether scratchpads keep their contents from one batch to the next. On-chip ones are zero
    /// at the start of each. No program may count on either.
    pub fn keeps_scratchpads(&self) -> bool {
        self.keeps_scratchpads
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
            Work::Write { .. } | Work::Pack { .. } | Work::Read { .. } => lane,
        };
        let (reply, receiver) = bounded(1);
        self.shared.begin();
        if let Err(error) = self.send(Item::Work { lane, work, reply }) {
            self.shared.done();
            return Err(error);
        }
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(move || {
            loop {
                match receiver.recv_timeout(LOOK.min(shared.limit)) {
                    Ok(reply) => return reply,
                    Err(RecvTimeoutError::Disconnected) => return Err(shared.lost()),
                    Err(RecvTimeoutError::Timeout) if shared.is_hung() => {
                        return Err(shared.hung_error());
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
        }))
    }

    fn counters(&self) -> Option<DeviceCounters> {
        let mut counted = self.shared.stats.snapshot();
        if self.shared.profile {
            counted.kernel_ns.get_or_insert(0);
        }
        Some(counted)
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
