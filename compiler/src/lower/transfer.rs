//! LOADs and STOREs: rectangles of tiles between memory and a scratchpad.

use std::ops::Range;

use vta_isa::Load;
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

/// A range in parts of a size; the last one may be smaller.
pub(super) fn parts(all: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let part = move |first: usize| first..(first + size).min(all.end);
    all.step_by(size.max(1)).map(part)
}

/// A rectangle of the positions of a block.
pub(super) struct Area {
    pub block: usize,
    pub rows: Range<usize>,
    pub cols: Range<usize>,
}

impl Area {
    /// All positions of some blocks of rows and columns, in areas of at most `most` rows and columns.
    pub fn all(
        blocks: usize,
        [rows, cols]: [usize; 2],
        most: [usize; 2],
    ) -> impl Iterator<Item = Self> {
        let of_rows = move |block, rows: Range<usize>| {
            parts(0..cols, most[1]).map(move |cols| Self {
                block,
                rows: rows.clone(),
                cols,
            })
        };
        let of_block =
            move |block| parts(0..rows, most[0]).flat_map(move |rows| of_rows(block, rows));
        (0..blocks).flat_map(of_block)
    }

    /// Tiles.
    pub fn count(&self) -> usize {
        self.rows.len() * self.cols.len()
    }
}

/// Tiles of a buffer that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub buffer: BufferId,
    pub tiles: Range<usize>,
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

    /// An area out of `[blocks][h][w]` tiles.
    pub fn area(base: Base, [h, w]: [usize; 2], area: &Area, sram: usize) -> Self {
        Self {
            base,
            sram,
            dram: (area.block * h + area.rows.start) * w + area.cols.start,
            size: [area.rows.len(), area.cols.len()],
            stride: w,
            step: 1,
        }
    }

    /// Its rows in memory.
    pub fn runs(self) -> impl Iterator<Item = Run> {
        let [rows, columns] = self.size;
        (0..rows).map(move |row| {
            let first = self.base.tiles + self.dram + row * self.stride;
            Run {
                buffer: self.base.buffer,
                tiles: first..first + columns.saturating_sub(1) * self.step + 1,
            }
        })
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

/// What an instruction steps by between rows, which fits where [`strides`] lets it. A row alone has no next one.
pub(super) const fn between([rows, columns]: [usize; 2], stride: usize) -> u16 {
    let is_far = rows == 1 && !Load::FIELDS.x_stride.fits(stride);
    (if is_far { columns } else { stride }) as u16
}

/// Whether instructions can step from row to row of a tensor of rows and columns.
///
/// # Errors
/// Columns that are more than the field holds, in words.
pub(super) fn strides([rows, columns]: [usize; 2], what: &str) -> Result<(), String> {
    let field = Load::FIELDS.x_stride;
    if rows == 1 || field.fits(columns) {
        return Ok(());
    }
    let most = field.max();
    Err(format!("{columns} {what}; x_stride holds at most {most}"))
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
    let one = |(i, block): (usize, usize)| {
        let (rows, cols) = (rows.clone(), cols.clone());
        let one = Transfer::area(base, [h, w], &Area { block, rows, cols }, sram + i * pitch);
        if whole {
            return Transfer::run(base, [one.sram, one.dram], area);
        }
        one
    };
    if whole && pitch == area && h * w <= 65_535 {
        return vec![Transfer {
            size: [blocks.len(), area],
            stride: h * w,
            ..one((0, blocks.start))
        }];
    }
    blocks.clone().enumerate().map(one).collect()
}
