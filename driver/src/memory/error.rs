//! What device memory refuses.

use thiserror::Error;

/// An access or mapping that the memory refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The bytes aren't all inside one allocation.
    #[error("DRAM bytes {addr:#x}..{end:#x} are outside every allocation (nearest: {nearest})")]
    OutOfBounds {
        /// First byte of the access.
        addr: u64,
        /// One past the last byte.
        end: u64,
        /// The closest allocation at or below, in words.
        nearest: String,
    },
    /// The bytes are all there, but in several allocations that happen to lie side by side.
    #[error(
        "DRAM bytes {addr:#x}..{end:#x} cross from the allocation that ends at {boundary:#x} into \
         the next; each row of a transfer must lie in one allocation"
    )]
    Crosses {
        /// First byte of the access.
        addr: u64,
        /// One past the last byte.
        end: u64,
        /// One past the last byte of the allocation that the access begins in.
        boundary: u64,
    },
    /// A mapping overlaps another or leaves the 32-bit space.
    #[error("cannot map {size_bytes} bytes at {addr:#x}: {reason}")]
    Map {
        /// First byte.
        addr: u64,
        /// Size in bytes.
        size_bytes: u64,
        /// Why.
        reason: &'static str,
    },
}
