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

use std::rc::Rc;

use rustc_hash::FxHashMap;
use vta_driver::Span;
use vta_isa::resolve::{Interval, TileSet};

use super::super::draft::{Draft, Kind, Matmul};
use super::super::places::{Lists, Same};
use super::list::{Pass, Slot, join, next_touching};
use crate::kernels::PADDING;

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, _| {
        let mut unions = Unions::default();
        list.each(|_, slot, behind| fold_tap(slot, behind, &mut unions));
        list.slots.retain(Option::is_some);
    },
};

const NAME: &str = "taps";

/// A product whose sums the next product adds to.
fn fold_tap(slot: &mut Slot, behind: &mut [Slot], unions: &mut Unions) {
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
        && absorb(first, matmul, &next.writes, unions)
    {
        join(&mut rest[0], &mut first.origin, NAME);
        rest[0] = slot.take();
    }
}

/// Adds a product behind another to it, where that is worth it; whether it did.
fn absorb(last: &mut Draft, next: &Matmul, writes: &TileSet, unions: &mut Unions) -> bool {
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
    let union = unions.of(&first.positions, &next.positions, shift);
    let most = first.positions.len().max(next.positions.len());
    let mut tiles = Rc::clone(&last.writes);
    if !tiles.includes(writes) {
        Rc::make_mut(&mut tiles).add(writes);
    }
    // Padding is multiplied like any input; and no tile may belong to two groups.
    let all = union.positions.len();
    if 2 * all > 3 * most || tiles.len() != first.groups.len() * all {
        return false;
    }
    let lowest = union.lowest;
    if let Some(numbers) = &union.numbers[0] {
        first.inputs = first.inputs.map(|list| unions.spread(list, numbers));
    }
    let spread = |list: &Rc<[u32]>| match &union.numbers[1] {
        Some(numbers) => unions.spread(list, numbers),
        None => Rc::clone(list),
    };
    first.inputs.append_mapped(&next.inputs, spread);
    first.positions = Rc::clone(&union.positions);
    if lowest != 0 {
        for group in Rc::make_mut(&mut first.groups) {
            // The lowest position of each group is a tile.
            group.dst = (i32::from(group.dst) + lowest) as u16;
        }
    }
    first.weights.extend_from_slice(&next.weights);
    first.read = Some(a.hull(&b));
    last.writes = tiles;
    last.reads = first.reads(&last.writes);
    true
}

/// Whether a tap multiplies the same input for several positions: one of those that came last, since all that came
/// before was looked at when they joined.
fn shares_inputs(product: &Matmul) -> bool {
    let positions = product.positions.len();
    let shared = |tap: &[u32]| tap[0] != PADDING && tap.iter().all(|start| *start == tap[0]);
    let mut last = product.inputs.lists().last().into_iter();
    positions > 1 && last.any(|list| list.chunks_exact(positions).any(shared))
}

/// How far the second product's groups lie behind the first's, if all lie equally far.
fn shift(first: &Matmul, next: &Matmul) -> Option<i32> {
    let pairs = || first.groups.iter().zip(&*next.groups);
    let mut shifts = pairs().map(|(a, b)| i32::from(b.dst) - i32::from(a.dst));
    let shift = shifts.next()?;
    let same = first.groups.len() == next.groups.len() && shifts.all(|s| s == shift);
    same.then_some(shift)
}

/// The number of each position in a list, [`MISSING`] where the list lacks it; none if the list is the same.
type Numbers = Option<Same<u16>>;

const MISSING: u16 = u16::MAX;

/// All positions of two products, ascending.
struct Union {
    /// The lowest, counted from the first product's groups.
    lowest: i32,
    /// Counted from the lowest.
    positions: Rc<[u16]>,
    /// Where they are in each product.
    numbers: [Numbers; 2],
}

/// Unions of lists of positions, of which there are few: each is made once.
#[derive(Default)]
struct Unions {
    unions: FxHashMap<(Same<u16>, Same<u16>, i32), Rc<Union>>,
    /// Inputs over more positions, by the numbers of these.
    spreads: FxHashMap<(Same<u32>, Same<u16>), Same<u32>>,
    /// Positions, and inputs.
    lists: (Lists<u16>, Lists<u32>),
    /// Entries of all lists that are kept.
    kept: usize,
}

/// Entries that are kept at most.
const MOST_KEPT: usize = 1 << 20;

impl Unions {
    /// Of two lists, of which the second lies so far behind the first.
    fn of(&mut self, first: &Rc<[u16]>, next: &Rc<[u16]>, shift: i32) -> Rc<Union> {
        self.make_room();
        let key = (Same(Rc::clone(first)), Same(Rc::clone(next)), shift);
        let union = self.unions.entry(key).or_insert_with(|| {
            let union = Union::of(first, next, shift, &mut self.lists.0);
            self.kept += 2 * union.positions.len();
            Rc::new(union)
        });
        Rc::clone(union)
    }

    /// Inputs over more positions.
    fn spread(&mut self, list: &Rc<[u32]>, numbers: &Same<u16>) -> Rc<[u32]> {
        self.make_room();
        let key = (Same(Rc::clone(list)), numbers.clone());
        let spread = self.spreads.entry(key).or_insert_with(|| {
            let list = self.lists.1.one(&spread(list, &numbers.0));
            self.kept += list.len();
            Same(list)
        });
        Rc::clone(&spread.0)
    }

    fn make_room(&mut self) {
        if self.kept > MOST_KEPT {
            *self = Self::default();
        }
    }
}

impl Union {
    fn of(first: &[u16], next: &[u16], shift: i32, lists: &mut Lists<u16>) -> Self {
        let ascending = |positions: &[u16], by: i32| {
            let moved = positions.iter().map(|p| i32::from(*p) + by);
            let mut places: Vec<(i32, u16)> = moved.zip(0..).collect();
            if !positions.is_sorted() {
                places.sort_unstable();
            }
            places
        };
        let (a, b) = (ascending(first, 0), ascending(next, shift));
        let most = a.len() + b.len();
        let (mut places, mut numbers) = (
            Vec::with_capacity(most),
            [(); 2].map(|()| Vec::with_capacity(most)),
        );
        let mut at = [0, 0];
        while at != [a.len(), b.len()] {
            let next = [a.get(at[0]), b.get(at[1])].map(|p| p.copied().unwrap_or((i32::MAX, 0)));
            let place = next[0].0.min(next[1].0);
            for (of, (own, number)) in next.into_iter().enumerate() {
                numbers[of].push(if own == place { number } else { MISSING });
                at[of] += usize::from(own == place);
            }
            places.push(place);
        }
        let numbers = numbers.map(|numbers| {
            let same = numbers.iter().copied().eq(0..numbers.len() as u16);
            (!same).then(|| Same(lists.one(&numbers)))
        });
        let lowest = places.first().copied().unwrap_or(0);
        let positions = places.iter().map(|place| (place - lowest) as u16);
        Self {
            lowest,
            positions: lists.one(&positions.collect::<Vec<_>>()),
            numbers,
        }
    }
}

fn spread(inputs: &[u32], numbers: &[u16]) -> Vec<u32> {
    // Each has a number in one place.
    let positions = numbers.iter().filter(|&&at| at != MISSING).count();
    let mut all = Vec::with_capacity(inputs.len() / positions * numbers.len());
    for tap in inputs.chunks(positions) {
        let input = |&at: &u16| tap.get(usize::from(at)).copied().unwrap_or(PADDING);
        all.extend(numbers.iter().map(input));
    }
    all
}

#[cfg(test)]
mod tests;
