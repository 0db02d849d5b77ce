//! Operators that the library lacks, or computes in a part of their forms, and that no others stand for.

mod attention;
mod bits;
mod compress;
mod grid;
mod recurrent;
mod suppress;
mod transposed;

use super::{Lent, Tensor};
use crate::graph::Data;
use crate::onnx::proto;

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
        "ConvTranspose" if transposed::is_own(node) => transposed::compute,
        "GridSample" => grid::compute,
        "NonMaxSuppression" => suppress::compute,
        _ => return None,
    })
}

/// A node and what it reads.
pub(super) struct Asked<'t> {
    pub node: &'t proto::Node,
    /// As many values as their shapes say.
    pub inputs: Vec<Option<Lent<'t>>>,
}

impl<'t> Asked<'t> {
    fn input(&self, argument: usize) -> Option<Lent<'t>> {
        self.inputs.get(argument).copied().flatten()
    }

    fn required(&self, argument: usize) -> Result<Lent<'t>, String> {
        let input = self.input(argument);
        input.ok_or_else(|| format!("its input {argument} is missing"))
    }

    /// The floats of an argument.
    fn floats(&self, argument: usize) -> Result<Option<&'t [f32]>, String> {
        match self.input(argument).map(|lent| lent.data) {
            None => Ok(None),
            Some(Data::F32(floats)) => Ok(Some(floats)),
            Some(data) => Err(format!("its input {argument} is {:?}", data.element())),
        }
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        self.node.find(name).map_or(default, |a| a.i)
    }

    fn text(&self, name: &str, default: &'static str) -> String {
        let text = self.node.find(name).map(|a| String::from_utf8_lossy(&a.s));
        text.map_or(default.to_owned(), |text| text.into_owned())
    }
}
