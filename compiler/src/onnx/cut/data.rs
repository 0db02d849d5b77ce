//! Tensors of a part, whose data may lie in other files.

use bytes::Bytes;
use prost::Message;

use crate::onnx::external::External;
use crate::onnx::wire::{Field, fields, put};
use crate::onnx::{OnnxError, proto};

const TENSOR_RAW: u32 = 9;
const TENSOR_EXTERNAL: u32 = 13;
const TENSOR_LOCATION: u32 = 14;

/// A tensor with its data in it, wherever that lies.
pub(super) fn inside(field: &Field, external: &mut External<'_>) -> Result<Bytes, OnnxError> {
    let decode = |error: prost::DecodeError| OnnxError::Decode(error.to_string());
    let tensor = proto::Tensor::decode(field.body.clone()).map_err(decode)?;
    if tensor.data_location != proto::EXTERNAL {
        return Ok(field.body.clone());
    }
    let fail = |reason: String| OnnxError::Tensor {
        tensor: tensor.name.clone(),
        reason,
    };
    let bytes = external_bytes(&tensor).map_err(fail)?;
    let data = external.read(&tensor.external_data, bytes).map_err(fail)?;
    let mut out = Vec::with_capacity(data.len() + 64);
    for part in fields(&field.body).map_err(decode)? {
        if ![TENSOR_EXTERNAL, TENSOR_LOCATION, TENSOR_RAW].contains(&part.tag) {
            out.extend_from_slice(&part.whole);
        }
    }
    put(TENSOR_RAW, &data, &mut out);
    Ok(out.into())
}

/// How many bytes a tensor's data has in another file.
fn external_bytes(tensor: &proto::Tensor) -> Result<usize, String> {
    let length = tensor
        .external_data
        .iter()
        .find(|entry| entry.key == "length");
    if let Some(length) = length {
        return length
            .value
            .parse()
            .map_err(|_| format!("a length of '{}'", vta_files::printable(&length.value)));
    }
    let bits = match tensor.data_type {
        proto::UINT8 | proto::INT8 | proto::BOOL => 8,
        proto::FLOAT16 | proto::BFLOAT16 => 16,
        proto::FLOAT | proto::INT32 => 32,
        proto::INT64 | proto::DOUBLE => 64,
        other => {
            return Err(format!(
                "data of type {other} in another file, without its length"
            ));
        }
    };
    let sizes = tensor.dims.iter().map(|&dim| usize::try_from(dim).ok());
    let mut sizes = sizes.chain([Some(bits / 8)]);
    let count = sizes.try_fold(1usize, |all, dim| all.checked_mul(dim?));
    count.ok_or_else(|| "its shape has too many elements".to_owned())
}
