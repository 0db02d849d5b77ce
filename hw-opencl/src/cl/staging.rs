//! Pinned host memory, from which a device with memory of its own copies without the host.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opencl3::command_queue::CommandQueue;
use opencl3::memory::{
    Buffer, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, ClMem,
};
use opencl3::types::CL_BLOCKING;

use super::context::{Ctx, Result, named};

/// Larger transfers go without: they take long anyway, and pinned memory is scarce.
const MAX_BYTES: usize = 16 << 20;
/// The smallest piece.
const MIN_BYTES: usize = 64 << 10;
/// Pieces made at once.
const PIECES: usize = 4;

/// Pieces of pinned memory that are used again and again. Clones share them.
#[derive(Clone)]
pub(crate) struct Staging(Arc<Shared>);

struct Shared {
    ctx: Arc<Ctx>,
    /// Maps and unmaps.
    queue: CommandQueue,
    free: Mutex<Vec<Piece>>,
}

/// A buffer that is mapped for as long as it lives.
struct Piece {
    buffer: Buffer<u8>,
    first: *mut u8,
    size_bytes: usize,
}

// SAFETY: a piece has one owner at a time, and the specification allows its handle and its memory
// on every thread.
unsafe impl Send for Piece {}

impl Staging {
    pub fn new(ctx: &Arc<Ctx>) -> Result<Self> {
        Ok(Self(Arc::new(Shared {
            ctx: Arc::clone(ctx),
            queue: ctx.raw_queue(false)?,
            free: Mutex::default(),
        })))
    }

    /// A piece of at least `len` bytes; `None` for none, for many, and when the runtime has no
    /// pinned memory left: transfers then go without.
    pub fn take(&self, len: usize) -> Option<Pinned> {
        if len == 0 || len > MAX_BYTES {
            return None;
        }
        let mut free = self.0.free();
        if !free.iter().any(|piece| piece.size_bytes >= len) {
            let size = len.next_power_of_two().max(MIN_BYTES);
            let more = (0..PIECES).map(|_| self.0.piece(size));
            match more.collect::<Result<Vec<_>>>() {
                Ok(more) => free.extend(more),
                Err(fault) => {
                    tracing::warn!(%fault, "pinning host memory");
                    return None;
                }
            }
        }
        // The smallest that is large enough.
        let fits = free.iter().enumerate().filter(|(_, p)| p.size_bytes >= len);
        let (index, _) = fits.min_by_key(|(_, p)| p.size_bytes)?;
        Some(Pinned {
            piece: Some(free.swap_remove(index)),
            home: Arc::clone(&self.0),
        })
    }
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Vec<Piece>> {
        // A list of pieces is consistent whoever panicked.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn piece(&self, size_bytes: usize) -> Result<Piece> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        // SAFETY: without a host pointer the runtime allocates the memory itself.
        let buffer =
            unsafe { Buffer::<u8>::create(&self.ctx.context, flags, size_bytes, ptr::null_mut()) };
        let buffer = named("clCreateBuffer", buffer)?;
        let mut first: *mut c_void = ptr::null_mut();
        // SAFETY: the whole of a buffer that nobody else knows; `first` outlives the call, which
        // blocks.
        let mapped = unsafe {
            self.queue.enqueue_map_buffer(
                &buffer,
                CL_BLOCKING,
                CL_MAP_READ | CL_MAP_WRITE,
                0,
                size_bytes,
                &mut first,
                &[],
            )
        };
        named("clEnqueueMapBuffer", mapped)?;
        // SAFETY: the runtime mapped so many bytes for reading and writing; it doesn't say what
        // is in them.
        unsafe { first.cast::<u8>().write_bytes(0, size_bytes) };
        Ok(Piece {
            buffer,
            first: first.cast(),
            size_bytes,
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for piece in self.free().drain(..) {
            // SAFETY: the piece was mapped there, and nobody uses it any more.
            let unmapped = unsafe {
                self.queue
                    .enqueue_unmap_mem_object(piece.buffer.get(), piece.first.cast(), &[])
            };
            if let Err(error) = unmapped {
                tracing::warn!(%error, "unmapping pinned memory");
            }
        }
        if let Err(error) = self.queue.finish() {
            tracing::warn!(%error, "unmapping pinned memory");
        }
    }
}

/// A piece in use. Dropped, it can be used again.
pub(crate) struct Pinned {
    /// There until it is dropped.
    piece: Option<Piece>,
    home: Arc<Shared>,
}

impl Pinned {
    pub fn bytes(&self) -> &[u8] {
        match &self.piece {
            // SAFETY: so many initialised bytes are mapped there for as long as the piece lives,
            // and the runtime touches them only while nobody looks.
            Some(piece) => unsafe { std::slice::from_raw_parts(piece.first, piece.size_bytes) },
            None => &[],
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.piece {
            // SAFETY: as above, and the piece has no other owner.
            Some(piece) => unsafe { std::slice::from_raw_parts_mut(piece.first, piece.size_bytes) },
            None => &mut [],
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut free = self.home.free();
        free.extend(self.piece.take());
    }
}
