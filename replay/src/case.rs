//! A recorded run, and what reading its files shares.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::DirEntry;
use std::path::Path;

use thiserror::Error;
use vta_isa::{Config, INSN_BYTES, Insn};

use vta_driver::PhysAddr;

/// The largest file of a case.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 28;
/// The largest case, all files together, and the largest sum of its allocations.
pub(super) const MAX_CASE_BYTES: u64 = 1 << 30;

/// A case that can't be read: which file, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: {reason}")]
pub struct ReplayError {
    /// The file, folder or archive.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

impl ReplayError {
    pub(super) fn new(path: impl AsRef<Path>, reason: impl Display) -> Self {
        Self {
            path: path.as_ref().display().to_string(),
            reason: reason.to_string(),
        }
    }

    /// Of a file that is larger than so many bytes.
    pub(super) fn too_large(path: impl AsRef<Path>, limit: u64) -> Self {
        Self::new(path, format_args!("larger than {limit} bytes"))
    }

    /// Of a path that holds no case, with what was looked for.
    pub(super) fn no_case(path: &Path, expected: &str) -> Self {
        Self::new(path, format_args!("no recorded run here ({expected})"))
    }
}

/// Bytes at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DramBytes {
    /// First byte.
    pub addr: PhysAddr,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One recorded run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Case and run.
    pub name: String,
    /// The VTA instance.
    pub config: Config,
    /// The words as recorded, unused bits and all; translated, if their layout was another.
    pub words: Vec<u128>,
    /// The same, decoded.
    pub insns: Vec<Insn>,
    /// Where they lay.
    pub insn_addr: PhysAddr,
    /// First byte and size of each allocation.
    pub allocations: Vec<(PhysAddr, u64)>,
    /// DRAM before the run; the rest is zero.
    pub before: Vec<DramBytes>,
    /// DRAM after the run where it changed.
    pub after: Vec<DramBytes>,
    /// Whether everything outside `after` must be as before.
    pub complete: bool,
}

impl Case {
    /// The case with its words in memory, where devices that fetch them look for them.
    #[must_use]
    pub fn with_words(mut self) -> Self {
        let bytes: Vec<u8> = self.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let first = u64::from(self.insn_addr.0);
        let end = first + bytes.len() as u64;
        let inside = |(start, size): &(PhysAddr, u64)| {
            let start = u64::from(start.0);
            start <= first && end <= start.saturating_add(*size)
        };
        if !bytes.is_empty() {
            if !self.allocations.iter().any(inside) {
                self.allocations.push((self.insn_addr, bytes.len() as u64));
            }
            let addr = self.insn_addr;
            self.before.push(DramBytes { addr, bytes });
        }
        self
    }
}

/// The names of what is in a folder.
pub(super) fn list(path: &Path) -> Result<BTreeSet<String>, ReplayError> {
    let io = |error| ReplayError::new(path, error);
    let name = |entry: std::io::Result<DirEntry>| {
        let name = entry.map_err(io)?.file_name();
        Ok(name.to_string_lossy().into_owned())
    };
    std::fs::read_dir(path).map_err(io)?.map(name).collect()
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReplayError> {
    let io = |error| ReplayError::new(path, error);
    if std::fs::metadata(path).map_err(io)?.len() > MAX_FILE_BYTES {
        return Err(ReplayError::too_large(path, MAX_FILE_BYTES));
    }
    std::fs::read(path).map_err(io)
}

/// The words of an instruction file.
pub(super) fn words(path: &str, bytes: &[u8]) -> Result<Vec<u128>, ReplayError> {
    if !bytes.len().is_multiple_of(INSN_BYTES) {
        let reason = format!("{} bytes, not a multiple of {INSN_BYTES}", bytes.len());
        return Err(ReplayError::new(path, reason));
    }
    let words = bytes.as_chunks::<INSN_BYTES>().0.iter();
    Ok(words.map(|word| u128::from_le_bytes(*word)).collect())
}

/// The instructions of an instruction file's words.
pub(super) fn decode(path: &str, words: &[u128]) -> Result<Vec<Insn>, ReplayError> {
    let insn = |(index, word): (usize, &u128)| {
        let wrong = |e| ReplayError::new(path, format_args!("instruction {index}: {e}"));
        Insn::decode(*word).map_err(wrong)
    };
    words.iter().enumerate().map(insn).collect()
}
