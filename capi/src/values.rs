//! Between the arrays of C and the values of inputs and outputs.

use std::borrow::Cow;

use vta_app::{Output, Values};

use crate::error::Failure;
use crate::tensor::{Tensor, Type};

/// An array that C gives.
pub enum Given<'a> {
    F32(&'a [f32]),
    I8(&'a [i8]),
    U8(&'a [u8]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    Bool(&'a [u8]),
}

impl Given<'_> {
    fn kind(&self) -> Type {
        match self {
            Self::F32(_) => Type::F32,
            Self::I8(_) => Type::I8,
            Self::U8(_) => Type::U8,
            Self::I32(_) => Type::I32,
            Self::I64(_) => Type::I64,
            Self::Bool(_) => Type::Bool,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I8(values) => values.len(),
            Self::U8(values) | Self::Bool(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
        }
    }

    /// A copy for an input: of the model's type, or of the device's.
    ///
    /// # Errors
    /// Another type, and values that aren't a whole number of images.
    pub fn of(self, input: &Tensor) -> Result<Values<'static>, Failure> {
        let (name, len, found) = (&input.port.name, input.of_device.len(), self.len());
        if found == 0 || len == 0 || !found.is_multiple_of(len) {
            let text = format!("input '{name}': {found} values; an image has {len}");
            return Err(Failure::input(text));
        }
        let wrong = |kind: Type| {
            let (takes, steps) = (input.kind().name(), input.is_scaled());
            let or = if steps { ", or int8 as devices do" } else { "" };
            let kind = kind.name();
            Err(Failure::input(format!(
                "input '{name}' takes {takes}{or}, not {kind}"
            )))
        };
        let kind = self.kind();
        Ok(match (self, input.kind()) {
            (Self::I8(values), _) if input.is_scaled() => int8(values.iter().copied())?,
            (Self::U8(values), Type::U8) if input.is_scaled() => {
                int8(values.iter().map(|v| (v ^ 0x80) as i8))?
            }
            (Self::F32(values), Type::F32) => Values::Real(copy(values.iter().copied())?.into()),
            (Self::I8(values), Type::I8) => whole(values)?,
            (Self::U8(values), Type::U8) => whole(values)?,
            (Self::I32(values), Type::I32) => whole(values)?,
            (Self::I64(values), Type::I64) => whole(values)?,
            (Self::Bool(values), Type::Bool) => whole(values)?,
            _ => return wrong(kind),
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

/// A copy for which there is memory.
fn copy<T>(values: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, Failure> {
    let mut all = Vec::new();
    let len = values.len();
    all.try_reserve_exact(len)
        .map_err(|_| Failure::memory(len.saturating_mul(size_of::<T>())))?;
    all.extend(values);
    Ok(all)
}

fn int8(values: impl ExactSizeIterator<Item = i8>) -> Result<Values<'static>, Failure> {
    Ok(Values::Int8(copy(values)?.into()))
}

fn whole<T: Copy + Into<i64>>(values: &[T]) -> Result<Values<'static>, Failure> {
    let values = values.iter().map(|&value| value.into());
    Ok(Values::Whole(copy(values)?.into()))
}

/// Room that C gives.
pub enum Room<'a> {
    F32(&'a mut [f32]),
    I8(&'a mut [i8]),
    U8(&'a mut [u8]),
    I32(&'a mut [i32]),
    I64(&'a mut [i64]),
    Bool(&'a mut [u8]),
}

impl Room<'_> {
    fn kind(&self) -> Type {
        match self {
            Self::F32(_) => Type::F32,
            Self::I8(_) => Type::I8,
            Self::U8(_) => Type::U8,
            Self::I32(_) => Type::I32,
            Self::I64(_) => Type::I64,
            Self::Bool(_) => Type::Bool,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(room) => room.len(),
            Self::I8(room) => room.len(),
            Self::U8(room) | Self::Bool(room) => room.len(),
            Self::I32(room) => room.len(),
            Self::I64(room) => room.len(),
        }
    }

    /// Fills it with an output's values: as the model has them, as real values of steps, or as the device's
    /// own steps.
    ///
    /// # Errors
    /// Room of another size, or a type that the values haven't.
    pub fn fill(self, output: &Output, tensor: &Tensor) -> Result<(), Failure> {
        let (name, has, asked) = (&tensor.port.name, output.values.len(), self.len());
        if has != asked {
            let images = output.images;
            return Err(Failure::input(format!(
                "output '{name}' has {has} values of {images} images, not {asked}"
            )));
        }
        let scale = output.tensor.scale.unwrap_or(1.0);
        let zero = f32::from(output.tensor.zero);
        let real = |v: i8| (f32::from(v) - zero) * scale;
        let kind = self.kind();
        match (self, &output.values, tensor.kind()) {
            (Self::F32(room), Values::Int8(values), _) => put(room, values, real),
            (Self::F32(room), Values::Real(values), _) => put(room, values, |v| v),
            (Self::I8(room), Values::Int8(values), _) => put(room, values, |v| v),
            (Self::U8(room), Values::Int8(values), Type::U8) => {
                put(room, values, |v| v as u8 ^ 0x80);
            }
            (Self::I8(room), Values::Whole(values), Type::I8) => put(room, values, |v| v as i8),
            (Self::U8(room), Values::Whole(values), Type::U8) => put(room, values, |v| v as u8),
            (Self::I32(room), Values::Whole(values), Type::I32) => put(room, values, |v| v as i32),
            (Self::I64(room), Values::Whole(values), _) => put(room, values, |v| v),
            (Self::Bool(room), Values::Whole(values), Type::Bool) => {
                put(room, values, |v| u8::from(v != 0));
            }
            _ => {
                let or = match &output.values {
                    Values::Int8(_) => ", float32 or int8 as devices do",
                    Values::Real(_) => "",
                    Values::Whole(_) => " or int64",
                };
                let (gives, kind) = (tensor.kind().name(), kind.name());
                let text = format!("output '{name}' gives {gives}{or}, not {kind}");
                return Err(Failure::input(text));
            }
        }
        Ok(())
    }
}

fn put<T, V: Copy>(room: &mut [T], values: &[V], of: impl Fn(V) -> T) {
    for (to, value) in room.iter_mut().zip(values) {
        *to = of(*value);
    }
}

#[cfg(test)]
mod tests;
