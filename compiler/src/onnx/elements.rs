//! Elements of tensors: their types, and how many there may be.

use super::{MAX_ELEMENTS, OnnxError, proto};
use crate::graph::{Data, Element};

/// The element count of a shape. Dimensions beside a 0 are bounded, too, so that no product of some
/// of them overflows.
///
/// # Errors
/// [`OnnxError::Tensor`] above [`MAX_ELEMENTS`].
pub(crate) fn elements(name: &str, shape: &[usize]) -> Result<usize, OnnxError> {
    let bound = shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
    bound
        .filter(|&n| n <= MAX_ELEMENTS)
        .map(|_| shape.iter().product())
        .ok_or_else(|| OnnxError::Tensor {
            tensor: name.to_owned(),
            reason: format!("shape {shape:?} has more than {MAX_ELEMENTS} elements"),
        })
}

/// The type that values of one of ONNX's types are read as; floats become float32.
///
/// # Errors
/// A type that isn't supported, in words.
pub(crate) fn element(data_type: i32) -> Result<Element, String> {
    Ok(match data_type {
        proto::FLOAT | proto::FLOAT16 | proto::BFLOAT16 | proto::DOUBLE => Element::F32,
        proto::INT8 => Element::I8,
        proto::UINT8 => Element::U8,
        proto::INT32 => Element::I32,
        proto::INT64 => Element::I64,
        proto::BOOL => Element::Bool,
        other => {
            return Err(format!(
                "{} is not supported (floats, int8, uint8, int32, int64 and bool are)",
                name(other)
            ));
        }
    })
}

/// ONNX's name of a type that isn't read.
fn name(data_type: i32) -> String {
    let name = match data_type {
        proto::UINT16 => "uint16",
        proto::INT16 => "int16",
        proto::UINT4 => "uint4",
        proto::INT4 => "int4",
        8 => "a text",
        12 => "uint32",
        13 => "uint64",
        14 | 15 => "a complex number",
        17..=20 => "an 8-bit float",
        other => return format!("data type {other}"),
    };
    name.to_owned()
}

/// ONNX's number of a type.
pub(crate) const fn data_type(element: Element) -> i32 {
    match element {
        Element::F32 => proto::FLOAT,
        Element::I8 => proto::INT8,
        Element::U8 => proto::UINT8,
        Element::I16 => proto::INT16,
        Element::U16 => proto::UINT16,
        Element::I32 => proto::INT32,
        Element::I64 => proto::INT64,
        Element::Bool => proto::BOOL,
    }
}

/// A constant of a file.
pub(super) fn tensor(name: &str, shape: &[usize], data: &Data) -> proto::Tensor {
    fn bytes<T: Copy, const N: usize>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        let mut bytes = vec![0; values.len() * N];
        let all = bytes.as_chunks_mut().0.iter_mut().zip(values);
        all.for_each(|(bytes, value)| *bytes = of(*value));
        bytes
    }
    let raw = match data {
        Data::F32(v) => bytes(v, f32::to_le_bytes),
        Data::I8(v) => v.iter().map(|&x| x as u8).collect(),
        Data::U8(v) => v.clone(),
        Data::I16(v) => bytes(v, i16::to_le_bytes),
        Data::U16(v) => bytes(v, u16::to_le_bytes),
        Data::I32(v) => bytes(v, i32::to_le_bytes),
        Data::I64(v) => bytes(v, i64::to_le_bytes),
        Data::Bool(v) => v.iter().map(|&x| x.into()).collect(),
    };
    proto::Tensor {
        dims: shape.iter().map(|&d| d as i64).collect(),
        data_type: data_type(data.element()),
        name: name.to_owned(),
        raw_data: raw.into(),
        ..proto::Tensor::default()
    }
}
