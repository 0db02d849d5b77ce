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

use super::super::draft::{Kind, StartDraft};
use super::list::{Pass, Slot, next_touching};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, _| list.each(|_, slot, behind| fold_zero(slot, behind)),
};

const NAME: &str = "resets";

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
        zero.writes.remove(&draft.writes);
        behind = later;
    }
    if zero.writes.is_empty() {
        *slot = None;
    }
}
