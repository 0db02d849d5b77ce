//! Integers of 16 bits. QuantizeLinear makes them, DequantizeLinear reads them, and they may be moved in between. All
//! other operators compute with constants of 16 bits as int32.

use super::super::order::node_error;
use super::super::state::{Arguments, Import};
use crate::onnx::{OnnxError, proto};

/// Operators that give the integers that they read, whatever their width.
const KEEPING: [&str; 17] = [
    "QuantizeLinear",
    "DequantizeLinear",
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Pad",
    "Reshape",
    "Shape",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

impl Import<'_> {
    /// Gives a node that computes with integers their constants of 16 bits as int32.
    ///
    /// # Errors
    /// Integers of 16 bits that are computed, for such a node: its results could exceed them.
    pub(in super::super) fn without_16_bits(
        &mut self,
        node: &proto::Node,
        arguments: &mut Arguments,
    ) -> Result<(), OnnxError> {
        if KEEPING.contains(&&node.op_type[..]) {
            return Ok(());
        }
        for id in arguments.iter_mut().flatten() {
            let value = &self.graph.values[id.0];
            if !value.element.has_16_bits() {
                continue;
            }
            let Some(data) = value.data.clone() else {
                let text = format!("it computes with {}", value.element.name());
                return Err(node_error(node, text));
            };
            let (name, shape) = (format!("{}.int32", value.name), value.shape.clone());
            *id = self.graph.value(name, shape, Some(data.without_16_bits()));
        }
        Ok(())
    }
}
