//! The range of cycle numbers.

/// No cycle: nothing is due.
pub(super) const NEVER: u64 = u64::MAX;

/// The last cycle in which an instruction may be done, whatever the budget: over a thousand years at 100 MHz.
pub const MAX_CYCLES: u64 = 1 << 62;
