//! What a device counts.

use std::sync::{Mutex, PoisonError};

use vta_driver::DeviceCounters;

/// [`DeviceCounters`] while they are counted, by several threads.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<DeviceCounters>);

impl Counts {
    /// Counts something.
    pub fn add(&self, count: impl FnOnce(&mut DeviceCounters)) {
        // Numbers are consistent whoever panicked.
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes a copy of so many bytes to the device.
    pub fn sent(&self, len: u64) {
        self.add(|stats| {
            stats.copies += 1;
            stats.bytes_to_device += len;
        });
    }

    /// Notes a copy of so many bytes from the device.
    pub fn received(&self, len: u64) {
        self.add(|stats| {
            stats.copies += 1;
            stats.bytes_from_device += len;
        });
    }

    /// Notes that enqueuing was held up.
    pub fn stalled(&self) {
        self.add(|stats| {
            stats.waits += 1;
            stats.stalls += 1;
        });
    }

    /// The counts now.
    pub fn snapshot(&self) -> DeviceCounters {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
