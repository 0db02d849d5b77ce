//! What the first pass makes of instructions: steps, whose tiles are the scratchpads' own.

use std::ops::Range;

use vta_isa::resolve::{LoadAccess, StoreAccess};
use vta_isa::{Alu, MemType, Uop};

use crate::plan::ops::{Op, narrow};
use crate::plan::products::Product;
use crate::plan::versions::Scratchpad;

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
pub(crate) fn loaded(access: &LoadAccess) -> (Scratchpad, Range<u32>) {
    let scratchpad = match access.load.mem {
        MemType::Inp => Scratchpad::Inp,
        MemType::Wgt => Scratchpad::Wgt,
        // LOAD OUT doesn't decode, and micro-ops stay on the host.
        MemType::Acc | MemType::Acc8 | MemType::Out | MemType::Uop => Scratchpad::Acc,
    };
    (scratchpad, narrow(&access.entries))
}
