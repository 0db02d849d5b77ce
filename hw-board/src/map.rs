//! Mapped registers and memory: the only unsafe code of this crate.

use std::fs::File;
use std::io;
use std::sync::atomic::{Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};

/// A shared mapping of a part of a file or device node. Every access is checked against its size.
///
/// What lies behind it changes under the program's feet: the accelerator's registers and memory. So it is never
/// borrowed as a slice, and each access is volatile.
pub struct Mapping {
    raw: MmapRaw,
    /// Where the part begins in the mapping, which begins at a page.
    skip: usize,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` from `offset` on.
    ///
    /// # Errors
    /// A regular file that is shorter, since an access behind its end would kill the process, or what the system
    /// says.
    pub fn new(file: &File, offset: u64, bytes: u64) -> io::Result<Self> {
        let facts = file.metadata()?;
        let end = offset
            .checked_add(bytes)
            .ok_or(io::ErrorKind::InvalidInput)?;
        if facts.is_file() && facts.len() < end {
            let text = format!("{} bytes, but {end} are needed", facts.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let page = rustix::param::page_size() as u64;
        let start = offset / page * page;
        let length = usize::try_from(end - start).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self {
            raw: MmapOptions::new().offset(start).len(length).map_raw(file)?,
            skip: (offset - start) as usize,
            bytes: (end - offset) as usize,
        })
    }

    /// Bytes that can be accessed.
    pub fn len(&self) -> u64 {
        self.bytes as u64
    }

    /// The first byte of a range.
    ///
    /// # Panics
    /// When it isn't within the mapping.
    fn at(&self, offset: u64, bytes: usize) -> *mut u8 {
        let inside = usize::try_from(offset)
            .ok()
            .and_then(|at| at.checked_add(bytes));
        assert!(
            inside.is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {offset:#x} of a mapping of {:#x}",
            self.bytes
        );
        // SAFETY: the range was just seen to lie within the mapping, which begins `skip` bytes before it.
        unsafe { self.raw.as_mut_ptr().add(self.skip + offset as usize) }
    }

    /// A register; the offset is a multiple of 4, and so is the mapping's own.
    pub fn read_u32(&self, offset: u64) -> u32 {
        let at = self.at(offset, 4).cast::<u32>();
        assert!(at.is_aligned(), "register {offset:#x}");
        // SAFETY: within the mapping and aligned; volatile, since the other side changes it.
        let value = unsafe { at.read_volatile() };
        fence(Ordering::SeqCst);
        u32::from_le(value)
    }

    /// As [`Self::read_u32`]; writes to memory before it are there first.
    pub fn write_u32(&self, offset: u64, value: u32) {
        let at = self.at(offset, 4).cast::<u32>();
        assert!(at.is_aligned(), "register {offset:#x}");
        fence(Ordering::SeqCst);
        // SAFETY: within the mapping and aligned; volatile, so that it happens once and now.
        unsafe { at.write_volatile(value.to_le()) };
        fence(Ordering::SeqCst);
    }

    /// Copies bytes out.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: `from` has as many bytes within the mapping, which no reference of Rust's covers, and `into`
        // is memory of the program's own. That the accelerator may write there meanwhile is ruled out by the
        // order of work: runs and copies take turns.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies bytes in.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_files_are_mapped_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        std::fs::write(&path, vec![0; 10_000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let map = Mapping::new(&file, 5000, 4000).unwrap();
        assert_eq!(map.len(), 4000);
        map.write(3990, &[1, 2, 3]);
        map.write_u32(8, 0x0403_0201);
        let mut found = [0; 3];
        map.read(3990, &mut found);
        assert_eq!((found, map.read_u32(8)), ([1, 2, 3], 0x0403_0201));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(
            (&bytes[8990..8993], &bytes[5008..5012]),
            (&[1, 2, 3][..], &[1, 2, 3, 4][..])
        );
        let beyond = |offset: u64| {
            let call = std::panic::AssertUnwindSafe(|| map.write(offset, &[0; 2]));
            std::panic::catch_unwind(call).is_err()
        };
        assert!(!beyond(3998) && beyond(3999) && beyond(u64::MAX));
        let short = Mapping::new(&file, 5000, 5001).err().unwrap().to_string();
        assert_eq!(short, "10000 bytes, but 10001 are needed");
        assert!(Mapping::new(&file, u64::MAX, 2).is_err());
    }
}
