//! Kernels that callbacks have recorded, by what modules call them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::kernel::Kernel;

/// The most kernels that are kept.
const MOST_KERNELS: usize = 1 << 16;

/// What a kernel is known by: its handle, and the bytes of its signature.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Short(ShortKey),
    Long(usize, Box<[u8]>),
}

/// A key whose signature has at most eight bytes; mostly it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShortKey {
    pub handle: usize,
    bytes: usize,
    /// The bytes as a number.
    signature: u64,
}

impl Key {
    /// Of a handle and the bytes of a signature.
    #[inline]
    pub fn new(handle: usize, signature: &[u8]) -> Self {
        let mut short = [0; size_of::<u64>()];
        match short.get_mut(..signature.len()) {
            Some(bytes) => {
                bytes.copy_from_slice(signature);
                Self::Short(ShortKey {
                    handle,
                    bytes: signature.len(),
                    signature: u64::from_ne_bytes(short),
                })
            }
            None => Self::Long(handle, signature.into()),
        }
    }
}

type Kernels = FxHashMap<Key, Arc<Kernel>>;

/// Those of all threads.
static KERNELS: LazyLock<Mutex<Kernels>> = LazyLock::new(Mutex::default);
static EPOCH: AtomicUsize = AtomicUsize::new(0);

/// How often all kernels were forgotten: what a thread knows of them holds as long as this stays.
#[inline]
pub fn epoch() -> usize {
    EPOCH.load(Ordering::Acquire)
}

/// A kernel that some thread has recorded.
pub fn find(key: &Key) -> Option<Arc<Kernel>> {
    let kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    kernels.get(key).map(Arc::clone)
}

/// Keeps a kernel for all threads; the one that they have, if another was sooner.
pub fn keep(key: &Key, kernel: Arc<Kernel>) -> Arc<Kernel> {
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    if kernels.len() == MOST_KERNELS {
        // They are recorded again when they come again.
        clear(&mut kernels);
    }
    Arc::clone(kernels.entry(key.clone()).or_insert(kernel))
}

/// Forgets all kernels.
pub fn forget() {
    clear(&mut KERNELS.lock().unwrap_or_else(PoisonError::into_inner));
}

fn clear(kernels: &mut Kernels) {
    kernels.clear();
    EPOCH.fetch_add(1, Ordering::Release);
}
