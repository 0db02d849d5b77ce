//! What a compiler makes and a driver runs, as data.
//!
//! A [`Program`] has commands against symbolic buffers, micro-op kernels, constants, and the
//! tensors that go in and come out; a [`MultiProgram`] has one for each device and what the host
//! computes between their layers. A [`Bundle`] is either on disk. [`packing`] puts tensors into
//! the tiles of device memory, a [`DramPlan`] says which buffers share bytes, a
//! [`listing::Listing`] writes a program down with tensor coordinates, and [`coverage`] proves
//! from it that nothing is left out or done twice.
//!
//! ```
//! use vta_program::Program;
//!
//! let program = Program::default();
//! program.validate()?;
//! assert!(program.layers.is_empty());
//! # Ok::<(), vta_program::ProgramError>(())
//! ```
//!
//! It knows no device: those, and the memory and queues of a run, are in `vta-driver`.

mod addr;
mod bundle;
mod bytes;
pub mod coverage;
mod describe;
mod dram_plan;
pub mod listing;
mod multi;
pub mod packing;
mod program;
mod program_error;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
mod validate;

pub use addr::PhysAddr;
pub use bundle::{
    BUNDLE_MAGIC, BUNDLE_VERSION, Bundle, BundleError, BundleImage, HOSTED_VERSION, ReadKernel,
};
pub use bytes::Bytes;
pub use describe::{Attribute, AttributeValue, NodeInfo, TensorInfo};
pub use dram_plan::{DramPlan, PAGE_BYTES};
pub use multi::{
    HostKernel, HostOutput, HostStep, HostTraffic, HostWork, MultiProgram, Part, Place, Step,
};
pub use program::{
    Buffer, BufferId, BufferKind, Command, GemmSteps, Kernel, KernelId, Layer, Packing, Program,
    Symbol, TensorSpec,
};
pub use program_error::ProgramError;
pub use validate::At;
