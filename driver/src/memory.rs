//! A device's DRAM: allocated regions of a 32-bit byte-addressed space, every access checked.

mod alloc;
mod allocations;
mod error;
mod host_bytes;
mod lending;
pub(crate) mod regions;
mod resolve;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::alloc::{AllocError, Allocator};
pub use self::allocations::Allocations;
pub use self::error::MemoryError;
pub use self::host_bytes::{HostBytes, InPlace};
pub use self::lending::{Lent, OtherBytes};
pub use self::regions::{Footprints, pages};

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
    /// In ascending order of address.
    regions: Vec<Region>,
    layout: u64,
}

/// A region, which can move from one memory to another with its version.
#[derive(Debug)]
pub(crate) struct Region {
    addr: u32,
    bytes: HostBytes,
    version: u64,
    /// Whether the host may have written to it since it was last seen.
    in_place: bool,
}

impl Region {
    pub(crate) fn new(addr: u32, bytes: HostBytes) -> Self {
        Self {
            addr,
            bytes,
            version: 0,
            in_place: false,
        }
    }

    /// Lets the host write between pieces of work, where the bytes are from now on; `None` when it has no memory for it.
    pub(crate) fn in_place(&mut self) -> Option<InPlace> {
        self.in_place = true;
        self.bytes.in_place()
    }

    /// Another piece of work begins, before which the host may have written.
    pub(crate) fn begin(&mut self) {
        self.version += u64::from(self.in_place);
    }

    pub(crate) fn addr(&self) -> u32 {
        self.addr
    }

    fn end(&self) -> u64 {
        u64::from(self.addr) + self.bytes.len() as u64
    }
}

/// Bytes of one region: what an address resolves to while the layout stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Index of the region, ascending with the address.
    pub region: usize,
    /// First byte in the region.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

