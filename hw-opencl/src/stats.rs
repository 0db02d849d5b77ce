//! What a device counts.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// [`Stats`] while they are counted.
#[derive(Debug, Default)]
pub(crate) struct StatsInner {
    pub launches: AtomicU64,
    pub waits: AtomicU64,
    pub stalls: AtomicU64,
    pub copies: AtomicU64,
    pub scope_copies: AtomicU64,
    pub kernel_ns: AtomicU64,
    pub batches: AtomicU64,
    pub planned: AtomicU64,
    pub plan_ns: AtomicU64,
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

impl StatsInner {
    /// The counts now.
    pub fn snapshot(&self) -> Stats {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Stats {
            launches: get(&self.launches),
            waits: get(&self.waits),
            stalls: get(&self.stalls),
            copies: get(&self.copies),
            scope_copies: get(&self.scope_copies),
            kernel_ns: get(&self.kernel_ns),
            batches: get(&self.batches),
            planned: get(&self.planned),
            plan_ns: get(&self.plan_ns),
            bytes_written: get(&self.bytes_written),
            plan_bytes: get(&self.plan_bytes),
            bytes_read: get(&self.bytes_read),
            builds: get(&self.builds),
            cache_hits: get(&self.cache_hits),
        }
    }
}
