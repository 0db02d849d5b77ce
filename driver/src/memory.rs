//! A device's DRAM: allocated regions of a 32-bit byte-addressed space, every access checked.

use std::ops::{ControlFlow, Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};

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

impl Default for HostBytes {
    fn default() -> Self {
        Self::Small(Vec::new())
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
}

impl Region {
    pub(crate) fn new(addr: u32, bytes: HostBytes) -> Self {
        Self {
            addr,
            bytes,
            version: 0,
        }
    }

    pub(crate) fn addr(&self) -> u32 {
        self.addr
    }

    fn end(&self) -> u64 {
        u64::from(self.addr) + self.bytes.len() as u64
    }
}

/// The bytes that aren't lent out to be written.
#[derive(Clone, Copy, Debug)]
pub struct OtherBytes<'a> {
    below: &'a [Region],
    above: &'a [Region],
    /// Of the region that is written in, what lies before the written bytes and behind them.
    before: &'a [u8],
    behind: &'a [u8],
    /// One past the last written byte.
    end: usize,
}

impl<'a> OtherBytes<'a> {
    /// The bytes of a span; none if there are no such bytes or one of them is lent out.
    pub fn span(&self, span: &Span) -> &'a [u8] {
        let within = |bytes: &'a [u8], start: usize| bytes.get(start..start.checked_add(span.len)?);
        let found = match span.region.checked_sub(self.below.len()) {
            None => within(&self.below[span.region].bytes, span.start),
            Some(0) if span.start < self.end => within(self.before, span.start),
            Some(0) => within(self.behind, span.start - self.end),
            Some(above) => {
                let region = self.above.get(above - 1);
                region.and_then(|r| within(&r.bytes, span.start))
            }
        };
        found.unwrap_or(&[])
    }
}

