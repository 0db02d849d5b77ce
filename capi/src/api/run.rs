//! Inputs, runs, outputs and counters.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of all pointers is the header's"
)]

use std::ffi::{CString, c_char, c_void};
use std::{iter, ptr};

use crate::counters::Counters;
use crate::error::{Status, caught, status};
use crate::raw::{self, some};
use crate::session::{Session, State};
use crate::tensor::Type;

/// Gives an input by number its values, `count` of `type` (a `vta_type`), which are copied: a whole number of
/// images, one behind the other, each in the order of the tensor's shape. An input keeps them until it gets
/// others.
///
/// `type` is that of the model; where devices hold the tensor (`vta_tensor_scale` isn't 0) it may be
/// `VTA_TYPE_I8`, the device's own steps. Real values are rounded to the nearest step, ties to even.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_set_input(
    session: *mut Session,
    index: usize,
    r#type: i32,
    values: *const c_void,
    count: usize,
) -> Status {
    status(|| {
        // SAFETY: pointers are as the header wants them.
        let session = some("session", unsafe { session.as_ref() })?;
        let kind = Type::element(r#type)?;
        // SAFETY: as above; the type says what there is.
        let bytes = unsafe { raw::values("values", values, count, kind.bytes() as usize) }?;
        session.set(index, kind, bytes)
    })
}

/// Gives an input by number the images of a file or folder, made as the model says they are: photos (png,
/// jpeg, webp, bmp, tiff), `.npy`, `.npz`. NULL are the images that come with `demo`, and a synthetic one of
/// `zoo:NAME`. All are in memory at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_set_images(
    session: *mut Session,
    index: usize,
    path: *const c_char,
) -> Status {
    status(|| {
        // SAFETY: pointers are as the header wants them.
        let (session, path) = unsafe { (session.as_ref(), raw::maybe_text("path", path)?) };
        some("session", session)?.set_images(index, path)
    })
}

/// Runs the network on what its inputs were given, and waits for it. After a failure the session can be used
/// again, but has no outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_run(session: *mut Session) -> Status {
    status(|| {
        // SAFETY: pointers are as the header wants them.
        some("session", unsafe { session.as_ref() })?.run()
    })
}

/// Lets the run that another thread waits for end with `VTA_STATUS_CANCELLED`, once what has begun is done;
/// does nothing where none runs, and for NULL. It never waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_cancel(session: *mut Session) {
    // SAFETY: pointers are as the header wants them.
    if let Some(session) = unsafe { session.as_ref() } {
        session.cancel();
    }
}

/// How many images the last run was of; 0 before a run that ended well, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn vta_image_count(session: Option<&Session>) -> usize {
    caught(0, || Ok(some("session", session)?.images()))
}

/// Copies an output of the last run to `values`, where there is room for `count` values of `type` (a
/// `vta_type`): exactly `vta_image_count` times `vta_tensor_len`, one image behind the other.
///
/// `type` is that of the model; of what devices hold, `VTA_TYPE_F32` are real values and `VTA_TYPE_I8` the
/// device's own steps; `VTA_TYPE_I64` holds whole numbers of any type that the host gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_read_output(
    session: Option<&Session>,
    index: usize,
    r#type: i32,
    values: *mut c_void,
    count: usize,
) -> Status {
    status(|| {
        let session = some("session", session)?;
        let kind = Type::element(r#type)?;
        // SAFETY: pointers are as the header wants them; the type says for what there is room.
        let room = unsafe { raw::room("values", values, count, kind.bytes() as usize) }?;
        session.read(index, kind, room)
    })
}

/// Writes what the session counted to `counters`, `size` bytes of it: give `sizeof(vta_counters)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_read_counters(
    session: Option<&Session>,
    counters: *mut Counters,
    size: usize,
) -> Status {
    status(|| {
        let state = some("session", session)?.state();
        // SAFETY: pointers are as the header wants them.
        let room = unsafe { raw::room("counters", counters.cast(), size, 1) }?;
        let figures = state.counted.figures(&state.network);
        // A caller of another version has fewer or more of them.
        let bytes = figures.words().into_iter().flat_map(u64::to_ne_bytes);
        let bytes = bytes.chain(iter::repeat(0));
        room.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        Ok(())
    })
}

/// What the session counted as an object of JSON, with the keys of `vta run --json`; on a device that counts
/// cycles `pass` says where those of one pass went. NULL after a failure. It lives until the next call that
/// gives text of this session, or closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_counters_json(session: *mut Session) -> *const c_char {
    // SAFETY: pointers are as the header wants them.
    unsafe { told(session, |state| state.counted.json(&state.network)) }
}

/// Remarks on the network and its runs, a line each; "" if there are none. It lives as `vta_counters_json`'s
/// does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_notes(session: *mut Session) -> *const c_char {
    // SAFETY: pointers are as the header wants them.
    unsafe { told(session, |state| state.notes.join("\n")) }
}

/// Text that the session keeps.
///
/// # Safety
/// Pointers are as the header wants them.
unsafe fn told(session: *mut Session, text: impl FnOnce(&State) -> String) -> *const c_char {
    caught(ptr::null(), || {
        // SAFETY: the caller's promise.
        let mut state = some("session", unsafe { session.as_ref() })?.state();
        let text = text(&state);
        state.text = CString::new(text).unwrap_or_default();
        Ok(state.text.as_ptr())
    })
}
