//! What can go wrong between a program and an OpenCL device.

use std::fmt::Display;

use thiserror::Error;
use vta_driver::MemoryError;
use vta_files::output::FileError;
use vta_isa::ConfigError;

/// An OpenCL call that failed: which one, and what the runtime answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{call}: {name} ({code})")]
pub struct ClFault {
    /// The call, in the names of the OpenCL specification.
    pub call: &'static str,
    /// The runtime's error code.
    pub code: i32,
    /// The code's name in the specification.
    pub name: String,
}

impl ClFault {
    /// The error of a device whose call it was.
    pub(crate) fn of(self, device: &str) -> OpenClError {
        OpenClError::Call {
            device: device.to_owned(),
            fault: self,
        }
    }
}

/// Why a device can't be opened or used.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum OpenClError {
    /// There is no ICD loader (`libOpenCL.so`) to load.
    #[error(
        "there is no OpenCL on this machine: no libOpenCL.so was found \
         (on Debian: apt-get install ocl-icd-libopencl1; or name one with OPENCL_DYLIB_PATH)"
    )]
    NoLoader,
    /// The loader knows no platform.
    #[error(
        "OpenCL has no platform: install a driver, or point OCL_ICD_VENDORS \
         at a folder of .icd files"
    )]
    NoPlatform,
    /// A machine whose numbers aren't int8.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A selector or scopes that can't be read, or a selector that no device matches.
    #[error("{0}")]
    Text(String),
    /// Memory scopes that the device can't have.
    #[error("device {device} can't have the memory scopes {scopes}: {reason}")]
    Scope {
        /// The device.
        device: String,
        /// What was asked for.
        scopes: String,
        /// Why not, with the limit's name.
        reason: String,
    },
    /// The kernels don't build.
    #[error("device {device}: the kernels don't build ({fault})\nbuild log:\n{log}")]
    Build {
        /// The device.
        device: String,
        /// What the runtime answered.
        fault: ClFault,
        /// The compiler's log, whole.
        log: String,
    },
    /// A bitstream that the device doesn't take, or that was built for another VTA instance.
    #[error("device {device}: {path} can't be loaded: {reason}")]
    Bitstream {
        /// The device.
        device: String,
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A bitstream that can't be written.
    #[error("{0}")]
    File(#[from] FileError),
    /// A structure that the device can't run.
    #[error("device {device} can't run the {structure} structure: {reason}")]
    Structure {
        /// The device.
        device: String,
        /// The structure.
        structure: &'static str,
        /// Why not.
        reason: String,
    },
    /// A call failed.
    #[error("device {device}: {fault}")]
    Call {
        /// The device.
        device: String,
        /// What the runtime answered.
        fault: ClFault,
    },
}

/// Why a piece of work failed.
#[derive(Debug, Error)]
pub(crate) enum EngineError {
    /// The host's own access.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Call(#[from] ClFault),
    /// A batch that no device may run, or memory that can't be had.
    #[error("{0}")]
    Refused(String),
    /// Something that can't happen, in words: a fault of this crate.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl EngineError {
    /// Of what is refused before anything of it runs.
    pub fn refused(reason: impl Display) -> Self {
        Self::Refused(reason.to_string())
    }
}
