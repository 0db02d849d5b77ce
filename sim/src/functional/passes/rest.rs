//! What no product took stands for itself.
//!
//! Pattern: a residual through diagonal weights that is still there.
//!
//! Condition: none.
//!
//! Proof: it was kept as the products that its instruction is, too.

use super::super::draft::{Draft, Kind, Matmul};
use super::super::tiles::Tiles;
use super::list::Pass;

pub(super) const PASS: Pass = Pass {
    name: "rest",
    run: |mut list, _| {
        let drafts = std::mem::take(&mut list.drafts);
        list.with(drafts.into_iter().flatten().flat_map(plain))
    },
};

/// What no product took is a product of its own.
fn plain(draft: Draft) -> Vec<Draft> {
    let Kind::Scaled(scaled) = draft.kind else {
        return vec![draft];
    };
    let parts = scaled.plain.into_iter();
    let origin = draft.origin;
    let product = |(matmul, tiles): (Matmul, Tiles)| Draft {
        kind: Kind::Matmul(Box::new(matmul)),
        origin: origin.clone(),
        reads: tiles.clone(),
        writes: tiles,
    };
    parts.map(product).collect()
}
