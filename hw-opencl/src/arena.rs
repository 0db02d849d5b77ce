//! Device memory: one buffer that spans the allocations and grows with them.

use std::collections::BTreeMap;
use std::fmt::Display;

use vta_driver::PAGE_BYTES;

use crate::cl::{Bytes, Ctx, Queue};
use crate::error::EngineError;

/// One buffer for all allocations. A byte's place is its address less the arena's base, so that
/// instructions work with addresses as they are.
pub(crate) struct Arena {
    buffer: Option<Bytes>,
    base: u64,
    max_bytes: u64,
    /// Start and size of each allocation.
    allocations: BTreeMap<u64, u64>,
    /// Allocations whose bytes must still be made zero.
    fresh: Vec<(u64, u64)>,
}

impl Arena {
    pub fn new(max_bytes: u64) -> Self {
        Self {
            buffer: None,
            base: 0,
            max_bytes,
            allocations: BTreeMap::new(),
            fresh: Vec::new(),
        }
    }

    pub fn map(&mut self, addr: u32, size_bytes: u64) {
        self.allocations.insert(addr.into(), size_bytes);
        self.fresh.push((addr.into(), size_bytes));
    }

    pub fn unmap(&mut self, addr: u32) {
        self.allocations.remove(&addr.into());
        self.fresh.retain(|(first, _)| *first != u64::from(addr));
    }

    /// First address of the buffer.
    pub fn base(&self) -> u64 {
        self.base
    }

    pub fn size_bytes(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Bytes::size_bytes)
    }

    /// The buffer, once there was an allocation.
    pub fn buffer(&self) -> Option<&Bytes> {
        self.buffer.as_ref()
    }

    pub fn buffer_mut(&mut self) -> Option<&mut Bytes> {
        self.buffer.as_mut()
    }

    /// Whether there is nothing to [prepare](Self::prepare).
    pub fn is_ready(&self) -> bool {
        self.fresh.is_empty() && self.buffer.is_some()
    }

    /// Makes the buffer span every allocation, and new allocations zero. Everything is enqueued;
    /// what was in the buffer is copied on the device.
    pub fn prepare(&mut self, ctx: &Ctx, queue: &Queue) -> Result<(), EngineError> {
        if self.is_ready() {
            return Ok(());
        }
        let first = self.allocations.first_key_value().map_or(0, |(a, _)| *a);
        let first = first / PAGE_BYTES * PAGE_BYTES;
        let last = self.allocations.last_key_value().map_or(0, |(a, n)| a + n);
        let have = self.base..self.base + self.size_bytes();
        if self.buffer.is_none() || first < have.start || last > have.end {
            self.grow(ctx, queue, first, last)?;
        }
        let Some(buffer) = &mut self.buffer else {
            return Ok(());
        };
        while let Some((addr, len)) = self.fresh.last().copied() {
            queue.zero(buffer, addr - self.base, len)?;
            self.fresh.pop();
        }
        Ok(())
    }

    fn grow(&mut self, ctx: &Ctx, queue: &Queue, first: u64, last: u64) -> Result<(), EngineError> {
        let need = last - first;
        if need > self.max_bytes {
            let limit = format_args!("the largest buffer has {} bytes", self.max_bytes);
            return Err(too_large(need, limit));
        }
        // Half as much again, so that a row of allocations doesn't copy each time.
        let roomy = (need + need / 2).next_multiple_of(PAGE_BYTES);
        let size = roomy.min(self.max_bytes).min((1 << 32) - first).max(need);
        let mut new = ctx.buffer(size).map_err(|fault| too_large(size, fault))?;
        if let Some(old) = &self.buffer {
            let start = self.base.max(first);
            let end = (self.base + old.size_bytes()).min(first + size);
            if start < end {
                queue.copy(
                    old,
                    &mut new,
                    [start - self.base, start - first],
                    end - start,
                )?;
            }
        }
        self.base = first;
        self.buffer = Some(new);
        Ok(())
    }
}

fn too_large(bytes: u64, limit: impl Display) -> EngineError {
    EngineError::refused(format_args!(
        "{bytes} bytes of device memory can't be had ({limit})"
    ))
}
