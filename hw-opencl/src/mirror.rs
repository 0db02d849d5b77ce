//! What the host knows of device memory: the allocations, the bytes that it wrote, and which
//! pages the device has written since.

use std::ops::Range;

use vta_driver::{DeviceMemory, MemoryError, PAGE_BYTES};

/// Pages of the 32-bit space.
const PAGES: usize = 1 << 20;

/// The host's copy of device memory. Bytes on pages that the device wrote may be out of date.
pub(crate) struct Mirror {
    memory: DeviceMemory,
    /// One bit for each page that the device has written.
    written: Vec<u64>,
}

impl Mirror {
    pub fn new() -> Self {
        Self {
            memory: DeviceMemory::new(),
            written: vec![0; PAGES / 64],
        }
    }

    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    pub fn map(&mut self, addr: u32, size_bytes: u64) -> Result<(), MemoryError> {
        self.memory.map(addr, size_bytes)?;
        self.forget(addr.into(), size_bytes);
        Ok(())
    }

    pub fn unmap(&mut self, addr: u32) {
        self.memory.unmap(addr);
    }

    /// The host writes bytes.
    pub fn host_writes(&mut self, addr: u32, data: &[u8]) -> Result<(), MemoryError> {
        let len = data.len() as u64;
        self.memory.write(addr.into(), len)?.copy_from_slice(data);
        self.forget(addr.into(), len);
        Ok(())
    }

    /// Bytes that were read back. Only these are known now, not their whole pages.
    pub fn refresh(&mut self, addr: u32, data: &[u8]) -> Result<(), MemoryError> {
        let bytes = self.memory.write(addr.into(), data.len() as u64)?;
        bytes.copy_from_slice(data);
        Ok(())
    }

    /// The device writes bytes, all inside the 32-bit space.
    pub fn device_writes(&mut self, bytes: &Range<u64>) {
        for page in pages(bytes) {
            self.written[page / 64] |= 1 << (page % 64);
        }
    }

    /// Whether the device has written to the pages of some bytes since they were known.
    pub fn is_stale(&self, bytes: &Range<u64>) -> bool {
        pages(bytes).any(|page| self.written[page / 64] & 1 << (page % 64) != 0)
    }

    /// Every byte of the whole pages inside a range is known again.
    fn forget(&mut self, addr: u64, len: u64) {
        let first = addr.div_ceil(PAGE_BYTES) as usize;
        let last = ((addr + len) / PAGE_BYTES) as usize;
        for page in first..last.min(PAGES) {
            self.written[page / 64] &= !(1 << (page % 64));
        }
    }
}

/// The pages that a range touches.
fn pages(bytes: &Range<u64>) -> Range<usize> {
    if bytes.is_empty() {
        return 0..0;
    }
    let end = bytes.end.div_ceil(PAGE_BYTES) as usize;
    (bytes.start / PAGE_BYTES) as usize..end.min(PAGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_stale_from_a_device_write_to_a_host_write_of_the_whole_page() {
        let mut m = Mirror::new();
        m.map(0x1000, 0x3000).unwrap();
        m.device_writes(&(0x1ff0..0x2010));
        assert!(m.is_stale(&(0x1000..0x1001)) && m.is_stale(&(0x2fff..0x3000)));
        assert!(!m.is_stale(&(0x3000..0x3004)));
        m.host_writes(0x1000, &[1; 0x1800]).unwrap();
        assert!(!m.is_stale(&(0x1000..0x2000)) && m.is_stale(&(0x2000..0x2001)));
        m.refresh(0x2000, &[7; 4]).unwrap();
        assert_eq!(m.memory().read(0x2000, 4).unwrap(), [7; 4]);
        assert!(
            m.is_stale(&(0x2000..0x2001)),
            "the rest of the page is unknown"
        );
    }

    #[test]
    fn a_new_allocation_is_known_and_its_layout_is_new() {
        let mut m = Mirror::new();
        m.map(0x1000, 0x1000).unwrap();
        m.device_writes(&(0x1000..0x1001));
        let before = m.memory().layout();
        m.unmap(0x1000);
        m.map(0x1000, 0x1000).unwrap();
        assert!(!m.is_stale(&(0x1000..0x2000)));
        assert_ne!(m.memory().layout(), before);
        assert!(m.host_writes(0x5000, &[1]).is_err());
        let last = u64::from(u32::MAX)..1 << 32;
        m.device_writes(&last);
        assert!(m.is_stale(&last));
    }
}
