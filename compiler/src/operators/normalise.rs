//! Normalisations.

use super::fields::float;
use super::operator::{Facts, Operator};
use crate::graph::Op;
use crate::passes::import::layout::Role;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::same("BatchNormalization").device((5, 5), |_, node, _, _| {
        if node.int("training_mode", 0) != 0 {
            return Err("it takes the mean and variance of its input".to_owned());
        }
        let epsilon = node.float("epsilon", 1e-5);
        Ok(Op::BatchNormalization { epsilon })
    }),
    Operator::same("GroupNormalization"),
    Operator::same("InstanceNormalization"),
    Operator::same("LRN"),
    Operator::same("LayerNormalization"),
    Operator::same("LpNormalization"),
    Operator::same("RMSNormalization"),
];

pub(super) fn batch(epsilon: f32) -> Facts<'static> {
    Facts::new(
        "BatchNormalization",
        |inputs| {
            let x = inputs.shape(0)?;
            let &[1, channels, ..] = x else {
                return Err(format!("input of shape {x:?}, not [1, C, ..]"));
            };
            for index in 1..5 {
                let shape = inputs.shape(index)?;
                if shape != [channels] {
                    return Err(format!("input {index} has shape {shape:?}, input 0 {x:?}"));
                }
            }
            Ok(x.to_vec())
        },
        move |reading, node| reading.batch_norm(node, epsilon.into()),
    )
    .fields([float("epsilon", epsilon, "added to the variance")])
    .role(Role::Plane)
}
