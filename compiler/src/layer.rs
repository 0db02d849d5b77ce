//! Single layers by name or shape, with seeded data: `resnet18.C2`, `conv:..`, `dw:..`, `gemm:..`.

use thiserror::Error;

use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::{Pads, Window};
use crate::qgraph::{QConv, QGraph, QNode, QOp, QTensor, TensorId};
use crate::semantics::{self, Interval, Output, Requant, Requantize, SemanticsError, WeightSums};
use crate::zoo::Rng;

/// A layer to run on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// As it was written.
    pub name: String,
    /// Images (rows of M for a product are positions, not images).
    pub images: usize,
    /// Channels, rows, columns of the input.
    pub chw: [usize; 3],
    /// Output channels.
    pub co: usize,
    /// Geometry.
    pub window: Window,
    /// Groups that the channels are divided into.
    pub group: usize,
    /// Whether it is a product of two matrices, whose rows are positions.
    pub dense: bool,
}

/// A specification that isn't one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayerError {
    /// No such form.
    #[error(
        "'{0}' is no layer: write resnet18.C1 to resnet18.C11, conv:N,CI,H,W,CO,K,S,P[,G], \
         dw:N,C,H,W,K,S,P or gemm:M,K,N"
    )]
    Form(String),
    /// A number is missing, wrong or out of range.
    #[error("'{spec}': {name} is '{text}', but it must be a whole number from {low} to {high}")]
    Number {
        /// The specification.
        spec: String,
        /// Which number.
        name: &'static str,
        /// What stands there.
        text: String,
        /// Smallest legal value.
        low: usize,
        /// Largest legal value.
        high: usize,
    },
    /// Too few or too many numbers.
    #[error("'{spec}' has {found} numbers, but {expected} are needed ({names})")]
    Count {
        /// The specification.
        spec: String,
        /// How many there are.
        found: usize,
        /// How many are needed.
        expected: usize,
        /// Their names.
        names: String,
    },
    /// The groups don't divide the channels.
    #[error("'{spec}': G is {group}, which doesn't divide CI {ci} and CO {co}")]
    Group {
        /// The specification.
        spec: String,
        /// Groups.
        group: usize,
        /// Input channels.
        ci: usize,
        /// Output channels.
        co: usize,
    },
    /// The kernel is larger than the padded input.
    #[error("'{spec}': a kernel of {kernel} doesn't fit an input of {h}x{w} padded by {pad}")]
    Window {
        /// The specification.
        spec: String,
        /// The kernel's size.
        kernel: usize,
        /// Rows.
        h: usize,
        /// Columns.
        w: usize,
        /// On each side.
        pad: usize,
    },
    /// The tensors are too large to hold.
    #[error("'{spec}': {what} has more than {limit} elements")]
    Size {
        /// The specification.
        spec: String,
        /// Which tensor.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The layer's arithmetic doesn't fit int32.
    #[error("'{spec}': {source}")]
    Semantics {
        /// The specification.
        spec: String,
        /// The cause.
        source: SemanticsError,
    },
}

/// ResNet-18's convolutions as the VTA papers number them: input size, CI, CO, K, S, P.
pub const RESNET18: [(&str, [usize; 6]); 11] = [
    ("C1", [224, 3, 64, 7, 2, 3]),
    ("C2", [56, 64, 64, 3, 1, 1]),
    ("C3", [56, 64, 128, 3, 2, 1]),
    ("C4", [56, 64, 128, 1, 2, 0]),
    ("C5", [28, 128, 128, 3, 1, 1]),
    ("C6", [28, 128, 256, 3, 2, 1]),
    ("C7", [28, 128, 256, 1, 2, 0]),
    ("C8", [14, 256, 256, 3, 1, 1]),
    ("C9", [14, 256, 512, 3, 2, 1]),
    ("C10", [14, 256, 512, 1, 2, 0]),
    ("C11", [7, 512, 512, 3, 1, 1]),
];

