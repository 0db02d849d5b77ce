//! Output tiles of a convolution, the chunks of their reduction, and rectangles in memory.

use std::ops::Range;

use vta_isa::{Load, MemType};

use super::super::tile::{ConvShape, ConvTile, LoopOrder};

/// One output tile, in positions of the convolution (before pooling).
pub(super) struct Work {
    pub co: Range<usize>,
    pub rows: Range<usize>,
    pub cols: Range<usize>,
    pub chunks: Vec<Chunk>,
}

impl Work {
    /// Output positions.
    pub fn area(&self) -> usize {
        self.rows.len() * self.cols.len()
    }
}

/// One chunk of a tile's reduction.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub ci: Range<usize>,
    pub kernel_rows: Range<usize>,
    pub rows: Span,
    pub cols: Span,
}

/// A stretch of input rows or columns with what lies outside the input on both sides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub first: usize,
    pub len: usize,
    pub before: usize,
    pub after: usize,
}

impl Span {
    /// `len` positions from `start - pad` of an axis with `size`; `None` if all are outside.
    fn new(start: usize, pad: usize, len: usize, size: usize) -> Option<Self> {
        let before = pad.saturating_sub(start).min(len);
        let first = start.saturating_sub(pad);
        let inside = size.saturating_sub(first).min(len - before);
        let after = len - before - inside;
        (inside > 0).then_some(Self {
            first,
            len: inside,
            before,
            after,
        })
    }

    /// With what lies outside.
    pub fn total(&self) -> usize {
        self.before + self.len + self.after
    }

    /// The part inside.
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.len
    }
}

fn pieces(total: usize, size: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..total)
        .step_by(size.max(1))
        .map(move |first| first..(first + size).min(total))
}

/// Output tiles in execution order, with the chunks that see any input at all.
pub(super) fn works(shape: &ConvShape, tile: &ConvTile) -> Vec<Work> {
    let [oh, ow] = shape.output;
    let groups = || pieces(shape.co, tile.co);
    let positions = || {
        pieces(oh, tile.output[0])
            .flat_map(move |r| pieces(ow, tile.output[1]).map(move |c| (r.clone(), c)))
    };
    let work = |co: Range<usize>, rows: Range<usize>, cols: Range<usize>| Work {
        chunks: chunks(shape, tile, [&co, &rows, &cols]),
        co,
        rows,
        cols,
    };
    match tile.order {
        LoopOrder::ChannelsOutside => groups()
            .flat_map(|co| positions().map(move |(r, c)| work(co.clone(), r, c)))
            .collect(),
        LoopOrder::PositionsOutside => positions()
            .flat_map(|(r, c)| groups().map(move |co| work(co, r.clone(), c.clone())))
            .collect(),
    }
}

fn chunks(shape: &ConvShape, tile: &ConvTile, [co, rows, cols]: [&Range<usize>; 3]) -> Vec<Chunk> {
    let width = shape.extent(1, cols.len(), shape.kernel[1]);
    let start = cols.start * shape.stride[1];
    let Some(cols) = Span::new(start, shape.pads[1], width, shape.input[1]) else {
        return Vec::new();
    };
    let mut chunks = Vec::new();
    // Blocks that no group of the tile touches add nothing.
    let read = |ci: &Range<usize>| {
        let mut pairs = co.clone().flat_map(|co| ci.clone().map(move |ci| (co, ci)));
        pairs.any(|(co, ci)| shape.reads(co, ci))
    };
    for ci in pieces(shape.ci, tile.ci).filter(read) {
        for kernel_rows in pieces(shape.kernel[0], tile.kernel_rows) {
            let height = shape.extent(0, rows.len(), kernel_rows.len());
            let start = rows.start * shape.stride[0] + kernel_rows.start * shape.dilation[0];
            // Rows of zeros add nothing.
            if let Some(rows) = Span::new(start, shape.pads[0], height, shape.input[0]) {
                chunks.push(Chunk {
                    ci: ci.clone(),
                    kernel_rows,
                    rows,
                    cols,
                });
            }
        }
    }
    chunks
}

/// One LOAD or STORE: `y` rows of `x` tiles, `stride` apart in DRAM, from `dram`; in the
/// scratchpad they follow each other from `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub offset: usize,
    pub dram: usize,
    pub y: usize,
    pub x: usize,
    pub stride: usize,
}

impl Transfer {
    /// A LOAD of it without padding, to the scratchpad from `sram` on.
    pub fn load(&self, mem: MemType, sram: usize) -> Load {
        Load {
            mem,
            sram_base: (sram + self.offset) as u16,
            dram_base: self.dram as u32,
            y_size: self.y as u16,
            x_size: self.x as u16,
            x_stride: self.stride as u16,
            ..Load::default()
        }
    }
}

/// Tiles `from..from + count` of constants that lie in the scratchpad as in DRAM.
pub(super) const fn run(from: usize, count: usize) -> Transfer {
    Transfer {
        offset: from,
        dram: from,
        y: 1,
        x: count,
        stride: count,
    }
}

/// The fewest transfers for a box of tiles out of `[blocks][h][w]`, blocks `pitch` apart in the
/// scratchpad: one where rows are whole, since they follow each other in DRAM; else one a block.
pub(super) fn transfers(
    blocks: &Range<usize>,
    rows: &Range<usize>,
    cols: &Range<usize>,
    [h, w]: [usize; 2],
    pitch: usize,
) -> Vec<Transfer> {
    let (whole, area) = (cols.len() == w, rows.len() * cols.len());
    let dram = |block: usize| (block * h + rows.start) * w + cols.start;
    if whole && pitch == area && h * w <= 65_535 {
        return vec![Transfer {
            offset: 0,
            dram: dram(blocks.start),
            y: blocks.len(),
            x: area,
            stride: h * w,
        }];
    }
    let one = |(i, block): (usize, usize)| {
        let (y, x, stride) = if whole {
            (1, area, area)
        } else {
            (rows.len(), cols.len(), w)
        };
        let (offset, dram) = (i * pitch, dram(block));
        Transfer {
            offset,
            dram,
            y,
            x,
            stride,
        }
    };
    blocks.clone().enumerate().map(one).collect()
}
