//! The DRAM side of LOAD and STORE: rows of bytes, and where a LOAD puts them.

use std::ops::Range;

use super::{Interval, merge};
use crate::{Config, Insn, Load, MemType, Store};

/// Rows of DRAM bytes, equally long and equally far apart; at least one, of at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Address of the first byte.
    pub first: u64,
    /// Bytes of each row.
    pub row_bytes: u64,
    /// Bytes from the beginning of a row to that of the next. With less than `row_bytes` rows
    /// overlap; 0 is one row again and again.
    pub stride_bytes: u64,
    /// How many rows.
    pub rows: u16,
}

impl Rows {
    /// From elements; `None` when nothing is moved.
    #[inline]
    fn of(elem_bytes: u64, dram_base: u32, [y_size, x_size, x_stride]: [u16; 3]) -> Option<Self> {
        (y_size > 0 && x_size > 0).then(|| Self {
            first: u64::from(dram_base) * elem_bytes,
            row_bytes: u64::from(x_size) * elem_bytes,
            stride_bytes: u64::from(x_stride) * elem_bytes,
            rows: y_size,
        })
    }

    /// From the lowest byte to the highest, with what lies between the rows.
    #[inline]
    pub fn span(&self) -> Range<u64> {
        let last = self.first + u64::from(self.rows - 1) * self.stride_bytes;
        self.first..last + self.row_bytes
    }

    /// The rows in the order in which they are moved; one that repeats comes again.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let Self {
            first,
            row_bytes,
            stride_bytes,
            rows,
        } = *self;
        (0..u64::from(rows)).map(move |y| {
            let start = first + y * stride_bytes;
            start..start + row_bytes
        })
    }

    /// The bytes as ranges, ascending and apart: rows that touch, overlap or repeat are one.
    pub fn apart(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let joined = self.stride_bytes <= self.row_bytes;
        let whole = joined.then(|| self.span());
        let rows = (!joined).then(|| self.iter());
        whole.into_iter().chain(rows.into_iter().flatten())
    }

    /// Whether two rows share a byte, so that their order matters when they are written.
    pub fn overlap(&self) -> bool {
        self.rows > 1 && self.stride_bytes < self.row_bytes
    }
}

impl Insn {
    /// The DRAM rows that it reads or writes; `None` when it moves nothing.
    #[inline]
    pub fn dram_rows(&self, config: &Config) -> Option<Rows> {
        match self {
            Self::Load(load) => load.dram_rows(config),
            Self::Store(store) => store.dram_rows(config),
            Self::Gemm(_) | Self::Alu(_) | Self::Depthwise(_) | Self::Finish(_) => None,
        }
    }

    /// Where a LOAD or STORE begins in DRAM, counted in elements of the memory type.
    pub const fn dram_base_mut(&mut self) -> Option<(MemType, &mut u32)> {
        match self {
            Self::Load(load) => Some((load.mem, &mut load.dram_base)),
            Self::Store(store) => Some((MemType::Out, &mut store.dram_base)),
            Self::Gemm(_) | Self::Alu(_) | Self::Depthwise(_) | Self::Finish(_) => None,
        }
    }
}

/// The DRAM bytes that STOREs write, ascending and apart.
pub fn stored_bytes(config: &Config, insns: &[Insn]) -> Vec<Range<u64>> {
    let stores = insns.iter().filter_map(|insn| match insn {
        Insn::Store(store) => store.dram_rows(config),
        Insn::Load(_) | Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => None,
    });
    let mut bytes = stores.flat_map(|rows| rows.apart()).collect();
    merge(&mut bytes);
    bytes
}

/// Consecutive elements of a scratchpad that a LOAD fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The elements: tiles, or micro-ops.
    pub entries: Range<usize>,
    /// The DRAM bytes that they come from; `None` for padding, which is zero.
    pub from: Option<Range<u64>>,
}

impl Load {
    /// The DRAM rows that it reads; `None` for a synchronisation.
    #[inline]
    pub fn dram_rows(&self, config: &Config) -> Option<Rows> {
        let shape = [self.y_size, self.x_size, self.x_stride];
        Rows::of(config.elem_bytes(self.mem) as u64, self.dram_base, shape)
    }

    /// The scratchpad entries that it fills, rows of DRAM and padding in turn, ascending without
    /// gaps; none for a synchronisation.
    pub fn fills(&self, config: &Config) -> impl Iterator<Item = Filled> + use<> {
        let [above, below, left, right] =
            [self.y_pad_0, self.y_pad_1, self.x_pad_0, self.x_pad_1].map(usize::from);
        let cols = usize::from(self.x_size);
        let width = left + cols + right;
        let rows = self.dram_rows(config);
        let mut at = usize::from(self.sram_base);
        let last = usize::from(self.y_size).saturating_sub(1);
        let all = rows.into_iter().flat_map(|rows| rows.iter().enumerate());
        let pieces = all.flat_map(move |(y, row)| {
            // Padding above and below is whole rows, which lie next to that of the sides: one piece.
            let before = left + if y == 0 { above * width } else { 0 };
            let behind = right + if y == last { below * width } else { 0 };
            [(before, None), (cols, Some(row)), (behind, None)]
        });
        pieces.filter(|(len, _)| *len > 0).map(move |(len, from)| {
            let entries = at..at + len;
            at += len;
            Filled { entries, from }
        })
    }

    /// The scratchpad entries from the first that it fills to one past the last; empty for a
    /// synchronisation.
    #[inline]
    pub fn sram_span(&self) -> Range<u64> {
        let first = u64::from(self.sram_base);
        first..first + self.sram_tiles()
    }
}

impl Store {
    /// The DRAM rows that it writes; `None` for a synchronisation.
    #[inline]
    pub fn dram_rows(&self, config: &Config) -> Option<Rows> {
        let shape = [self.y_size, self.x_size, self.x_stride];
        let elem_bytes = config.elem_bytes(MemType::Out) as u64;
        Rows::of(elem_bytes, self.dram_base, shape)
    }

    /// The accumulator tiles from the first that it reads to one past the last; empty for a
    /// synchronisation.
    #[inline]
    pub fn sram_span(&self) -> Range<u64> {
        let first = u64::from(self.sram_base);
        first..first + self.tiles()
    }
}

/// Bytes that are no longer what they were, in as few ranges as it takes to stay cheap: beyond a
/// number of ranges one around all of them says too much, never too little.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    ranges: Vec<Range<u64>>,
}

/// Ranges that are told apart.
const MAX_CHANGED: usize = 256;

impl Changed {
    /// Adds bytes.
    pub fn add(&mut self, bytes: Range<u64>) {
        let known = |r: &Range<u64>| r.start <= bytes.start && bytes.end <= r.end;
        if self.ranges.iter().any(known) {
            return;
        }
        self.ranges.push(bytes);
        if self.ranges.len() > MAX_CHANGED {
            let all = self.ranges.drain(..).reduce(|a, b| a.hull(&b));
            self.ranges = all.into_iter().collect();
        }
    }

    /// Whether any of these bytes may have changed.
    pub fn meets(&self, bytes: &Range<u64>) -> bool {
        self.ranges.iter().any(|range| range.overlaps(bytes))
    }
}

#[cfg(test)]
mod tests;
