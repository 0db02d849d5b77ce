//! Taps of depthwise convolutions are products, and so is what no product took.
//!
//! Pattern: a product of one tap through diagonal weights, which might be a residual, and the operation on its tiles
//! right before or behind is one through diagonal weights, too, whose inputs are others; at the end, any that is still
//! there.
//!
//! Condition: none.
//!
//! Proof: it was kept as the products that its instruction is, too.

use super::super::draft::{Draft, Kind};
use super::super::elementwise::TileReader;
use super::list::{List, Pass, Slot, next_touching};

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
        if taps.contains(&true) {
            list.slots = separate(list, |at| taps[at]);
        }
    },
};

/// Once all fusions are done.
pub(super) const REST: Pass = Pass {
    name: "rest",
    run: |list, _| {
        list.slots = separate(list, |_| true);
    },
};

fn is_scaled(draft: &Draft) -> bool {
    matches!(draft.kind, Kind::Scaled(_))
}

/// The list with the products that each scaled operation is which a function chooses.
fn separate(list: &mut List<'_>, chosen: impl Fn(usize) -> bool) -> Vec<Slot> {
    let drafts = std::mem::take(&mut list.slots).into_iter().enumerate();
    let mut slots = Vec::with_capacity(drafts.len());
    for (at, draft) in drafts.filter_map(|(at, slot)| Some((at, slot?))) {
        match draft.kind {
            Kind::Scaled(scaled) if chosen(at) => {
                let parts = scaled.plain.into_iter();
                slots.extend(parts.map(|(matmul, tiles)| {
                    Some(Draft::product(matmul, tiles, draft.origin.clone()))
                }));
            }
            _ => slots.push(Some(draft)),
        }
    }
    slots
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
    a.same_inputs(b)
}
