//! Inputs that nobody reads from the scratchpad aren't loaded.
//!
//! Pattern: a LOAD INP whose tiles are loaded again before a product reads them there.
//!
//! Condition: no product reads any of its tiles from the scratchpad; most read the bytes where they
//! lie in DRAM. The end of the batch counts as a reader of all tiles.
//!
//! Proof: the list is followed backwards with the set of input tiles that will be read.

use vta_isa::MemType;
use vta_isa::resolve::TileSet;

use super::super::draft::Kind;
use super::list::{Pass, Slot};

pub(super) const PASS: Pass = Pass {
    name: "unread",
    run: |list, context| drop_unread(&mut list.slots, context.config.lanes()),
};

/// Drops loads of inputs that nothing reads from the scratchpad, neither in this batch nor after.
fn drop_unread(slots: &mut [Slot], lanes: usize) {
    let mut live = TileSet::ALL;
    for slot in slots.iter_mut().rev() {
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
}
