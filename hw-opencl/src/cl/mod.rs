//! The only place of this crate that calls OpenCL: a few safe objects over `opencl3`.
//!
//! Buffers are bytes. Transfers own their host memory until the runtime is done with it.
//! Dropping a transfer that is still under way waits for it, so that the runtime never touches
//! freed memory; one of a device that hangs must be forgotten instead.

mod context;
mod image;
mod queue;
mod staging;

pub(crate) use context::{Arg, BuildFault, Built, Bytes, CoreKernel, Ctx, Image, devices};
pub use context::{DeviceFacts, ImageLimits};
pub(crate) use queue::{Marker, Pending, Queue};
pub(crate) use staging::Staging;
