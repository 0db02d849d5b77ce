//! Taps of depthwise convolutions are products, and so is what no product took.
//!
//! Pattern: a product of one tap through diagonal weights, which might be a residual, and the operation on its tiles
//! right before or behind is one through diagonal weights, too, whose inputs are others; at the end, any that is still
//! there.
//!
//! Condition: none.
//!
//! Proof: it was kept as the products that its instruction is, too.

use vta_isa::resolve::TileSet;

use super::super::draft::{Draft, Kind, Matmul, Scaled};
use super::super::elementwise::TileReader;
use super::list::{Pass, next_touching};

pub(super) const PASS: Pass = Pass {
    name: "diagonals",
    run: |list, context| {
        if !list.slots.iter().flatten().any(is_scaled) {
            return;
        }
        let tiles = TileReader {
            config: context.config,
            memory: context.memory,
        };
        let slots = &list.slots;
        let mut taps = vec![false; slots.len()];
        for (at, draft) in (0..).zip(slots.iter().flatten()) {
            let behind = &slots[at + 1..];
            if is_diagonal(draft, &tiles)
                && let Some(next) = next_touching(behind, &draft.writes)
                && let Some(other) = &behind[next]
                && is_diagonal(other, &tiles)
                && !are_digits(draft, other)
            {
                (taps[at], taps[at + 1 + next]) = (true, true);
            }
        }
        let drafts = std::mem::take(&mut list.slots).into_iter().flatten();
        let parts = |(draft, is_tap)| if is_tap { plain(draft) } else { vec![draft] };
        list.slots = drafts.zip(taps).flat_map(parts).map(Some).collect();
    },
};

/// Once all fusions are done.
pub(super) const REST: Pass = Pass {
    name: "rest",
    run: |list, _| {
        if !list.slots.iter().flatten().any(is_scaled) {
            list.slots.retain(Option::is_some);
            return;
        }
        let drafts = std::mem::take(&mut list.slots).into_iter().flatten();
        list.slots = drafts.flat_map(plain).map(Some).collect();
    },
};

fn is_scaled(draft: &Draft) -> bool {
    matches!(draft.kind, Kind::Scaled(_))
}

/// The products that it is.
fn plain(draft: Draft) -> Vec<Draft> {
    let Kind::Scaled(scaled) = draft.kind else {
        return vec![draft];
    };
    let parts = scaled.plain.into_iter();
    let product =
        |(matmul, tiles): (Matmul, TileSet)| Draft::product(matmul, tiles, draft.origin.clone());
    parts.map(product).collect()
}

/// Whether it multiplies by diagonal weights.
fn is_diagonal(draft: &Draft, tiles: &TileReader<'_>) -> bool {
    match &draft.kind {
        Kind::Scaled(_) => true,
        Kind::Matmul(matmul) => tiles.is_diagonal(matmul),
        _ => false,
    }
}

/// Whether both scale the same inputs, as the digits of a residual do.
fn are_digits(a: &Draft, b: &Draft) -> bool {
    let (Kind::Scaled(a), Kind::Scaled(b)) = (&a.kind, &b.kind) else {
        return false;
    };
    let start = |scaled: &Scaled, tile: &u16| scaled.terms.get(tile).map(|term| term.0);
    a.terms.keys().all(|tile| start(a, tile) == start(b, tile))
}
