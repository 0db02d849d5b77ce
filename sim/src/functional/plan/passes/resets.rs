//! Resets become the start of the products behind them.
//!
//! Pattern: a GEMM reset; then products that begin on some of its tiles each, nothing else
//! touching these tiles before.
//!
//! Condition: every tile of the product was reset. Products that
//! begin on other tiles as well stay as they are, and the reset with them.
//!
//! Proof: the product is the first to read what the reset wrote, so that adding to zero is starting
//! from zero. Tiles that no product took are reset as before.
//!
//! An ADD between them, of tiles that nothing writes meanwhile, comes behind the products first: sums wrap, so that
//! their order is free. One of some of a product's tiles stays, since it would part the product from its end.

use std::rc::Rc;

use vta_isa::AluOp;

use super::super::draft::{Draft, Kind, StartDraft};
use super::list::{Pass, Slot, WINDOW, next_touching};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, _| {
        (0..list.slots.len()).for_each(|at| put_off(&mut list.slots[at..]));
        list.each(|_, slot, behind| fold_zero(slot, behind));
    },
};

const NAME: &str = "resets";

/// Moves an ADD, if it is the first, behind the products that go on with its sums.
fn put_off(slots: &mut [Slot]) {
    let Some([Some(first), behind @ ..]) = slots.get(..WINDOW.min(slots.len())) else {
        return;
    };
    let Kind::Alu(alu) = &first.kind else { return };
    if alu.op != AluOp::Add || alu.steps.sources.meets(&first.writes) {
        return;
    }
    let adds = |draft: &Draft| match &draft.kind {
        Kind::Matmul(m) => m.goes_on() && m.after.is_empty() && m.stored.is_none(),
        Kind::Scaled(_) => true,
        Kind::Mark(_)
        | Kind::Load(_)
        | Kind::Store(_)
        | Kind::Zero
        | Kind::Alu(_)
        | Kind::Map(_) => false,
    };
    let mut last = 0;
    for (at, draft) in behind.iter().enumerate() {
        let Some(draft) = draft else { continue };
        let touches = draft.touches(&first.writes);
        let of_it = || adds(draft) && first.writes.includes(&draft.writes);
        if draft.writes.meets(&alu.steps.sources) || touches && !of_it() {
            break;
        }
        if touches {
            last = at + 1;
        }
    }
    slots[..=last].rotate_left(1);
}

/// A reset right before products that begin on all of its tiles, each on some.
fn fold_zero(slot: &mut Slot, mut behind: &mut [Slot]) {
    let Some(zero) = slot.as_mut().filter(|d| matches!(d.kind, Kind::Zero)) else {
        return;
    };
    while !zero.writes.is_empty()
        && let Some(next) = next_touching(behind, &zero.writes)
    {
        let rest = behind.split_at_mut(next).1;
        let Some((Some(draft), later)) = rest.split_first_mut() else {
            return;
        };
        let Kind::Matmul(matmul) = &mut draft.kind else {
            return;
        };
        if !zero.writes.includes(&draft.writes) {
            return;
        }
        debug_assert!(matmul.goes_on(), "its start is read first");
        matmul.start = StartDraft::Zero;
        draft.reads = matmul.reads(&draft.writes);
        draft.origin.take(zero.origin.clone(), NAME);
        Rc::make_mut(&mut zero.writes).remove(&draft.writes);
        behind = later;
    }
    if zero.writes.is_empty() {
        *slot = None;
    }
}
