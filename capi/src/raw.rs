//! Pointers of C, checked as far as they can be: `name` says which argument it is in messages.

use std::ffi::{CStr, c_char, c_void};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use vta_driver::{Allocations, InPlace, PhysAddr};

use crate::error::Failure;

/// A text that C gives.
///
/// # Errors
/// NULL, and bytes that aren't UTF-8.
///
/// # Safety
/// What isn't NULL ends with a byte of 0 and stays as it is for `'a`.
pub unsafe fn text<'a>(name: &str, at: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise is this function's.
    let text = unsafe { maybe_text(name, at) }?;
    some(name, text)
}

/// A text that C may leave out.
///
/// # Errors
/// Bytes that aren't UTF-8.
///
/// # Safety
/// As for [`text`].
pub unsafe fn maybe_text<'a>(name: &str, at: *const c_char) -> Result<Option<&'a str>, Failure> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: it isn't NULL, so that the caller says it ends and stays.
    let text = unsafe { CStr::from_ptr(at) };
    let wrong = |_| Failure::usage(format!("`{name}` is no UTF-8"));
    text.to_str().map(Some).map_err(wrong)
}

/// The bytes of values that C gives, each of so many; none may be at NULL.
///
/// # Errors
/// NULL for some values, an address that isn't a multiple of their size, more values than there can be.
///
/// # Safety
/// There are `len` values from `at` on, which nothing writes during `'a`.
#[inline]
pub unsafe fn values<'a>(
    name: &str,
    at: *const c_void,
    len: usize,
    size: usize,
) -> Result<&'a [u8], Failure> {
    let (at, bytes) = array(name, at, len, size)?;
    // SAFETY: it is no longer than a slice can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes) })
}

/// The bytes of room that C gives for values; none may be at NULL.
///
/// # Errors
/// As for [`values`].
///
/// # Safety
/// There are `len` values from `at` on, which nothing else touches during `'a`.
pub unsafe fn room<'a>(
    name: &str,
    at: *mut c_void,
    len: usize,
    size: usize,
) -> Result<&'a mut [u8], Failure> {
    let (at, bytes) = array(name, at, len, size)?;
    // SAFETY: as in `values`.
    Ok(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), bytes) })
}

/// Whether there can be an array; where, and how many bytes it has.
#[inline]
fn array(
    name: &str,
    at: *const c_void,
    len: usize,
    size: usize,
) -> Result<(NonNull<u8>, usize), Failure> {
    if len == 0 {
        return Ok((NonNull::dangling(), 0));
    }
    let found = some(name, NonNull::new(at.cast_mut().cast()))?;
    if !at.addr().is_multiple_of(size) {
        let text = format!("`{name}` is at {at:p}, which is no multiple of {size}");
        return Err(Failure::usage(text));
    }
    match len.checked_mul(size) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok((found, bytes)),
        _ => Err(Failure::usage(format!(
            "`{name}`: {len} values are too many"
        ))),
    }
}

/// What a pointer of C leads to.
///
/// # Errors
/// NULL.
pub fn some<T>(name: &str, at: Option<T>) -> Result<T, Failure> {
    at.ok_or_else(|| Failure::usage(format!("`{name}` is NULL")))
}

/// The first bytes of a buffer of the device's memory, with which the device itself computes.
pub struct Shared {
    bytes: InPlace,
    len: usize,
    /// What keeps them there.
    _allocation: Allocations,
}

impl Shared {
    /// So many bytes from an address in allocations on.
    ///
    /// # Errors
    /// The allocations, if the device has others than the host's bytes or there aren't so many.
    pub fn new(allocation: Allocations, at: PhysAddr, len: usize) -> Result<Self, Allocations> {
        match allocation.in_place(at).filter(|bytes| len <= bytes.len) {
            None => Err(allocation),
            Some(bytes) => Ok(Self {
                bytes,
                len,
                _allocation: allocation,
            }),
        }
    }
}

// SAFETY: the bytes belong to no thread.
unsafe impl Send for Shared {}

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: there are as many until the allocation is freed, which is its own. Nobody writes them meanwhile: who
        // lets the device work waits for it before, and callers in C say that no other thread touches buffers then.
        unsafe { std::slice::from_raw_parts(self.bytes.first.as_ptr(), self.len) }
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.first.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_pointers_are_refused_by_name() {
        let all = [1u32.to_ne_bytes(), 2u32.to_ne_bytes()];
        let at: *const c_void = all.as_ptr().cast();
        let odd = at.wrapping_byte_add(at.addr() % 2 + 1);
        // SAFETY: what isn't refused is there.
        let (good, none, null, odd, many) = unsafe {
            (
                values("in", at, 8, 1),
                values("in", std::ptr::null(), 0, 4),
                values("in", std::ptr::null(), 1, 4),
                values("in", odd, 1, 4),
                values("in", std::ptr::without_provenance(4), usize::MAX / 4, 4),
            )
        };
        assert_eq!(good, Ok(all.as_flattened()));
        assert_eq!(none, Ok(&[][..]));
        assert_eq!(null.map_err(|e| e.text), Err("`in` is NULL".to_owned()));
        assert!(odd.is_err_and(|e| e.text.ends_with("no multiple of 4")));
        assert!(many.is_err_and(|e| e.text.ends_with("values are too many")));
    }

    #[test]
    fn texts_are_utf8() {
        // SAFETY: each ends with 0, or is NULL.
        let (good, bad, none) = unsafe {
            (
                text("name", c"demo".as_ptr()),
                text("name", c"\xff".as_ptr()),
                text("name", std::ptr::null()),
            )
        };
        assert_eq!(good, Ok("demo"));
        assert_eq!(
            bad.map_err(|e| e.text),
            Err("`name` is no UTF-8".to_owned())
        );
        assert_eq!(none.map_err(|e| e.text), Err("`name` is NULL".to_owned()));
    }
}
