//! What a network takes and gives: its tensors and labels.
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of all pointers is the header's"
)]

use std::ffi::c_char;
use std::ptr;

use crate::error::{Status, caught, status};
use crate::raw::{self, null};
use crate::session::Session;
use crate::tensor::{Tensor, Tensors, Type};

/// How many inputs the network has; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_input_count(session: *const Session) -> usize {
    // SAFETY: pointers are as the header wants them.
    unsafe { session.as_ref() }.map_or(0, |session| session.inputs.all.len())
}

/// How many outputs the network has; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_output_count(session: *const Session) -> usize {
    // SAFETY: pointers are as the header wants them.
    unsafe { session.as_ref() }.map_or(0, |session| session.outputs.all.len())
}

/// An input by number, from 0; NULL if there is no such one. It lives until the session is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_input(session: *const Session, index: usize) -> *const Tensor {
    // SAFETY: pointers are as the header wants them.
    unsafe { at(session, index, |session| &session.inputs) }
}

/// An output by number, from 0; NULL if there is no such one. It lives until the session is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_output(session: *const Session, index: usize) -> *const Tensor {
    // SAFETY: pointers are as the header wants them.
    unsafe { at(session, index, |session| &session.outputs) }
}

/// A session's tensor by number.
///
/// # Safety
/// Pointers are as the header wants them.
unsafe fn at(
    session: *const Session,
    index: usize,
    tensors: fn(&Session) -> &Tensors,
) -> *const Tensor {
    caught(ptr::null(), || {
        // SAFETY: the caller's promise.
        let session = unsafe { session.as_ref() }.ok_or_else(|| null("session"))?;
        Ok(ptr::from_ref(tensors(session).at(index)?))
    })
}

/// Writes the number of the input of a name to `index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_find_input(
    session: *const Session,
    name: *const c_char,
    index: *mut usize,
) -> Status {
    // SAFETY: pointers are as the header wants them.
    unsafe { find(session, name, index, |session| &session.inputs) }
}

/// Writes the number of the output of a name to `index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_find_output(
    session: *const Session,
    name: *const c_char,
    index: *mut usize,
) -> Status {
    // SAFETY: pointers are as the header wants them.
    unsafe { find(session, name, index, |session| &session.outputs) }
}

/// A session's tensor by name.
///
/// # Safety
/// Pointers are as the header wants them.
unsafe fn find(
    session: *const Session,
    name: *const c_char,
    index: *mut usize,
    tensors: fn(&Session) -> &Tensors,
) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let (session, name, index) = unsafe {
            (
                session.as_ref().ok_or_else(|| null("session"))?,
                raw::text("name", name)?,
                index.as_mut().ok_or_else(|| null("index"))?,
            )
        };
        *index = tensors(session).find(name)?;
        Ok(())
    })
}

/// The model's name for a tensor; NULL for NULL. It lives as long as the tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_tensor_name(tensor: *const Tensor) -> *const c_char {
    // SAFETY: pointers are as the header wants them.
    unsafe { tensor.as_ref() }.map_or(ptr::null(), |tensor| tensor.name.as_ptr())
}

/// The type of its elements in the model. NULL has `VTA_TYPE_F32`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_tensor_type(tensor: *const Tensor) -> Type {
    // SAFETY: pointers are as the header wants them.
    unsafe { tensor.as_ref() }.map_or(Type::F32, Tensor::kind)
}

/// How many dimensions one image has; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_tensor_rank(tensor: *const Tensor) -> usize {
    // SAFETY: pointers are as the header wants them.
    unsafe { tensor.as_ref() }.map_or(0, |tensor| tensor.port().image().len())
}

/// The dimensions of one image, `vta_tensor_rank` of them, without the batch; NULL for NULL. They live as
/// long as the tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_tensor_shape(tensor: *const Tensor) -> *const usize {
    // SAFETY: pointers are as the header wants them.
    unsafe { tensor.as_ref() }.map_or(ptr::null(), |tensor| tensor.port().image().as_ptr())
}

/// How many values one image has; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_tensor_len(tensor: *const Tensor) -> usize {
    // SAFETY: pointers are as the header wants them.
    unsafe { tensor.as_ref() }.map_or(0, |tensor| tensor.of_device.len())
}

/// The real value of one int8 step of the device's tensor; 0 for what no device holds, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_tensor_scale(tensor: *const Tensor) -> f32 {
    // SAFETY: pointers are as the header wants them.
    let tensor = unsafe { tensor.as_ref() };
    tensor
        .and_then(|tensor| tensor.of_device.scale)
        .unwrap_or(0.0)
}

/// The int8 step of the device's tensor that stands for 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_tensor_zero(tensor: *const Tensor) -> i32 {
    // SAFETY: pointers are as the header wants them.
    unsafe { tensor.as_ref() }.map_or(0, |tensor| tensor.of_device.zero.into())
}

/// How many names of classes the model has; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_label_count(session: *const Session) -> usize {
    // SAFETY: pointers are as the header wants them.
    unsafe { session.as_ref() }.map_or(0, |session| session.labels.len())
}

/// The name of a class by number; "" where the model has none for it. It lives until the session is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_label(session: *const Session, index: usize) -> *const c_char {
    // SAFETY: pointers are as the header wants them.
    let labels = unsafe { session.as_ref() }.map(|session| &session.labels);
    let label = labels.and_then(|labels| labels.get(index));
    label.map_or(c"".as_ptr(), |label| label.as_ptr())
}
