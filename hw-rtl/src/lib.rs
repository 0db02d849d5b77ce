//! A design of the VTA's RTL, compiled by Verilator into a library, as a device.
//!
//! The library has the interface of the original's simulation: `VTADPIInit` takes three callbacks, and
//! `VTADPISim` runs the clock on a thread of its own, calling them in every cycle. Here stand the
//! other ends: the host, which writes registers, launches and polls; the memory, which answers bursts with
//! a beat a clock from the next clock on, in the order of the requests; and the switch that stops the clock
//! between runs. A design that stands still, doesn't finish, leaves, or reads and writes where nothing is
//! allocated is an error of the run, with the clock and the address.
//!
//! ```no_run
//! use std::path::Path;
//! use vta_driver::{Budget, Device};
//! use vta_hw_rtl::{Options, RtlDevice};
//! use vta_isa::Config;
//!
//! let library = Path::new("libvta_hw.so");
//! let options = Options::default();
//! let device = RtlDevice::open(library, Config::default(), Budget::default(), &options)?;
//! assert_eq!(device.info().name, "rtl:libvta_hw.so");
//! # Ok::<(), vta_hw_rtl::RtlError>(())
//! ```
//!
//! It knows nothing of what a program should compute: `vta-app` compares designs with the cycle model.
mod abort;
mod bus;
mod device;
mod error;
mod host;
mod library;
mod plant;
mod rtl;

pub use abort::end_on_abort;
pub use bus::Moved;
pub use device::{RtlDevice, most_clocks, name, run, stores_else};
pub use error::RtlError;
pub use host::register;
pub use plant::Ran;
pub use rtl::{Options, Rtl};
