//! What a device counts.

use std::sync::{Mutex, PoisonError};

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
    /// Copies on the device from one memory scope to another.
    pub scope_copies: u64,
    /// Nanoseconds that kernels ran; 0 unless [`profile`](crate::Options::profile) is set.
    pub kernel_ns: u64,
    /// Batches run.
    pub batches: u64,
    /// Batches that were planned; the others were run again from an earlier plan.
    pub planned: u64,
    /// Nanoseconds that planning took: checking instructions, making operations, copying them to
    /// the device.
    pub plan_ns: u64,
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

/// [`Stats`] while they are counted, by several threads.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Stats>);

impl Counts {
    /// Counts something.
    pub fn add(&self, count: impl FnOnce(&mut Stats)) {
        // Numbers are consistent whoever panicked.
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes a copy of so many bytes.
    pub fn copied(&self, len: u64, bytes: impl FnOnce(&mut Stats) -> &mut u64) {
        self.add(|stats| {
            stats.copies += 1;
            *bytes(stats) += len;
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
    pub fn snapshot(&self) -> Stats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
