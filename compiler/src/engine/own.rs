//! Operators that the library lacks, or computes in a part of their forms, and that no others stand for.

mod asked;
mod attention;
mod bits;
mod compress;
#[cfg(feature = "host")]
mod fourier;
mod grid;
mod recurrent;
mod suppress;
mod transposed;

use super::Tensor;
use crate::onnx::proto;
pub(super) use asked::Asked;

/// Computes a node; its outputs, in order.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) type Compute = fn(&Asked<'_>) -> Result<Vec<Tensor>, String>;

/// What computes a node of a model here; `None` for one that the library computes.
pub(super) fn find(node: &proto::Node) -> Option<Compute> {
    Some(match &node.op_type[..] {
        "LSTM" | "GRU" | "RNN" => recurrent::compute,
        "Attention" if attention::is_own(node) => attention::compute,
        "BitShift" | "BitwiseAnd" | "BitwiseNot" | "BitwiseOr" | "BitwiseXor" => bits::compute,
        "Compress" => compress::compute,
        #[cfg(feature = "host")]
        "DFT" | "STFT" => fourier::compute,
        "ConvTranspose" if transposed::is_own(node) => transposed::compute,
        "GridSample" => grid::compute,
        "NonMaxSuppression" => suppress::compute,
        _ => return None,
    })
}
