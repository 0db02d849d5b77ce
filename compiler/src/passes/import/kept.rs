//! Operators that are kept as a file has them, and compute nothing.

use super::super::error::PassError;
use super::layout::{Order, permutation, regroups, to_tensor, transposes};
use super::reshaped::unflattened;
use super::values::{FLOAT, Reading, UNQUANTIZED, Val, error};
use crate::graph::{Graph, Node, OnnxOp, ValueId};

impl<'g> Reading<'g> {
    /// A Reshape that keeps the order of a value, or a Transpose that swaps channels and positions.
    pub(crate) fn kept(&self, node: &Node, op: &OnnxOp) -> Result<Val<'g>, PassError> {
        let why = || error(node, op.reason.clone());
        if !regroups(op) && !transposes(op) {
            return Err(why());
        }
        let mut real = match self.value(node, 0)? {
            Val::Real(real) => real,
            Val::Float => return Err(error(node, FLOAT)),
            Val::Input | Val::Quantized(..) => return Err(error(node, UNQUANTIZED)),
            Val::Constant(constant) if transposes(op) => {
                let perm = permutation(op, constant.shape.len()).ok_or_else(why)?;
                let turned = constant.turned(&perm).ok_or_else(why)?;
                return Ok(Val::Constant(Box::new(turned)));
            }
            Val::Constant(_) => return Err(why()),
        };
        let shape = |id: ValueId| &self.graph.values[id.0].shape[..];
        let chw = real.placed();
        if transposes(op) {
            let from = shape(node.inputs[0]);
            let perm = permutation(op, from.len()).ok_or_else(why)?;
            real.order = real.order.turned(from, &perm, chw).ok_or_else(why)?;
        }
        let dimensions = self.layouts.dimensions.contains(&node.output);
        let first = self.layouts.is_first(node.output);
        let wrong = dimensions && !real.order.fits(shape(node.output), chw)
            || first && real.order == Order::Last;
        if wrong {
            unflattened(*real, shape(node.output)).ok_or_else(why)
        } else {
            Ok(Val::Real(real))
        }
    }

    /// A part of the host that turns an input of the model, so that its channels are in front.
    pub(crate) fn turned(&self, id: ValueId, chw: [usize; 3]) -> Graph {
        let mut part = Graph::default();
        part.values.push(self.graph.values[id.0].clone());
        part.inputs.push(ValueId(0));
        let output = to_tensor(&mut part, ValueId(0), chw);
        part.outputs.push(output);
        part
    }
}
