//! Rows of DRAM bytes that are tiles of a scratchpad.

use vta_isa::resolve;

/// Rows of DRAM bytes, one after the other in a scratchpad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub row_bytes: usize,
    /// From one row to the next; those of a row if there is only one.
    pub stride_bytes: usize,
    pub rows: usize,
}

impl Shape {
    fn new(row_bytes: usize, stride_bytes: usize, rows: usize) -> Self {
        Self {
            row_bytes,
            stride_bytes: if rows == 1 { row_bytes } else { stride_bytes },
            rows,
        }
    }

    pub fn of(rows: &resolve::Rows) -> Self {
        let [row, stride] = [rows.row_bytes, rows.stride_bytes].map(|bytes| bytes as usize);
        Self::new(row, stride, rows.rows.into())
    }

    /// Whether rows follow each other without gaps.
    pub fn is_dense(&self) -> bool {
        self.stride_bytes == self.row_bytes
    }

    /// Whether rows share bytes: then their order matters when they are written.
    pub fn overlaps(&self) -> bool {
        self.stride_bytes < self.row_bytes
    }

    /// The byte, from the first, of one of the rows' tiles.
    pub fn offset(&self, tile: usize, lanes: usize) -> usize {
        let at = tile * lanes;
        at / self.row_bytes * self.stride_bytes + at % self.row_bytes
    }

    /// The rectangle of `len` tiles from tile `at` on, a multiple of them, if it is one: whole rows,
    /// or a part of one.
    pub fn part(&self, at: usize, len: usize, lanes: usize) -> Option<Self> {
        let row = self.row_bytes / lanes;
        if len.is_multiple_of(row) {
            return Some(Self::new(self.row_bytes, self.stride_bytes, len / row));
        }
        let bytes = len * lanes;
        (at % row + len <= row).then(|| Self::new(bytes, bytes, 1))
    }

    /// From the first byte to the last.
    pub fn bytes(&self) -> usize {
        (self.rows - 1) * self.stride_bytes + self.row_bytes
    }
}
