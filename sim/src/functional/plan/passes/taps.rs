//! Products of one chunk over tap rectangles become one.
//!
//! Pattern: a product, and the next operation that touches its tiles is a product, too: a compiler that leaves out
//! taps on padding makes an instruction for each rectangle of outputs whose taps lie inside the input, of depthwise
//! convolutions those of each row of taps behind loads of their own.
//!
//! Condition: as many groups, all moved by equally much, whose tiles don't meet over the positions of
//! both; inputs in one region, of all groups as far apart. Nothing between stores to what the first reads. No tap multiplies one input for several positions, since alone such a
//! bias can be seen to be constant, and padding doesn't outweigh the rest.
//!
//! Proof: over the positions of both, a tap that a position lacks multiplies padding, which adds
//! nothing. Nothing between the two touches the sums of the first, whose order is free, so that they may be added where
//! the second stands.

use vta_driver::Span;
use vta_isa::resolve::{Interval, TileSet};

use super::super::draft::{Draft, Kind, Matmul};
use super::list::{Pass, Slot, join, next_touching};
use crate::kernels::PADDING;

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, _| {
        list.each(|_, slot, behind| fold_tap(slot, behind));
        list.slots.retain(Option::is_some);
    },
};

const NAME: &str = "taps";

/// A product whose sums the next product adds to.
fn fold_tap(slot: &mut Slot, behind: &mut [Slot]) {
    let Some(first) = slot.as_mut() else { return };
    if !matches!(first.kind, Kind::Matmul(_)) {
        return;
    }
    let Some(at) = next_touching(behind, &first.writes) else {
        return;
    };
    let (between, rest) = behind.split_at_mut(at);
    let Some(Some(next)) = rest.first() else {
        return;
    };
    let stored = |span: Span| {
        let mut between = between.iter().flatten().filter_map(Draft::dram_write);
        between.any(|written| written.overlaps(&span))
    };
    if let Kind::Matmul(matmul) = &next.kind
        && !first.dram_reads().any(stored)
        && absorb(first, matmul, &next.writes)
    {
        join(&mut rest[0], &mut first.origin, NAME);
        rest[0] = slot.take();
    }
}

/// Adds a product behind another to it, where that is worth it; whether it did.
fn absorb(last: &mut Draft, next: &Matmul, writes: &TileSet) -> bool {
    let Kind::Matmul(first) = &mut last.kind else {
        return false;
    };
    let (Some(a), Some(b)) = (first.read, next.read) else {
        return false;
    };
    let Some(shift) = shift(first, next) else {
        return false;
    };
    // A bias multiplies one input for all sums; alone it can be seen to be constant.
    if a.region != b.region || shares_inputs(first) || shares_inputs(next) {
        return false;
    }
    if !first.same_shifts(next) {
        return false;
    }
    let union = union(&first.positions, &next.positions, shift);
    let most = first.positions.len().max(next.positions.len());
    let mut tiles = last.writes.clone();
    tiles.add(writes);
    // Padding is multiplied like any input; and no tile may belong to two groups.
    if 2 * union.len() > 3 * most || tiles.len() != first.groups.len() * union.len() {
        return false;
    }
    let lowest = union.first().map_or(0, |p| p.0);
    // Mostly the first has all positions already, in this order.
    let own = (0..first.positions.len() as u16).map(Some);
    if !union.iter().map(|p| p.1).eq(own) {
        first.inputs = spread(&first.inputs, first.positions.len(), &union, |p| p.1);
    }
    let inputs = spread(&next.inputs, next.positions.len(), &union, |p| p.2);
    first.inputs.extend(inputs);
    first.positions = union.iter().map(|p| (p.0 - lowest) as u16).collect();
    for (group, more) in first.groups.iter_mut().zip(&next.groups) {
        // The lowest position of each group is a tile.
        group.dst = (i32::from(group.dst) + lowest) as u16;
        group.weights.extend_from_slice(&more.weights);
    }
    first.read = Some(a.hull(&b));
    last.reads.add(writes);
    last.writes = tiles;
    true
}

/// Whether a tap multiplies the same input for several positions.
fn shares_inputs(product: &Matmul) -> bool {
    let positions = product.positions.len();
    let shared = |tap: &[u32]| tap[0] != PADDING && tap.iter().all(|start| *start == tap[0]);
    positions > 1 && product.inputs.chunks(positions).any(shared)
}

/// How far the second product's groups lie behind the first's, if all lie equally far.
fn shift(first: &Matmul, next: &Matmul) -> Option<i32> {
    let pairs = || first.groups.iter().zip(&next.groups);
    let mut shifts = pairs().map(|(a, b)| i32::from(b.dst) - i32::from(a.dst));
    let shift = shifts.next()?;
    let same = first.groups.len() == next.groups.len() && shifts.all(|s| s == shift);
    same.then_some(shift)
}

/// A position, counted from the first product's groups, and its number in each product.
type Position = (i32, Option<u16>, Option<u16>);

/// All positions of both, ascending.
fn union(first: &[u16], next: &[u16], shift: i32) -> Vec<Position> {
    let ascending = |positions: &[u16], by: i32| {
        let moved = positions.iter().map(|p| i32::from(*p) + by);
        let mut places: Vec<(i32, u16)> = moved.zip(0..).collect();
        if !positions.is_sorted() {
            places.sort_unstable();
        }
        places
    };
    let (a, b) = (ascending(first, 0), ascending(next, shift));
    let mut places = Vec::with_capacity(a.len().max(b.len()));
    let mut at = [0, 0];
    while at != [a.len(), b.len()] {
        let [x, y] = [a.get(at[0]), b.get(at[1])].map(|p| p.copied().unwrap_or((i32::MAX, 0)));
        let place = x.0.min(y.0);
        let own = [x, y].map(|p| (p.0 == place).then_some(p.1));
        places.push((place, own[0], own[1]));
        at = [0, 1].map(|of| at[of] + usize::from(own[of].is_some()));
    }
    places
}

/// Inputs `[tap][position]` over more positions.
fn spread(
    inputs: &[u32],
    positions: usize,
    union: &[Position],
    number: impl Fn(&Position) -> Option<u16>,
) -> Vec<u32> {
    let mut all = Vec::with_capacity(inputs.len() / positions * union.len());
    for tap in inputs.chunks(positions) {
        let input = |place| number(place).map_or(PADDING, |at| tap[usize::from(at)]);
        all.extend(union.iter().map(input));
    }
    all
}

#[cfg(test)]
mod tests;
