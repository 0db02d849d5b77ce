//! Versions, options, and sessions from `vta_open` to `vta_close`.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of all pointers is the header's"
)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use crate::error::{Failure, Status, caught, status};
use crate::options::Options;
use crate::raw::{self, some};
use crate::session::Session;

/// The version of this interface: the number in the shared library's name. A program that was compiled with
/// one works with every library of the same.
pub const VTA_ABI_VERSION: u32 = 1;

/// `VTA_ABI_VERSION` of this library.
#[unsafe(no_mangle)]
pub extern "C" fn vta_abi_version() -> u32 {
    VTA_ABI_VERSION
}

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

/// Options, none of them set. Free them with `vta_options_free`. NULL if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn vta_options_new() -> *mut Options {
    caught(ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(Options::default())))
    })
}

/// Sets an option, both as text that is copied:
///
/// | `name` | `value` |
/// |---|---|
/// | `config` | a `vta_config.json`, or an object of its keys, `{"LOG_BLOCK": 4}`; the board's, or else 1x16x16 |
/// | `board` | a board, whose limits and timing hold: a preset's name or a TOML file |
/// | `timing` | timing alone of a board, for the device `cycle` |
/// | `threads` | threads, at least 1; one for each core |
/// | `batch` | runs in flight on each device, at least 1; 1, and 2 on OpenCL |
/// | `allow_host` | 1 lets the host compute what no device can; 0 |
/// | `input_shape` | a shape that an ONNX file leaves open, `NAME=1x3x224x224`, once for each input |
/// | `requant` | `precise` or `fast`: how int32 sums become int8; what the model says |
/// | `timing_only` | 1 counts cycles and computes nothing, for the device `cycle`; 0 |
/// | `placement` | a TOML file that says which layers run on which device |
/// | `tiles` | a cache of measured tiles |
/// | `costs`, `host_speed` | prices and speeds for estimates, in TOML, for the device `cycle` |
/// | `scope`, `bitstream` | memory scopes and bitstream of OpenCL devices |
///
/// A file is looked for when a session is opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_options_set(
    options: Option<&mut Options>,
    name: *const c_char,
    value: *const c_char,
) -> Status {
    status(|| {
        let options = some("options", options)?;
        // SAFETY: pointers are as the header wants them.
        let (name, value) = unsafe { (raw::text("name", name)?, raw::text("value", value)?) };
        options.set(name, value)
    })
}

/// Frees options. Sessions that were opened with them go on. NULL is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_options_free(options: *mut Options) {
    // SAFETY: it came from `vta_options_new`, and C gives it back.
    unsafe { free(options) };
}

/// Frees what was made in a box, unless it is NULL.
///
/// # Safety
/// It came from a box, and C gives it back.
unsafe fn free<T>(made: *mut T) {
    if !made.is_null() {
        // SAFETY: the caller's promise.
        let made = unsafe { Box::from_raw(made) };
        caught((), || {
            drop(made);
            Ok(())
        });
    }
}

/// Opens a network and compiles it for a device.
///
/// `model` is an ONNX file, a bundle (`.vta`), `demo` or `zoo:NAME`, with int8 tensors: a float model is
/// `VTA_STATUS_FLOAT`. `device` is `sim` (fast), `oracle` (slow, obvious), `cycle` (counts cycles),
/// `opencl[:SEL]` or another of the command line's; several with commas between share the network; NULL is
/// `sim`. `options` may be NULL. Devices are opened by the first run.
///
/// The session is written to `session`, NULL after a failure. Close it with `vta_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_open(
    model: *const c_char,
    device: *const c_char,
    options: Option<&Options>,
    session: Option<&mut *mut Session>,
) -> Status {
    // SAFETY: pointers are as the header wants them.
    unsafe {
        opened(session, device, options, || {
            Ok((raw::text("model", model)?, None))
        })
    }
}

/// As `vta_open`, of an ONNX model that is in memory, `size` bytes at `data`, which are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_open_onnx(
    data: *const c_void,
    size: usize,
    device: *const c_char,
    options: Option<&Options>,
    session: Option<&mut *mut Session>,
) -> Status {
    let model = || {
        // SAFETY: pointers are as the header wants them.
        let bytes = unsafe { raw::values("data", data, size, 1) }?;
        let mut copy = Vec::new();
        let room = copy.try_reserve_exact(size);
        room.map_err(|_| Failure::memory(size))?;
        copy.extend_from_slice(bytes);
        Ok(("the model", Some(copy)))
    };
    // SAFETY: as above.
    unsafe { opened(session, device, options, model) }
}

/// Opens what `model` gives.
///
/// # Safety
/// The device is as the header wants it.
unsafe fn opened<'a>(
    session: Option<&mut *mut Session>,
    device: *const c_char,
    options: Option<&Options>,
    model: impl FnOnce() -> Result<(&'a str, Option<Vec<u8>>), Failure>,
) -> Status {
    status(|| {
        let session = some("session", session)?;
        *session = ptr::null_mut();
        // SAFETY: the caller's promise.
        let device = unsafe { raw::maybe_text("device", device) }?.unwrap_or("sim");
        let (name, bytes) = model()?;
        let Options(mut options) = options.cloned().unwrap_or_default();
        device.clone_into(&mut options.device);
        let opened = Session::open(options.open(name, bytes)?, &options)?;
        *session = Box::into_raw(Box::new(opened));
        Ok(())
    })
}

/// Closes a session and frees what belongs to it. No other call may have it any more. NULL is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_close(session: *mut Session) {
    // SAFETY: it came from `opened`, and C gives it back.
    unsafe { free(session) };
}
