//! The control registers.

use crate::error::BoardError;
use crate::file::RegisterFile;
use crate::map::Mapping;
use crate::node::{self, Caches};

/// 32-bit registers in a mapped file: `/dev/mem`, `/dev/uioN`.
pub struct MappedRegisters(Mapping);

impl MappedRegisters {
    /// Maps them uncached.
    ///
    /// # Errors
    /// A file that can't be opened or mapped.
    pub fn open(file: &RegisterFile) -> Result<Self, BoardError> {
        Ok(Self(node::map(
            &file.path,
            file.offset,
            file.bytes,
            Caches::None,
        )?))
    }

    /// Reads the register at a byte offset; it may have side effects, and isn't left out or repeated.
    pub fn read(&mut self, offset: u64) -> u32 {
        self.0.read_u32(offset)
    }

    /// Writes the register at a byte offset, after all earlier writes to memory.
    pub fn write(&mut self, offset: u64, value: u32) {
        self.0.write_u32(offset, value);
    }
}
