//! Normalisations.

use super::fields::{Facts, float};
use super::operator::{Found, Made, Operator};
use crate::graph::Op;
use crate::onnx::import::sizes;
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::same("BatchNormalization").device((5, 5), by_channels),
    Operator::same("GroupNormalization"),
    Operator::same("InstanceNormalization"),
    Operator::same("LRN"),
    Operator::same("LayerNormalization"),
    Operator::same("LpNormalization"),
    Operator::same("RMSNormalization"),
];

pub(super) fn batch(epsilon: f32) -> Facts<'static> {
    Facts::new("BatchNormalization", Role::Plane).fields([float(
        "epsilon",
        epsilon,
        "added to the variance",
    )])
}

fn by_channels(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    if found.op.int("training_mode", 0) != 0 {
        return Err("it takes the mean and variance of its input".to_owned());
    }
    let shape = sizes::direct(found.operator.size, &import.given(found), 0)?.unwrap_or_default();
    if !matches!(shape[..], [1, _, ..]) {
        return Err(format!("input of shape {shape:?}, not [1, C, ..]"));
    }
    let epsilon = found.op.float("epsilon", 1e-5);
    Ok(found.made(Op::BatchNormalization { epsilon }, shape))
}
