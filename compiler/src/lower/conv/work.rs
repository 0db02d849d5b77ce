//! Output tiles of a convolution, the chunks of their reduction, and rectangles in memory.

use std::ops::Range;

use super::super::tile::{ConvShape, ConvTile, LoopOrder};
use super::super::transfer::{Base, Transfer, parts, transfers};

/// Which weights: output blocks, input blocks, kernel rows.
pub(super) type Weights = (Range<usize>, Range<usize>, Range<usize>);

/// One output tile, in positions of the convolution (before pooling).
pub(super) struct Work {
    /// Which of the layers that take turns, and which tile is the last that it reads of the other.
    pub layer: usize,
    pub reads: Option<usize>,
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

    /// Its output blocks, rows and columns.
    pub const fn places(&self) -> [&Range<usize>; 3] {
        [&self.co, &self.rows, &self.cols]
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

/// Output tiles in execution order, with the chunks that see any input at all.
pub(super) fn works(shape: &ConvShape, tile: &ConvTile) -> Vec<Work> {
    let [oh, ow] = shape.output;
    let groups = || parts(0..shape.co, tile.co);
    let positions = || {
        parts(0..oh, tile.output[0])
            .flat_map(move |r| parts(0..ow, tile.output[1]).map(move |c| (r.clone(), c)))
    };
    let work = |co: Range<usize>, rows: Range<usize>, cols: Range<usize>| Work {
        layer: 0,
        reads: None,
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
    for ci in parts(0..shape.ci, tile.ci).filter(read) {
        for kernel_rows in parts(0..shape.window.kernel[0], tile.kernel_rows) {
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

/// The transfers of a chunk's input blocks to a place: each block's rows and columns follow each other.
pub(super) fn inputs(
    base: Base,
    blocks: &Range<usize>,
    chunk: &Chunk,
    [h, w]: [usize; 2],
    sram: usize,
) -> Vec<Transfer> {
    let (rows, cols) = (chunk.rows, chunk.cols);
    let area = rows.len * cols.len;
    if rows.step == 1 || rows.len == 1 {
        let [rows, cols] = [rows, cols].map(|s| s.first..s.first + s.len);
        return transfers(base, [blocks, &rows, &cols], [h, w], [sram, area]);
    }
    let one = |(i, block): (usize, usize)| Transfer {
        base,
        sram: sram + i * area,
        dram: (block * h + rows.first) * w + cols.first,
        size: [rows.len, cols.len],
        stride: rows.step * w,
        step: 1,
    };
    blocks.clone().enumerate().map(one).collect()
}
