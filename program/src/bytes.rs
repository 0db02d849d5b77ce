//! Bytes that don't change: shared, or a part of shared ones.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Immutable bytes, cheap to clone. Equality compares contents.
#[derive(Clone)]
pub struct Bytes {
    whole: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Bytes {
    /// A part of other bytes; `None` when the range is outside them.
    pub(crate) fn part(whole: &Arc<Vec<u8>>, range: Range<usize>) -> Option<Self> {
        whole.get(range.clone())?;
        let whole = Arc::clone(whole);
        Some(Self { whole, range })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.whole[self.range.clone()]
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let (range, whole) = (0..bytes.len(), Arc::new(bytes));
        Self { whole, range }
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        bytes.to_vec().into()
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
