//! Between compiled programs and devices: memory, queues, submissions, bundles.
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
//! It knows no operator and no number format beyond int8 tensors in tiles: compilers are in
//! `vta-compiler`, simulators in `vta-sim`.
mod addr;
mod alloc;
mod allocations;
mod budget;
mod bundle;
mod bytes;
mod counters;
pub mod coverage;
mod describe;
mod device;
mod dram_plan;
mod error;
mod flat;
mod input;
pub mod listing;
mod memory;
mod multi;
mod multi_session;
mod null;
pub mod output;
pub mod packing;
mod program;
mod program_error;
mod queue;
mod recording;
mod regions;
pub mod replay;
mod resolve;
mod session;
mod stream;
#[cfg(test)]
mod testing;
mod timeline;
mod traffic;
mod uop_cache;
mod validate;
mod worker;

pub use addr::PhysAddr;
pub use alloc::{AllocError, Allocator, PAGE_BYTES};
pub use allocations::Allocations;
pub use budget::{Budget, OverBudget};
pub use bundle::{
    BUNDLE_MAGIC, BUNDLE_VERSION, Bundle, BundleError, BundleImage, HOSTED_VERSION, ReadKernel,
};
pub use bytes::Bytes;
pub use counters::{Counters, DeviceCounters, FlushReason};
pub use describe::{Attribute, AttributeValue, NodeInfo, TensorInfo};
pub use device::{
    Batch, Device, DeviceInfo, Lane, LayerMark, MarkReport, RunReport, Ticket, Work, WorkDone,
};
pub use dram_plan::DramPlan;
pub use error::{DriverError, TimelineError};
pub use flat::{FLAT_MAGIC, FLAT_VERSION, FlatCut, FlatError};
pub use input::{open_input, printable, toml_message};
pub use memory::{DeviceMemory, Lent, MemoryError, OtherBytes, Span};
pub use multi::{
    HostKernel, HostOutput, HostStep, HostTraffic, HostWork, MultiProgram, Part, Place, Step,
};
pub use multi_session::MultiSession;
pub use null::NullDevice;
pub use program::{
    Buffer, BufferId, BufferKind, Command, GemmSteps, Kernel, KernelId, Layer, Packing, Program,
    Symbol, TensorSpec,
};
pub use program_error::ProgramError;
pub use queue::{CommandQueue, QueueLimits};
pub use recording::{RecordedBatch, Recording};
pub use regions::Footprints;
pub use session::{Pipeline, RunOutput, Session};
pub use stream::Stream;
pub use timeline::{Point, Promise, Timeline};
pub use traffic::Traffic;
pub use worker::{Runner, WorkerDevice};
