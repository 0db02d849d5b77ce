//! Sums and products with constants that differ from position to position.

use super::{Plan, internal, of};
use crate::passes::error::PassError;
use crate::passes::net::{NetNode, NetOp};
use crate::qgraph::QOp;
use crate::semantics::{self, Factors, Offsets, Sign};

impl Plan<'_> {
    /// Constants in steps of the output become operands of an element-wise operation.
    pub(super) fn constants(&self, node: &NetNode) -> Result<QOp, PassError> {
        let out = self.scale(node.output);
        let (input, ops) = match &node.op {
            NetOp::Offsets {
                input,
                sign,
                offsets,
            } => {
                let ratio = self.scale(*input) / out;
                let offsets: Vec<f64> = offsets.iter().map(|c| c / out).collect();
                let given = Offsets {
                    ratio: match sign {
                        Sign::Plus => ratio,
                        Sign::Minus => -ratio,
                    },
                    offsets: &offsets,
                    channels: self.net.tensors[node.output.0].chw[0],
                    range: self.range(*input)?,
                    zeros: [self.zero(*input), self.zero(node.output)],
                    clamp: node.clamp,
                };
                (*input, semantics::plan_offsets(&given))
            }
            NetOp::Factors { input, factors } => {
                let step = self.scale(*input) / out;
                let factors: Vec<f64> = factors.iter().map(|c| c * step).collect();
                let given = Factors {
                    factors: &factors,
                    range: self.range(*input)?,
                    zeros: [self.zero(*input), self.zero(node.output)],
                    clamp: node.clamp,
                };
                (*input, semantics::plan_factors(&given))
            }
            _ => return Err(internal(node, "it has no constants of positions")),
        };
        Ok(QOp::Eltwise {
            input: self.id(input)?,
            ops: ops.map_err(of(node))?,
        })
    }
}
