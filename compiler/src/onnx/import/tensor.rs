//! Tensors of a file: shapes of inputs, data of constants.

use crate::graph::Data;
use crate::onnx::{OnnxError, proto, shape};

/// The shape of a network's input, the batch 1.
///
/// # Errors
/// Another type than float32, or a dimension other than the batch that isn't known.
pub(super) fn input_shape(input: &proto::ValueInfo) -> Result<Vec<usize>, OnnxError> {
    let fail = |reason: &str| OnnxError::Tensor {
        tensor: input.name.clone(),
        reason: reason.to_owned(),
    };
    let tensor = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let tensor = tensor.ok_or_else(|| fail("the input is not a tensor"))?;
    if tensor.elem_type != proto::FLOAT {
        return Err(fail("the input is not float32"));
    }
    let shape = tensor
        .shape
        .as_ref()
        .ok_or_else(|| fail("the input has no shape"))?;
    let dim = |(i, d): (usize, &proto::Dimension)| match (i, d.dim_value) {
        (0, None | Some(0 | -1)) => Ok(1),
        (_, Some(n)) if n > 0 => Ok(n as usize),
        _ => Err(fail("only the first dimension may be dynamic")),
    };
    let shape = shape
        .dim
        .iter()
        .enumerate()
        .map(dim)
        .collect::<Result<Vec<_>, _>>()?;
    if shape.first().is_some_and(|&n| n != 1) {
        return Err(fail("the batch must be 1 or dynamic"));
    }
    shape::elements(&input.name, &shape)?;
    Ok(shape)
}

/// Shape and data of a constant.
///
/// # Errors
/// A type that isn't supported, data that doesn't fill the shape.
pub(super) fn read_tensor(
    name: &str,
    tensor: &proto::Tensor,
) -> Result<(Vec<usize>, Data), OnnxError> {
    let fail = |reason: String| OnnxError::Tensor {
        tensor: name.to_owned(),
        reason,
    };
    if tensor.data_location != 0 {
        return Err(fail("external data is not supported".to_owned()));
    }
    let dims: Option<Vec<usize>> = tensor
        .dims
        .iter()
        .map(|&d| usize::try_from(d).ok())
        .collect();
    let dims = dims.ok_or_else(|| fail(format!("dimensions {:?}", tensor.dims)))?;
    let count = shape::elements(name, &dims)?;
    let raw = &tensor.raw_data[..];
    let checked = |found: usize| match found == count {
        true => Ok(()),
        false => Err(fail(format!("{found} elements for shape {dims:?}"))),
    };
    let has_raw = !raw.is_empty();
    let words = |size: usize| match raw.len().is_multiple_of(size) {
        true => Ok(raw.chunks_exact(size)),
        false => Err(fail(format!("{} bytes of {size}-byte elements", raw.len()))),
    };
    let narrow =
        |low: i32, high: i32| match tensor.int32_data.iter().all(|v| (low..=high).contains(v)) {
            true => Ok(tensor.int32_data.iter()),
            false => Err(fail("an element is out of range".to_owned())),
        };
    let four = |b: &[u8]| [b[0], b[1], b[2], b[3]];
    let data = match tensor.data_type {
        proto::FLOAT if has_raw => {
            Data::F32(words(4)?.map(|b| f32::from_le_bytes(four(b))).collect())
        }
        proto::FLOAT => Data::F32(tensor.float_data.clone()),
        proto::INT8 if has_raw => Data::I8(raw.iter().map(|&b| b as i8).collect()),
        proto::INT8 => Data::I8(narrow(-128, 127)?.map(|&v| v as i8).collect()),
        proto::UINT8 if has_raw => Data::U8(raw.to_vec()),
        proto::UINT8 => Data::U8(narrow(0, 255)?.map(|&v| v as u8).collect()),
        proto::INT32 if has_raw => {
            Data::I32(words(4)?.map(|b| i32::from_le_bytes(four(b))).collect())
        }
        proto::INT32 => Data::I32(tensor.int32_data.clone()),
        proto::INT64 if has_raw => {
            let long = |b: &[u8]| {
                let (low, high) = (
                    u32::from_le_bytes(four(b)),
                    u32::from_le_bytes(four(&b[4..])),
                );
                (u64::from(low) | u64::from(high) << 32) as i64
            };
            Data::I64(words(8)?.map(long).collect())
        }
        proto::INT64 => Data::I64(tensor.int64_data.clone()),
        other => {
            return Err(fail(format!(
                "data type {other} is not supported (float32, int8, uint8, int32, int64 are)"
            )));
        }
    };
    checked(match &data {
        Data::F32(v) => v.len(),
        Data::I8(v) => v.len(),
        Data::U8(v) => v.len(),
        Data::I32(v) => v.len(),
        Data::I64(v) => v.len(),
    })?;
    Ok((dims, data))
}