/// A region that is lent out together with all others.
#[derive(Debug)]
pub enum Lent<'a> {
    /// All of its bytes, to read.
    Read(&'a [u8]),
    /// All of its bytes, to write.
    Write(&'a mut [u8]),
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

    /// Takes all regions out, in ascending order of address.
    pub(crate) fn take_regions(&mut self) -> Vec<Region> {
        self.layout = next_layout();
        std::mem::take(&mut self.regions)
    }

    /// Names the present set of regions: mapping or unmapping changes it, and no two memories
    /// share one unless both are empty. A [`Span`] means the same bytes as long as it stays.
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
    pub fn region(&self, region: usize) -> &[u8] {
        self.regions.get(region).map_or(&[], |r| &r.bytes)
    }

    /// All bytes of a region, to write.
    pub fn region_mut(&mut self, region: usize) -> &mut [u8] {
        match self.regions.get_mut(region) {
            Some(r) => {
                r.version += 1;
                &mut r.bytes
            }
            None => &mut [],
        }
    }

    /// The bytes of one span to write, if there is one, and all others to read meanwhile. A span
    /// that isn't inside a region has no bytes.
    pub fn split(&mut self, write: Option<Span>) -> (OtherBytes<'_>, &mut [u8]) {
        let at = write
            .map_or(usize::MAX, |w| w.region)
            .min(self.regions.len());
        let (below, rest) = self.regions.split_at_mut(at);
        let (before, out, behind, above): (&[u8], _, &[u8], &[Region]) =
            match (write, rest.split_first_mut()) {
                (Some(write), Some((region, above))) => {
                    region.version += 1;
                    let size = region.bytes.len();
                    let start = write.start.min(size);
                    let (before, rest) = region.bytes.split_at_mut(start);
                    let (out, behind) = rest.split_at_mut(write.len.min(size - start));
                    (before, out, behind, above)
                }
                _ => (&[], &mut [], &[], &[]),
            };
        let others = OtherBytes {
            below,
            above,
            before,
            behind,
            end: before.len() + out.len(),
        };
        (others, out)
    }

    /// All regions at once, in order: those whose indices are listed to write, the others to
    /// read.
    pub fn lend(&mut self, write: &[usize]) -> Vec<Lent<'_>> {
        let regions = self.regions.iter_mut().enumerate();
        regions
            .map(|(index, region)| match write.contains(&index) {
                true => {
                    region.version += 1;
                    Lent::Write(&mut region.bytes)
                }
                false => Lent::Read(&region.bytes),
            })
            .collect()
    }

    /// How often the region was lent out to be written: while it stays, so do the bytes.
    pub fn version(&self, region: usize) -> u64 {
        self.regions.get(region).map_or(0, |r| r.version)
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
            let at = self.regions.partition_point(|r| r.addr < addr);
            self.regions.insert(at, Region::new(addr, bytes));
            self.layout = next_layout();
        }
        Ok(())
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
        let after = self.regions.partition_point(|r| r.addr < addr);
        let below = after.checked_sub(1).and_then(|i| self.regions.get(i));
        let above = self.regions.get(after);
        if below.is_some_and(|r| r.end() > addr.into())
            || above.is_some_and(|r| u64::from(r.addr) < end)
        {
            return refuse("it overlaps another allocation");
        }
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
        let joined =
            rest.iter()
                .try_fold(boundary, |end, next| match u64::from(next.addr) == end {
                    true => ControlFlow::Continue(next.end()),
                    false => ControlFlow::Break(end),
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
            (0x1008, 25),
        ] {
            let crosses = matches!((addr, len), (0x1008, 9));
            match m.read(addr, len) {
                Err(MemoryError::OutOfBounds { .. }) => assert!(!crosses, "{addr:#x}"),
                Err(MemoryError::Crosses { boundary, .. }) => {
                    assert!(crosses && boundary == 0x1010, "{addr:#x}");
                }
                other => panic!("{addr:#x}: {other:?}"),
            }
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

    #[test]
    fn lent_regions_are_to_write_where_asked() {
        let mut m = DeviceMemory::new();
        for addr in [0x1000, 0x2000, 0x3000] {
            m.map(addr, 16).unwrap();
        }
        let versions = |m: &DeviceMemory| [0, 1, 2].map(|r| m.version(r));
        let before = versions(&m);
        for (index, lent) in m.lend(&[1, 7]).into_iter().enumerate() {
            match lent {
                Lent::Read(bytes) => assert!(index != 1 && bytes.len() == 16),
                Lent::Write(bytes) => {
                    assert_eq!(index, 1);
                    bytes[3] = 9;
                }
            }
        }
        assert_eq!(m.read(0x2003, 1).unwrap(), [9]);
        let after = versions(&m);
        assert!(after[0] == before[0] && after[1] != before[1] && after[2] == before[2]);
    }

    #[test]
    fn what_is_not_written_can_be_read_meanwhile() {
        let mut m = DeviceMemory::new();
        for (addr, first) in [(0x1000, 0), (0x2000, 16), (0x3000, 32)] {
            m.map(addr, 16).unwrap();
            let bytes = m.write(addr.into(), 16).unwrap();
            bytes.copy_from_slice(&std::array::from_fn::<u8, 16, _>(|i| first + i as u8));
        }
        let span = |region, start, len| Span { region, start, len };
        let version = m.version(1);
        let (others, out) = m.split(Some(span(1, 4, 6)));
        assert_eq!(*out, [20, 21, 22, 23, 24, 25]);
        out[0] = 99;
        assert_eq!(others.span(&span(0, 1, 2)), [1, 2]);
        assert_eq!(others.span(&span(1, 0, 4)), [16, 17, 18, 19]);
        assert_eq!(others.span(&span(1, 10, 6)), [26, 27, 28, 29, 30, 31]);
        assert_eq!(others.span(&span(2, 15, 1)), [47]);
        // Written bytes, and bytes that don't exist.
        for gone in [
            span(1, 3, 2),
            span(1, 9, 2),
            span(1, 4, 1),
            span(1, 10, 7),
            span(0, 0, 17),
            span(3, 0, 1),
            span(2, 1, usize::MAX),
        ] {
            assert!(others.span(&gone).is_empty(), "{gone:?}");
        }
        assert_ne!(m.version(1), version);
        let (others, out) = m.split(None);
        assert!(out.is_empty());
        assert_eq!(others.span(&span(1, 4, 1)), [99]);
        let (_, out) = m.split(Some(span(2, 12, 100)));
        assert_eq!(*out, [44, 45, 46, 47]);
        assert!(m.split(Some(span(9, 0, 1))).1.is_empty());
    }

    #[test]
    fn layouts_and_versions_change_with_what_they_name() {
        let mut m = DeviceMemory::new();
        m.map(0x2000, 16).unwrap();
        let first = m.layout();
        m.map(0x1000, 16).unwrap();
        assert_ne!(first, m.layout());
        let span = m.span(0x2004, 4).unwrap();
        assert_eq!((span.region, span.start, span.len), (1, 4, 4));
        let version = m.version(span.region);
        assert_eq!(m.read(0x2004, 4).unwrap(), [0; 4]);
        assert_eq!(m.version(span.region), version);
        m.write(0x2004, 1).unwrap()[0] = 9;
        assert_ne!(m.version(span.region), version);
        assert_eq!(m.region(1)[4], 9);
        let layout = m.layout();
        assert!(m.unmap(0x1000));
        assert_ne!(layout, m.layout());
        assert!(m.region(7).is_empty() && m.region_mut(7).is_empty());
        let mut other = DeviceMemory::new();
        other.map(0x2000, 16).unwrap();
        assert_ne!(other.layout(), m.layout());
    }
}
