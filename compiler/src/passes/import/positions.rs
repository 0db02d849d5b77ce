//! Sums and products with constants that differ from position to position.

use super::super::error::PassError;
use super::super::net::NetOp;
use super::layout::Order;
use super::values::{Reading, Val, error, ordered};
use crate::graph::Node;
use crate::semantics::Join;

/// The most values of a tensor beside such a constant: each has an int32 in device memory.
const MAX_VALUES: usize = 1 << 22;

impl<'g> Reading<'g> {
    /// A tensor and a constant that broadcasts to it.
    ///
    /// # Errors
    /// `why` the constant is none for each channel, if it doesn't broadcast, isn't finite, or stands beside what
    /// isn't rounded; too many values.
    pub(super) fn by_position(
        &self,
        node: &Node,
        join: Join,
        operand: usize,
        (shape, values): &(Vec<usize>, Vec<f64>),
        why: PassError,
    ) -> Result<Val<'g>, PassError> {
        let Ok((input, order)) = self.operand(node, operand) else {
            return Err(why);
        };
        let chw @ [c, h, w] = self.net.tensors[input.0].chw;
        let size = c * h * w;
        if size > MAX_VALUES {
            let text =
                format!("a constant beside {size} values; at most {MAX_VALUES} have one each");
            return Err(error(node, text));
        }
        let x = &self.graph.values[node.inputs[operand].0].shape;
        if size == 0 || x.iter().product::<usize>() != size {
            return Err(why);
        }
        let Some(mut all) = spread(shape, values, x) else {
            return Err(why);
        };
        if order == Order::Last {
            let from = |at: usize| at % (h * w) * c + at / (h * w);
            all = (0..size).map(|at| all[from(at)]).collect();
        }
        if all.iter().any(|c| !c.is_finite()) {
            return Err(why);
        }
        // What all channels share is there once.
        let (first, rest) = all.split_at(h * w);
        if rest.chunks(h * w).all(|plane| plane == first) {
            all.truncate(h * w);
        }
        let op = NetOp::Constants {
            join,
            input,
            constants: all.into(),
        };
        Ok(ordered(node, op, chw, order))
    }
}

/// The values of a constant beside each of a value of dimensions `to`, of which none is 0, in the order of these;
/// `None` where it doesn't broadcast to them.
fn spread(shape: &[usize], values: &[f64], to: &[usize]) -> Option<Vec<f64>> {
    let before = to.len().checked_sub(shape.len())?;
    let fits = |(&own, &all): (&usize, &usize)| own == 1 || own == all;
    if !shape.iter().zip(&to[before..]).all(fits) {
        return None;
    }
    // Dimension by dimension, from the last: what is there once is repeated.
    let mut all = values.to_vec();
    let mut inner = 1;
    for (at, &size) in to.iter().enumerate().rev() {
        let own = at.checked_sub(before).map_or(1, |at| shape[at]);
        if own != size {
            let slices = all.chunks(inner);
            let repeated = slices.flat_map(|slice| std::iter::repeat_n(slice, size));
            all = repeated.flatten().copied().collect();
        }
        inner *= size;
    }
    Some(all)
}
