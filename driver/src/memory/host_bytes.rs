//! The host's bytes behind an allocation.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use memmap2::MmapMut;

/// Regions of at least this many bytes are anonymous maps: the system hands out zero pages when
/// they are touched, and says so when it has none, where a vector would abort the process.
const MAPPED_BYTES: u64 = 1 << 16;
/// Bytes of a large page.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 1 << 21;

/// Bytes of the host, in large pages where they are many and the system has some.
#[derive(Debug)]
pub struct HostBytes(Kind);

#[derive(Debug)]
enum Kind {
    Small(Vec<u8>),
    Mapped(MmapMut),
}

/// The bytes of an allocation, where the device computes with them: see [`Device::in_place`](crate::Device::in_place).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct InPlace {
    /// Where they begin, on a page.
    pub first: NonNull<u8>,
    /// How many they are.
    pub len: usize,
}

impl InPlace {
    /// Those from one of them on; `None` if there are fewer.
    pub(crate) fn from(self, at: usize) -> Option<Self> {
        let len = self.len.checked_sub(at)?;
        let first = NonNull::new(self.first.as_ptr().wrapping_add(at))?;
        Some(Self { first, len })
    }
}

impl HostBytes {
    /// Where they are, from now on, at the beginning of a page; `None` when the host has no memory for them.
    pub(crate) fn in_place(&mut self) -> Option<InPlace> {
        if let Kind::Small(bytes) = &self.0 {
            let mut map = MmapMut::map_anon(bytes.len()).ok()?;
            map.copy_from_slice(bytes);
            self.0 = Kind::Mapped(map);
        }
        self.begin_in_small_pages();
        Some(InPlace {
            first: NonNull::new(self.as_mut_ptr())?,
            len: self.len(),
        })
    }

    /// Asks for small pages at the beginning, for those of whose bytes few may be written.
    pub(crate) fn begin_in_small_pages(&self) {
        if let Kind::Mapped(map) = &self.0 {
            begin_in_small_pages(map);
        }
    }

    /// So many zeros; `None` when the host has no memory for them.
    pub fn zeroed(size_bytes: u64) -> Option<Self> {
        let len = usize::try_from(size_bytes).ok()?;
        // WebAssembly's memory is zeroed when it grows, and has no maps.
        if size_bytes >= MAPPED_BYTES && !cfg!(target_family = "wasm") {
            let map = MmapMut::map_anon(len).ok()?;
            in_large_pages(&map);
            return Some(Self(Kind::Mapped(map)));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        if cfg!(target_family = "wasm") {
            // There is room, which no other thread takes. Zeroed at once, where code that is to be small would fill it
            // byte by byte.
            drop(bytes);
            return Some(Self(Kind::Small(vec![0; len])));
        }
        bytes.resize(len, 0);
        Some(Self(Kind::Small(bytes)))
    }
}

/// Asks for large pages, of which a first write takes a few hundred at once: a program's constants
/// fill thousands of small ones, each an interruption. A system without them does as it did.
#[cfg(target_os = "linux")]
fn in_large_pages(map: &MmapMut) {
    let _ = map.advise(memmap2::Advice::HugePage);
}

/// Asks for small pages at the beginning. Who writes in place may have a large region and use little of it, as a queue of
/// instructions: to zero a large page for some hundred bytes takes 50 us and what the second cache holds.
#[cfg(target_os = "linux")]
fn begin_in_small_pages(map: &MmapMut) {
    let beginning = LARGE_PAGE.min(map.len());
    let _ = map.advise_range(memmap2::Advice::NoHugePage, 0, beginning);
}

#[cfg(not(target_os = "linux"))]
fn in_large_pages(_: &MmapMut) {}

#[cfg(not(target_os = "linux"))]
fn begin_in_small_pages(_: &MmapMut) {}

impl Default for HostBytes {
    fn default() -> Self {
        Self(Kind::Small(Vec::new()))
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Small(bytes) => bytes,
            Kind::Mapped(map) => map,
        }
    }
}

impl DerefMut for HostBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Small(bytes) => bytes,
            Kind::Mapped(map) => map,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
