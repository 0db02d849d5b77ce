//! Means over windows.

use std::collections::BTreeSet;

use super::super::error::PassError;
use super::super::net::NetNode;
use super::{Plan, of};
use crate::qgraph::lane::LaneOp;
use crate::qgraph::window::{Pads, Window};
use crate::qgraph::{QOp, TensorId};
use crate::semantics;

impl Plan<'_> {
    pub(super) fn average(
        &self,
        node: &NetNode,
        input: TensorId,
        window: &Window,
        count_include_pad: bool,
    ) -> Result<QOp, PassError> {
        let (x, to) = (self.operand(input)?, self.output(node));
        // Padding that counts adds zero points to the sum, as many as there are positions missing.
        let zero = i64::from(x.zero);
        let alike = count_include_pad && (zero == 0 || window.pads == Pads::NONE);
        let counts = if alike {
            BTreeSet::from([window.area()])
        } else {
            self.counts(input, node.output, window)
        };
        let (low, high) = x.range;
        let all = window.area() as i64;
        let start = (i64::from(low.min(0)) * all, i64::from(high.max(0)) * all);
        let ratio = x.scale / to.scale;
        let ops = |&count: &usize| -> Result<(usize, Vec<LaneOp>), PassError> {
            let divisor = if count_include_pad {
                window.area()
            } else {
                count
            };
            let zero = zero * count as i64;
            let ops = match node.digit {
                Some(place) => {
                    semantics::plan_digit(place, to.zero, &[-zero], &[start], to.numbers)
                }
                None => semantics::plan_scale(ratio / divisor as f64, start, zero, &to),
            };
            Ok((count, ops.map_err(of(node))?))
        };
        Ok(QOp::AvgPool {
            input: self.id(input)?,
            window: *window,
            count_include_pad: alike,
            ops_by_count: counts.iter().map(ops).collect::<Result<_, _>>()?,
        })
    }

    /// The distinct numbers of valid positions in a pool's windows, ascending.
    fn counts(&self, input: TensorId, output: TensorId, window: &Window) -> BTreeSet<usize> {
        let [_, h, w] = self.net.tensors[input.0].chw;
        let [_, oh, ow] = self.net.tensors[output.0].chw;
        let axis = |axis: usize, size: usize, out: usize| -> BTreeSet<usize> {
            let taps = 0..window.kernel[axis];
            let inside = |o| window.positions(axis, o, taps.clone(), size).count();
            (0..out).map(inside).collect()
        };
        let (rows, cols) = (axis(0, h, oh), axis(1, w, ow));
        let all = rows.iter().flat_map(|r| cols.iter().map(move |c| r * c));
        all.collect()
    }
}
