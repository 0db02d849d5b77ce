//! What a board is like: a file in TOML, or a preset.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use vta_files::toml_message;

use crate::error::BoardError;
use crate::layout::Layout;

/// Where a board's registers and memory are.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoardFile {
    /// The control registers.
    pub registers: RegisterFile,
    /// The memory that the accelerator shares.
    pub memory: MemoryFile,
    /// An interrupt; without one the host polls.
    pub interrupt: Option<InterruptFile>,
    /// How the block is reset.
    pub reset: Option<ResetFile>,
    /// What a run may take, in milliseconds, from 1 to 3,600,000.
    #[serde(default = "ten_seconds")]
    pub deadline_ms: u64,
    /// The accelerator's clock in MHz, by which its cycle counter is judged.
    pub clock_mhz: Option<f64>,
}

/// The control registers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterFile {
    /// `/dev/mem`, `/dev/uioN` or a file.
    pub path: PathBuf,
    /// Of the first one; a multiple of 4.
    #[serde(default)]
    pub offset: u64,
    /// Bytes to map.
    #[serde(default = "one_page")]
    pub bytes: u64,
    /// Bits of a pointer: 32 or 64.
    #[serde(default)]
    pub address_bits: Layout,
}

/// The memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryFile {
    /// `/dev/udmabufN`, `/dev/mem` or a file.
    pub path: PathBuf,
    /// Where it begins in that.
    #[serde(default)]
    pub offset: u64,
    /// Its physical address; without one `attributes` have it.
    pub address: Option<u64>,
    /// Its size; without one `attributes` have it.
    pub bytes: Option<u64>,
    /// Added to the physical address gives the one that the accelerator's bus has for it.
    #[serde(default)]
    pub bus_offset: u64,
    /// The kernel's folder of attributes of u-dma-buf, by which caches are kept. Without one the memory is
    /// coherent, or not cached.
    pub attributes: Option<PathBuf>,
}

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterruptFile {
    /// `/dev/uioN`.
    pub path: PathBuf,
}

/// A register of the block, or of what stands before it, that resets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetFile {
    /// Of the register, from the first control register on.
    pub offset: u64,
    /// What resets.
    pub assert: u32,
    /// What ends that.
    #[serde(default)]
    pub release: u32,
}

fn ten_seconds() -> u64 {
    10_000
}

fn one_page() -> u64 {
    4096
}

/// The RTL on a Pynq-Z1 or Z2: control registers where Vivado puts the first block of the processor's port.
const PYNQ: &str = r#"
clock_mhz = 100.0
[registers]
path = "/dev/mem"
offset = 0x43c00000
[memory]
path = "/dev/udmabuf0"
attributes = "/sys/class/u-dma-buf/udmabuf0"
"#;

/// The RTL on a DE10-Nano, whose bus sees memory 2 GiB above the processor.
const DE10: &str = r#"
[registers]
path = "/dev/mem"
offset = 0xff220000
[memory]
path = "/dev/udmabuf0"
attributes = "/sys/class/u-dma-buf/udmabuf0"
bus_offset = 0x80000000
"#;

impl BoardFile {
    /// The names of presets.
    pub const PRESETS: &'static [&'static str] = &["pynq", "de10"];

    /// A preset by its name, or a file.
    ///
    /// # Errors
    /// A name that is neither, a file that can't be read or isn't a board's.
    pub fn named(name: &str) -> Result<Self, BoardError> {
        match name {
            "pynq" => Self::from_toml(name, PYNQ),
            "de10" => Self::from_toml(name, DE10),
            _ if Path::new(name).extension().is_some_and(|e| e == "toml")
                || Path::new(name).exists() =>
            {
                Self::read(Path::new(name))
            }
            _ => Err(BoardError(format!(
                "there is no board '{name}' (there are {}, or a file in TOML)",
                Self::PRESETS.join(", ")
            ))),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A file that can't be read or isn't a board's.
    pub fn read(path: &Path) -> Result<Self, BoardError> {
        let text = vta_files::open_input(path).and_then(std::io::read_to_string);
        let text = text.map_err(BoardError::io(path, "can't be read"))?;
        Self::from_toml(&path.display().to_string(), &text)
    }

    /// A board from a file's text.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, BoardError> {
        let wrong = |message: String| BoardError(format!("{file}: {message}"));
        let board: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map(|span| span.start);
            wrong(toml_message(text, error.message(), at))
        })?;
        match board.fault() {
            None => Ok(board),
            Some(text) => Err(wrong(text)),
        }
    }

    /// What the file says that no board can have.
    fn fault(&self) -> Option<String> {
        let RegisterFile { offset, bytes, .. } = self.registers;
        let needed = self.registers.address_bits.bytes();
        let memory = &self.memory;
        // Registers are words, and an access that isn't aligned would end the process.
        let text = if !offset.is_multiple_of(4) {
            format!("registers.offset {offset:#x} is no multiple of 4")
        } else if !(needed..=1 << 24).contains(&bytes) {
            let most = 1 << 24;
            format!("registers.bytes is {bytes}, but it must be {needed} to {most}")
        } else if !(1..=3_600_000).contains(&self.deadline_ms) {
            let deadline = self.deadline_ms;
            format!("deadline_ms is {deadline}, but it must be 1 to 3600000")
        } else if let Some(clock) = self.clock_mhz
            && !(clock.is_finite() && (0.001..=100_000.0).contains(&clock))
        {
            format!("clock_mhz is {clock}, but it must be 0.001 to 100000")
        } else if let Some(ResetFile { offset, .. }) = self.reset
            && (!offset.is_multiple_of(4) || offset + 4 > bytes)
        {
            format!("reset.offset {offset:#x} is no register of {bytes:#x} bytes")
        } else if memory.attributes.is_none()
            && (memory.address.is_none() || memory.bytes.is_none())
        {
            "memory has neither `attributes` nor both `address` and `bytes`".to_owned()
        } else {
            return None;
        };
        Some(text)
    }
}

#[cfg(test)]
mod tests;
