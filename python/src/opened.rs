//! What a `Device` and those who hold parts of it share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use pyo3::prelude::*;
use vta_app::error::Error;
use vta_driver::{Allocations, Budget, DriverError};
use vta_isa::Config;
use vta_sim::cycle::TimingConfig;

use crate::error::{input, raise, usage};

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

/// What is there until the device is closed. Buffers go before the device.
pub struct Open {
    /// By their numbers.
    pub buffers: HashMap<u64, Allocations>,
    /// The device itself.
    pub device: Arc<dyn vta_driver::Device>,
}

impl Opened {
    /// A device without a buffer. `timing` is that of one that counts cycles.
    pub fn new(
        name: String,
        config: Config,
        timing: Option<(TimingConfig, Budget)>,
        device: Arc<dyn vta_driver::Device>,
    ) -> Self {
        let buffers = HashMap::new();
        Self {
            name,
            config,
            timing,
            open: Mutex::new(Some(Open { buffers, device })),
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
        match &mut *self.lock() {
            Some(open) => work(open),
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
        self.close();
    }
}

/// A number of bytes.
///
/// # Errors
/// `InputError` for one below 0.
pub fn count(value: i64, name: &str) -> PyResult<u64> {
    let negative = |_| input(format!("`{name}` is {value}, but it must be at least 0"));
    u64::try_from(value).map_err(negative)
}

/// A device's error as an exception.
pub fn failed(error: DriverError) -> PyErr {
    raise(Error::from(error))
}
