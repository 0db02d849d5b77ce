//! A device's DRAM: allocated regions of a 32-bit byte-addressed space, every access checked.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;
use thiserror::Error;

/// Regions of at least this many bytes are anonymous maps: the system hands out zero pages when
/// they are touched, and says so when it has none, where a vector would abort the process.
const MAPPED_BYTES: u64 = 1 << 16;

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

/// The zeroed bytes of one allocation.
#[derive(Debug)]
pub(crate) enum HostBytes {
    Small(Vec<u8>),
    Mapped(MmapMut),
}

impl HostBytes {
    /// `None` when the host has no memory for them.
    pub(crate) fn zeroed(size_bytes: u64) -> Option<Self> {
        let len = usize::try_from(size_bytes).ok()?;
        if size_bytes >= MAPPED_BYTES {
            return MmapMut::map_anon(len).ok().map(Self::Mapped);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        Some(Self::Small(bytes))
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

impl DerefMut for HostBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

/// Bytes of a device's DRAM. Regions are zero when mapped and accesses never cross them.
///
/// ```
/// use vta_driver::DeviceMemory;
///
/// let mut memory = DeviceMemory::new();
/// memory.map(0x1000, 16)?;
/// memory.write(0x1004, 2)?.copy_from_slice(&[7, 8]);
/// assert_eq!(memory.read(0x1003, 4)?, [0, 7, 8, 0]);
/// // An access that leaves the allocation is an error that names both.
/// let error = memory.read(0x100c, 8).unwrap_err().to_string();
/// assert!(error.contains("0x100c..0x1014") && error.contains("0x1000..0x1010"));
/// # Ok::<(), vta_driver::MemoryError>(())
/// ```
#[derive(Debug, Default)]
pub struct DeviceMemory {
    regions: BTreeMap<u32, HostBytes>,
}

impl DeviceMemory {
    /// No allocation yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a zeroed region. `size_bytes = 0` maps nothing.
    ///
    /// # Errors
    /// [`MemoryError::Map`] when the range overlaps a region or leaves the 32-bit space, or when
    /// the host has no memory for it.
    pub fn map(&mut self, addr: u32, size_bytes: u64) -> Result<(), MemoryError> {
        self.check_free(addr, size_bytes)?;
        let bytes = HostBytes::zeroed(size_bytes).ok_or(MemoryError::Map {
            addr: addr.into(),
            size_bytes,
            reason: "the host has no memory for it",
        })?;
        self.insert(addr, bytes)
    }

    /// Adds a region whose bytes are there already.
    pub(crate) fn insert(&mut self, addr: u32, bytes: HostBytes) -> Result<(), MemoryError> {
        self.check_free(addr, bytes.len() as u64)?;
        if !bytes.is_empty() {
            self.regions.insert(addr, bytes);
        }
        Ok(())
    }

    /// Takes out the region that starts at `addr`, bytes and all.
    pub(crate) fn remove(&mut self, addr: u32) -> Option<HostBytes> {
        self.regions.remove(&addr)
    }

    fn check_free(&self, addr: u32, size_bytes: u64) -> Result<(), MemoryError> {
        let refuse = |reason| {
            Err(MemoryError::Map {
                addr: addr.into(),
                size_bytes,
                reason,
            })
        };
        let end = match u64::from(addr).checked_add(size_bytes) {
            Some(end) if end <= 1 << 32 => end,
            _ => return refuse("it leaves the 32-bit address space"),
        };
        if size_bytes == 0 {
            return Ok(());
        }
        let below = self.regions.range(..=addr).next_back();
        let overlaps_below =
            below.is_some_and(|(base, data)| u64::from(*base) + data.len() as u64 > addr.into());
        let above = self.regions.range(addr..).next();
        if overlaps_below || above.is_some_and(|(base, _)| u64::from(*base) < end) {
            return refuse("it overlaps another allocation");
        }
        Ok(())
    }

    /// Removes the region that starts at `addr`; whether there was one.
    pub fn unmap(&mut self, addr: u32) -> bool {
        self.remove(addr).is_some()
    }

    /// The bytes `addr..addr + len`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] unless they lie inside one region.
    pub fn read(&self, addr: u64, len: u64) -> Result<&[u8], MemoryError> {
        let (base, range) = self.locate(addr, len)?;
        Ok(&self.regions[&base][range])
    }

    /// The bytes `addr..addr + len`, to write.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] unless they lie inside one region.
    pub fn write(&mut self, addr: u64, len: u64) -> Result<&mut [u8], MemoryError> {
        let (base, range) = self.locate(addr, len)?;
        // `locate` found the region, so the empty slice is never returned.
        Ok(self
            .regions
            .get_mut(&base)
            .map_or(&mut [], |data| &mut data[range]))
    }

    fn locate(&self, addr: u64, len: u64) -> Result<(u32, std::ops::Range<usize>), MemoryError> {
        let below = u32::try_from(addr).unwrap_or(u32::MAX);
        let Some((&base, data)) = self.regions.range(..=below).next_back() else {
            return Err(self.out_of_bounds(addr, len));
        };
        let start = addr - u64::from(base);
        match start.checked_add(len) {
            Some(end) if end <= data.len() as u64 => Ok((base, start as usize..end as usize)),
            _ => Err(self.out_of_bounds(addr, len)),
        }
    }

    fn out_of_bounds(&self, addr: u64, len: u64) -> MemoryError {
        let end = addr.saturating_add(len);
        MemoryError::OutOfBounds {
            addr,
            end,
            nearest: self.nearest(addr),
        }
    }

    fn nearest(&self, addr: u64) -> String {
        let below = u32::try_from(addr).unwrap_or(u32::MAX);
        match self.regions.range(..=below).next_back() {
            Some((base, data)) => {
                format!("{base:#x}..{:#x}", u64::from(*base) + data.len() as u64)
            }
            None => "none below".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_stay_inside_one_region() {
        let mut m = DeviceMemory::new();
        m.map(0x1000, 16).unwrap();
        m.map(0x1010, 16).unwrap();
        m.write(0x1004, 4).unwrap().copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(m.read(0x1003, 6).unwrap(), [0, 1, 2, 3, 4, 0]);
        for (addr, len) in [
            (0xfff, 1),
            (0x1008, 9),
            (0x1020, 1),
            (u64::MAX, 2),
            (0x1000, u64::MAX),
        ] {
            assert!(
                matches!(m.read(addr, len), Err(MemoryError::OutOfBounds { .. })),
                "{addr:#x}"
            );
            assert!(m.write(addr, len).is_err());
        }
    }

    #[test]
    fn overlapping_and_outside_maps_are_refused() {
        let mut m = DeviceMemory::new();
        m.map(0x1000, 16).unwrap();
        for (addr, size) in [
            (0x1000, 1),
            (0xff8, 9),
            (0x100f, 4),
            (u32::MAX, 2),
            (0, u64::MAX),
            (1, u64::MAX),
        ] {
            assert!(m.map(addr, size).is_err(), "{addr:#x} {size}");
        }
        m.map(0xff8, 8).unwrap();
        assert!(m.unmap(0x1000) && !m.unmap(0x1000));
        m.map(0x1000, 1).unwrap();
    }

    #[test]
    fn regions_of_either_kind_are_zero_and_fail_politely() {
        for size in [1, MAPPED_BYTES - 1, MAPPED_BYTES, 3 * MAPPED_BYTES] {
            let bytes = HostBytes::zeroed(size).unwrap();
            assert!(bytes.len() as u64 == size && bytes.iter().all(|&b| b == 0));
        }
        assert!(HostBytes::zeroed(0).unwrap().is_empty());
        assert!(HostBytes::zeroed(1 << 62).is_none());
    }
}