/// The most elements of a tensor.
pub const MAX_ELEMENTS: usize = 1 << 28;
/// The largest size of a dimension, of a kernel or of a step.
pub const MAX_SIZE: usize = 65_536;

/// Parses a specification.
///
/// # Errors
/// [`LayerError`] naming the number and its range.
pub fn parse(spec: &str) -> Result<LayerSpec, LayerError> {
    if let Some(name) = spec.strip_prefix("resnet18.") {
        let found = RESNET18.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        let &(_, [size, ci, co, k, s, p]) =
            found.ok_or_else(|| LayerError::Form(spec.to_owned()))?;
        return conv(spec, [1, ci, size, size, co, k, s, p], 1);
    }
    if let Some(text) = spec.strip_prefix("conv:") {
        let names = ["N", "CI", "H", "W", "CO", "K", "S", "P"];
        if text.split(',').count() == 9 {
            let names = ["N", "CI", "H", "W", "CO", "K", "S", "P", "G"];
            let [n, ci, h, w, co, k, s, p, g] = numbers(spec, text, names)?;
            return conv(spec, [n, ci, h, w, co, k, s, p], g);
        }
        return conv(spec, numbers(spec, text, names)?, 1);
    }
    if let Some(text) = spec.strip_prefix("dw:") {
        let names = ["N", "C", "H", "W", "K", "S", "P"];
        let [n, c, h, w, k, s, p] = numbers(spec, text, names)?;
        return conv(spec, [n, c, h, w, c, k, s, p], c);
    }
    if let Some(text) = spec.strip_prefix("gemm:") {
        let [m, k, n] = numbers(spec, text, ["M", "K", "N"])?;
        let product = conv(spec, [1, k, 1, m, n, 1, 1, 0], 1)?;
        return Ok(LayerSpec {
            dense: true,
            ..product
        });
    }
    Err(LayerError::Form(spec.to_owned()))
}

fn numbers<const N: usize>(
    spec: &str,
    text: &str,
    names: [&'static str; N],
) -> Result<[usize; N], LayerError> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() != N {
        let (spec, names) = (spec.to_owned(), names.join(","));
        return Err(LayerError::Count {
            spec,
            found: parts.len(),
            expected: N,
            names,
        });
    }
    let mut values = [0; N];
    for ((value, text), name) in values.iter_mut().zip(parts).zip(names) {
        let (low, high) = (usize::from(name != "P"), MAX_SIZE);
        *value = text
            .parse()
            .ok()
            .filter(|v| (low..=high).contains(v))
            .ok_or_else(|| {
                let (spec, text) = (spec.to_owned(), text.to_owned());
                LayerError::Number {
                    spec,
                    name,
                    text,
                    low,
                    high,
                }
            })?;
    }
    Ok(values)
}

fn conv(
    spec: &str,
    [n, ci, h, w, co, k, s, p]: [usize; 8],
    group: usize,
) -> Result<LayerSpec, LayerError> {
    let window = Window {
        kernel: [k; 2],
        stride: [s; 2],
        dilation: [1, 1],
        pads: Pads::all(p),
    };
    let spec = LayerSpec {
        name: spec.to_owned(),
        images: n,
        chw: [ci, h, w],
        co,
        window,
        group,
        dense: false,
    };
    spec.checked()
}

