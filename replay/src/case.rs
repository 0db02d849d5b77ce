//! A recorded run, and what reading its files shares.

use std::collections::BTreeMap;
use std::path::Path;

use thiserror::Error;
use vta_isa::{Config, ConfigError, DecodeError, INSN_BYTES, Insn};

use vta_driver::PhysAddr;

/// The largest file of a case.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 28;
/// The largest case, all files together, and the largest sum of its allocations.
pub(super) const MAX_CASE_BYTES: u64 = 1 << 30;
/// A case that can't be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A file can't be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path holds no case.
    #[error("{path}: no recorded run here ({expected})")]
    NoCase {
        /// The path.
        path: String,
        /// What was looked for.
        expected: &'static str,
    },
    /// A file or archive is too large.
    #[error("{path}: larger than {limit} bytes")]
    TooLarge {
        /// The file.
        path: String,
        /// The limit.
        limit: u64,
    },
    /// A file contradicts itself or another.
    #[error("{path}: {reason}")]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The configuration can't be used.
    #[error("{path}: {source}")]
    Config {
        /// The file.
        path: String,
        /// The cause.
        source: ConfigError,
    },
    /// A word is no instruction.
    #[error("{path}: instruction {index}: {source}")]
    Decode {
        /// The file.
        path: String,
        /// Which instruction.
        index: usize,
        /// The cause.
        source: DecodeError,
    },
}

impl ReplayError {
    /// Of a file or folder that can't be read.
    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| Self::Io {
            path: path.display().to_string(),
            source,
        }
    }

    /// Of a file that contradicts itself or another.
    pub(super) fn invalid(path: &Path, reason: String) -> Self {
        let path = path.display().to_string();
        Self::Invalid { path, reason }
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
    /// The words as recorded, unused bits and all.
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

/// File names and sizes of a folder, bounded.
pub(super) fn list(path: &Path) -> Result<BTreeMap<String, u64>, ReplayError> {
    let io = ReplayError::io(path);
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let entry = entry.map_err(io)?;
        let meta = entry.metadata().map_err(io)?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), meta.len());
    }
    Ok(files)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReplayError> {
    let io = ReplayError::io(path);
    if std::fs::metadata(path).map_err(io)?.len() > MAX_FILE_BYTES {
        return Err(ReplayError::TooLarge {
            path: path.display().to_string(),
            limit: MAX_FILE_BYTES,
        });
    }
    std::fs::read(path).map_err(io)
}

/// Words and instructions of an instruction file.
pub(super) fn decode(path: &str, bytes: &[u8]) -> Result<(Vec<u128>, Vec<Insn>), ReplayError> {
    if !bytes.len().is_multiple_of(INSN_BYTES) {
        let reason = format!("{} bytes, not a multiple of {INSN_BYTES}", bytes.len());
        return Err(ReplayError::invalid(path.as_ref(), reason));
    }
    let words = bytes.as_chunks::<INSN_BYTES>().0.iter();
    let words: Vec<u128> = words.map(|word| u128::from_le_bytes(*word)).collect();
    let insn = |(index, word): (usize, &u128)| {
        let path = path.to_owned();
        Insn::decode(*word).map_err(|source| ReplayError::Decode {
            path,
            index,
            source,
        })
    };
    let insns = words
        .iter()
        .enumerate()
        .map(insn)
        .collect::<Result<_, _>>()?;
    Ok((words, insns))
}
