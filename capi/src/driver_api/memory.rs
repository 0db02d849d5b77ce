//! Buffers that host and device share: the host's bytes, and what the device is known to hold.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapMut;
use vta_driver::{Allocations, Device, PAGE_BYTES, PhysAddr, Work, WorkDone};
use vta_isa::{Config, MemType};

use crate::error::{Failure, Status};
use crate::raw::Shared;

/// Bytes that are compared, and copied where they differ, at once.
const CHUNK_BYTES: usize = 4096;

/// One buffer.
struct Buffer {
    bytes: Bytes,
    phys: u32,
}

/// What the caller's pointers point to.
enum Bytes {
    /// What the device computes with.
    Shared(Shared),
    Copied(Copied),
}

/// Bytes of a device with memory of its own.
struct Copied {
    host: MmapMut,
    /// What the device holds.
    device: MmapMut,
    /// Whether `device` is right: not after a copy that failed.
    known: bool,
    phys: u32,
    _allocation: Allocations,
}

/// How many buffers were freed.
static FREED: AtomicUsize = AtomicUsize::new(0);

/// How many buffers were freed: what was found of others holds as long as this stays.
#[inline]
pub fn freed() -> usize {
    FREED.load(Ordering::Acquire)
}

/// All buffers, by the host's address.
#[derive(Default)]
pub struct Memory {
    buffers: BTreeMap<usize, Buffer>,
    /// Whether there was a buffer that isn't the device's own.
    copies: bool,
}

impl Memory {
    /// A buffer of whole pages, at least one, all zero; where its first byte is on the host.
    ///
    /// # Errors
    /// The device or the host has no memory for it.
    pub fn alloc(&mut self, device: &Arc<dyn Device>, size: usize) -> Result<*mut u8, Failure> {
        let none = || {
            let text = format!("there is no memory for a buffer of {size} bytes");
            Failure::of(Status::Memory, text)
        };
        let size = size.max(1).checked_next_multiple_of(PAGE_BYTES as usize);
        let size = size.ok_or_else(none)?;
        let mut allocation = Allocations::new(Arc::clone(device));
        let phys = allocation.alloc(size as u64, align_bytes(&device.info().config))?;
        let mut bytes = match Shared::new(allocation, phys, size) {
            Ok(shared) => Bytes::Shared(shared),
            Err(allocation) => Bytes::Copied(Copied {
                host: MmapMut::map_anon(size).map_err(|_| none())?,
                device: MmapMut::map_anon(size).map_err(|_| none())?,
                known: true,
                phys: phys.0,
                _allocation: allocation,
            }),
        };
        self.copies |= matches!(bytes, Bytes::Copied(_));
        let (at, phys) = (bytes.host_mut().as_mut_ptr(), phys.0);
        self.buffers.insert(at.addr(), Buffer { bytes, phys });
        Ok(at)
    }

    /// Whether the device has bytes of its own, so that what the host writes must be [pushed](Self::push), and what the
    /// device writes [pulled](Self::pull).
    pub fn copies(&self) -> bool {
        self.copies
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// No buffer begins there.
    pub fn free(&mut self, at: usize) -> Result<(), Failure> {
        match self.buffers.remove(&at) {
            Some(_) => {
                FREED.fetch_add(1, Ordering::Release);
                Ok(())
            }
            None => Err(Failure::usage(match self.find(at) {
                Some((offset, _)) => {
                    format!("{at:#x} is {offset} bytes into a buffer, which is freed by its first")
                }
                None => format!("no buffer begins at {at:#x}: it was never one, or is freed"),
            })),
        }
    }

    /// The buffer that a byte of the host is in, and where there.
    fn find(&self, at: usize) -> Option<(usize, &Buffer)> {
        let (start, buffer) = self.buffers.range(..=at).next_back()?;
        let offset = at - start;
        (offset < buffer.bytes.host().len()).then_some((offset, buffer))
    }

    /// The address on the device of a byte of the host.
    ///
    /// # Errors
    /// It is in no buffer.
    pub fn phys(&self, at: usize) -> Result<u32, Failure> {
        let (offset, buffer) = self.find(at).ok_or_else(|| outside(at, 1))?;
        // A buffer lies in the device's 32-bit space.
        Ok(buffer.phys + offset as u32)
    }

    /// Bytes of the host, which must lie in one buffer.
    ///
    /// # Errors
    /// They don't.
    pub fn bytes(&self, at: usize, len: usize) -> Result<&[u8], Failure> {
        let found = self.find(at).and_then(|(offset, buffer)| {
            let end = offset.checked_add(len)?;
            buffer.bytes.host().get(offset..end)
        });
        found.ok_or_else(|| outside(at, len))
    }

    /// Copies the host's bytes of a buffer, as [`Self::bytes`] finds them.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), Failure> {
        to.copy_from_slice(self.bytes(at, to.len())?);
        Ok(())
    }

