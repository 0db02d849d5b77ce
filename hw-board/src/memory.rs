//! Memory that host and accelerator share.

use std::path::{Path, PathBuf};

use vta_driver::PAGE_BYTES;

use crate::error::BoardError;
use crate::file::MemoryFile;
use crate::map::Mapping;
use crate::node::{self, Caches};

/// Contiguous memory, by offset from its first byte: `/dev/udmabufN`, reserved memory in `/dev/mem`.
pub struct MappedMemory {
    map: Mapping,
    address: u64,
    /// The kernel's attributes, by which caches are kept; none for memory that is coherent or uncached.
    attributes: Option<PathBuf>,
}

impl MappedMemory {
    /// Maps it. What the file doesn't say, address and size, is read from the kernel's attributes.
    ///
    /// # Errors
    /// Files that can't be read or mapped, memory beyond 32 bits.
    pub fn open(file: &MemoryFile) -> Result<Self, BoardError> {
        let attribute = |name: &str| -> Result<u64, BoardError> {
            let folder = file.attributes.as_deref().unwrap_or(Path::new(""));
            number(&folder.join(name))
        };
        let physical = match file.address {
            Some(address) => address,
            None => attribute("phys_addr")?,
        };
        let bytes = match file.bytes {
            Some(bytes) => bytes,
            None => attribute("size")?,
        };
        let address = physical.wrapping_add(file.bus_offset);
        let fits = address.checked_add(bytes).is_some_and(|end| end <= 1 << 32);
        if bytes == 0 || !fits || !address.is_multiple_of(PAGE_BYTES) {
            return Err(BoardError(format!(
                "memory of {bytes} bytes at {address:#x}: it must begin at a page of {PAGE_BYTES} bytes and end \
                 within 32 bits"
            )));
        }
        let caches = match file.attributes {
            Some(_) => Caches::Kept,
            None => Caches::None,
        };
        Ok(Self {
            map: node::map(&file.path, file.offset, bytes, caches)?,
            address,
            attributes: file.attributes.clone(),
        })
    }

    /// Where it begins as the accelerator sees it: a multiple of 4096.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size; the last byte is within 32 bits.
    pub fn bytes(&self) -> u64 {
        self.map.len()
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// A range that leaves the memory.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) {
        self.map.read(offset, into);
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// A range that leaves the memory.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.map.write(offset, bytes);
    }

    /// What the host wrote is in memory, not in its caches, when this returns.
    ///
    /// # Errors
    /// A kernel that refuses.
    pub fn flush(&mut self) -> Result<(), BoardError> {
        self.sync("sync_for_device")
    }

    /// What the host reads from now on is what the accelerator wrote, not what its caches had.
    ///
    /// # Errors
    /// A kernel that refuses.
    pub fn invalidate(&mut self) -> Result<(), BoardError> {
        self.sync("sync_for_cpu")
    }

    fn sync(&self, whose: &str) -> Result<(), BoardError> {
        let Some(folder) = &self.attributes else {
            return Ok(());
        };
        let set = |name: &str, value: &str| node::set(&folder.join(name), value);
        set("sync_offset", "0")?;
        set("sync_size", &self.map.len().to_string())?;
        // Both ways: a buffer holds what goes to the accelerator and what comes from it.
        set("sync_direction", "0")?;
        set(whose, "1")
    }
}

/// A number of the kernel's, with or without `0x`.
fn number(path: &Path) -> Result<u64, BoardError> {
    let text = std::fs::read_to_string(path).map_err(BoardError::io(path, "can't be read"))?;
    let text = text.trim();
    let found = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    found.map_err(|_| {
        let text: String = text.chars().take(40).collect();
        BoardError::at(path, format_args!("'{text}' is no number"))
    })
}
