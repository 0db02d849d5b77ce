//! What a `Device` and those who hold parts of it share.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use vta_app::Error;
use vta_driver::{Allocations, Budget, DriverError, Lane, Stream, Timeline, TimelineError};
use vta_isa::Config;
use vta_sim::cycle::TimingConfig;

use crate::error::{raise, unsatisfied, usage};
use crate::fork;

/// A device and its memory, shared by those who hold parts of it.
pub struct Opened {
    /// As it was asked for.
    pub name: String,
    /// Its configuration.
    pub config: Config,
    /// For cycles of single instructions, where cycles are counted.
    pub timing: Option<(TimingConfig, Budget)>,
    open: Mutex<Option<Open>>,
    next: AtomicU64,
    /// Whether Ctrl-C left work to the device that nobody waits for.
    left: AtomicBool,
}

/// Whether a call waits for its work, which never waits for what is only queued.
#[derive(Clone, Copy)]
pub enum Calls {
    Waited,
    Queued,
}

/// What is there until the device is closed. What is queued goes before memory, and memory before the device.
pub struct Open {
    /// By lane and kind of calls, once there is work for them.
    streams: [[Option<Arc<Stream>>; 2]; 2],
    /// Memory that queued work may touch, until its own value is signalled.
    kept: Vec<(Timeline, Vec<Arc<Allocations>>)>,
    /// By their numbers.
    pub buffers: HashMap<u64, Arc<Allocations>>,
    /// The device itself.
    pub device: Arc<dyn vta_driver::Device>,
}

impl Open {
    /// What queues work on a lane, with waits before and signals after it.
    pub fn stream(&mut self, lane: Lane, calls: Calls) -> Arc<Stream> {
        let (place, name) = match lane {
            Lane::Compute => (0, "runs"),
            Lane::Copy => (1, "copies"),
        };
        let new = || {
            let name = format!("{name} of {}", self.device.info().name);
            Arc::new(Stream::new(name, Arc::clone(&self.device), lane))
        };
        let streams = &mut self.streams[place];
        Arc::clone(streams[calls as usize].get_or_insert_with(new))
    }

    /// Keeps memory, and all that is a buffer's now, until a timeline is at 1 or has failed.
    pub fn keep(&mut self, done: Timeline, memory: Allocations) {
        let buffers = self.buffers.values().cloned();
        let all = buffers.chain([Arc::new(memory)]).collect();
        self.kept.push((done, all));
    }
}

/// Whether a timeline may still reach 1.
pub fn is_outstanding(done: &Timeline) -> bool {
    let waited = done.wait_timeout(1, Duration::ZERO);
    matches!(waited, Err(TimelineError::Timeout { .. }))
}

impl Opened {
    /// A device without a buffer. `timing` is that of one that counts cycles.
    pub fn new(
        name: String,
        config: Config,
        timing: Option<(TimingConfig, Budget)>,
        device: Arc<dyn vta_driver::Device>,
    ) -> Self {
        let open = Open {
            streams: Default::default(),
            kept: Vec::new(),
            buffers: HashMap::new(),
            device,
        };
        Self {
            name,
            config,
            timing,
            open: Mutex::new(Some(open)),
            next: AtomicU64::new(0),
            left: AtomicBool::new(false),
        }
    }

    /// A number that no buffer had.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that the device has work for which nobody waits.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// Does something with what is open. It never waits for a run.
    ///
    /// # Errors
    /// `UsageError` for a device that is closed, and those of the work.
    pub fn with<T>(&self, work: impl FnOnce(&mut Open) -> PyResult<T>) -> PyResult<T> {
        fork::here()?;
        match &mut *self.lock() {
            Some(open) => {
                open.kept.retain(|(done, _)| is_outstanding(done));
                work(open)
            }
            None => Err(usage(format!("device {} is closed", self.name))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a device that answers no more.
    pub fn lost(&self) -> PyErr {
        let device = self.name.clone();
        failed(DriverError::Lost { device })
    }

    /// Frees all buffers and lets the device go.
    pub fn close(&self) {
        if fork::is_forked() {
            return;
        }
        let open = self.lock().take();
        // A device ends its work before it goes, for which nobody waits who was sent away.
        if self.left.load(Ordering::Relaxed) {
            let aside = thread::Builder::new().spawn(move || drop(open));
            drop(aside);
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if fork::is_forked() {
            let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
            mem::forget(open.take());
        } else {
            self.close();
        }
    }
}

/// A device's error as an exception.
pub fn failed(error: DriverError) -> PyErr {
    match error {
        DriverError::Timeline(error) => unsatisfied(&error),
        error => raise(Error::from(error)),
    }
}
