//! Bytes that don't change: owned, shared, or in a memory-mapped file.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::Mmap;

/// Immutable bytes, cheap to clone. Equality compares contents.
#[derive(Clone)]
pub struct Bytes(Inner);

#[derive(Clone)]
enum Inner {
    Owned(Arc<Vec<u8>>),
    Shared(Arc<[u8]>),
    Mapped { map: Arc<Mmap>, range: Range<usize> },
}

impl Bytes {
    /// A part of a mapped file; `None` when the range is outside it.
    pub(crate) fn mapped(map: &Arc<Mmap>, range: Range<usize>) -> Option<Self> {
        map.get(range.clone())?;
        Some(Self(Inner::Mapped {
            map: Arc::clone(map),
            range,
        }))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Owned(bytes) => bytes,
            Inner::Shared(bytes) => bytes,
            Inner::Mapped { map, range } => &map[range.clone()],
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Inner::Owned(Arc::new(bytes)))
    }
}

impl From<Arc<[u8]>> for Bytes {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self(Inner::Shared(bytes))
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(Inner::Shared(bytes.into()))
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        Self(Inner::Shared(Arc::new(bytes)))
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.len())
    }
}
