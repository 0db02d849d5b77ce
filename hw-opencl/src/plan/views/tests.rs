use super::*;
use crate::plan::ops::Kind;

fn op(touches: Touches) -> Op {
    Op {
        kind: Kind::Chain,
        units: 1,
        args: vec![],
        touches,
        cost: 1,
    }
}

#[test]
fn only_scratchpads_with_a_view_take_sides() {
    let tiles = Touches::default;
    let load = op(tiles().writing(Scratchpad::Inp, 0..1));
    let weights = op(tiles().writing(Scratchpad::Wgt, 0..1));
    let product = op(tiles()
        .reading(Scratchpad::Inp, 0..1)
        .reading(Scratchpad::Wgt, 0..1)
        .reading(Scratchpad::Acc, 0..1)
        .writing(Scratchpad::Acc, 0..1));
    let chain = op(tiles()
        .reading(Scratchpad::Acc, 0..1)
        .writing(Scratchpad::Acc, 0..1));
    let sides = |text: &str| {
        let scopes = text.parse().unwrap();
        [&load, &weights, &product, &chain].map(|op| Side::of(op, scopes))
    };
    use Side::{Either, Fills, Reads};
    assert_eq!(sides("weights=buffer"), [Either; 4]);
    for scope in ["constant", "image", "image2d"] {
        let of = |what: &str| sides(&format!("{what}={scope}"));
        assert_eq!(of("weights"), [Either, Fills, Reads, Either]);
        assert_eq!(of("activations"), [Fills, Either, Reads, Either]);
    }
}

#[test]
fn a_level_is_split_only_when_it_must_be() {
    use Side::{Either, Fills, Reads};
    let of = [Reads, Fills, Either, Fills];
    let apart = |ops: &[u32]| Side::apart(ops, |op| of[op as usize]);
    assert_eq!(
        apart(&[0, 1, 2, 3]),
        [(Fills, vec![1, 3]), (Reads, vec![0, 2])]
    );
    assert_eq!(apart(&[1, 2, 3]), [(Fills, vec![1, 2, 3])]);
    assert_eq!(apart(&[0, 2]), [(Reads, vec![0, 2])]);
    assert_eq!(apart(&[2]), [(Either, vec![2])]);
}

#[test]
fn rows_are_copied_once_and_only_where_tiles_were_written() {
    let scopes = "weights=image2d".parse().unwrap();
    let copies = |written: &[(Scratchpad, Range<usize>)]| {
        let each = written.iter().flat_map(|(scratchpad, tiles)| {
            let touches = Touches::default().writing(*scratchpad, tiles.clone());
            Refresh::of(&touches, scopes, [16, 256, 64])
        });
        Refresh::merged(each.collect())
    };
    let buffers = [(Scratchpad::Inp, 0..8), (Scratchpad::Acc, 0..8)];
    assert_eq!(copies(&buffers), []);
    // A row has 64 tiles of weights.
    let rows = |rows| Refresh {
        scratchpad: Scratchpad::Wgt,
        rows,
    };
    let written = [63..65, 10..12, 256..320].map(|tiles| (Scratchpad::Wgt, tiles));
    assert_eq!(copies(&written), [rows(0..2), rows(4..5)]);
}
