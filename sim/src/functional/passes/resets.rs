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

use super::super::draft::{Draft, Kind};
use super::super::tiles::Tiles;
use super::list::{Pass, next_touching};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, _| list.each(|d| matches!(d.kind, Kind::Zero), fold_zero),
};

const NAME: &str = "resets";

/// A reset right before products that begin on all of its tiles, each on some.
fn fold_zero(drafts: &mut [Option<Draft>], index: usize) {
    let zero = drafts[index].as_ref();
    let Some((mut tiles, origin)) = zero.map(|d| (d.writes.clone(), d.origin.clone())) else {
        return;
    };
    let mut at = index;
    while let Some(next) = next_touching(drafts, at, &tiles) {
        let Some(draft) = &mut drafts[next] else {
            break;
        };
        let Kind::Matmul(matmul) = &mut draft.kind else {
            break;
        };
        if !tiles.includes(&draft.writes) {
            break;
        }
        debug_assert!(
            !matmul.from_zero && matmul.before.is_none(),
            "its start is read first"
        );
        matmul.from_zero = true;
        draft.origin.take(origin.clone(), NAME);
        draft.reads = Tiles::NONE;
        tiles.remove(&draft.writes);
        at = next;
    }
    if tiles == Tiles::NONE {
        drafts[index] = None;
    } else if let Some(zero) = &mut drafts[index] {
        zero.writes = tiles;
    }
}
