//! The Python package `pyvta`'s compiled part, `pyvta._pyvta`: `vta-app` as Python has it. Options, errors
//! and results are translated here, arrays are borrowed, and Python is let go while Rust computes; what a
//! command line could want, too, is in the libraries, and what only Python needs in `pyvta/*.py`.
//!
//! Each module registers its classes and functions; those of users are told in `pyvta/__init__.py` and
//! have their types in `pyvta/_pyvta.pyi`.
#![forbid(unsafe_code)]

mod arrays;
mod buffer;
mod compile;
mod device;
mod error;
mod fork;
mod given;
mod isa;
mod known;
mod layers;
mod opened;
mod options;
mod pixels;
mod quantize;
mod report;
mod results;
mod run_report;
mod session;
mod streams;
mod sweep;
mod tune;
mod watch;
mod work;

use pyo3::prelude::*;

/// The compiled part of pyvta: see there.
#[pymodule]
fn _pyvta(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    buffer::register(module)?;
    compile::register(module)?;
    device::register(module)?;
    isa::register(module)?;
    known::register(module)?;
    layers::register(module)?;
    quantize::register(module)?;
    report::register(module)?;
    run_report::register(module)?;
    session::register(module)?;
    streams::register(module)?;
    sweep::register(module)?;
    tune::register(module)?;
    Ok(())
}
