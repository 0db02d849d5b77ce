//! Two clamps in one step, for machines that have CLIP.
//!
//! CLIP's operand holds bytes exactly, and wider bounds of channels to 13 bits. Others are narrowed to what it
//! holds, but only where nothing behind them can tell: no operation behind decreases or wraps between the wanted
//! bounds, and both ends become the same. Then so does every value that the narrower bounds move.

use super::lanes::range;
use crate::qgraph::lane::{LaneKind, LaneOp, LaneOperand};

/// The operations with two clamps as one wherever that is the same and fewer cycles.
pub fn join_clamps(ops: &mut Vec<LaneOp>) {
    let mut at = 0;
    while let Some([first, second, behind @ ..]) = ops.get(at..) {
        if let Some(clip) = clip([first, second], behind) {
            ops.splice(at..at + 2, [clip]);
        }
        at += 1;
    }
}

/// Two operations as one CLIP before what is `behind` them.
fn clip([first, second]: [&LaneOp; 2], behind: &[LaneOp]) -> Option<LaneOp> {
    let (low, high) = match (first.kind, second.kind) {
        (LaneKind::Min, LaneKind::Max) => (second, first),
        (LaneKind::Max, LaneKind::Min) => (first, second),
        _ => return None,
    };
    let vectors = [low, high].into_iter().filter_map(LaneOp::vector);
    let channels = vectors.map(<[i32]>::len).max();
    let of = |channel: usize| {
        let wanted = [low, high].map(|op| op.operand.of_channel(channel));
        let wanted = [wanted[0]?, wanted[1]?];
        let operand = LaneKind::clip_operand(wanted);
        let held = LaneKind::clip_bounds(operand);
        let ends = |[low, high]: [i32; 2]| {
            let exact = |op: &LaneOp| op.plane().is_none() && op.never_decreases();
            let ends = || range(behind, channel, (low.into(), high.into())).ok();
            behind.iter().all(exact).then(ends).flatten()
        };
        let same = held == wanted || ends(held).is_some_and(|end| ends(wanted) == Some(end));
        // Bounds that cross give one of them, by their order.
        (same && wanted[0] <= wanted[1] && held[0] <= held[1]).then_some(operand)
    };
    let all: Vec<i32> = (0..channels.unwrap_or(1)).map(of).collect::<Option<_>>()?;
    let first = i16::try_from(*all.first()?).ok();
    let operand: LaneOperand = match first {
        Some(imm) if all.iter().all(|&y| y == i32::from(imm)) => imm.into(),
        // Two immediates take as long as a vector.
        _ => channels.is_some().then_some(all)?.into(),
    };
    Some(LaneOp::new(LaneKind::Clip, operand))
}

#[cfg(test)]
mod tests;
