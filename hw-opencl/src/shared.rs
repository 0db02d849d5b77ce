//! What a device's threads and tickets share: counts, and the watch for a hung device.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vta_driver::DriverError;

use crate::error::EngineError;
use crate::options::Options;
use crate::stats::Counts;

/// What the device's threads and tickets share.
pub(crate) struct Shared {
    pub device: String,
    /// Whether kernels' times are taken.
    pub profile: bool,
    pub stats: Counts,
    pub limit: Duration,
    clock: Mutex<Clock>,
    hung: AtomicBool,
}

struct Clock {
    in_flight: usize,
    /// When something was last finished, or begun on an idle device.
    last: Instant,
}

impl Shared {
    /// Of a device on which nothing is under way.
    pub fn new(device: String, options: &Options) -> Self {
        Self {
            device,
            profile: options.profile,
            stats: Counts::default(),
            limit: options.time_limit,
            clock: Mutex::new(Clock {
                in_flight: 0,
                last: Instant::now(),
            }),
            hung: AtomicBool::new(false),
        }
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        // Two numbers are consistent whoever panicked.
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self) {
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
    pub fn is_hung(&self) -> bool {
        let clock = self.clock();
        if clock.in_flight > 0 && clock.last.elapsed() >= self.limit {
            self.hung.store(true, Ordering::Relaxed);
        }
        self.hung.load(Ordering::Relaxed)
    }

    pub fn hung_error(&self) -> DriverError {
        self.failed(format_args!(
            "nothing was finished for {} s; it is given up as hung \
             (VTA_OPENCL_TIMEOUT_S sets the limit)",
            self.limit.as_secs_f32()
        ))
    }

    pub fn lost(&self) -> DriverError {
        DriverError::lost(&self.device)
    }

    /// A fault of the device.
    pub fn failed(&self, fault: impl Display) -> DriverError {
        DriverError::Device {
            device: self.device.clone(),
            message: fault.to_string(),
        }
    }

    /// A fault of the enqueuing thread, in the driver's words.
    pub fn engine_error(&self, error: EngineError) -> DriverError {
        match error {
            EngineError::Memory(source) => DriverError::Memory {
                device: self.device.clone(),
                source,
            },
            other => self.failed(other),
        }
    }
}
