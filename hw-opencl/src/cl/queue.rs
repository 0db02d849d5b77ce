//! Queues and what is under way in them.

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use opencl3::command_queue::CommandQueue;
use opencl3::event::{CL_COMPLETE, Event};
use opencl3::types::CL_NON_BLOCKING;
use vta_driver::packing::TensorImages;

use super::context::{Bytes, CoreKernel, Ctx, Result, named};
use super::staging::{Pinned, Staging};

/// Work under way.
pub(crate) struct Pending {
    event: Arc<Event>,
    /// What the runtime may still touch.
    data: ManuallyDrop<HostData>,
    done: bool,
    kernel: bool,
}

enum HostData {
    None,
    /// What is written, or what work that this follows in the same queue may still touch.
    Kept {
        _data: Box<dyn Send>,
    },
    Own(Vec<u8>),
    /// Read into there, so many bytes.
    ReadPinned(Pinned, usize),
}

impl HostData {
    /// Keeps data, whose own memory stays where it is.
    fn kept(data: impl Send + 'static) -> Self {
        Self::Kept {
            _data: Box::new(data),
        }
    }
}

/// The end of something enqueued, for others to wait for.
#[derive(Clone)]
pub(crate) struct Marker(Arc<Event>);

impl Marker {
    /// Whether it has ended; also when the runtime can't say, since a wait then says what failed.
    pub fn is_reached(&self) -> bool {
        let status = self.0.command_execution_status();
        status.map_or(true, |status| status.0 <= CL_COMPLETE)
    }
}

impl Pending {
    fn new(event: Event, data: HostData) -> Self {
        Self {
            event: Arc::new(event),
            data: ManuallyDrop::new(data),
            done: false,
            kernel: false,
        }
    }

    /// Keeps what earlier work of the same in-order queue still touches: with this it has ended,
    /// too. Only for work that touches nothing of the host's itself.
    pub fn follow(&mut self, mut earlier: Vec<Self>) {
        debug_assert!(
            matches!(*self.data, HostData::None),
            "work with data of its own"
        );
        earlier.iter_mut().for_each(|e| e.done = true);
        *self.data = HostData::kept(earlier);
    }

    /// Its end.
    pub fn marker(&self) -> Marker {
        Marker(Arc::clone(&self.event))
    }

    /// Nanoseconds that a kernel ran on the device; 0 before it has ended, on a queue that takes
    /// no times, and for anything else.
    pub fn kernel_nanoseconds(&self) -> u64 {
        if !self.kernel {
            return 0;
        }
        let start = self.event.profiling_command_start();
        let end = self.event.profiling_command_end();
        match (start, end) {
            (Ok(start), Ok(end)) => end.saturating_sub(start),
            _ => 0,
        }
    }

    /// Blocks until the work is done; the bytes of a read, else none.
    pub fn wait(&mut self) -> Result<Vec<u8>> {
        let waited = named("clWaitForEvents", self.event.wait());
        // A failed event is over, too: the runtime doesn't touch the memory any more.
        self.done = true;
        waited?;
        match &mut *self.data {
            HostData::Own(bytes) => Ok(std::mem::take(bytes)),
            HostData::ReadPinned(pinned, len) => Ok(pinned.bytes()[..*len].to_vec()),
            HostData::None | HostData::Kept { .. } => Ok(Vec::new()),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let owns = !matches!(*self.data, HostData::None);
        if owns && !self.done {
            // An error also means that the runtime is done with the memory.
            let _ = self.event.wait();
        }
        // SAFETY: the work is over, and `data` isn't used after this.
        unsafe { ManuallyDrop::drop(&mut self.data) }
    }
}

/// An in-order queue. Everything is enqueued without waiting.
pub(crate) struct Queue {
    pub(super) queue: CommandQueue,
    /// Where transfers are put that the runtime would else copy itself, waiting.
    staging: Option<Staging>,
}

impl Queue {
    /// An in-order queue, optionally one that takes the times of what it runs.
    pub fn new(ctx: &Ctx, profile: bool) -> Result<Self> {
        Ok(Self {
            queue: ctx.raw_queue(profile)?,
            staging: None,
        })
    }

    /// Lets transfers go through pinned memory.
    pub fn stage(&mut self, staging: Staging) {
        self.staging = Some(staging);
    }

    /// Makes what is enqueued from now on wait for the ends of others' work, whose queues are
    /// flushed.
    pub fn wait_for(&self, markers: &[Marker]) -> Result<()> {
        if markers.is_empty() {
            return Ok(());
        }
        let events: Vec<_> = markers.iter().map(|m| m.0.get()).collect();
        // SAFETY: the events are alive; the runtime retains them.
        let barrier = unsafe { self.queue.enqueue_barrier_with_wait_list(&events) };
        named("clEnqueueBarrierWithWaitList", barrier).map(drop)
    }

    /// The end of everything enqueued so far.
    pub fn marker(&self) -> Result<Marker> {
        // SAFETY: an empty list stands for everything before.
        let marker = unsafe { self.queue.enqueue_marker_with_wait_list(&[]) };
        let marker = named("clEnqueueMarkerWithWaitList", marker)?;
        self.flush()?;
        Ok(Marker(Arc::new(marker)))
    }

    pub fn write(&self, to: &mut Bytes, offset: u64, data: vta_driver::Bytes) -> Result<Pending> {
        let bytes = ptr::from_ref(&data[..]);
        self.write_of(to, offset, bytes, HostData::kept(data))
    }

