//! Products of matrices with constants.

use super::Attributes;
use super::state::Import;
use crate::graph::{MatMulForm, Op, ValueId};

impl Import<'_> {
    /// The operator of a MatMul or Gemm, whose inputs become what is computed and then the constant.
    ///
    /// # Errors
    /// Attributes that aren't supported, and two operands that are computed.
    pub(super) fn matrix(
        &self,
        node: &Attributes<'_>,
        inputs: &mut [ValueId],
    ) -> Result<Op, String> {
        let is_gemm = node.op_type() == "Gemm";
        if is_gemm
            && (node.float("alpha", 1.0) != 1.0
                || node.float("beta", 1.0) != 1.0
                || node.int("transA", 0) != 0)
        {
            return Err("alpha and beta must be 1 and transA 0".to_owned());
        }
        let trans_b = is_gemm && node.int("transB", 0) != 0;
        let rank = |id: ValueId| self.graph.values[id.0].shape.len();
        let one_row = matches!(self.graph.values[inputs[0].0].shape[..], [1, _]);
        let constant = [0, 1].map(|i| self.is_constant(inputs[i]));
        if one_row && !constant[0] {
            return Ok(Op::Gemm { trans_b });
        }
        let form = match [0, 1].map(|i| constant[i] && rank(inputs[i]) == 2) {
            [false, true] if trans_b => MatMulForm::RightTransposed,
            [false, true] => MatMulForm::Right,
            [true, false] if !trans_b && inputs.len() == 2 => {
                inputs.swap(0, 1);
                MatMulForm::Left
            }
            _ => return Err("neither operand alone is a constant matrix".to_owned()),
        };
        Ok(Op::MatMul { form })
    }

    /// Whether a value is an initializer, or one that is rounded and dequantised, or transposed.
    fn is_constant(&self, mut id: ValueId) -> bool {
        while self.graph.values[id.0].data.is_none() {
            let rounds = |op: &Op| {
                let rounds = matches!(
                    op,
                    Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } | Op::Identity
                );
                rounds
                    || matches!(op, Op::Onnx(op) if op.domain.is_empty() && op.kind == "Transpose")
            };
            match self.maker(id).filter(|node| rounds(&node.op)) {
                Some(node) => id = node.inputs[0],
                None => return false,
            }
        }
        true
    }
}
