//! What the first pass makes of instructions: steps, whose tiles are the scratchpads' own.

use std::ops::Range;

use vta_isa::resolve::{LoadAccess, StoreAccess};
use vta_isa::{Alu, MemType, Uop};

use crate::ops::Op;
use crate::products::Product;
use crate::versions::Pad;

/// What an instruction does, with tiles at home.
#[derive(Debug)]
pub(crate) enum Step {
    Load(LoadAccess),
    Store(StoreAccess),
    /// Zeroes runs of tiles.
    Clear(Vec<Range<u32>>),
    /// An instruction that is a chain, with its micro-ops.
    Chain(Alu, Vec<Uop>),
    Product(Product),
    /// Only works at home.
    Op(Box<Op>),
}

/// The scratchpad that a LOAD fills, and the tiles there.
pub(crate) fn loaded(access: &LoadAccess) -> (Pad, Range<u32>) {
    let pad = match access.load.mem {
        MemType::Inp => Pad::Inp,
        MemType::Wgt => Pad::Wgt,
        // LOAD OUT doesn't decode, and micro-ops stay on the host.
        MemType::Acc | MemType::Acc8 | MemType::Out | MemType::Uop => Pad::Acc,
    };
    (pad, narrow(&access.entries))
}

/// Tiles of a scratchpad, whose indices have 16 bits at most.
pub(crate) fn narrow(tiles: &Range<usize>) -> Range<u32> {
    tiles.start as u32..tiles.end as u32
}
