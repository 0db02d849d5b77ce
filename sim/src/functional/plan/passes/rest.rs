//! What no product took stands for itself.
//!
//! Pattern: a residual through diagonal weights that is still there.
//!
//! Condition: none.
//!
//! Proof: it was kept as the products that its instruction is, too.

use super::super::draft::{Draft, Kind, Matmul};
use super::list::Pass;
use vta_isa::resolve::TileSet;

pub(super) const PASS: Pass = Pass {
    name: "rest",
    run: |list, _| {
        let scaled = |draft: &Draft| matches!(draft.kind, Kind::Scaled(_));
        if !list.slots.iter().flatten().any(scaled) {
            list.slots.retain(Option::is_some);
            return;
        }
        let drafts = std::mem::take(&mut list.slots).into_iter().flatten();
        list.slots = drafts.flat_map(plain).map(Some).collect();
    },
};

/// What no product took is a product of its own.
pub(super) fn plain(draft: Draft) -> Vec<Draft> {
    let Kind::Scaled(scaled) = draft.kind else {
        return vec![draft];
    };
    let parts = scaled.plain.into_iter();
    let product =
        |(matmul, tiles): (Matmul, TileSet)| Draft::product(matmul, tiles, draft.origin.clone());
    parts.map(product).collect()
}
