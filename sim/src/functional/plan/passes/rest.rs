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
    run: |mut list, _| {
        let scaled = |draft: &Draft| matches!(draft.kind, Kind::Scaled(_));
        if !list.places.iter().flatten().any(scaled) {
            list.places.retain(Option::is_some);
            return list;
        }
        let drafts = list.take();
        list.with(drafts.flat_map(plain))
    },
};

/// What no product took is a product of its own.
fn plain(draft: Draft) -> Vec<Draft> {
    let Kind::Scaled(scaled) = draft.kind else {
        return vec![draft];
    };
    let parts = scaled.plain.into_iter();
    let product =
        |(matmul, tiles): (Matmul, TileSet)| Draft::product(matmul, tiles, draft.origin.clone());
    parts.map(product).collect()
}
