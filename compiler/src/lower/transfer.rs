//! LOADs and STOREs: rectangles of tiles between memory and a scratchpad.

use std::ops::Range;

use vta_program::BufferId;

/// Where a tensor or a constant begins in memory: a buffer, and tiles of it in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub buffer: BufferId,
    pub tiles: usize,
}

impl From<BufferId> for Base {
    fn from(buffer: BufferId) -> Self {
        Self { buffer, tiles: 0 }
    }
}

/// One LOAD or STORE, without padding: rows of tiles that follow each other in the scratchpad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub base: Base,
    /// The first tile in the scratchpad.
    pub sram: usize,
    /// The first tile in memory, from the base on.
    pub dram: usize,
    /// Rows and columns.
    pub size: [usize; 2],
    /// Tiles between rows in memory.
    pub stride: usize,
    /// Tiles between columns in memory; 1 for what is stored.
    pub step: usize,
}

impl Transfer {
    /// Tiles that follow each other in memory, too.
    pub fn run(base: impl Into<Base>, [sram, dram]: [usize; 2], count: usize) -> Self {
        Self {
            base: base.into(),
            sram,
            dram,
            size: [1, count],
            stride: count,
            step: 1,
        }
    }

    /// How many tiles it moves.
    pub const fn count(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// The same tiles of memory, elsewhere in the scratchpad.
    pub const fn at(self, sram: usize) -> Self {
        Self { sram, ..self }
    }
}

/// The fewest transfers for a box of tiles out of `[blocks][h][w]`. In the scratchpad they begin at `sram`, blocks
/// `pitch` apart. One where rows are whole, since they follow each other in memory; else one a block.
pub(super) fn transfers(
    base: Base,
    [blocks, rows, cols]: [&Range<usize>; 3],
    [h, w]: [usize; 2],
    [sram, pitch]: [usize; 2],
) -> Vec<Transfer> {
    let (whole, area) = (cols.len() == w, rows.len() * cols.len());
    let dram = |block: usize| (block * h + rows.start) * w + cols.start;
    if whole && pitch == area && h * w <= 65_535 {
        return vec![Transfer {
            base,
            sram,
            dram: dram(blocks.start),
            size: [blocks.len(), area],
            stride: h * w,
            step: 1,
        }];
    }
    let one = |(i, block): (usize, usize)| {
        let sram = sram + i * pitch;
        if whole {
            return Transfer::run(base, [sram, dram(block)], area);
        }
        Transfer {
            base,
            sram,
            dram: dram(block),
            size: [rows.len(), cols.len()],
            stride: w,
            step: 1,
        }
    };
    blocks.clone().enumerate().map(one).collect()
}
