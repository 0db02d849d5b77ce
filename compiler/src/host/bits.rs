//! Floats as their bits, so that nothing is lost in decimal.

use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(value: &f32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(value.to_bits())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
    u32::deserialize(from).map(f32::from_bits)
}