    /// Writes the host's bytes of a buffer.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        let found = self.buffers.range_mut(..=at).next_back();
        let found = found.and_then(|(start, buffer)| {
            let offset = at - start;
            let end = offset.checked_add(bytes.len())?;
            buffer.bytes.host_mut().get_mut(offset..end)
        });
        let found = found.ok_or_else(|| outside(at, bytes.len()))?;
        found.copy_from_slice(bytes);
        Ok(())
    }

    /// The host's bytes at an address of the device, which must lie in one buffer.
    ///
    /// # Errors
    /// They don't.
    pub fn at_phys(&self, start: u64, len: u64) -> Result<&[u8], Failure> {
        let mut found = self.buffers.values().filter_map(|buffer| {
            let offset = start.checked_sub(u64::from(buffer.phys))?;
            let range = offset as usize..offset.checked_add(len)? as usize;
            buffer.bytes.host().get(range)
        });
        found.next().ok_or_else(|| {
            let end = start.saturating_add(len);
            Failure::input(format!(
                "device addresses {start:#x}..{end:#x} are not in one buffer"
            ))
        })
    }

    /// Gives the device what the host wrote to these addresses of the device since it was last given them.
    ///
    /// # Errors
    /// The device refuses a copy.
    pub fn push(&mut self, device: &dyn Device, spans: &[Range<u64>]) -> Result<(), Failure> {
        self.each(spans, |buffer, range| buffer.push(device, range))
    }

    /// Takes from the device what it wrote to these addresses: bytes that it left as they were stay the host's.
    ///
    /// # Errors
    /// The device refuses a copy.
    pub fn pull(&mut self, device: &dyn Device, spans: &[Range<u64>]) -> Result<(), Failure> {
        self.each(spans, |buffer, range| buffer.pull(device, range))
    }

    /// Does something with the chunks of buffers that spans of the device's addresses touch, which are disjoint and
    /// ascend: neighbouring chunks are one range.
    fn each(
        &mut self,
        spans: &[Range<u64>],
        work: impl Fn(&mut Copied, Range<usize>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for buffer in self.buffers.values_mut() {
            let Bytes::Copied(buffer) = &mut buffer.bytes else {
                continue;
            };
            let (first, size) = (u64::from(buffer.phys), buffer.host.len());
            let touching = spans.partition_point(|span| span.end <= first);
            let mut together = 0..0;
            for part in spans[touching..]
                .iter()
                .map_while(|span| chunks(first, size, span))
            {
                if part.start > together.end {
                    let before = std::mem::replace(&mut together, part);
                    if !before.is_empty() {
                        work(buffer, before)?;
                    }
                } else {
                    together.end = part.end.max(together.end);
                }
            }
            if !together.is_empty() {
                work(buffer, together)?;
            }
        }
        Ok(())
    }
}

/// The chunks of a buffer, of so many bytes from the device's address `first` on, that a span touches; `None` if it
/// begins behind the buffer.
fn chunks(first: u64, size: usize, span: &Range<u64>) -> Option<Range<usize>> {
    let start = span.start.saturating_sub(first) as usize;
    let end = (span.end.saturating_sub(first) as usize).min(size);
    let whole = start / CHUNK_BYTES * CHUNK_BYTES..end.next_multiple_of(CHUNK_BYTES).min(size);
    (start < size).then_some(whole)
}

impl Bytes {
    fn host(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Copied(bytes) => &bytes.host,
        }
    }

    fn host_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Copied(bytes) => &mut bytes.host,
        }
    }
}

impl Copied {
    fn push(&mut self, device: &dyn Device, range: Range<usize>) -> Result<(), Failure> {
        if !self.known {
            self.write(device, 0..self.host.len())?;
            self.known = true;
            return Ok(());
        }
        // Neighbouring chunks that differ are one copy.
        let mut changed: Option<Range<usize>> = None;
        for start in range.clone().step_by(CHUNK_BYTES) {
            let chunk = start..(start + CHUNK_BYTES).min(range.end);
            if self.host[chunk.clone()] != self.device[chunk.clone()] {
                match &mut changed {
                    Some(run) => run.end = chunk.end,
                    None => changed = Some(chunk),
                }
            } else if let Some(run) = changed.take() {
                self.write(device, run)?;
            }
        }
        changed.map_or(Ok(()), |run| self.write(device, run))
    }

    fn write(&mut self, device: &dyn Device, range: Range<usize>) -> Result<(), Failure> {
        let bytes = self.host[range.clone()].to_vec();
        self.known = false;
        let addr = PhysAddr(self.phys + range.start as u32);
        self.device[range].copy_from_slice(&bytes);
        let data = bytes.into();
        device.submit(Work::Write { addr, data })?.wait()?;
        self.known = true;
        Ok(())
    }

    fn pull(&mut self, device: &dyn Device, range: Range<usize>) -> Result<(), Failure> {
        self.known = false;
        let addr = PhysAddr(self.phys + range.start as u32);
        let size_bytes = range.len() as u64;
        let done = device.submit(Work::Read { addr, size_bytes })?.wait()?;
        let WorkDone::Data(found) = done else {
            return Err(Failure::internal("a read gave no bytes"));
        };
        let host = self.host[range.clone()].chunks_mut(CHUNK_BYTES);
        let known = self.device[range].chunks_mut(CHUNK_BYTES);
        for ((host, known), found) in host.zip(known).zip(found.chunks(CHUNK_BYTES)) {
            if *known == *found {
                continue;
            }
            if *host == *known {
                host.copy_from_slice(found);
                known.copy_from_slice(found);
                continue;
            }
            for ((host, known), found) in host.iter_mut().zip(known).zip(found) {
                if *known != *found {
                    (*host, *known) = (*found, *found);
                }
            }
        }
        self.known = true;
        Ok(())
    }
}

fn outside(at: usize, len: usize) -> Failure {
    Failure::usage(format!(
        "{len} bytes at {at:#x} are not in one buffer of VTAMemAlloc"
    ))
}

/// Elements of every memory type begin at multiples of their size: those sizes are powers of two.
pub(super) fn align_bytes(config: &Config) -> u64 {
    let sizes = MemType::ALL.map(|mem| config.elem_bytes(mem) as u64);
    sizes.into_iter().fold(PAGE_BYTES, u64::max)
}