    /// Copies images as they are, to the buffer's first bytes.
    pub fn write_images(&self, to: &mut Bytes, images: Arc<TensorImages>) -> Result<Pending> {
        let bytes = ptr::from_ref(images.bytes());
        self.write_of(to, 0, bytes, HostData::kept(images))
    }

    /// Copies words to the buffer's first bytes, from where they are: they are copied once, for
    /// which pinned memory would be too much.
    pub fn write_words(&self, to: &mut Bytes, words: Vec<u32>) -> Result<Pending> {
        let bytes = ptr::slice_from_raw_parts(words.as_ptr().cast::<u8>(), 4 * words.len());
        self.enqueue_write(to, 0, bytes, HostData::kept(words))
    }

    /// Copies bytes that `keeper` keeps where they are, unchanged, through pinned memory.
    fn write_of(
        &self,
        to: &mut Bytes,
        offset: u64,
        bytes: *const [u8],
        keeper: HostData,
    ) -> Result<Pending> {
        let len = bytes.len();
        let (bytes, data): (*const [u8], HostData) = match self.pinned(len) {
            Some(mut pinned) => {
                // SAFETY: `keeper` keeps these bytes.
                pinned.bytes_mut()[..len].copy_from_slice(unsafe { &*bytes });
                let bytes = ptr::from_ref(&pinned.bytes()[..len]);
                (bytes, HostData::kept(pinned))
            }
            None => (bytes, keeper),
        };
        self.enqueue_write(to, offset, bytes, data)
    }

    /// Copies bytes that `data` keeps where they are, unchanged.
    fn enqueue_write(
        &self,
        to: &mut Bytes,
        offset: u64,
        bytes: *const [u8],
        data: HostData,
    ) -> Result<Pending> {
        let call = "clEnqueueWriteBuffer";
        let (offset, _) = to.range(offset, bytes.len() as u64, call)?;
        // SAFETY: the range is inside the buffer, and the returned object keeps `data`, whose
        // memory doesn't move and which nobody changes, until the event is over.
        let event = unsafe {
            self.queue
                .enqueue_write_buffer(&mut to.buffer, CL_NON_BLOCKING, offset, &*bytes, &[])
        };
        Ok(Pending::new(named(call, event)?, data))
    }

    pub fn read(&self, from: &Bytes, offset: u64, len: u64) -> Result<Pending> {
        let call = "clEnqueueReadBuffer";
        let (offset, len) = from.range(offset, len, call)?;
        let mut data = match self.pinned(len) {
            Some(pinned) => HostData::ReadPinned(pinned, len),
            None => HostData::Own(vec![0u8; len]),
        };
        let bytes: *mut [u8] = match &mut data {
            HostData::ReadPinned(pinned, _) => &raw mut pinned.bytes_mut()[..len],
            HostData::Own(bytes) => &raw mut bytes[..],
            HostData::None | HostData::Kept { .. } => &mut [],
        };
        // SAFETY: the range is inside the buffer; the returned object owns `data`, whose memory
        // doesn't move with it, and gives it out only when the event is over.
        let event = unsafe {
            self.queue
                .enqueue_read_buffer(&from.buffer, CL_NON_BLOCKING, offset, &mut *bytes, &[])
        };
        Ok(Pending::new(named(call, event)?, data))
    }

    fn pinned(&self, len: usize) -> Option<Pinned> {
        self.staging.as_ref()?.take(len)
    }

    pub fn zero(&self, to: &mut Bytes, offset: u64, len: u64) -> Result<()> {
        let call = "clEnqueueFillBuffer";
        let (offset, len) = to.range(offset, len, call)?;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the range is inside the buffer; the runtime copies the pattern.
        let event = unsafe {
            self.queue
                .enqueue_fill_buffer(&mut to.buffer, &[0u8], offset, len, &[])
        };
        named(call, event).map(drop)
    }

    pub fn copy(&self, from: &Bytes, to: &mut Bytes, offsets: [u64; 2], len: u64) -> Result<()> {
        let call = "clEnqueueCopyBuffer";
        let (first, len) = from.range(offsets[0], len, call)?;
        let (second, _) = to.range(offsets[1], len as u64, call)?;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: both ranges are inside their buffers.
        let event = unsafe {
            self.queue
                .enqueue_copy_buffer(&from.buffer, &mut to.buffer, first, second, len, &[])
        };
        named(call, event).map(drop)
    }

    /// Launches `groups` work-groups of `group` work-items.
    pub fn launch(&self, kernel: &CoreKernel, groups: usize, group: usize) -> Result<Pending> {
        let (global, local) = (groups * group, group);
        // SAFETY: one dimension, and both pointers are to one size each. What the kernel
        // touches was checked when its operations or instructions were planned.
        let event = unsafe {
            self.queue.enqueue_nd_range_kernel(
                kernel.0.get(),
                1,
                ptr::null(),
                &raw const global,
                &raw const local,
                &[],
            )
        };
        let event = named("clEnqueueNDRangeKernel", event)?;
        let mut pending = Pending::new(event, HostData::None);
        pending.kernel = true;
        Ok(pending)
    }

    pub fn flush(&self) -> Result<()> {
        named("clFlush", self.queue.flush())
    }

    pub fn finish(&self) -> Result<()> {
        named("clFinish", self.queue.finish())
    }
}
