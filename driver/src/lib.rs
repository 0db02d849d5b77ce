//! Between compiled programs and devices: memory, queues, sessions, streams.
//!
//! A [`Program`] is what a compiler makes: commands against symbolic buffers and micro-op
//! kernels, the constants, and the tensors that go in and come out. A [`Session`] loads one on
//! a [`Device`], and runs it: its [`CommandQueue`] resolves addresses, keeps micro-ops resident
//! and fills one batch, which is submitted only for the reasons of [`FlushReason`]. A whole
//! network whose layers are all on one device is one submission; the second run replays it.
//!
//! ```
//! use std::sync::Arc;
//! use vta_driver::{Device, NullDevice, Work, WorkDone};
//! use vta_isa::Config;
//!
//! let device = NullDevice::with_config(Config::default());
//! let addr = device.alloc(4)?;
//! device.submit(Work::Write { addr, data: [1u8, 2, 3, 4].into() })?;
//! let read = device.submit(Work::Read { addr, size_bytes: 4 })?;
//! assert!(matches!(read.wait()?, WorkDone::Data(bytes) if bytes == [1, 2, 3, 4]));
//! # Ok::<(), vta_driver::DriverError>(())
//! ```
//!
//! Work waits for and signals [`Timeline`]s when it goes through a [`Stream`]. On these stand a
//! [`Pipeline`], which keeps several runs of a session in flight, and a [`MultiSession`], which
//! runs a [`MultiProgram`] on several devices.
//!
//! It knows no operator and no number format beyond tensors of whole numbers in tiles: compilers are in
//! `vta-compiler`, simulators in `vta-sim`.
mod device;
mod error;
mod flat;
mod memory;
mod queue;
mod session;
mod stream;
#[cfg(test)]
mod testing;

pub use device::{
    Batch, Budget, Counters, Device, DeviceCounters, DeviceInfo, FlushReason, Lane, LayerMark,
    MarkReport, NullDevice, OverBudget, RunReport, Runner, StepBudget, Ticket, Traffic, Work,
    WorkDone, WorkerDevice,
};
pub use error::{DriverError, TimelineError};
pub use flat::{FLAT_MAGIC, FLAT_VERSION, FlatCut, FlatError, flat_image};
pub use memory::{
    AllocError, Allocations, Allocator, DeviceMemory, Footprints, HostBytes, InPlace, Lent,
    MemoryError, OtherBytes, Span, pages,
};
pub use queue::{CommandQueue, QueueLimits, RecordedBatch, Recording};
pub use session::{MultiSession, Pipeline, RunOutput, Session};
pub use stream::{Point, Promise, Stream, Timeline};
pub use vta_program::{
    Attribute, AttributeValue, BUNDLE_MAGIC, BUNDLE_VERSION, Buffer, BufferId, BufferKind, Bundle,
    BundleError, BundleImage, Bytes, Command, DramPlan, GemmSteps, HOSTED_VERSION, HostKernel,
    HostOutput, HostStep, HostTraffic, HostWork, Kernel, KernelId, Layer, MultiProgram, NodeInfo,
    PAGE_BYTES, Packing, Part, PhysAddr, Place, Program, ProgramError, ReadKernel, Step, Symbol,
    TensorInfo, TensorSpec, packing,
};
