//! Which addresses of a device's 32-bit space are taken: first fit, on 4 KiB pages.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{PAGE_BYTES, PhysAddr};

/// An allocation that can't be made, or a free of something that isn't one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No gap is large enough.
    #[error(
        "no room for {requested_bytes} bytes of device memory: \
         {free_bytes} bytes are free, the largest block has {largest_bytes}"
    )]
    Exhausted {
        /// Size asked for.
        requested_bytes: u64,
        /// Sum of all gaps.
        free_bytes: u64,
        /// Largest gap.
        largest_bytes: u64,
    },
    /// A fixed range is taken or outside the space.
    #[error("device memory {addr:#x}..{end:#x} is taken or outside {first:#x}..{last:#x}")]
    Taken {
        /// First byte.
        addr: u64,
        /// One past the last byte.
        end: u64,
        /// First byte of the space.
        first: u64,
        /// One past the last byte of the space.
        last: u64,
    },
    /// Zero bytes were asked for.
    #[error("an allocation of 0 bytes was asked for")]
    Empty,
    /// The address isn't the start of an allocation.
    #[error("{addr:#x} is not the start of an allocation")]
    NotAllocated {
        /// The address.
        addr: u64,
    },
    /// The device has room, but its memory lies on the host, which has none.
    #[error("the host has no memory for {requested_bytes} bytes of device memory")]
    Host {
        /// Size asked for.
        requested_bytes: u64,
    },
}

/// A first-fit allocator over one address range. Gaps are what lies between allocations, so
/// neighbouring frees coalesce by themselves.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Start to end, in address order, disjoint.
    used: BTreeMap<u64, u64>,
    first: u64,
    last: u64,
}

impl Default for Allocator {
    /// The 32-bit space without its first page, so that address 0 is never handed out.
    fn default() -> Self {
        Self::new(PAGE_BYTES, 1 << 32)
    }
}

impl Allocator {
    /// Allocates from `first..last`, both rounded inwards to pages and limited to 32 bits.
    pub fn new(first: u64, last: u64) -> Self {
        let last = last.min(1 << 32) / PAGE_BYTES * PAGE_BYTES;
        let first = first.min(1 << 32).next_multiple_of(PAGE_BYTES).min(last);
        Self {
            used: BTreeMap::new(),
            first,
            last,
        }
    }

    /// The first gap of at least `size_bytes`, rounded up to pages.
    ///
    /// # Errors
    /// [`AllocError::Exhausted`] or, for 0 bytes, [`AllocError::Empty`].
    pub fn alloc(&mut self, size_bytes: u64) -> Result<PhysAddr, AllocError> {
        if size_bytes == 0 {
            return Err(AllocError::Empty);
        }
        let need = size_bytes
            .checked_next_multiple_of(PAGE_BYTES)
            .unwrap_or(u64::MAX);
        // Gaps are looked up afresh: allocations are few, and a list of gaps would have to be kept.
        let (mut free_bytes, mut largest_bytes) = (0, 0);
        for (start, end) in self.gaps() {
            if end - start >= need {
                self.used.insert(start, start + need);
                return Ok(PhysAddr(start as u32));
            }
            free_bytes += end - start;
            largest_bytes = largest_bytes.max(end - start);
        }
        Err(AllocError::Exhausted {
            requested_bytes: size_bytes,
            free_bytes,
            largest_bytes,
        })
    }

    /// Takes exactly `addr..addr + size_bytes`, which needs no alignment: recorded runs of other
    /// runtimes place buffers as they like. Address 0 is allowed here.
    ///
    /// # Errors
    /// [`AllocError::Taken`] or [`AllocError::Empty`].
    pub fn alloc_at(&mut self, addr: PhysAddr, size_bytes: u64) -> Result<(), AllocError> {
        if size_bytes == 0 {
            return Err(AllocError::Empty);
        }
        let start = u64::from(addr.0);
        let end = start.saturating_add(size_bytes);
        let clash = self
            .used
            .range(..end)
            .next_back()
            .is_some_and(|(_, e)| *e > start);
        if clash || end > self.last {
            return Err(AllocError::Taken {
                addr: start,
                end,
                first: 0,
                last: self.last,
            });
        }
        self.used.insert(start, end);
        Ok(())
    }

    /// Frees the allocation that starts at `addr`.
    ///
    /// # Errors
    /// [`AllocError::NotAllocated`].
    pub fn free(&mut self, addr: PhysAddr) -> Result<(), AllocError> {
        let addr = u64::from(addr.0);
        self.used
            .remove(&addr)
            .map(drop)
            .ok_or(AllocError::NotAllocated { addr })
    }

    /// The first address that it hands out.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// One past the last address that it hands out.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Bytes of whole free pages.
    pub fn free_bytes(&self) -> u64 {
        self.gaps().iter().map(|(start, end)| end - start).sum()
    }

    /// Free page ranges in address order.
    fn gaps(&self) -> Vec<(u64, u64)> {
        let mut gaps = Vec::with_capacity(self.used.len() + 1);
        let mut cursor = self.first;
        for (start, end) in &self.used {
            let start_page = start / PAGE_BYTES * PAGE_BYTES;
            if start_page > cursor {
                gaps.push((cursor, start_page));
            }
            cursor = cursor.max(end.next_multiple_of(PAGE_BYTES));
        }
        if self.last > cursor {
            gaps.push((cursor, self.last));
        }
        gaps
    }
}

#[cfg(test)]
mod tests;
