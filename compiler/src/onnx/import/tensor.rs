//! Tensors of a file: types and shapes of inputs, data of constants.

use half::{bf16, f16};

use crate::graph::{Data, Element};
use crate::onnx::external::External;
use crate::onnx::{OnnxError, ReadOptions, element, elements, proto};

/// Type and shape of a network's input: the given shape, or the file's with a batch of 1 where it
/// leaves that open.
///
/// # Errors
/// What is no tensor, a type that isn't supported, other dimensions that are open, a given shape that
/// the file's excludes.
pub(super) fn input_type(
    input: &proto::ValueInfo,
    options: &ReadOptions<'_>,
) -> Result<(Vec<usize>, Element), OnnxError> {
    let fail = |reason: String| OnnxError::Tensor {
        tensor: input.name.clone(),
        reason,
    };
    let tensor = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let tensor = tensor.ok_or_else(|| fail("the input is not a tensor".to_owned()))?;
    let element = element(tensor.elem_type).map_err(fail)?;
    let dims = tensor.shape.as_ref().map(|s| &s.dim[..]);
    let given = options.shapes.get(&input.name);
    let given = given.or_else(|| options.shapes.get(""));
    let shape = match (given, dims) {
        (Some(given), dims) => given_shape(given, dims).map_err(fail)?,
        (None, Some(dims)) => known_shape(dims, &input.name).map_err(fail)?,
        (None, None) => {
            let hint = "the file doesn't say its shape: give the input shape";
            return Err(fail(format!("{hint}, as {}=1x3x224x224", input.name)));
        }
    };
    elements(&input.name, &shape)?;
    Ok((shape, element))
}

/// A dimension's size where the file says it.
fn known(dim: &proto::Dimension) -> Option<usize> {
    dim.dim_value
        .and_then(|d| usize::try_from(d).ok())
        .filter(|d| *d > 0)
}

/// How the file has its shape: names where sizes are open.
fn shown(dims: &[proto::Dimension]) -> String {
    let dim = |d: &proto::Dimension| match (known(d), &d.dim_param) {
        (Some(size), _) => size.to_string(),
        (None, Some(name)) if !name.is_empty() => vta_files::printable(name).into_owned(),
        (None, _) => "?".to_owned(),
    };
    dims.iter().map(dim).collect::<Vec<_>>().join("x")
}

/// The shape that a caller gives, which the file must allow.
fn given_shape(given: &[usize], dims: Option<&[proto::Dimension]>) -> Result<Vec<usize>, String> {
    let fits = |dims: &[proto::Dimension]| {
        // The batch may be cut to 1: what the network does with an image is the same.
        let fits = |(i, (size, dim)): (usize, (&usize, &proto::Dimension))| {
            known(dim).is_none_or(|d| d == *size || (i == 0 && *size == 1))
        };
        dims.len() == given.len() && given.iter().zip(dims).enumerate().all(fits)
    };
    let text = || {
        given
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join("x")
    };
    if given.is_empty() || given.contains(&0) {
        return Err(format!("input shape {}: a size is 0", text()));
    }
    match dims {
        Some(dims) if !fits(dims) => Err(format!(
            "input shape {}: the model says {}",
            text(),
            shown(dims)
        )),
        _ => Ok(given.to_vec()),
    }
}

/// The file's shape with a batch of 1.
fn known_shape(dims: &[proto::Dimension], name: &str) -> Result<Vec<usize>, String> {
    let batched = dims.len() > 1;
    let size =
        |(i, dim): (usize, &proto::Dimension)| known(dim).or((i == 0 && batched).then_some(1));
    let shape: Option<Vec<usize>> = dims.iter().enumerate().map(size).collect();
    let hint = || {
        // What the file says stays; a batch that may be cut is 1.
        let cut = |i: usize, size: Option<usize>| {
            i == 0 && batched && (size.is_none() || (dims.len() > 3 && size != Some(1)))
        };
        let size = |(i, dim): (usize, &proto::Dimension)| match known(dim) {
            size if cut(i, size) => "1".to_owned(),
            size => size.map_or("N".to_owned(), |size| size.to_string()),
        };
        let sizes = dims.iter().enumerate().map(size);
        let example = sizes.collect::<Vec<_>>().join("x");
        format!("give the input shape, as {name}={example}")
    };
    match shape {
        None => Err(format!("its shape {} is open: {}", shown(dims), hint())),
        Some(shape) if shape.len() > 3 && shape[0] != 1 => Err(format!(
            "its shape {} has a batch other than 1: {}",
            shown(dims),
            hint()
        )),
        Some(shape) => Ok(shape),
    }
}

/// Shape and data of a constant.
///
/// # Errors
/// A type that isn't supported, data that doesn't fill the shape, or that lies where it may not.
pub(crate) fn read_tensor(
    name: &str,
    tensor: &proto::Tensor,
    external: &mut External<'_>,
) -> Result<(Vec<usize>, Data), OnnxError> {
    let fail = |reason: String| OnnxError::Tensor {
        tensor: name.to_owned(),
        reason,
    };
    let dims: Option<Vec<usize>> = tensor
        .dims
        .iter()
        .map(|&d| usize::try_from(d).ok())
        .collect();
    let dims = dims.ok_or_else(|| fail(format!("dimensions {:?}", tensor.dims)))?;
    let count = elements(name, &dims)?;
    // Those of other widths are constants alone.
    if !matches!(tensor.data_type, proto::INT16 | proto::UINT16) && part(tensor.data_type) == 1 {
        element(tensor.data_type).map_err(fail)?;
    }
    let data = if tensor.data_location == proto::EXTERNAL {
        let bytes = (count * width(tensor.data_type)).div_ceil(part(tensor.data_type));
        let bytes = external.read(&tensor.external_data, bytes).map_err(fail)?;
        raw(tensor.data_type, &bytes)
    } else if tensor.raw_data.is_empty() {
        fields(tensor)
    } else {
        raw(tensor.data_type, &tensor.raw_data)
    };
    let mut data = data.map_err(fail)?;
    if part(tensor.data_type) > 1 && data.len() < count + part(tensor.data_type) {
        // The rest of the last byte.
        data.truncate(count);
    }
    if data.len() != count {
        return Err(fail(format!("{} elements for shape {dims:?}", data.len())));
    }
    Ok((dims, data))
}

