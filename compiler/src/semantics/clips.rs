//! Fewer clamps: two in one step, for machines that have CLIP, and none to a tensor's numbers before STOREs that saturate.
//!
//! CLIP's operand holds bytes exactly, and wider bounds of channels to 13 bits. Others are narrowed to what it
//! holds, but only where nothing behind them can tell: no operation behind decreases or wraps between the wanted
//! bounds, and both ends become the same. Then so does every value that the narrower bounds move.

use super::lanes::{Interval, range};
use crate::qgraph::Numbers;
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

/// What a lane of the device may hold.
const INT32: Interval = (i32::MIN as i64, i32::MAX as i64);

/// Leaves out what clamps to a tensor's numbers at the end of a node's lists, for values that are clamped as they are
/// stored; whether there was any. Other clamps that stand beside it at the end stay. So does everything where a list
/// isn't proven to end in them, as that of a [digit](super::Digits) isn't: low bits are stored then.
pub fn leave_clamps(lists: &mut [&mut Vec<LaneOp>], channels: usize, numbers: Numbers) -> bool {
    let (least, most) = numbers.bounds();
    let (least, most) = (i32::from(least), i32::from(most));
    let within = |ops: &[LaneOp], channel| {
        let (low, high) = ends_in(ops, channel);
        low >= least.into() && high <= most.into()
    };
    let all = |ops: &[LaneOp]| (0..channels).all(|channel| within(ops, channel));
    if !lists.iter().all(|ops| all(ops)) {
        return false;
    }
    let mut any = false;
    for ops in lists {
        let before = ops.len();
        let clamps = |op: &&LaneOp| matches!(op.kind, LaneKind::Min | LaneKind::Max);
        let clamps = ops.iter().rev().take_while(clamps).count();
        let last = ops.split_off(ops.len() - clamps);
        let stays = |op: &LaneOp| match op.kind {
            LaneKind::Min => !op.operand.all(|y| y == most),
            _ => !op.operand.all(|y| y == least),
        };
        ops.extend(last.into_iter().filter(stays));
        any |= ops.len() < before;
    }
    any
}

/// What comes out, whatever goes in. A value that wraps on the way may be any.
fn ends_in(ops: &[LaneOp], channel: usize) -> Interval {
    let step = |now, op| range(std::slice::from_ref(op), channel, now).unwrap_or(INT32);
    ops.iter().fold(INT32, step)
}

#[cfg(test)]
mod tests;
