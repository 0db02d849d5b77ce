//! The operators and their shapes.

/// An operator with the semantics of ONNX (opset 13 where the opset matters).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostOp {
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `max(0, min(1, alpha * x + beta))`.
    HardSigmoid {
        /// Slope.
        alpha: f32,
        /// Value at 0.
        beta: f32,
    },
    /// `x * max(0, min(1, x / 6 + 1/2))`.
    HardSwish,
    /// Hyperbolic tangent.
    Tanh,
    /// `x`, and below 0 `alpha * (e^x - 1)`.
    Elu {
        /// Factor below 0.
        alpha: f32,
    },
    /// `x`, and below 0 `alpha * x`.
    LeakyRelu {
        /// Slope below 0.
        alpha: f32,
    },
    /// `e^x` divided by its sum over the channels, at each position.
    Softmax,
    /// Product of two tensors of one shape, or one of which has one position for each channel.
    Mul,
    /// The larger of the values of two tensors, with shapes as for the product.
    Max,
    /// Tensors of equal rows and columns one after another along the channels.
    Concat,
    /// Every value repeated over as many rows and columns: Resize to the nearest.
    Resize {
        /// Rows and columns for each, at least 1.
        factors: [usize; 2],
    },
}

/// What the output's shape is, by the inputs'.
enum ShapeRule {
    /// That of the one input.
    Same,
    /// That of the larger of two.
    Pair,
    /// All channels together.
    Joined,
    /// Rows and columns times these.
    Enlarged([usize; 2]),
}

impl HostOp {
    /// ONNX's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sigmoid => "Sigmoid",
            Self::HardSigmoid { .. } => "HardSigmoid",
            Self::HardSwish => "HardSwish",
            Self::Tanh => "Tanh",
            Self::Elu { .. } => "Elu",
            Self::LeakyRelu { .. } => "LeakyRelu",
            Self::Softmax => "Softmax",
            Self::Mul => "Mul",
            Self::Max => "Max",
            Self::Concat => "Concat",
            Self::Resize { .. } => "Resize",
        }
    }

    const fn rule(&self) -> ShapeRule {
        match self {
            Self::Sigmoid
            | Self::HardSigmoid { .. }
            | Self::HardSwish
            | Self::Tanh
            | Self::Elu { .. }
            | Self::LeakyRelu { .. }
            | Self::Softmax => ShapeRule::Same,
            Self::Mul | Self::Max => ShapeRule::Pair,
            Self::Concat => ShapeRule::Joined,
            Self::Resize { factors } => ShapeRule::Enlarged(*factors),
        }
    }

    /// Fewest and most inputs.
    pub const fn arity(&self) -> (usize, usize) {
        match self.rule() {
            ShapeRule::Same | ShapeRule::Enlarged(_) => (1, 1),
            ShapeRule::Pair => (2, 2),
            ShapeRule::Joined => (1, 1024),
        }
    }

    /// Channels, rows and columns of the output; `None` when the inputs' don't fit.
    pub fn shape(&self, inputs: &[[usize; 3]]) -> Option<[usize; 3]> {
        let (least, most) = self.arity();
        let first = *inputs.first()?;
        if !(least..=most).contains(&inputs.len()) {
            return None;
        }
        match self.rule() {
            ShapeRule::Pair => {
                let (a, b) = (first, inputs[1]);
                let fits = |large: [usize; 3], small: [usize; 3]| {
                    large == small || (large[0] == small[0] && small[1..] == [1, 1])
                };
                match (fits(a, b), fits(b, a)) {
                    (true, _) => Some(a),
                    (_, true) => Some(b),
                    _ => None,
                }
            }
            ShapeRule::Joined => {
                let same = inputs.iter().all(|chw| chw[1..] == first[1..]);
                let channels = inputs
                    .iter()
                    .try_fold(0usize, |n, chw| n.checked_add(chw[0]));
                channels.filter(|_| same).map(|c| [c, first[1], first[2]])
            }
            ShapeRule::Enlarged(factors) if factors.contains(&0) => None,
            ShapeRule::Enlarged(factors) => {
                let [c, h, w] = first;
                Some([c, h.checked_mul(factors[0])?, w.checked_mul(factors[1])?])
            }
            ShapeRule::Same => Some(first),
        }
    }
}
