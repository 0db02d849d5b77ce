//! Activation functions, and bounds.

use super::elementwise::broadcast;
use super::fields::{Facts, Steps, field, float};
use super::operator::{Found, Made, Operator};
use crate::graph::{Data, Op};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::reflect::AttributeValue;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::same("Relu").device((1, 1), |import, found| import.same(found, Op::Relu)),
    Operator::same("Clip").device((1, 3), clipped),
    Operator::same("LeakyRelu").device((1, 1), |import, found| {
        let alpha = found.op.float("alpha", 0.01);
        import.same(found, Op::LeakyRelu { alpha })
    }),
    Operator::broadcast("PRelu").device((2, 2), |import, found| {
        let given = import.given(found);
        let (x, slopes) = (given.shape(0)?, given.shape(1)?);
        if broadcast(x, slopes)? != x {
            return Err(format!("slopes of shape {slopes:?} for {x:?}"));
        }
        Ok(found.made(Op::PRelu, x.to_vec()))
    }),
    Operator::same("HardSigmoid").device((1, 1), |import, found| {
        let alpha = found.op.float("alpha", 0.2);
        let beta = found.op.float("beta", 0.5);
        import.same(found, Op::HardSigmoid { alpha, beta })
    }),
    Operator::same("HardSwish").device((1, 1), |import, found| import.same(found, Op::HardSwish)),
    Operator::same("Celu"),
    Operator::same("Elu"),
    Operator::same("Gelu"),
    Operator::same("LogSoftmax"),
    Operator::same("Mish"),
    Operator::same("Selu"),
    Operator::same("Sigmoid"),
    Operator::same("Softmax"),
    Operator::same("Softplus"),
    Operator::same("Softsign"),
    Operator::same("Swish"),
    Operator::same("Tanh"),
];

pub(super) fn clip(min: f32, max: f32) -> Facts<'static> {
    let bound =
        |name, value: f32, meaning| field((name, ""), AttributeValue::Float(value.into()), meaning);
    Facts::new("Clip", Role::Each)
        .fields([
            bound("min", min, "lower bound"),
            bound("max", max, "upper bound"),
        ])
        .steps(Steps::Activation)
        .write(move |node| {
            node.constant("min", &[], Data::F32(vec![min]));
            node.constant("max", &[], Data::F32(vec![max]));
        })
}

pub(super) fn leaky_relu(alpha: f32) -> Facts<'static> {
    Facts::new("LeakyRelu", Role::Each).fields([float("alpha", alpha, "slope below 0")])
}

pub(super) fn hard_sigmoid(alpha: f32, beta: f32) -> Facts<'static> {
    Facts::new("HardSigmoid", Role::Each).fields([
        float("alpha", alpha, "slope"),
        float("beta", beta, "value at 0"),
    ])
}

pub(super) fn hard_swish() -> Facts<'static> {
    Facts {
        opset: 14,
        ..Facts::new("HardSwish", Role::Each)
    }
}

/// A Clip by constants, of which the first may be left out.
fn clipped(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let bound = |argument: usize, default: f32| match given.get(argument) {
        None => Ok(default),
        Some(value) => match &value.data {
            Some(Data::F32(v)) if v.len() == 1 => Ok(v[0]),
            _ => Err("the bounds must be float constants".to_owned()),
        },
    };
    let (min, max) = (bound(1, f32::NEG_INFINITY)?, bound(2, f32::INFINITY)?);
    Ok(found.unary(Op::Clip { min, max }, given.shape(0)?.to_vec()))
}
