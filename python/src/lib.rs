//! The Python package `pyvta`'s compiled part, `pyvta._pyvta`: `vta-app` as Python has it. Options, errors
//! and results are translated here, arrays are borrowed, and Python is let go while Rust computes; what a
//! command line could want, too, is in the libraries, and what only Python needs in `pyvta/*.py`.
//!
//! The module below names all classes and functions; those of users are told in `pyvta/__init__.py` and
//! have their types in `pyvta/_pyvta.pyi`.
#![forbid(unsafe_code)]

mod arrays;
mod device;
mod error;
mod fork;
mod given;
mod isa;
mod known;
mod network;
mod options;
mod results;
mod steps;
mod sweep;
mod watch;

use pyo3::prelude::*;
// What modules that TVM compiled call: `pyvta.tvm` lets them find it.
use vta as _;

/// The compiled part of pyvta: see there.
#[pymodule]
mod _pyvta {
    use super::*;

    #[pymodule_export]
    use crate::{
        device::Device,
        device::buffer::Buffer,
        device::run_report::InsnTimes,
        device::streams::{Pending, Promise, Timeline},
        isa::{assemble, decode, decode_uops, disassemble, encode, encode_uops},
        isa::{isa_check_program, isa_config, isa_fields},
        known::{check, list_boards, list_devices, list_models},
        network::compile::{compile, verify, write_file},
        network::cut::cut,
        network::quantize::{Measured, quantize},
        network::report::Views,
        network::session::InferenceSession,
        steps::Steps,
        sweep::Sweeper,
        sweep::explore::Explorer,
        sweep::layers::read_layers,
        sweep::tune::Tuner,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
