//! Inputs that nobody reads from the scratchpad aren't loaded.
//!
//! Pattern: a LOAD INP whose tiles are loaded again before a product reads them there.
//!
//! Condition: no product reads any of its tiles from the scratchpad; most read the bytes where they
//! lie in DRAM. The end of the batch counts as a reader of all tiles.
//!
//! Proof: the list is followed backwards with the set of input tiles that will be read.

use vta_isa::MemType;

use super::super::draft::{Draft, Kind};
use super::super::tiles::Tiles;
use super::list::Pass;

pub(super) const PASS: Pass = Pass {
    name: "unread",
    run: |mut list, context| {
        drop_unread(&mut list.drafts, context.lanes());
        list
    },
};

/// Drops loads of inputs that nothing reads from the scratchpad, neither in this batch nor after.
fn drop_unread(drafts: &mut Vec<Option<Draft>>, lanes: usize) {
    let mut live = Tiles::ALL;
    for place in drafts.iter_mut().rev() {
        let Some(draft) = place else { continue };
        match &draft.kind {
            Kind::Load(op) if op.mem == MemType::Inp => {
                let [cols, rows] = op.size;
                let [left, right, above, below] = op.padding;
                let tiles = (left + cols + right) * (above + rows + below);
                let tiles = Tiles::range(op.first, tiles);
                let read = tiles.meets(&live);
                live.remove(&tiles);
                if !read {
                    *place = None;
                }
            }
            Kind::Matmul(matmul) if matmul.read.is_none() => {
                for &byte in &matmul.inputs {
                    live.insert(byte as usize / lanes);
                }
            }
            Kind::Mark(_)
            | Kind::Load(_)
            | Kind::Store(_)
            | Kind::Zero
            | Kind::Alu(_)
            | Kind::Scaled(_)
            | Kind::Matmul(_) => {}
        }
    }
    drafts.retain(Option::is_some);
}
