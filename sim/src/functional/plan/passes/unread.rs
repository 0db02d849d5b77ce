//! What nobody reads in a scratchpad isn't written there.
//!
//! Pattern: an operation whose accumulator tiles are overwritten before anything reads them, as those of a LOAD whose
//! vectors became constants of products; a LOAD INP whose tiles are loaded again before a product reads them there.
//!
//! Condition: none of the tiles is read later in the scratchpad, the end of the batch counting as a reader of all. Most
//! products read inputs where they lie in DRAM.
//!
//! Proof: the list is followed backwards with the set of tiles that will be read. Every kind of
//! operation overwrites the tiles that it writes whole.

use vta_isa::MemType;
use vta_isa::resolve::TileSet;

use super::super::draft::Kind;
use super::list::Pass;

pub(super) const SUMS: Pass = Pass {
    name: "sums",
    run: |list, _| {
        let mut live = TileSet::ALL;
        for slot in list.slots.iter_mut().rev() {
            let Some(draft) = slot else { continue };
            let is_read = draft.writes.meets(&live);
            if let Kind::Matmul(matmul) = &mut draft.kind {
                matmul.write_acc = is_read;
            }
            if is_read || draft.writes.is_empty() || draft.dram_write().is_some() {
                draft.read_before(&mut live);
            } else {
                *slot = None;
            }
        }
    },
};

pub(super) const INPUTS: Pass = Pass {
    name: "unread",
    run: |list, context| {
        let lanes = context.config.lanes();
        let mut live = TileSet::ALL;
        for slot in list.slots.iter_mut().rev() {
            match slot.as_ref().map(|draft| &draft.kind) {
                Some(Kind::Load(op)) if op.mem == MemType::Inp => {
                    let tiles = TileSet::range(op.entries.clone());
                    let read = tiles.meets(&live);
                    live.remove(&tiles);
                    if !read {
                        *slot = None;
                    }
                }
                Some(Kind::Matmul(matmul)) if matmul.read.is_none() => {
                    let groups = matmul.groups.iter();
                    let inputs = groups.flat_map(|group| group.inputs(&matmul.inputs));
                    live.extend(inputs.map(|byte| byte as usize / lanes));
                }
                _ => {}
            }
        }
    },
};
