//! Runs compiled networks on VTA without an operating system: no standard library, no
//! allocation, no floats, nothing that panics.
//!
//! A flat image (`vta compile MODEL -o NET.img --flat layers`) is read where it lies, in flash or in any other
//! bytes. [`Runtime::open`] checks all of it, every transfer of every instruction included, before
//! it writes to the [`Board`]'s window, which holds what the accelerator reads and writes. A run
//! submits one batch after the other and waits for each by polling, no longer than the board's
//! deadline. docs/bare-metal.md has the memory map and the format; `include/vta_rt.h` is the same for C.
//!
//! ```
//! use vta_rt::{Image, Status};
//!
//! let cut = Image::read(b"VTAFLAT\n").unwrap_err();
//! assert_eq!((cut.status, cut.value, cut.limit), (Status::ImageCut, 8, 128));
//! ```
#![no_std]

mod board;
mod checksum;
mod fault;
mod ffi;
mod image;
mod insn;
mod isa;
mod mmio;
mod pack;
#[cfg(all(feature = "panic-handler", panic = "abort"))]
mod panic;
mod runtime;
mod stats;

pub use board::{Board, RegisterLayout, Visibility};
pub use fault::{Fault, Status};
pub use ffi::*;
pub use image::{Batch, Image, Packing, Tensor};
pub use mmio::{Clock, Hooks, Mmio, RangeHook};
pub use runtime::{Needs, Runtime};
pub use stats::{BatchStats, Stats};
