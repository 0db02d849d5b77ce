//! `libvta`: what C and C++ programs link.
//!
//! | header | is |
//! |---|---|
//! | `vta.h` | networks on devices: open, set inputs, run, read outputs, count |
//!
//! What every layer shares is in [`error`], where no panic leaves a function of C, a call that fails says
//! why to its thread, and a status says of what class the failure is; and in [`raw`], which checks pointers.

pub mod error;
mod last;
pub mod raw;

use std::ffi::{CStr, c_char};

pub use last::{vta_last_error, vta_last_status};

/// The version of this library, "MAJOR.MINOR.PATCH". It lives as long as the program.
#[unsafe(no_mangle)]
pub extern "C" fn vta_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version without NUL"),
        };
    VERSION.as_ptr()
}
