//! Sums that nobody reads aren't written.
//!
//! Pattern: a product whose tiles are overwritten before anything reads them.
//!
//! Condition: none of its tiles is read later, the end of the batch counting as a reader of all.
//!
//! Proof: the list is followed backwards with the set of tiles that will be read. Every kind of
//! operation overwrites the tiles that it writes whole.

use vta_isa::resolve::TileSet;

use super::super::draft::Kind;
use super::list::Pass;

pub(super) const PASS: Pass = Pass {
    name: "sums",
    run: |list, _| {
        let mut live = TileSet::ALL;
        for draft in list.slots.iter_mut().flatten().rev() {
            if let Kind::Matmul(matmul) = &mut draft.kind {
                matmul.write_acc = draft.writes.meets(&live);
            }
            // What it also reads is added back.
            live.remove(&draft.writes);
            live.add(&draft.reads);
        }
    },
};
