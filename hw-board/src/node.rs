//! Nodes of devices and attributes of the kernel.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::BoardError;
use crate::map::Mapping;

/// Whether the processor's caches hold what is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caches {
    /// Every access goes to the bus, where the node knows such mappings (`/dev/mem`, u-dma-buf).
    None,
    /// They do, and somebody keeps them.
    Kept,
}

/// Maps a part of a device node, or of a file, which must have it.
pub(crate) fn map(
    path: &Path,
    offset: u64,
    bytes: u64,
    caches: Caches,
) -> Result<Mapping, BoardError> {
    let sync = match caches {
        Caches::None => rustix::fs::OFlags::SYNC.bits() as i32,
        Caches::Kept => 0,
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(sync)
        .open(path);
    let file = file.map_err(BoardError::io(path, "can't be opened"))?;
    Mapping::new(&file, offset, bytes).map_err(BoardError::io(path, "can't be mapped"))
}

/// Writes an attribute of the kernel, which exists.
pub(crate) fn set(path: &Path, value: &str) -> Result<(), BoardError> {
    let file = OpenOptions::new().write(true).truncate(true).open(path);
    let written = file.and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(BoardError::io(path, "can't be written"))
}
