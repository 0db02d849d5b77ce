use std::collections::BTreeMap;

use proptest::prelude::*;
use vta_driver::Span;

use super::*;
use crate::functional::plan::draft::{GroupDraft, Weight};
use crate::functional::plan::origin::Origin;

fn product(dst: &[u16], positions: &[u16], inputs: &[u32], tap: u16) -> Draft {
    let group = |&dst: &u16| GroupDraft { shift: 0, dst };
    let weights = vec![Weight::Held(tap); inputs.len() / positions.len() * dst.len()];
    let read = Some(Span {
        region: 1,
        start: 0,
        len: 1000,
    });
    let groups: Vec<_> = dst.iter().map(group).collect();
    let matmul = Matmul::new(groups, weights, positions, inputs.to_vec(), read);
    let tiles: TileSet = matmul
        .groups
        .iter()
        .flat_map(|g| matmul.tiles_of(g))
        .collect();
    Draft::product(matmul, Rc::new(tiles), Origin::default())
}

fn joined(mut first: Draft, next: Draft) -> Option<Box<Matmul>> {
    let (Kind::Matmul(matmul), tiles) = (next.kind, next.writes) else {
        return None;
    };
    let done = absorb(&mut first, &matmul, &tiles, &mut Unions::default());
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
    assert_eq!(found.positions[..], [0, 1, 2]);
    assert!(found.inputs.iter().eq([PADDING, 10, 20, 10, 20, 30]));
    let dst: Vec<u16> = found.groups.iter().map(|g| g.dst).collect();
    assert_eq!(dst, [100, 200]);
    let taps = [Weight::Held(0), Weight::Held(1)];
    assert!((0..2).all(|group| found.weights_of(group) == taps));
}

#[test]
fn one_output_or_padding_alone_is_no_bias() {
    let one = |input, tap| product(&[100], &[0], &[input], tap);
    let found = joined(one(10, 0), one(20, 1)).unwrap();
    assert!(found.inputs.iter().eq([10, 20]));
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

fn positions() -> impl Strategy<Value = Vec<u16>> {
    let some = prop::collection::btree_set(0u16..20, 1..8).prop_map(|p| p.into_iter().collect());
    let some = some.prop_shuffle();
    prop_oneof![some, (1u16..8).prop_map(|n| (0..n).collect())]
}

/// A product whose inputs are the bytes from `first` on.
fn counted(positions: &[u16], taps: usize, first: u32) -> (Vec<u16>, Vec<u32>) {
    let inputs = first..first + (taps * positions.len()) as u32;
    (positions.to_vec(), inputs.collect())
}

/// The inputs of each accumulator tile.
fn by_tile(matmul: &Matmul) -> BTreeMap<u16, Vec<u32>> {
    let inputs: Vec<u32> = matmul.inputs.iter().collect();
    let tiles = matmul
        .groups
        .iter()
        .flat_map(|group| matmul.tiles_of(group));
    let tap = |at| inputs.iter().skip(at).step_by(matmul.positions.len());
    let inside = |at| tap(at).copied().filter(|start| *start != PADDING);
    tiles
        .enumerate()
        .map(|(at, tile)| (tile, inside(at).collect()))
        .collect()
}

proptest! {
    #[test]
    fn joined_products_read_what_each_has_read(
        shapes in prop::collection::vec((positions(), 1usize..3), 2..4),
        chain in prop::collection::vec((0usize..4, 0u16..3), 2..9),
    ) {
        // One table for all, as in a batch: what was made for one product must not be another's.
        let mut unions = Unions::default();
        let shapes: Vec<Rc<[u16]>> = shapes.iter().map(|(p, _)| p.as_slice().into()).collect();
        let mut last: Option<Draft> = None;
        let mut expected: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
        for (at, (shape, dst)) in chain.into_iter().enumerate() {
            let shape = &shapes[shape % shapes.len()];
            let (positions, inputs) = counted(shape, 1 + at % 2, 1000 * (at as u32 + 1));
            let mut next = product(&[100 + dst], &positions, &inputs, at as u16);
            let Kind::Matmul(matmul) = &mut next.kind else { unreachable!() };
            matmul.positions = Rc::clone(shape);
            let own = by_tile(matmul);
            let joined = match (&mut last, &next.kind) {
                (Some(last), Kind::Matmul(matmul)) => absorb(last, matmul, &next.writes, &mut unions),
                _ => false,
            };
            if !joined {
                (last, expected) = (Some(next), BTreeMap::new());
            }
            for (tile, inputs) in own {
                expected.entry(tile).or_default().extend(inputs);
            }
            let Some(Draft { kind: Kind::Matmul(matmul), writes, .. }) = &last else { unreachable!() };
            prop_assert_eq!(by_tile(matmul), expected.clone());
            let tiles: TileSet = expected.keys().copied().collect();
            prop_assert_eq!(&**writes, &tiles);
            prop_assert_eq!(matmul.inputs.len(), matmul.weights.len() * matmul.positions.len());
        }
    }
}