/// How many elements are in a byte, or 1 for larger ones.
const fn part(data_type: i32) -> usize {
    match data_type {
        proto::INT4 | proto::UINT4 => 2,
        proto::INT2 | proto::UINT2 => 4,
        _ => 1,
    }
}

/// The elements of some bytes, the first in the lowest bits; as bytes with or without a sign.
fn parts(data_type: i32, bytes: &[u8]) -> Data {
    let count = part(data_type);
    let bits = 8 / count;
    let at = |i: usize| bytes[i / count] >> (i % count * bits) << (8 - bits);
    let all = (0..bytes.len() * count).map(at);
    match data_type {
        proto::INT4 | proto::INT2 => Data::I8(all.map(|b| b as i8 >> (8 - bits)).collect()),
        _ => Data::U8(all.map(|b| b >> (8 - bits)).collect()),
    }
}

/// Bytes of an element, or of a few.
const fn width(data_type: i32) -> usize {
    match data_type {
        proto::DOUBLE | proto::INT64 => 8,
        proto::FLOAT | proto::INT32 => 4,
        proto::FLOAT16 | proto::BFLOAT16 | proto::INT16 | proto::UINT16 => 2,
        _ => 1,
    }
}

/// A double as the nearest float32.
fn single(value: f64) -> Result<f32, String> {
    let single = value as f32;
    if single.is_finite() || !value.is_finite() || value.abs() == f64::MAX {
        return Ok(single);
    }
    Err(format!("{value:e} is beyond float32, as which it is read"))
}

/// Elements from their bytes, little endian.
fn raw(data_type: i32, bytes: &[u8]) -> Result<Data, String> {
    if part(data_type) > 1 {
        return Ok(parts(data_type, bytes));
    }
    let size = width(data_type);
    if !bytes.len().is_multiple_of(size) {
        return Err(format!("{} bytes of {size}-byte elements", bytes.len()));
    }
    let two = || bytes.as_chunks().0.iter().copied();
    let four = || bytes.as_chunks().0.iter().copied();
    let eight = || bytes.as_chunks().0.iter().copied();
    Ok(match data_type {
        proto::FLOAT => Data::F32(four().map(f32::from_le_bytes).collect()),
        proto::FLOAT16 => Data::F32(two().map(|b| f16::from_le_bytes(b).to_f32()).collect()),
        proto::BFLOAT16 => Data::F32(two().map(|b| bf16::from_le_bytes(b).to_f32()).collect()),
        proto::DOUBLE => Data::F32(
            eight()
                .map(|b| single(f64::from_le_bytes(b)))
                .collect::<Result<_, _>>()?,
        ),
        proto::INT16 => Data::I16(two().map(i16::from_le_bytes).collect()),
        proto::UINT16 => Data::U16(two().map(u16::from_le_bytes).collect()),
        proto::INT8 => Data::I8(bytes.iter().map(|&b| b as i8).collect()),
        proto::INT32 => Data::I32(four().map(i32::from_le_bytes).collect()),
        proto::INT64 => Data::I64(eight().map(i64::from_le_bytes).collect()),
        proto::BOOL => Data::Bool(bytes.iter().map(|&b| b != 0).collect()),
        _ => Data::U8(bytes.to_vec()),
    })
}

/// Elements from the message's lists.
fn fields(tensor: &proto::Tensor) -> Result<Data, String> {
    let ints = &tensor.int32_data;
    let within = |low: i32, high: i32| {
        let all = ints.iter().all(|v| (low..=high).contains(v));
        all.then(|| ints.iter()).ok_or("an element is out of range")
    };
    // Halves stand in the lower bits of integers.
    let halves = || within(0, 0xffff).map(|v| v.map(|&v| v as u16));
    if part(tensor.data_type) > 1 {
        let bytes: Vec<u8> = within(-128, 255)?.map(|&v| v as u8).collect();
        return Ok(parts(tensor.data_type, &bytes));
    }
    Ok(match tensor.data_type {
        proto::INT16 => Data::I16(within(-0x8000, 0x7fff)?.map(|&v| v as i16).collect()),
        proto::UINT16 => Data::U16(within(0, 0xffff)?.map(|&v| v as u16).collect()),
        proto::FLOAT => Data::F32(tensor.float_data.clone()),
        proto::FLOAT16 => Data::F32(halves()?.map(|v| f16::from_bits(v).to_f32()).collect()),
        proto::BFLOAT16 => Data::F32(halves()?.map(|v| bf16::from_bits(v).to_f32()).collect()),
        proto::DOUBLE => {
            let all = tensor.double_data.iter().map(|&v| single(v));
            Data::F32(all.collect::<Result<_, _>>()?)
        }
        proto::INT8 => Data::I8(within(-128, 127)?.map(|&v| v as i8).collect()),
        proto::INT32 => Data::I32(ints.clone()),
        proto::INT64 => Data::I64(tensor.int64_data.clone()),
        proto::BOOL => Data::Bool(within(0, 1)?.map(|&v| v != 0).collect()),
        _ => Data::U8(within(0, 255)?.map(|&v| v as u8).collect()),
    })
}
