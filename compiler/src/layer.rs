//! Single layers by name or shape, with seeded data: `resnet18.C2`, `conv:..`, `dw:..`, `gemm:..`.

use std::fmt::Display;

use thiserror::Error;

use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::{Pads, Window};
use crate::qgraph::{Numbers, QConv, QGraph, QNode, QOp, QTensor, TensorId};
use crate::semantics::{self, Interval, Output, Requant, Requantize, WeightSums};
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

/// A specification that isn't one, or a layer that can't be: the specification, which number of it, the limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LayerError(pub String);

/// What is wrong with a specification that has the right form.
fn wrong(spec: &str, reason: impl Display) -> LayerError {
    LayerError(format!("'{spec}': {reason}"))
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
    let unknown = || {
        LayerError(format!(
            "'{spec}' is no layer: write resnet18.C1 to resnet18.C11, conv:N,CI,H,W,CO,K,S,P[,G], \
             dw:N,C,H,W,K,S,P or gemm:M,K,N"
        ))
    };
    if let Some(name) = spec.strip_prefix("resnet18.") {
        let found = RESNET18.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        let &(_, [size, ci, co, k, s, p]) = found.ok_or_else(unknown)?;
        return conv(spec, [1, ci, size, size, co, k, s, p], 1);
    }
    let (kind, text) = spec.split_once(':').ok_or_else(unknown)?;
    match kind {
        "conv" if text.split(',').count() == 9 => {
            let names = ["N", "CI", "H", "W", "CO", "K", "S", "P", "G"];
            let [n, ci, h, w, co, k, s, p, g] = numbers(spec, text, names)?;
            conv(spec, [n, ci, h, w, co, k, s, p], g)
        }
        "conv" => {
            let names = ["N", "CI", "H", "W", "CO", "K", "S", "P"];
            conv(spec, numbers(spec, text, names)?, 1)
        }
        "dw" => {
            let names = ["N", "C", "H", "W", "K", "S", "P"];
            let [n, c, h, w, k, s, p] = numbers(spec, text, names)?;
            conv(spec, [n, c, h, w, c, k, s, p], c)
        }
        "gemm" => {
            let [m, k, n] = numbers(spec, text, ["M", "K", "N"])?;
            let product = conv(spec, [1, k, 1, m, n, 1, 1, 0], 1)?;
            Ok(LayerSpec {
                dense: true,
                ..product
            })
        }
        _ => Err(unknown()),
    }
}

fn numbers<const N: usize>(
    spec: &str,
    text: &str,
    names: [&'static str; N],
) -> Result<[usize; N], LayerError> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() != N {
        let (found, names) = (parts.len(), names.join(","));
        let reason = format!("has {found} numbers, but {N} are needed ({names})");
        return Err(LayerError(format!("'{spec}' {reason}")));
    }
    let mut values = [0; N];
    for ((value, text), name) in values.iter_mut().zip(parts).zip(names) {
        let (low, high) = (usize::from(name != "P"), MAX_SIZE);
        let parsed = text.parse().ok().filter(|v| (low..=high).contains(v));
        *value = parsed.ok_or_else(|| {
            let range = format!("a whole number from {low} to {high}");
            wrong(spec, format!("{name} is '{text}', but it must be {range}"))
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
    /// [`LayerError`] with the sizes that contradict each other, or the limit.
    pub fn checked(self) -> Result<Self, LayerError> {
        let ([ci, h, w], co, group) = (self.chw, self.co, self.group);
        let wrong = |reason: String| Err(wrong(&self.name, reason));
        if group == 0 || ci % group != 0 || co % group != 0 {
            return wrong(format!(
                "G is {group}, which doesn't divide CI {ci} and CO {co}"
            ));
        }
        let [oh, ow] = outputs(&self)?;
        let [k, l] = self.window.kernel;
        for (what, dims) in [
            ("input", [self.images, ci, h, w]),
            ("weights", [co, ci / group, k, l]),
            ("output", [self.images, co, oh, ow]),
        ] {
            let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
            if count.is_none_or(|n| n > MAX_ELEMENTS) {
                return wrong(format!("the {what} has more than {MAX_ELEMENTS} elements"));
            }
        }
        Ok(self)
    }
}

/// Rows and columns of the output.
fn outputs(spec: &LayerSpec) -> Result<[usize; 2], LayerError> {
    let ([_, h, w], window) = (spec.chw, &spec.window);
    window.output(h, w).ok_or_else(|| {
        let (kernel, pad) = (window.kernel[0], window.pads.top);
        let input = format!("an input of {h}x{w} padded by {pad}");
        wrong(
            &spec.name,
            format!("a kernel of {kernel} doesn't fit {input}"),
        )
    })
}

/// The layer as a network: seeded weights and biases, requantised so that outputs fill int8,
/// with a power of two.
///
/// # Errors
/// [`LayerError`] when the sums can't be bounded inside int32, or the kernel is larger than the padded
/// input.
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
            numbers: Numbers::Int8,
        },
    };
    let mut epilogue: Vec<LaneOp> =
        semantics::plan_requantize(&given).map_err(|error| wrong(&spec.name, error))?;
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
        store: None,
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
            saturate: false,
        }],
        inputs: vec![TensorId(0)],
        outputs: vec![TensorId(1)],
        ..QGraph::default()
    })
}

/// Seeded input data of one image.
pub fn input(spec: &LayerSpec, seed: u64, image: usize) -> Vec<i16> {
    let mut rng = Rng::new(seed.wrapping_add(0x1000_0001 * (image as u64 + 1)));
    let values = 0..spec.chw.iter().product();
    values.map(|_| rng.int8().into()).collect()
}
