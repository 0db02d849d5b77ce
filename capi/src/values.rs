//! Between the arrays of C and the values of inputs and outputs.

use std::borrow::Cow;

use vta_app::{Output, Values};

use crate::error::Failure;
use crate::tensor::{Tensor, Type};

/// An array that C gives: the bytes of its elements.
pub struct Given<'a> {
    pub kind: Type,
    pub bytes: &'a [u8],
}

impl Given<'_> {
    /// A copy for an input: of the model's type, or of the device's.
    ///
    /// # Errors
    /// Another type, and values that aren't a whole number of images.
    pub fn of(self, input: &Tensor) -> Result<Values<'static>, Failure> {
        let Self { kind, bytes } = self;
        let (name, len) = (&input.port().name, input.of_device.len());
        let found = bytes.len() / kind.size_bytes();
        if found == 0 || len == 0 || !found.is_multiple_of(len) {
            let text = format!("input '{name}': {found} values; an image has {len}");
            return Err(Failure::input(text));
        }
        let steps = input.is_scaled();
        Ok(match (kind, input.kind()) {
            (Type::I8, _) if steps => Values::Int8(copy(bytes, i8::from_ne_bytes)?.into()),
            (Type::U8, Type::U8) if steps => {
                Values::Int8(copy(bytes, |[v]| (v ^ 0x80) as i8)?.into())
            }
            (Type::F32, Type::F32) => Values::Real(copy(bytes, f32::from_ne_bytes)?.into()),
            (Type::I8, Type::I8) => whole(bytes, i8::from_ne_bytes)?,
            (Type::U8, Type::U8) | (Type::Bool, Type::Bool) => whole(bytes, u8::from_ne_bytes)?,
            (Type::I32, Type::I32) => whole(bytes, i32::from_ne_bytes)?,
            (Type::I64, Type::I64) => whole(bytes, i64::from_ne_bytes)?,
            (_, takes) => {
                let or = if steps { ", or int8 as devices do" } else { "" };
                let (takes, kind) = (takes.name(), kind.name());
                let text = format!("input '{name}' takes {takes}{or}, not {kind}");
                return Err(Failure::input(text));
            }
        })
    }
}

/// Values borrowed for a run.
pub fn lend<'a>(values: &'a Values<'static>) -> Values<'a> {
    match values {
        Values::Real(values) => Values::Real(Cow::Borrowed(values)),
        Values::Int8(values) => Values::Int8(Cow::Borrowed(values)),
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

/// Room that C gives: the bytes of its elements.
pub struct Room<'a> {
    pub kind: Type,
    pub bytes: &'a mut [u8],
}

impl Room<'_> {
    /// Fills it with an output's values: as the model has them, as real values of steps, or as the device's
    /// own steps.
    ///
    /// # Errors
    /// Room of another size, or a type that the values haven't.
    pub fn fill(self, output: &Output, tensor: &Tensor) -> Result<(), Failure> {
        let Self { kind, bytes } = self;
        let (name, has) = (&tensor.port().name, output.values.len());
        let asked = bytes.len() / kind.size_bytes();
        if has != asked {
            let images = output.images;
            return Err(Failure::input(format!(
                "output '{name}' has {has} values of {images} images, not {asked}"
            )));
        }
        let scale = output.tensor.scale.unwrap_or(1.0);
        let zero = f32::from(output.tensor.zero);
        let real = |v: i8| ((f32::from(v) - zero) * scale).to_ne_bytes();
        match (kind, &output.values, tensor.kind()) {
            (Type::F32, Values::Int8(values), _) => put(bytes, values, real),
            (Type::F32, Values::Real(values), _) => put(bytes, values, f32::to_ne_bytes),
            (Type::I8, Values::Int8(values), _) => put(bytes, values, i8::to_ne_bytes),
            (Type::U8, Values::Int8(values), Type::U8) => {
                put(bytes, values, |v| [v as u8 ^ 0x80]);
            }
            (Type::I8, Values::Whole(values), Type::I8)
            | (Type::U8, Values::Whole(values), Type::U8) => put(bytes, values, |v| [v as u8]),
            (Type::I32, Values::Whole(values), Type::I32) => {
                put(bytes, values, |v| (v as i32).to_ne_bytes());
            }
            (Type::I64, Values::Whole(values), _) => put(bytes, values, i64::to_ne_bytes),
            (Type::Bool, Values::Whole(values), Type::Bool) => {
                put(bytes, values, |v| [u8::from(v != 0)]);
            }
            (_, values, gives) => {
                let or = match values {
                    Values::Int8(_) => ", float32 or int8 as devices do",
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
}

fn put<const BYTES: usize, V: Copy>(room: &mut [u8], values: &[V], of: impl Fn(V) -> [u8; BYTES]) {
    let (room, _) = room.as_chunks_mut();
    for (to, value) in room.iter_mut().zip(values) {
        *to = of(*value);
    }
}

#[cfg(test)]
mod tests;
