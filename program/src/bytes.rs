//! Bytes that don't change: shared, or a part of shared ones.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Immutable bytes, cheap to clone. Equality compares contents.
#[derive(Clone)]
pub struct Bytes(Inner);

#[derive(Clone)]
enum Inner {
    Shared(Arc<[u8]>),
    Part {
        whole: Arc<Vec<u8>>,
        range: Range<usize>,
    },
}

impl Bytes {
    /// A part of other bytes; `None` when the range is outside them.
    pub(crate) fn part(whole: &Arc<Vec<u8>>, range: Range<usize>) -> Option<Self> {
        whole.get(range.clone())?;
        let whole = Arc::clone(whole);
        Some(Self(Inner::Part { whole, range }))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Shared(bytes) => bytes,
            Inner::Part { whole, range } => &whole[range.clone()],
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let (range, whole) = (0..bytes.len(), Arc::new(bytes));
        Self(Inner::Part { whole, range })
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
