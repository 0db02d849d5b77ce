//! Products of one chunk over tap rectangles become one.
//!
//! Pattern: a product right behind another: a compiler that leaves out taps on padding makes an
//! instruction for each rectangle of outputs whose taps lie inside the input.
//!
//! Condition: as many groups, all moved by equally much, whose tiles don't meet over the positions of
//! both; inputs in one region. No tap multiplies one input for several positions, since alone such a
//! bias can be seen to be constant, and padding doesn't outweigh the rest.
//!
//! Proof: over the positions of both, a tap that a position lacks multiplies padding, which adds
//! nothing. Nothing stands between the two.

use vta_isa::resolve::{Interval, TileSet};

use super::super::draft::{Draft, Kind, Matmul};
use super::list::{Pass, join};
use crate::kernels::PADDING;

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |mut list, _| {
        let mut last: Option<usize> = None;
        for at in 0..list.places.len() {
            let (before, rest) = list.places.split_at_mut(at);
            let Some(draft) = &rest[0] else { continue };
            if let Some(last) = last.and_then(|last| before[last].as_mut())
                && let Kind::Matmul(next) = &draft.kind
                && absorb(last, next, &draft.writes)
            {
                join(&mut rest[0], &mut last.origin, NAME);
            } else {
                last = Some(at);
            }
        }
        list.places.retain(Option::is_some);
        list
    },
};

const NAME: &str = "taps";

/// Adds a product right behind another to it, where that is worth it; whether it did.
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
    let mut places: Vec<Position> = Vec::with_capacity(first.len() + next.len());
    let (a, b) = ((0..).zip(first), (0..).zip(next));
    places.extend(a.map(|(i, &p)| (i32::from(p), Some(i), None)));
    places.extend(b.map(|(i, &p)| (i32::from(p) + shift, None, Some(i))));
    // Both are ascending, mostly: a stable sort finds that out.
    places.sort_by_key(|p| p.0);
    places.dedup_by(|b, a| {
        let same = a.0 == b.0;
        if same {
            a.1 = a.1.or(b.1);
            a.2 = a.2.or(b.2);
        }
        same
    });
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
mod tests {
    use vta_driver::Span;

    use super::super::super::draft::{GroupDraft, Weight};
    use super::super::super::origin::Origin;
    use super::*;

    fn product(dst: &[u16], positions: &[u16], inputs: &[u32], tap: u16) -> Draft {
        let group = |&dst: &u16| GroupDraft {
            dst,
            weights: vec![Weight::Held(tap); inputs.len() / positions.len()],
        };
        let read = Some(Span {
            region: 1,
            start: 0,
            len: 1000,
        });
        let groups = dst.iter().map(group).collect();
        let matmul = Matmul::new(groups, positions.to_vec(), inputs.to_vec(), read);
        let tiles = matmul
            .groups
            .iter()
            .flat_map(|g| matmul.tiles_of(g))
            .collect();
        Draft::product(matmul, tiles, Origin::default())
    }

    fn joined(mut first: Draft, next: Draft) -> Option<Box<Matmul>> {
        let (Kind::Matmul(matmul), tiles) = (next.kind, next.writes) else {
            return None;
        };
        let done = absorb(&mut first, &matmul, &tiles);
        match first.kind {
            Kind::Matmul(matmul) => done.then_some(matmul),
            _ => None,
        }
    }

    #[test]
    fn a_tap_that_misses_a_position_reads_padding() {
        // Three outputs, the left tap from the second on, the middle one everywhere.
        let left = product(&[101, 201], &[0, 1], &[10, 20], 0);
        let middle = product(&[100, 200], &[0, 1, 2], &[10, 20, 30], 1);
        let found = joined(left, middle).unwrap();
        assert_eq!(found.positions, [0, 1, 2]);
        assert_eq!(found.inputs, [PADDING, 10, 20, 10, 20, 30]);
        let dst: Vec<u16> = found.groups.iter().map(|g| g.dst).collect();
        assert_eq!(dst, [100, 200]);
        let taps = [Weight::Held(0), Weight::Held(1)];
        assert!(found.groups.iter().all(|g| g.weights == taps));
    }

    #[test]
    fn one_output_or_padding_alone_is_no_bias() {
        let one = |input, tap| product(&[100], &[0], &[input], tap);
        assert_eq!(joined(one(10, 0), one(20, 1)).unwrap().inputs, [10, 20]);
        let two = |inputs: &[u32; 4], tap| product(&[100], &[0, 1], inputs, tap);
        let beside = two(&[PADDING, PADDING, 10, 20], 0);
        assert!(joined(beside, two(&[30, 40, 50, 60], 1)).is_some());
        // Which an input of all outputs is.
        let bias = two(&[30, 40, 50, 50], 0);
        assert!(joined(bias, two(&[10, 20, 30, 40], 1)).is_none());
        let bias = two(&[30, 40, 50, 50], 1);
        assert!(joined(two(&[10, 20, 30, 40], 0), bias).is_none());
    }

    #[test]
    fn products_that_hardly_meet_or_read_elsewhere_stay_apart() {
        let one = || product(&[100], &[0, 1], &[10, 20], 0);
        assert!(joined(one(), product(&[102], &[0, 1], &[30, 40], 1)).is_none());
        assert!(joined(one(), product(&[100, 200], &[0, 1], &[30, 40], 1)).is_none());
        let mut other = product(&[100], &[0, 1], &[30, 40], 1);
        if let Kind::Matmul(matmul) = &mut other.kind {
            matmul.read.as_mut().unwrap().region = 2;
        }
        assert!(joined(one(), other).is_none());
        // Groups whose tiles would meet.
        let near = || product(&[100, 102], &[0, 1], &[1, 2], 0);
        assert!(joined(near(), product(&[101, 103], &[0, 1], &[1, 2], 1)).is_none());
        assert!(joined(near(), product(&[100, 102], &[0, 1], &[1, 2], 1)).is_some());
    }
}
