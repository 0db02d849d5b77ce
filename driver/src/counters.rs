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