/// A number that no other layout of any memory of this process has.
pub(crate) fn next_layout() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl DeviceMemory {
    /// No allocation yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A memory of disjoint regions, with the number that the same regions had before.
    pub(crate) fn of_regions(mut regions: Vec<Region>, layout: u64) -> Self {
        regions.sort_unstable_by_key(|r| r.addr);
        Self { regions, layout }
    }

    /// Another piece of work begins with the same regions.
    pub(crate) fn begin(&mut self) {
        self.regions.iter_mut().for_each(Region::begin);
    }

    /// Takes all regions out, in ascending order of address.
    pub(crate) fn take_regions(&mut self) -> Vec<Region> {
        self.layout = next_layout();
        std::mem::take(&mut self.regions)
    }

    /// Names the present set of regions: mapping or unmapping changes it, and no two memories
    /// share one unless both are empty. A [`Span`] means the same bytes as long as it stays.
    #[inline]
    pub fn layout(&self) -> u64 {
        self.layout
    }

    /// Where the bytes `addr..addr + len` lie.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] or [`MemoryError::Crosses`] unless they lie inside one region.
    pub fn span(&self, addr: u64, len: u64) -> Result<Span, MemoryError> {
        let (region, range) = self.locate(addr, len)?;
        Ok(Span {
            region,
            start: range.start,
            len: range.len(),
        })
    }

    /// The address of a region's first byte; `None` if there is no such region.
    pub fn address(&self, region: usize) -> Option<u32> {
        self.regions.get(region).map(|r| r.addr)
    }

    /// All bytes of a region; none if there is no such region.
    #[inline]
    pub fn region(&self, region: usize) -> &[u8] {
        self.regions.get(region).map_or(&[], |r| &r.bytes)
    }

    /// All bytes of a region, to write.
    #[inline]
    pub fn region_mut(&mut self, region: usize) -> &mut [u8] {
        match self.regions.get_mut(region) {
            // Nobody looks whether the bytes change: whoever asks for them may write.
            Some(r) => {
                r.version += 1;
                &mut r.bytes
            }
            None => &mut [],
        }
    }

    /// How often the region was lent out to be written: while it stays, so do the bytes.
    pub fn version(&self, region: usize) -> u64 {
        self.regions.get(region).map_or(0, |r| r.version)
    }

    /// Whether the host writes to the region in place, so that its version changes with each piece of work.
    pub fn is_in_place(&self, region: usize) -> bool {
        self.regions.get(region).is_some_and(|r| r.in_place)
    }

    /// A memory of the same layout and versions in which only some bytes are the same; all others are
    /// zero, and take no room where allocations are large. `None` when the host has no memory for it,
    /// or a span isn't inside a region.
    pub fn excerpt(&self, spans: &[Span]) -> Option<Self> {
        let regions = self.regions.iter().map(|region| {
            let bytes = HostBytes::zeroed(region.bytes.len() as u64)?;
            bytes.begin_in_small_pages();
            Some(Region {
                addr: region.addr,
                bytes,
                ..*region
            })
        });
        let mut regions = regions.collect::<Option<Vec<_>>>()?;
        for span in spans {
            let range = span.start..span.start.checked_add(span.len)?;
            let from = self.regions.get(span.region)?.bytes.get(range.clone())?;
            regions[span.region].bytes[range].copy_from_slice(from);
        }
        let layout = self.layout;
        Some(Self { regions, layout })
    }

    /// Whether allocations lie at the same addresses and are equally large, so that a [`Span`] means the
    /// same in both.
    pub fn has_regions_of(&self, other: &Self) -> bool {
        let place = |region: &Region| (region.addr, region.bytes.len());
        self.regions
            .iter()
            .map(place)
            .eq(other.regions.iter().map(place))
    }

    /// Adds a zeroed region. `size_bytes = 0` maps nothing.
    ///
    /// # Errors
    /// [`MemoryError::Map`] when the range overlaps a region or leaves the 32-bit space, or when
    /// the host has no memory for it.
    pub fn map(&mut self, addr: u32, size_bytes: u64) -> Result<(), MemoryError> {
        let refuse = |reason| MemoryError::Map {
            addr: addr.into(),
            size_bytes,
            reason,
        };
        let end = u64::from(addr).checked_add(size_bytes);
        let Some(end) = end.filter(|&end| end <= 1 << 32) else {
            return Err(refuse("it leaves the 32-bit address space"));
        };
        // A region without bytes would have the address of the next.
        if size_bytes == 0 {
            return Ok(());
        }
        let at = self.regions.partition_point(|r| r.addr < addr);
        let below = at.checked_sub(1).and_then(|i| self.regions.get(i));
        let above = self.regions.get(at);
        if below.is_some_and(|r| r.end() > addr.into())
            || above.is_some_and(|r| u64::from(r.addr) < end)
        {
            return Err(refuse("it overlaps another allocation"));
        }
        let bytes = HostBytes::zeroed(size_bytes);
        let bytes = bytes.ok_or_else(|| refuse("the host has no memory for it"))?;
        self.regions.insert(at, Region::new(addr, bytes));
        self.layout = next_layout();
        Ok(())
    }

    /// Removes the region that starts at `addr`; whether there was one.
    pub fn unmap(&mut self, addr: u32) -> bool {
        let found = self.regions.binary_search_by_key(&addr, |r| r.addr);
        if let Ok(index) = found {
            self.regions.remove(index);
            self.layout = next_layout();
        }
        found.is_ok()
    }

    /// The bytes `addr..addr + len`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] or [`MemoryError::Crosses`] unless they lie inside one region.
    pub fn read(&self, addr: u64, len: u64) -> Result<&[u8], MemoryError> {
        let (region, range) = self.locate(addr, len)?;
        Ok(&self.regions[region].bytes[range])
    }

    /// The bytes `addr..addr + len`, to write.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] or [`MemoryError::Crosses`] unless they lie inside one region.
    pub fn write(&mut self, addr: u64, len: u64) -> Result<&mut [u8], MemoryError> {
        let (region, range) = self.locate(addr, len)?;
        Ok(&mut self.region_mut(region)[range])
    }

    /// The last region that starts at or below an address.
    fn below(&self, addr: u64) -> Option<usize> {
        let after = self.regions.partition_point(|r| u64::from(r.addr) <= addr);
        after.checked_sub(1)
    }

    fn locate(&self, addr: u64, len: u64) -> Result<(usize, Range<usize>), MemoryError> {
        let Some(index) = self.below(addr) else {
            return Err(self.out_of_bounds(addr, len));
        };
        let region = &self.regions[index];
        let start = addr - u64::from(region.addr);
        match start.checked_add(len) {
            Some(end) if end <= region.bytes.len() as u64 => {
                Ok((index, start as usize..end as usize))
            }
            _ => Err(self.out_of_bounds(addr, len)),
        }
    }

    /// Where the bytes from `addr` on end that lie in regions without a gap between them, if `addr`
    /// is inside one, and where that one ends.
    fn run_from(&self, addr: u64) -> Option<(u64, u64)> {
        let (first, rest) = self.regions[self.below(addr)?..].split_first()?;
        let boundary = Some(first.end()).filter(|&end| addr < end)?;
        let joined = rest.iter().try_fold(boundary, |end, next| {
            if u64::from(next.addr) == end {
                ControlFlow::Continue(next.end())
            } else {
                ControlFlow::Break(end)
            }
        });
        let (ControlFlow::Continue(end) | ControlFlow::Break(end)) = joined;
        Some((boundary, end))
    }

    fn out_of_bounds(&self, addr: u64, len: u64) -> MemoryError {
        let end = addr.saturating_add(len);
        if let Some((boundary, last)) = self.run_from(addr)
            && end <= last
        {
            return MemoryError::Crosses {
                addr,
                end,
                boundary,
            };
        }
        MemoryError::OutOfBounds {
            addr,
            end,
            nearest: self.nearest(addr),
        }
    }

    fn nearest(&self, addr: u64) -> String {
        match self.below(addr).map(|i| &self.regions[i]) {
            Some(region) => format!("{:#x}..{:#x}", region.addr, region.end()),
            None => "none below".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
