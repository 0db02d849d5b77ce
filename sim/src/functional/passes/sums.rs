//! Sums that nobody reads aren't written.
//!
//! Pattern: a product whose tiles are overwritten before anything reads them.
//!
//! Condition: none of its tiles is read later, the end of the batch counting as a reader of all.
//!
//! Proof: the list is followed backwards with the set of tiles that will be read. Every kind of
//! operation overwrites the tiles that it writes whole.

use super::super::draft::{Draft, Kind};
use super::super::tiles::Tiles;
use super::list::Pass;

pub(super) const PASS: Pass = Pass {
    name: "sums",
    run: |mut list, _| {
        find_dead_writes(&mut list.drafts);
        list
    },
};

/// Finds products whose tiles are overwritten before anybody reads them.
fn find_dead_writes(drafts: &mut [Option<Draft>]) {
    let mut live = Tiles::ALL;
    for draft in drafts.iter_mut().flatten().rev() {
        if let Kind::Matmul(matmul) = &mut draft.kind {
            matmul.write_acc = draft.writes.meets(&live);
        }
        // Every kind overwrites its tiles whole; what it also reads is added back.
        live.remove(&draft.writes);
        live.add(&draft.reads);
    }
}