impl LayerSpec {
    /// The layer, if its groups divide its channels, its kernel fits its padded input and its tensors can be
    /// held.
    ///
    /// # Errors
    /// [`LayerError::Group`], [`LayerError::Window`] or [`LayerError::Size`].
    pub fn checked(self) -> Result<Self, LayerError> {
        let Self {
            chw: [ci, h, w],
            co,
            group,
            ..
        } = self;
        if group == 0 || ci % group != 0 || co % group != 0 {
            let spec = self.name;
            return Err(LayerError::Group {
                spec,
                group,
                ci,
                co,
            });
        }
        let [oh, ow] = outputs(&self)?;
        let [k, l] = self.window.kernel;
        let size = |what, dims: [usize; 4]| {
            let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
            match count {
                Some(n) if n <= MAX_ELEMENTS => Ok(()),
                _ => Err(LayerError::Size {
                    spec: self.name.clone(),
                    what,
                    limit: MAX_ELEMENTS,
                }),
            }
        };
        size("the input", [self.images, ci, h, w])?;
        size("the weights", [co, ci / group, k, l])?;
        size("the output", [self.images, co, oh, ow])?;
        Ok(self)
    }
}

/// Rows and columns of the output.
fn outputs(spec: &LayerSpec) -> Result<[usize; 2], LayerError> {
    let [_, h, w] = spec.chw;
    let window = &spec.window;
    window.output(h, w).ok_or_else(|| LayerError::Window {
        spec: spec.name.clone(),
        kernel: window.kernel[0],
        h,
        w,
        pad: window.pads.top,
    })
}

/// The layer as a network: seeded weights and biases, requantised so that outputs fill int8,
/// with a power of two.
///
/// # Errors
/// [`LayerError::Semantics`] when the sums can't be bounded inside int32, [`LayerError::Window`] when
/// the kernel is larger than the padded input.
pub fn build(spec: &LayerSpec, seed: u64) -> Result<QGraph, LayerError> {
    let mut rng = Rng::new(seed);
    let [ci, ..] = spec.chw;
    let [oh, ow] = outputs(spec)?;
    let taps = ci / spec.group * spec.window.area();
    let weights: Vec<i8> = (0..spec.co * taps).map(|_| rng.int8()).collect();
    let bias: Vec<f64> = (0..spec.co).map(|_| f64::from(rng.int8()) * 16.0).collect();
    // Inputs and weights have a standard deviation of 37, so sums have 37 * 37 * sqrt(taps).
    let shift = (37.0 * (taps as f64).sqrt()).log2().round().max(1.0) as i32;
    let sums = WeightSums::of(&weights, spec.co, weights.len());
    let sums: Vec<Interval> = sums.iter().map(|sums| sums.bounds((-127, 127))).collect();
    let given = Requantize {
        ratio: &vec![2f64.powi(-shift); spec.co],
        bias: &bias,
        sum: &sums,
        to: Output {
            scale: 1.0,
            zero: 0,
            clamp: (-128, 127),
            requant: Requant::Fast,
        },
    };
    let mut epilogue: Vec<LaneOp> =
        semantics::plan_requantize(&given).map_err(|source| LayerError::Semantics {
            spec: spec.name.clone(),
            source,
        })?;
    if epilogue.is_empty() {
        epilogue.push(LaneOp::min(127));
    }
    let tensor = |name: &str, chw| QTensor {
        name: name.to_owned(),
        chw,
        scale: 1.0,
        zero: 0,
        range: (-128, 127),
    };
    let op = QOp::Conv(QConv {
        input: TensorId(0),
        window: spec.window,
        weights: weights.into(),
        group: spec.group,
        residual: None,
        epilogue,
        dense: spec.dense,
    });
    Ok(QGraph {
        tensors: vec![
            tensor("input", spec.chw),
            tensor("output", [spec.co, oh, ow]),
        ],
        nodes: vec![QNode {
            name: spec.name.clone(),
            op,
            output: TensorId(1),
        }],
        inputs: vec![TensorId(0)],
        outputs: vec![TensorId(1)],
        ..QGraph::default()
    })
}

/// Seeded input data of one image.
pub fn input(spec: &LayerSpec, seed: u64, image: usize) -> Vec<i8> {
    let mut rng = Rng::new(seed.wrapping_add(0x1000_0001 * (image as u64 + 1)));
    (0..spec.chw.iter().product()).map(|_| rng.int8()).collect()
}
