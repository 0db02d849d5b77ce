//! What a device is to the planner: its units, its scratchpads, and how work is cut for it.

use std::sync::Arc;

use vta_isa::{Config, MemType};

use crate::plan::versions::Scratchpad;
use crate::scopes::Scopes;

/// What a unit is, which follows from how the kernels were built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Lanes of a unit.
    pub lanes: u32,
    /// Accumulator rows that a unit of a GEMM sums at once.
    pub rows: u32,
    /// Outputs that are summed at once where products are listed.
    pub product_rows: u32,
    /// Units of these, of each component.
    pub product_units: u32,
    /// Parts that the products of an output may be cut into, at most.
    pub product_parts: u32,
    /// Elements of a weight tile that a unit loads.
    pub wgt_elems: u32,
    /// Work-items of a work-group.
    pub group: u32,
}

#[cfg(test)]
impl Shape {
    /// Vectors of 16 lanes, as on a CPU.
    pub const VECTORS: Self = Self {
        lanes: 16,
        rows: 8,
        product_rows: 8,
        product_units: 1,
        product_parts: 1,
        wgt_elems: 256,
        group: 1,
    };
}

/// Tiles of the device's scratchpads beyond those of the program, in [`Scratchpad`]'s order. One more
/// input tile, behind these, is always zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room(pub [u32; 3]);

impl Room {
    /// Tiles of a scratchpad of the device.
    pub fn tiles(self, config: &Config, scratchpad: Scratchpad) -> usize {
        let zeros = usize::from(scratchpad == Scratchpad::Inp);
        depth(config, scratchpad) as usize + self.0[scratchpad as usize] as usize + zeros
    }

    /// The input tile that is always zero.
    pub fn zeros(self, config: &Config) -> u32 {
        depth(config, Scratchpad::Inp) + self.0[Scratchpad::Inp as usize]
    }
}

/// Tiles of a scratchpad of the program.
pub(crate) fn depth(config: &Config, scratchpad: Scratchpad) -> u32 {
    let mem = match scratchpad {
        Scratchpad::Inp => MemType::Inp,
        Scratchpad::Wgt => MemType::Wgt,
        Scratchpad::Acc => MemType::Acc,
    };
    config.depth(mem) as u32
}

/// How work is cut for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Work-items that the device runs at once.
    pub items: u32,
    /// The cost of a block, at least.
    pub block_cost: u64,
    /// Blocks of an operation, at most.
    pub max_blocks: u32,
    /// A level that costs less is not shared.
    pub small_cost: u64,
    /// The blocks of a level, long ones first, are dealt to so many stripes that follow each
    /// other. A runtime that hands a thread half of a launch at once then gives it a fair half.
    pub stripes: usize,
}

/// What operations are made for: kernels, scratchpads and memory of a device.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub config: Arc<Config>,
    pub shape: Shape,
    pub room: Room,
    pub cut: Cut,
    pub scopes: Scopes,
    /// Bytes of a tile of each scratchpad.
    pub tile_bytes: [u64; 3],
    /// Base and bytes of the device's memory buffer.
    pub dram: (u64, u64),
}

impl Target {
    /// Lanes of an input or accumulator tile.
    pub fn lanes(&self) -> u32 {
        self.config.lanes() as u32
    }
}
