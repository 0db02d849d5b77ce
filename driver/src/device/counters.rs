//! What the driver counts.

use crate::Traffic;

/// Why a batch was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushReason {
    /// The instruction queue is full.
    InsnOverflow,
    /// The micro-op queue is full.
    UopOverflow,
    /// The next layer is on another device.
    NextLayerElsewhere,
    /// Someone asked for an explicit synchronise.
    Synchronize,
    /// The host reads a device buffer.
    HostRead,
}

impl FlushReason {
    /// All reasons, in the order of [`Counters::flushes`].
    pub const ALL: [Self; 5] = [
        Self::InsnOverflow,
        Self::UopOverflow,
        Self::NextLayerElsewhere,
        Self::Synchronize,
        Self::HostRead,
    ];

    /// The key in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InsnOverflow => "insn_overflow",
            Self::UopOverflow => "uop_overflow",
            Self::NextLayerElsewhere => "next_layer_elsewhere",
            Self::Synchronize => "synchronize",
            Self::HostRead => "host_read",
        }
    }
}

/// Totals since a queue was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches submitted.
    pub submissions: u64,
    /// By reason, in the order of [`FlushReason::ALL`].
    pub flushes: [u64; 5],
    /// Batches encoded from commands.
    pub encoded_batches: u64,
    /// Batches submitted again from a recording.
    pub replayed_batches: u64,
    /// GEMM and ALU commands whose micro-ops were resident.
    pub kernel_hits: u64,
    /// GEMM and ALU commands whose micro-ops had to be loaded first.
    pub kernel_misses: u64,
    /// What the submitted instructions move and compute.
    pub traffic: Traffic,
}

impl Counters {
    /// Adds another queue's counts.
    pub fn add(&mut self, other: &Self) {
        self.submissions += other.submissions;
        for (mine, theirs) in self.flushes.iter_mut().zip(other.flushes) {
            *mine += theirs;
        }
        self.encoded_batches += other.encoded_batches;
        self.replayed_batches += other.replayed_batches;
        self.kernel_hits += other.kernel_hits;
        self.kernel_misses += other.kernel_misses;
        self.traffic.add(&other.traffic);
    }

    /// How often batches were submitted for a reason.
    pub fn flushed(&self, reason: FlushReason) -> u64 {
        self.flushes[reason as usize]
    }
}

/// What a device that a host drives counts, since it was opened.
///
/// ```
/// use vta_driver::DeviceCounters;
///
/// let mut total = DeviceCounters { launches: 3, ..DeviceCounters::default() };
/// let more = DeviceCounters { launches: 2, kernel_ns: Some(900), ..DeviceCounters::default() };
/// total.add(&more);
/// assert_eq!((total.launches, total.kernel_ns), (5, Some(900)));
/// assert_eq!(total.since(&more).launches, 3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Batches run.
    pub batches: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Times that a thread of the host waited for something enqueued to end.
    pub waits: u64,
    /// Those of the waits that held up what was to be enqueued next.
    pub stalls: u64,
    /// Copies enqueued between host and device.
    pub copies: u64,
    /// Copies on the device because what writes memory and what reads it do so in different ways
    /// (OpenCL's images). Those within one way are none.
    pub scope_copies: u64,
    /// Bytes copied to the device: what was written, and plans of batches.
    pub bytes_to_device: u64,
    /// Bytes copied from the device.
    pub bytes_from_device: u64,
    /// Batches that were made ready for the device; others ran from an earlier plan.
    pub plans: u64,
    /// Nanoseconds of the host that this took.
    pub plan_ns: u64,
    /// Nanoseconds that kernels ran on the device, when it takes their times.
    pub kernel_ns: Option<u64>,
    /// Programs built from source.
    pub builds: u64,
    /// Programs loaded from a cache of earlier builds.
    pub cache_hits: u64,
}

impl DeviceCounters {
    /// Adds another device's counts.
    pub fn add(&mut self, other: &Self) {
        *self = self.with(other, u64::saturating_add);
    }

    /// What was counted since an earlier reading of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(&self, other: &Self, f: fn(u64, u64) -> u64) -> Self {
        let kernel_ns = match (self.kernel_ns, other.kernel_ns) {
            // Some devices take times and others don't: the sum is of those that do.
            (None, None) => None,
            (a, b) => Some(f(a.unwrap_or(0), b.unwrap_or(0))),
        };
        // Field by field: a counter that is forgotten here doesn't compile.
        Self {
            batches: f(self.batches, other.batches),
            launches: f(self.launches, other.launches),
            waits: f(self.waits, other.waits),
            stalls: f(self.stalls, other.stalls),
            copies: f(self.copies, other.copies),
            scope_copies: f(self.scope_copies, other.scope_copies),
            bytes_to_device: f(self.bytes_to_device, other.bytes_to_device),
            bytes_from_device: f(self.bytes_from_device, other.bytes_from_device),
            plans: f(self.plans, other.plans),
            plan_ns: f(self.plan_ns, other.plan_ns),
            kernel_ns,
            builds: f(self.builds, other.builds),
            cache_hits: f(self.cache_hits, other.cache_hits),
        }
    }
}
