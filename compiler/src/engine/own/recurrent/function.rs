//! The functions of gates and states.

use crate::onnx::proto;

/// A function with its two parameters.
#[derive(Clone, Copy)]
pub(super) struct Function {
    kind: Kind,
    alpha: f32,
    beta: f32,
}

#[derive(Clone, Copy)]
enum Kind {
    Affine,
    Elu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    ScaledTanh,
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
}

/// Name, and the parameters that it takes with what they are by default.
const KINDS: [(&str, Kind, Option<f32>, Option<f32>); 11] = [
    ("Affine", Kind::Affine, Some(1.0), Some(0.0)),
    ("Elu", Kind::Elu, Some(1.0), None),
    ("HardSigmoid", Kind::HardSigmoid, Some(0.2), Some(0.5)),
    ("LeakyRelu", Kind::LeakyRelu, Some(0.01), None),
    ("Relu", Kind::Relu, None, None),
    ("ScaledTanh", Kind::ScaledTanh, Some(1.0), Some(1.0)),
    ("Sigmoid", Kind::Sigmoid, None, None),
    ("Softplus", Kind::Softplus, None, None),
    ("Softsign", Kind::Softsign, None, None),
    ("Tanh", Kind::Tanh, None, None),
    ("ThresholdedRelu", Kind::ThresholdedRelu, Some(1.0), None),
];

/// The functions of a node, those of each direction together. Functions that take a parameter take the next of its
/// list.
pub(super) fn read(node: &proto::Node, directions: usize) -> Result<Vec<Function>, String> {
    let default: &[&str] = match &node.op_type[..] {
        "LSTM" => &["Sigmoid", "Tanh", "Tanh"],
        "GRU" => &["Sigmoid", "Tanh"],
        _ => &["Tanh"],
    };
    let count = default.len() * directions;
    let names: Vec<String> = match node.find("activations") {
        Some(given) if !given.strings.is_empty() => {
            let text = |name: &bytes::Bytes| String::from_utf8_lossy(name).into_owned();
            given.strings.iter().map(text).collect()
        }
        _ => default
            .iter()
            .cycle()
            .take(count)
            .map(|&name| name.to_owned())
            .collect(),
    };
    if names.len() != count {
        return Err(format!("{} activations, not {count}", names.len()));
    }
    let list = |name: &str| node.find(name).map_or(&[][..], |a| &a.floats).iter();
    let (mut alphas, mut betas) = (list("activation_alpha"), list("activation_beta"));
    let one = |name: &String| {
        let found = KINDS
            .iter()
            .find(|(known, ..)| known.eq_ignore_ascii_case(name));
        let &(_, kind, alpha, beta) = found.ok_or_else(|| format!("activation {name}"))?;
        let next = |default: Option<f32>, list: &mut std::slice::Iter<'_, f32>| {
            default.map_or(0.0, |default| list.next().copied().unwrap_or(default))
        };
        Ok(Function {
            kind,
            alpha: next(alpha, &mut alphas),
            beta: next(beta, &mut betas),
        })
    };
    names.iter().map(one).collect()
}

impl Function {
    pub fn of(self, x: f32) -> f32 {
        let Self { kind, alpha, beta } = self;
        match kind {
            Kind::Affine => alpha * x + beta,
            Kind::Elu if x < 0.0 => alpha * x.exp_m1(),
            Kind::LeakyRelu if x < 0.0 => alpha * x,
            Kind::ThresholdedRelu if x <= alpha => 0.0,
            Kind::Elu | Kind::LeakyRelu | Kind::ThresholdedRelu => x,
            Kind::HardSigmoid => (alpha * x + beta).clamp(0.0, 1.0),
            Kind::Relu => x.max(0.0),
            Kind::ScaledTanh => alpha * (beta * x).tanh(),
            Kind::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            // exp(x) would be too large for some.
            Kind::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Kind::Softsign => x / (1.0 + x.abs()),
            Kind::Tanh => x.tanh(),
        }
    }
}
