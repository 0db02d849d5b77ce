//! Output tiles of a convolution, the chunks of their reduction, and rectangles in memory.

use std::ops::Range;

use vta_isa::{Load, MemType, Store};

use super::super::tile::{ConvShape, ConvTile, LoopOrder};

/// Which weights: output blocks, input blocks, kernel rows.
pub(super) type Weights = (Range<usize>, Range<usize>, Range<usize>);

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

    /// Which weights a chunk multiplies.
    pub fn weights(&self, chunk: &Chunk) -> Weights {
        (self.co.clone(), chunk.ci.clone(), chunk.kernel_rows.clone())
    }
}

/// One chunk of a tile's reduction.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub ci: Range<usize>,
    pub kernel_rows: Range<usize>,
    pub rows: Strided,
    pub cols: Strided,
}

/// Input rows or columns that a chunk loads, all inside the input: `first`, `first + step` ..
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Strided {
    pub first: usize,
    pub len: usize,
    pub step: usize,
}

impl Strided {
    /// What `out` outputs and `taps` taps of an axis reach; `None` if all of it is padding. One
    /// tap needs one position an output; several need all between.
    fn new(
        shape: &ConvShape,
        axis: usize,
        out: &Range<usize>,
        taps: &Range<usize>,
    ) -> Option<Self> {
        let at = |o: usize, tap: usize| {
            o * shape.window.stride[axis] + tap * shape.window.dilation[axis]
        };
        let pad = shape.window.pads.before()[axis];
        if axis == 0 && taps.len() == 1 {
            let valid = shape.valid(axis, taps.start);
            let inside = out.start.max(valid.start)..out.end.min(valid.end);
            return (!inside.is_empty()).then(|| Self {
                first: at(inside.start, taps.start) - pad,
                len: inside.len(),
                step: shape.window.stride[axis],
            });
        }
        let first = at(out.start, taps.start).saturating_sub(pad);
        let end = (at(out.end - 1, taps.end - 1) + 1).saturating_sub(pad);
        let end = end.min(shape.input[axis]);
        (first < end).then(|| Self {
            first,
            len: end - first,
            step: 1,
        })
    }

    /// Where an input position lies in the scratchpad.
    pub fn index(&self, position: usize) -> usize {
        (position - self.first) / self.step
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
    let Some(cols) = Strided::new(shape, 1, cols, &(0..shape.window.kernel[1])) else {
        return Vec::new();
    };
    let mut chunks = Vec::new();
    // Blocks that no group of the tile touches add nothing.
    let read = |ci: &Range<usize>| {
        let mut pairs = co.clone().flat_map(|co| ci.clone().map(move |ci| (co, ci)));
        pairs.any(|(co, ci)| shape.reads(co, ci))
    };
    for ci in pieces(shape.ci, tile.ci).filter(read) {
        for kernel_rows in pieces(shape.window.kernel[0], tile.kernel_rows) {
            // Rows of padding add nothing.
            if let Some(rows) = Strided::new(shape, 0, rows, &kernel_rows) {
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
    /// A STORE of it, from the scratchpad's `sram` on.
    pub fn store(&self, sram: usize) -> Store {
        Store {
            sram_base: (sram + self.offset) as u16,
            dram_base: self.dram as u32,
            y_size: self.y as u16,
            x_size: self.x as u16,
            x_stride: self.stride as u16,
            ..Store::default()
        }
    }

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

/// The transfers of a chunk's input blocks: each block's rows and columns follow each other.
pub(super) fn inputs(blocks: &Range<usize>, chunk: &Chunk, [h, w]: [usize; 2]) -> Vec<Transfer> {
    let (rows, cols) = (chunk.rows, chunk.cols);
    if rows.step == 1 || rows.len == 1 {
        let [rows, cols] = [rows, cols].map(|s| s.first..s.first + s.len);
        let area = rows.len() * cols.len();
        return transfers(blocks, &rows, &cols, [h, w], area);
    }
    let one = |(i, block): (usize, usize)| Transfer {
        offset: i * rows.len * cols.len,
        dram: (block * h + rows.first) * w + cols.first,
        y: rows.len,
        x: cols.len,
        stride: rows.step * w,
    };
    blocks.clone().enumerate().map(one).collect()
}
