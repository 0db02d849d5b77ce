//! Activation functions, and bounds.

use super::elementwise::broadcast;
use super::fields::{field, float};
use super::operator::{Facts, Operator, Steps};
use crate::graph::{Data, Op, ValueId};
use crate::onnx::import::attributes::Attributes;
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::reflect::AttributeValue;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::same("Relu").device((1, 1), |_, _, _, _| Ok(Op::Relu)),
    Operator::same("Clip").device((1, 3), |import, node, _, inputs| import.clip(node, inputs)),
    Operator::same("LeakyRelu").device((1, 1), |_, node, _, _| {
        let alpha = node.float("alpha", 0.01);
        Ok(Op::LeakyRelu { alpha })
    }),
    Operator::broadcast("PRelu").device((2, 2), |_, _, _, _| Ok(Op::PRelu)),
    Operator::same("HardSigmoid").device((1, 1), |_, node, _, _| {
        Ok(Op::HardSigmoid {
            alpha: node.float("alpha", 0.2),
            beta: node.float("beta", 0.5),
        })
    }),
    Operator::same("HardSwish").device((1, 1), |_, _, _, _| Ok(Op::HardSwish)),
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

pub(super) fn relu() -> Facts<'static> {
    Facts::same("Relu", |reading, node| {
        reading.bounded(node, 0.0, f64::INFINITY)
    })
    .steps(Steps::Activation)
}

pub(super) fn clip(min: f32, max: f32) -> Facts<'static> {
    let bound =
        |name, value: f32, meaning| field((name, ""), AttributeValue::Float(value.into()), meaning);
    Facts::same("Clip", move |reading, node| {
        reading.bounded(node, min.into(), max.into())
    })
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
    Facts::same("LeakyRelu", move |reading, node| {
        reading.slopes(node, vec![alpha.into()])
    })
    .fields([float("alpha", alpha, "slope below 0")])
}

pub(super) fn prelu() -> Facts<'static> {
    Facts::new(
        "PRelu",
        |inputs| {
            let (x, slopes) = (inputs.shape(0)?, inputs.shape(1)?);
            match broadcast(x, slopes)? {
                all if all == x => Ok(all),
                _ => Err(format!("slopes of shape {slopes:?} for {x:?}")),
            }
        },
        |reading, node| reading.prelu(node),
    )
    .role(Role::Each)
}

pub(super) fn hard_sigmoid(alpha: f32, beta: f32) -> Facts<'static> {
    let fields = [
        float("alpha", alpha, "slope"),
        float("beta", beta, "value at 0"),
    ];
    Facts::same("HardSigmoid", move |reading, node| {
        reading.hard_sigmoid(node, alpha, beta)
    })
    .fields(fields)
}

pub(super) fn hard_swish() -> Facts<'static> {
    let opset = 14;
    Facts {
        opset,
        ..Facts::same("HardSwish", |reading, node| reading.hard_swish(node))
    }
}

impl Import<'_> {
    /// The bounds are attributes, or inputs by their places, of which the first may be left out.
    fn clip(&self, node: &Attributes<'_>, inputs: &mut Vec<ValueId>) -> Result<Op, String> {
        let bound = |place: usize, name: &str, default: f32| match node.input(place) {
            None => Ok(node.float(name, default)),
            Some(input) => match self.data(input) {
                Some(Data::F32(v)) if v.len() == 1 => Ok(v[0]),
                _ => Err("the bounds must be float constants".to_owned()),
            },
        };
        let (min, max) = (
            bound(1, "min", f32::NEG_INFINITY)?,
            bound(2, "max", f32::INFINITY)?,
        );
        inputs.truncate(1);
        Ok(Op::Clip { min, max })
    }
}
