//! Between the arrays of C and the values of inputs and outputs.

use std::borrow::Cow;

use vta_app::{Output, Values};
use vta_compiler::graph::Element;
use vta_compiler::qgraph::Numbers;

use crate::error::Failure;
use crate::tensor::Tensor;

/// A copy of an array that C gives for an input, of the bytes of its elements: of the model's type, or of the
/// device's.
///
/// # Errors
/// Another type, and values that aren't a whole number of images.
pub fn copied(kind: Element, bytes: &[u8], input: &Tensor) -> Result<Values<'static>, Failure> {
    let (name, len) = (&input.port().name, input.of_device.len());
    let found = bytes.len() / kind.bytes() as usize;
    if found == 0 || len == 0 || !found.is_multiple_of(len) {
        let text = format!("input '{name}': {found} values; an image has {len}");
        return Err(Failure::input(text));
    }
    let numbers = input.of_device.numbers;
    let steps = input.is_scaled();
    Ok(match (kind, input.port().element) {
        (Element::I16, _) if steps && numbers == Numbers::Int16 => {
            Values::Steps(copy(bytes, i16::from_ne_bytes)?.into())
        }
        (Element::I8, _) if steps && numbers == Numbers::Int8 => {
            Values::Steps(copy(bytes, |v| i8::from_ne_bytes(v).into())?.into())
        }
        (Element::U8, Element::U8) if steps => {
            Values::Steps(copy(bytes, |[v]| i16::from(v) - 128)?.into())
        }
        (Element::F32, Element::F32) => Values::Real(copy(bytes, f32::from_ne_bytes)?.into()),
        (Element::I8, Element::I8) => whole(bytes, i8::from_ne_bytes)?,
        (Element::U8, Element::U8) | (Element::Bool, Element::Bool) => {
            whole(bytes, u8::from_ne_bytes)?
        }
        (Element::I16, Element::I16) => whole(bytes, i16::from_ne_bytes)?,
        (Element::U16, Element::U16) => whole(bytes, u16::from_ne_bytes)?,
        (Element::I32, Element::I32) => whole(bytes, i32::from_ne_bytes)?,
        (Element::I64, Element::I64) => whole(bytes, i64::from_ne_bytes)?,
        (_, takes) => {
            let or = match numbers {
                Numbers::Int8 if steps => ", or int8 as devices do",
                Numbers::Int16 if steps => ", or int16 as devices do",
                _ => "",
            };
            let (takes, kind) = (takes.name(), kind.name());
            let text = format!("input '{name}' takes {takes}{or}, not {kind}");
            return Err(Failure::input(text));
        }
    })
}

/// Values borrowed for a run.
pub fn lend<'a>(values: &'a Values<'static>) -> Values<'a> {
    match values {
        Values::Real(values) => Values::Real(Cow::Borrowed(values)),
        Values::Steps(values) => Values::Steps(Cow::Borrowed(values)),
        Values::Whole(values) => Values::Whole(Cow::Borrowed(values)),
    }
}

/// A copy of elements of so many bytes, for which there is memory.
fn copy<const BYTES: usize, T>(
    bytes: &[u8],
    of: impl Fn([u8; BYTES]) -> T,
) -> Result<Vec<T>, Failure> {
    let (values, _) = bytes.as_chunks();
    let mut all = Vec::new();
    all.try_reserve_exact(values.len())
        .map_err(|_| Failure::memory(values.len().saturating_mul(size_of::<T>())))?;
    all.extend(values.iter().map(|value| of(*value)));
    Ok(all)
}

fn whole<const BYTES: usize, T: Into<i64>>(
    bytes: &[u8],
    of: impl Fn([u8; BYTES]) -> T,
) -> Result<Values<'static>, Failure> {
    let values = copy(bytes, |value| of(value).into())?;
    Ok(Values::Whole(values.into()))
}

/// Fills room that C gives, of the bytes of its elements, with an output's values: as the model has them, as real
/// values of steps, or as the device's own steps.
///
/// # Errors
/// Room of another size, or a type that the values haven't.
pub fn fill(
    room: &mut [u8],
    kind: Element,
    output: &Output,
    tensor: &Tensor,
) -> Result<(), Failure> {
    let (name, has) = (&tensor.port().name, output.values.len());
    let asked = room.len() / kind.bytes() as usize;
    if has != asked {
        let images = output.images;
        return Err(Failure::input(format!(
            "output '{name}' has {has} values of {images} images, not {asked}"
        )));
    }
    let scale = output.tensor.scale.unwrap_or(1.0);
    let zero = f32::from(output.tensor.zero);
    let numbers = output.tensor.numbers;
    let real = |v: i16| ((f32::from(v) - zero) * scale).to_ne_bytes();
    match (kind, &output.values, tensor.port().element) {
        (Element::F32, Values::Steps(values), _) => put(room, values, real),
        (Element::F32, Values::Real(values), _) => put(room, values, f32::to_ne_bytes),
        (Element::I8, Values::Steps(values), _) if numbers == Numbers::Int8 => {
            put(room, values, |v| [v as u8]);
        }
        (Element::I16, Values::Steps(values), _) if numbers == Numbers::Int16 => {
            put(room, values, i16::to_ne_bytes);
        }
        (Element::U8, Values::Steps(values), Element::U8) => {
            put(room, values, |v| [v as u8 ^ 0x80])
        }
        (Element::U16, Values::Steps(values), Element::U16) => {
            put(room, values, |v| (v as u16 ^ 0x8000).to_ne_bytes());
        }
        (Element::I8, Values::Whole(values), Element::I8)
        | (Element::U8, Values::Whole(values), Element::U8) => put(room, values, |v| [v as u8]),
        (Element::I16, Values::Whole(values), Element::I16)
        | (Element::U16, Values::Whole(values), Element::U16) => {
            put(room, values, |v| (v as u16).to_ne_bytes());
        }
        (Element::I32, Values::Whole(values), Element::I32) => {
            put(room, values, |v| (v as i32).to_ne_bytes());
        }
        (Element::I64, Values::Whole(values), _) => put(room, values, i64::to_ne_bytes),
        (Element::Bool, Values::Whole(values), Element::Bool) => {
            put(room, values, |v| [u8::from(v != 0)]);
        }
        (_, values, gives) => {
            let or = match values {
                Values::Steps(_) => match numbers {
                    Numbers::Int8 => ", float32 or int8 as devices do",
                    Numbers::Int16 => ", float32 or int16 as devices do",
                },
                Values::Real(_) => "",
                Values::Whole(_) => " or int64",
            };
            let (gives, kind) = (gives.name(), kind.name());
            let text = format!("output '{name}' gives {gives}{or}, not {kind}");
            return Err(Failure::input(text));
        }
    }
    Ok(())
}

fn put<const BYTES: usize, V: Copy>(room: &mut [u8], values: &[V], of: impl Fn(V) -> [u8; BYTES]) {
    let (room, _) = room.as_chunks_mut();
    for (to, value) in room.iter_mut().zip(values) {
        *to = of(*value);
    }
}

#[cfg(test)]
mod tests;
