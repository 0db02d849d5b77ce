//! Operators of ONNX. What a file says of one is read in the file of its family: its name, its inputs, how large its
//! outputs are and of which type; and of one that devices may compute its attributes and its shape, and how it is
//! written.
//!
//! The reader asks the table of [`find`]. Writer, listings and quantiser ask for the [`Facts`] of an [`Op`], which is
//! all that is left of a node then, and the passes for what the device does with it. The host's engine computes an
//! operator that has a line in the table and nothing else.

mod activation;
mod arithmetic;
pub(crate) mod conv;
pub(crate) mod dense;
pub(crate) mod elementwise;
pub(crate) mod fields;
pub(crate) mod moves;
mod normalise;
pub(crate) mod operator;
mod pad;
pub(crate) mod planes;
pub(crate) mod pool;
mod quantize;
pub(crate) mod reduce;
mod reshape;
mod resize;

use crate::graph::{Node, Op};
use crate::passes::import::affine::Arithmetic;
use crate::passes::import::layout::Role;
use crate::passes::import::values::{HOST, Reading, Val, error};
use crate::passes::{NetOp, PassError};
use crate::qgraph::window::Window;
use fields::{Facts, Steps};
use operator::Operator;

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

/// Whether an operator that only the host computes makes each value of those at its place alone.
pub(crate) fn is_by_value(kind: &str) -> bool {
    let families = [activation::OPERATORS, elementwise::OPERATORS];
    let mut all = families.into_iter().flatten();
    all.any(|operator| operator.kind == kind) && !matches!(kind, "Softmax" | "LogSoftmax")
}

impl Op {
    // Matches rather than tables: a new operator doesn't compile until both say what it is.

    /// What is known of it. One without attributes that a file has as a graph does has no more than a line here.
    pub(crate) fn facts(&self) -> Facts<'_> {
        match self {
            Self::Conv { window, group } => conv::conv(window, *group),
            Self::ConvTranspose {
                window,
                group,
                output_padding,
            } => conv::transposed(window, *group, output_padding),
            Self::Relu => Facts::new("Relu", Role::Each).steps(Steps::Activation),
            Self::Clip { min, max } => activation::clip(*min, *max),
            Self::LeakyRelu { alpha } => activation::leaky_relu(*alpha),
            Self::PRelu => Facts::new("PRelu", Role::Each),
            Self::HardSigmoid { alpha, beta } => activation::hard_sigmoid(*alpha, *beta),
            Self::HardSwish => activation::hard_swish(),
            Self::Add => Facts::new("Add", Role::Each),
            Self::Sub => Facts::new("Sub", Role::Each),
            Self::Mul => Facts::new("Mul", Role::Each),
            Self::Div => Facts::new("Div", Role::Each),
            Self::Gemm { trans_b } => dense::gemm(*trans_b),
            Self::MatMul { form } => dense::mat_mul(*form),
            Self::MaxPool { window } => pool::max(window),
            Self::AveragePool {
                window,
                count_include_pad,
            } => pool::average(window, *count_include_pad),
            Self::GlobalAveragePool => Facts::new("GlobalAveragePool", Role::Plane),
            Self::BatchNormalization { epsilon } => normalise::batch(*epsilon),
            Self::QuantizeLinear { axis } => quantize::linear("QuantizeLinear", *axis),
            Self::DequantizeLinear { axis } => quantize::linear("DequantizeLinear", *axis),
            Self::Flatten => reshape::flatten(),
            Self::Identity => Facts::new("Identity", Role::Each).steps(Steps::Input),
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

    /// What the device computes for a node of this operator, or why not.
    pub(crate) fn device<'g>(
        &self,
        on: &mut Reading<'g>,
        node: &Node,
    ) -> Result<Val<'g>, PassError> {
        match self {
            Self::Conv { window, group } => on.conv(node, *window, *group),
            Self::ConvTranspose { window, group, .. } => on.conv_transpose(node, *window, *group),
            Self::Relu => on.bounded(node, 0.0, f64::INFINITY),
            Self::Clip { min, max } => on.bounded(node, (*min).into(), (*max).into()),
            Self::LeakyRelu { alpha } => on.slopes(node, vec![(*alpha).into()]),
            Self::PRelu => on.prelu(node),
            Self::HardSigmoid { alpha, beta } => on.hard_sigmoid(node, *alpha, *beta),
            Self::HardSwish => on.hard_swish(node),
            Self::Add => on.arithmetic(node, Arithmetic::Add),
            Self::Sub => on.arithmetic(node, Arithmetic::Sub),
            Self::Mul => on.arithmetic(node, Arithmetic::Mul),
            Self::Div => on.arithmetic(node, Arithmetic::Div),
            Self::Gemm { trans_b } => on.gemm(node, *trans_b),
            Self::MatMul { form } => on.product(node, *form),
            Self::MaxPool { window } => on.pool(node, *window, |input, window| NetOp::MaxPool {
                input,
                window,
            }),
            Self::AveragePool {
                window,
                count_include_pad,
            } => average(on, node, *window, *count_include_pad),
            Self::GlobalAveragePool => {
                let [_, h, w] = on.net.tensors[on.tensor(node, 0)?.0].chw;
                average(on, node, Window::whole([h, w]), false)
            }
            Self::BatchNormalization { epsilon } => on.batch_norm(node, (*epsilon).into()),
            Self::QuantizeLinear { axis } => on.quantize(node, *axis),
            Self::DequantizeLinear { axis } => on.dequantize(node, *axis),
            Self::Flatten => on.flatten(node),
            Self::Identity => on.value(node, 0),
            Self::Pad { .. } => Err(error(node, "no convolution takes its zeros over")),
            Self::Concat { axis } => on.concat(node, *axis),
            Self::Slice { entries } => on.sliced(node, entries),
            Self::Gather { axis: 1 } => on.gather(node),
            Self::Gather { .. } => Err(error(node, HOST)),
            Self::DepthToSpace { block, mode } => on.depth_to_space(node, *block, *mode),
            Self::SpaceToDepth { block } => on.space_to_depth(node, *block),
            Self::Resize { factors } => on.resize(node, *factors),
            Self::Onnx(op) => on.kept(node, op),
        }
    }
}

fn average<'g>(
    on: &mut Reading<'g>,
    node: &Node,
    window: Window,
    count_include_pad: bool,
) -> Result<Val<'g>, PassError> {
    on.pool(node, window, |input, window| NetOp::AvgPool {
        input,
        window,
        count_include_pad,
    })
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
