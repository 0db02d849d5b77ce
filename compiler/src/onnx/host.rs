//! Operators that only the host computes.

use super::import::Attributes;
use crate::host::HostOp;

/// The host's operator of a node whose first input has `rank` dimensions; `None` when there is
/// none of its name.
///
/// # Errors
/// Attributes that aren't supported.
pub(super) fn read(
    node: &Attributes<'_>,
    opset: i64,
    rank: usize,
) -> Result<Option<HostOp>, String> {
    let op = match node.op_type() {
        "Sigmoid" => HostOp::Sigmoid,
        "Tanh" => HostOp::Tanh,
        "Elu" => HostOp::Elu {
            alpha: node.float("alpha", 1.0),
        },
        "Softmax" => HostOp::Softmax,
        _ => return Ok(None),
    };
    if !matches!(rank, 2 | 4) {
        return Err(format!("an input of {rank} dimensions, not 2 or 4"));
    }
    // Before opset 13 Softmax took all dimensions from its axis on together.
    let together = op == HostOp::Softmax && opset < 13;
    let axis = match op {
        HostOp::Softmax if together => node.int("axis", 1),
        HostOp::Softmax => node.int("axis", -1),
        _ => 1,
    };
    if axis != 1 && axis != 1 - rank as i64 {
        return Err(format!(
            "axis {axis}; only that of the channels, 1, is supported"
        ));
    }
    if together && rank == 4 {
        return Err(format!(
            "opset {opset} takes channels, rows and columns together; only opset 13 and later is \
             supported here"
        ));
    }
    Ok(Some(op))
}
