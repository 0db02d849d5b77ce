//! VTA on OpenCL devices: CPUs, GPUs, FPGAs and their emulators as a [`vta_driver::Device`].
//!
//! A [`Selector`] chooses among [`devices`], an [`OpenClDevice`] runs batches there. Two
//! structures do so, with the same bits:
//!
//! - the **core** (`kernels/vta_core.cl`): one kernel of one work-item that interprets the
//!   instruction stream, what an FPGA compiler turns into hardware; from source where the device
//!   takes it, else from a bitstream. A variant has three kernels joined by channels.
//! - the **throughput** structure (`kernels/vta_throughput.cl`) for CPUs and GPUs: the host decodes a
//!   batch once into operations with independent units, orders them into levels, and enqueues a
//!   launch for each level, small ones together, without waiting in between. GEMM instructions on
//!   the same accumulators are one operation, and tiles that a program loads over others get
//!   places of their own, so that levels are few and large.
//!
//! `libOpenCL.so` is loaded when a device is first asked for, so a program starts without it.
//!
//! ```
//! use vta_hw_opencl::{OpenClDevice, Options, Selector};
//! use vta_isa::Config;
//!
//! let selector: Selector = "opencl:cpu".parse()?;
//! match OpenClDevice::open(&selector, Config::default(), Options::from_env()) {
//!     Ok(device) => println!("{} runs {}", device.entry().facts.name, device.structure()),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), vta_hw_opencl::OpenClError>(())
//! ```
//!
//! Micro-ops are decoded on the host, from a mirror of what it wrote; a batch whose micro-ops
//! the device itself has stored is cut there and reads them back.
mod arena;
mod batch;
mod build;
mod cl;
mod device;
mod error;
mod mirror;
mod options;
mod plan;
mod scopes;
mod select;
mod shared;
mod sources;
mod stats;
mod structure;
mod words;

pub use build::measured::{remember_scopes, remembered_scopes};
pub use build::program::{config_macros, save_bitstream};
pub use cl::{DeviceFacts, ImageLimits};
pub use device::OpenClDevice;
pub use error::{ClFault, OpenClError};
pub use options::{Cache, Math, Options};
pub use scopes::{Scope, Scopes};
pub use select::{DeviceEntry, DeviceKind, Selector, Structure, devices};
pub use sources::{CORE_SOURCE, PACK_SOURCE, THROUGHPUT_SOURCE};
