//! Vectors that become planes.

use super::super::net::NetOp;
use super::layout::Order;
use super::transposed::{MAX_CHANNELS, MAX_PHASES};
use super::values::{Moved, Real, Val};
use crate::qgraph::Spread;

/// A vector as a plane of some dimensions: its channel `c * h * w + at` is what channel `c` has at a
/// position. `None` for what is no vector or no such plane, and where there are too many positions.
pub(super) fn unflattened(real: Real, shape: &[usize]) -> Option<Val<'static>> {
    let [c, h, w] = match *shape {
        [1, c, h, w] => [c, h, w],
        [1, c, w] => [c, 1, w],
        _ => return None,
    };
    let area = h * w;
    let is_vector = real.placed() == [c * area, 1, 1] && real.moved.is_none();
    if !is_vector || real.order != Order::First || area > MAX_PHASES || c * area > MAX_CHANNELS {
        return None;
    }
    let channels = (0..area).flat_map(|at| (0..c).map(move |c| c * area + at));
    let spread = Spread {
        up: [h, w],
        ..Spread::NONE
    };
    let plane = match real.exactly() {
        Some(input) => Real {
            op: NetOp::channels_of(input, channels, spread),
            chw: [c, h, w],
            ..real
        },
        None => Real {
            moved: Some(Moved {
                channels: (0..c * area).map(|channel| channel / area).collect(),
                map: channels.collect(),
                spread,
                chw: [c, h, w],
            }),
            ..real
        },
    };
    Some(plane.into())
}
