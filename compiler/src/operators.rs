//! Operators of ONNX. What is known of one stands in the file of its family: its name, its inputs, how large its
//! outputs are and of which type; and of one that devices may compute how it is read and written, its
//! attributes, its shape, where its steps come from when it is quantised, and what the device does with it or
//! why not.
//!
//! Reader, writer, listings, quantiser and checks ask the table of [`find`] and the [`Facts`] of an [`Op`]. The
//! host's engine computes an operator that has a line in the table and nothing else.

mod activation;
mod arithmetic;
mod conv;
mod dense;
pub(crate) mod elementwise;
pub(crate) mod fields;
pub(crate) mod moves;
mod normalise;
pub(crate) mod operator;
mod pad;
pub(crate) mod planes;
pub(crate) mod pool;
mod quantize;
mod reduce;
mod reshape;
mod resize;

use crate::graph::Op;
use crate::passes::import::affine::Arithmetic;
use operator::{Facts, Operator};

/// All operators, by families.
const FAMILIES: [&[Operator]; 13] = [
    activation::OPERATORS,
    arithmetic::OPERATORS,
    conv::OPERATORS,
    dense::OPERATORS,
    elementwise::OPERATORS,
    moves::OPERATORS,
    normalise::OPERATORS,
    pad::OPERATORS,
    pool::OPERATORS,
    quantize::OPERATORS,
    reduce::OPERATORS,
    reshape::OPERATORS,
    resize::OPERATORS,
];

/// The operator of a name; `None` for one that nothing computes.
pub(crate) fn find(domain: &str, kind: &str) -> Option<Operator> {
    if !domain.is_empty() && domain != "ai.onnx" {
        return None;
    }
    let mut all = FAMILIES.into_iter().flatten();
    all.find(|operator| operator.kind == kind).copied()
}

impl Op {
    /// What is known of it.
    pub(crate) fn facts(&self) -> Facts<'_> {
        match self {
            Self::Conv { window, group } => conv::conv(window, *group),
            Self::ConvTranspose {
                window,
                group,
                output_padding,
            } => conv::transposed(window, *group, *output_padding),
            Self::Relu => activation::relu(),
            Self::Clip { min, max } => activation::clip(*min, *max),
            Self::LeakyRelu { alpha } => activation::leaky_relu(*alpha),
            Self::PRelu => activation::prelu(),
            Self::HardSigmoid { alpha, beta } => activation::hard_sigmoid(*alpha, *beta),
            Self::HardSwish => activation::hard_swish(),
            Self::Add => arithmetic::pair("Add", Arithmetic::Add),
            Self::Sub => arithmetic::pair("Sub", Arithmetic::Sub),
            Self::Mul => arithmetic::pair("Mul", Arithmetic::Mul),
            Self::Div => arithmetic::pair("Div", Arithmetic::Div),
            Self::Gemm { trans_b } => dense::gemm(*trans_b),
            Self::MatMul { form } => dense::mat_mul(*form),
            Self::MaxPool { window } => pool::max(window),
            Self::AveragePool {
                window,
                count_include_pad,
            } => pool::average(window, *count_include_pad),
            Self::GlobalAveragePool => pool::global_average(),
            Self::BatchNormalization { epsilon } => normalise::batch(*epsilon),
            Self::QuantizeLinear { axis } => quantize::quantize(*axis),
            Self::DequantizeLinear { axis } => quantize::dequantize(*axis),
            Self::Flatten => reshape::flatten(),
            Self::Identity => reshape::identity(),
            Self::Pad { pads } => pad::pad(*pads),
            Self::Concat { axis } => moves::concat(*axis),
            Self::Slice { entries } => moves::slice(entries),
            Self::Gather { axis } => moves::gather(*axis),
            Self::DepthToSpace { block, mode } => moves::depth_to_space(*block, *mode),
            Self::SpaceToDepth { block } => moves::space_to_depth(*block),
            Self::Resize { factors } => resize::resize(*factors),
            Self::Onnx(op) => reshape::kept(op),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_found_by_their_names() {
        let mut kinds: Vec<&str> = FAMILIES.into_iter().flatten().map(|o| o.kind).collect();
        let count = kinds.len();
        for kind in &kinds {
            assert_eq!(find("", kind).map(|o| o.kind), Some(*kind));
        }
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), count, "an operator has two lines");
        assert!(find("", "Frobnicate").is_none());
        assert!(find("com.example", "Add").is_none());
    }
}
