//! Between compiled programs and devices: buffers, queues, submissions.
//!
//! A [`Program`] is what a compiler makes: commands against symbolic buffers and micro-op
//! kernels, the constants, and the tensors that go in and come out. A [`Device`] runs batches of
//! resolved instructions over its own memory.
mod device;
mod error;
mod memory;
mod program;

pub use device::{
    Batch, Device, DeviceInfo, LayerMark, MarkReport, PhysAddr, RunReport, Ticket, Traffic, Work,
    WorkDone,
};
pub use error::DriverError;
pub use memory::{DeviceMemory, MemoryError};
pub use program::{
    Buffer, BufferId, BufferKind, Command, Kernel, KernelId, Layer, Packing, Program, Symbol,
    TensorSpec,
};
