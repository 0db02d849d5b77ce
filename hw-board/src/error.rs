//! What can go wrong between the host and a board.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// A board that can't be opened, or a run that failed on it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BoardError {
    /// No preset and no file of that name.
    #[error("there is no board '{name}' (there are {}, or a file in TOML)", presets.join(", "))]
    Preset {
        /// The name.
        name: String,
        /// What there is.
        presets: &'static [&'static str],
    },
    /// A file of a board that isn't one.
    #[error("{file}: {message}")]
    File {
        /// The file's name.
        file: String,
        /// What is wrong with it, and where.
        message: String,
    },
    /// A file or device node that can't be opened, read, written or mapped.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// An attribute of the kernel that isn't a number.
    #[error("{}: '{text}' is no number", path.display())]
    Attribute {
        /// The file.
        path: PathBuf,
        /// What stands there.
        text: String,
    },
    /// Memory that another device, of this or another program, has.
    #[error("{}: the board is in use: another device has its memory", path.display())]
    Taken {
        /// The memory.
        path: PathBuf,
    },
    /// Memory that the accelerator can't address.
    #[error(
        "memory of {bytes} bytes at {address:#x}: it must begin at a page of 4096 bytes and end within 32 bits"
    )]
    Window {
        /// As the bus sees it.
        address: u64,
        /// Its size.
        bytes: u64,
    },
    /// Every bit of a register is set, as when nothing answers on the bus.
    #[error(
        "the registers answer {value:#x} at {offset:#x}: nothing is on the bus there, or the design isn't loaded"
    )]
    NoAnswer {
        /// The register.
        offset: u64,
        /// What it read.
        value: u32,
    },
    /// A run that didn't end.
    #[error("{insns} instructions at {address:#x} didn't end in {}: {after}", seconds(*.deadline))]
    Deadline {
        /// How many instructions.
        insns: usize,
        /// Where they lie.
        address: u64,
        /// What they had.
        deadline: Duration,
        /// What was done about it.
        after: Aftermath,
    },
    /// A block that is still busy with a run that missed its deadline.
    #[error(
        "the accelerator is still busy with a run that missed its deadline: reset the board, or give its file a [reset]"
    )]
    Busy,
    /// A counter that can't be.
    #[error("the cycle counter says {cycles} after {} at {clock_mhz} MHz, {limit}", seconds(*.wall))]
    Counter {
        /// What it read.
        cycles: u32,
        /// How long the run took.
        wall: Duration,
        /// The clock.
        clock_mhz: f64,
        /// What it may say.
        limit: String,
    },
}

/// What became of a block that missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// It was reset and is idle.
    Reset,
    /// It was reset and is still busy.
    StillBusy,
    /// There is no way to reset it.
    NoReset,
}

impl std::fmt::Display for Aftermath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reset => "the accelerator was reset",
            Self::StillBusy => "it is still busy after a reset",
            Self::NoReset => "the board's file has no [reset]",
        })
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

impl BoardError {
    pub(crate) fn io(
        path: &std::path::Path,
        what: &'static str,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, what, source }
    }
}
