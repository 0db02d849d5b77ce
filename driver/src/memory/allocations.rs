//! Device memory that is freed when its owner goes.

use std::fmt;
use std::sync::Arc;

use crate::{Device, DriverError, InPlace, PAGE_BYTES, PhysAddr};

/// Allocations on one device, freed on drop: whatever fails half-way leaks nothing.
///
/// ```
/// use std::sync::Arc;
/// use vta_driver::{Allocations, NullDevice};
/// use vta_isa::Config;
///
/// let device = Arc::new(NullDevice::with_config(Config::default()));
/// let before = device.free_bytes();
/// let mut buffers = Allocations::new(device.clone());
/// buffers.alloc(10_000, 16)?;
/// assert_eq!(device.free_bytes(), before - 3 * 4096);
/// drop(buffers);
/// assert_eq!(device.free_bytes(), before);
/// # Ok::<(), vta_driver::DriverError>(())
/// ```
pub struct Allocations {
    device: Arc<dyn Device>,
    /// What the device handed out, which alignment may have moved from what the user got.
    starts: Vec<PhysAddr>,
}

impl Allocations {
    /// None yet.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device,
            starts: Vec::new(),
        }
    }

    /// Allocates `size_bytes` (at least one byte) at a multiple of `align_bytes`. Elements of
    /// the largest matrix units are larger than the pages that devices align to.
    ///
    /// # Errors
    /// As [`Device::alloc`].
    pub fn alloc(&mut self, size_bytes: u64, align_bytes: u64) -> Result<PhysAddr, DriverError> {
        let align = align_bytes.max(1);
        let slack = if PAGE_BYTES.is_multiple_of(align) {
            0
        } else {
            align - 1
        };
        // A buffer without bytes still needs an address of its own.
        let need = size_bytes.max(1).saturating_add(slack);
        let start = self.device.alloc(need)?;
        self.starts.push(start);
        if slack == 0 {
            return Ok(start);
        }
        // The slack keeps the aligned address inside the allocation, so it fits 32 bits.
        let aligned = u64::from(start.0).next_multiple_of(align);
        Ok(PhysAddr(aligned as u32))
    }

    /// The bytes of the allocation that an address is in, from there on, as [`Device::in_place`] gives them.
    pub fn in_place(&self, addr: PhysAddr) -> Option<InPlace> {
        let before = self.starts.iter().filter(|start| start.0 <= addr.0);
        let start = before.max_by_key(|start| start.0)?;
        self.device
            .in_place(*start)?
            .from((addr.0 - start.0) as usize)
    }
}

impl Drop for Allocations {
    fn drop(&mut self) {
        for start in &self.starts {
            match self.device.free(*start) {
                // A device that is gone has nothing left to free.
                Ok(()) | Err(DriverError::Lost { .. }) => {}
                Err(error) => tracing::error!(%error, "freeing device memory"),
            }
        }
    }
}

impl fmt::Debug for Allocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocations")
            .field("device", &self.device.info().name)
            .field("starts", &self.starts)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::Config;

    use super::*;
    use crate::NullDevice;

    #[test]
    fn addresses_are_aligned_beyond_a_page_and_freed() {
        let device = Arc::new(NullDevice::with_config(Config::default()));
        let before = device.free_bytes();
        let mut all = Allocations::new(device.clone());
        for (size, align) in [
            (1, 1),
            (0, 16),
            (5000, 16384),
            (1, 0),
            (8192, 16384),
            (3, 4096),
        ] {
            let addr = u64::from(all.alloc(size, align).unwrap().0);
            assert!(addr.is_multiple_of(align.max(1)), "{addr:#x} {align}");
            // All of it is there.
            let work = crate::Work::Read {
                addr: PhysAddr(addr as u32),
                size_bytes: size,
            };
            device.submit(work).unwrap().wait().unwrap();
            let bytes = all.in_place(PhysAddr(addr as u32)).unwrap();
            let from_page = bytes.first.addr().get() as u64 % PAGE_BYTES;
            assert!(from_page == addr % PAGE_BYTES && bytes.len as u64 >= size.max(1));
        }
        assert!(all.in_place(PhysAddr(0)).is_none() && all.in_place(PhysAddr(u32::MAX)).is_none());
        assert!(all.alloc(u64::MAX, 16384).is_err());
        drop(all);
        assert_eq!(device.free_bytes(), before);
    }
}
