//! What the last failure of each thread was.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use crate::failure::{Failure, Status};

thread_local! {
    static LAST: RefCell<(Status, CString)> = RefCell::default();
}

/// Keeps a failure for the thread's own [`vta_last_error`].
pub(crate) fn keep(failure: Failure) {
    // A thread that ends has nobody left to ask.
    let _ = LAST.try_with(|last| *last.borrow_mut() = (failure.status, text(failure.text)));
}

/// A C string of what may have bytes of 0 in it.
pub(crate) fn text(text: String) -> CString {
    CString::new(text).unwrap_or_else(|error| {
        let mut bytes = error.into_vec();
        bytes.retain(|byte| *byte != 0);
        CString::new(bytes).unwrap_or_default()
    })
}

/// What [`vta_last_error`] tells.
#[cfg(test)]
pub(crate) fn told() -> String {
    LAST.with(|last| last.borrow().1.to_string_lossy().into_owned())
}

/// Why the last call of this thread that failed did so; "" before any did. It is never NULL, and lives
/// until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn vta_last_error() -> *const c_char {
    let of = |last: &RefCell<(Status, CString)>| last.borrow().1.as_ptr();
    LAST.try_with(of).unwrap_or(c"".as_ptr())
}

/// The status of the last call of this thread that failed; `VTA_STATUS_OK` before any did.
#[unsafe(no_mangle)]
pub extern "C" fn vta_last_status() -> Status {
    LAST.try_with(|last| last.borrow().0).unwrap_or_default()
}
