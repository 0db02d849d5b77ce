//! How rows of bytes become bursts on the bus.

use std::ops::Range;

use vta_isa::resolve::Rows;

use super::TimingConfig;

/// Where the bus cuts: its width and the largest burst, as powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cuts {
    bus_shift: u32,
    burst_shift: u32,
}

impl Cuts {
    pub(super) fn new(timing: &TimingConfig) -> Self {
        let bus_shift = timing.bus_bytes.ilog2();
        Self {
            bus_shift,
            burst_shift: bus_shift + timing.burst_beats.ilog2(),
        }
    }

    /// Bus lines that the bytes `start..stop` touch.
    pub(super) const fn beats(self, start: u64, stop: u64) -> u64 {
        let line_mask = (1 << self.bus_shift) - 1;
        ((stop + line_mask) >> self.bus_shift) - (start >> self.bus_shift)
    }
}

/// One burst: bytes `start..stop`, which touch `beats` bus lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub start: u64,
    pub stop: u64,
    pub beats: u64,
    /// Whether it is the last of its rows.
    pub last: bool,
}

impl Burst {
    /// Tiles of `tile_bytes` that the burst touches; rows begin at a multiple of it.
    pub(super) const fn tiles(&self, tile_bytes: u64) -> u64 {
        self.stop.div_ceil(tile_bytes) - self.start / tile_bytes
    }
}

/// The bursts of some rows: each row apart, cut at multiples of the largest burst.
#[derive(Clone, Debug)]
pub(super) struct Bursts {
    cuts: Cuts,
    rows: Rows,
    /// First byte of the current row.
    row: u64,
    /// First byte that no burst has covered.
    at: u64,
    rows_left: u16,
}

impl Bursts {
    pub(super) const fn new(cuts: Cuts, rows: Rows) -> Self {
        Self {
            cuts,
            rows,
            row: rows.first,
            at: rows.first,
            rows_left: rows.rows,
        }
    }

    /// Bytes in one burst, wherever they begin: how fetch requests a chunk.
    pub(super) const fn whole(mut cuts: Cuts, bytes: Range<u64>) -> Self {
        // Beyond every address, and the next multiple is still a u64.
        cuts.burst_shift = u64::BITS - 2;
        let row_bytes = bytes.end - bytes.start;
        let rows = Rows {
            first: bytes.start,
            row_bytes,
            stride_bytes: row_bytes,
            rows: 1,
        };
        Self::new(cuts, rows)
    }

    /// Whether the next burst is the first of its row.
    pub(super) const fn begins_row(&self) -> bool {
        self.at == self.row
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows_left == 0
    }
}

impl Iterator for Bursts {
    type Item = Burst;

    fn next(&mut self) -> Option<Burst> {
        if self.rows_left == 0 {
            return None;
        }
        let start = self.at;
        let end = self.row + self.rows.row_bytes;
        let cut = ((start >> self.cuts.burst_shift) + 1) << self.cuts.burst_shift;
        let stop = end.min(cut);
        self.at = stop;
        if stop == end {
            self.rows_left -= 1;
            self.row += self.rows.stride_bytes;
            self.at = self.row;
        }
        Some(Burst {
            start,
            stop,
            beats: self.cuts.beats(start, stop),
            last: self.rows_left == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(timing: &TimingConfig, rows: Rows) -> Vec<(u64, u64)> {
        let bursts = Bursts::new(Cuts::new(timing), rows);
        bursts.map(|b| (b.start, b.beats)).collect()
    }

    #[test]
    fn rows_are_cut_at_aligned_boundaries() {
        let rows = |first, row_bytes, stride_bytes, rows| Rows {
            first,
            row_bytes,
            stride_bytes,
            rows,
        };
        let (pynq, de10) = (TimingConfig::pynq(), TimingConfig::de10());
        let wide = TimingConfig {
            bus_bytes: 64,
            ..TimingConfig::de10()
        };
        for (timing, rows, expected) in [
            (&de10, rows(0, 128, 0, 1), vec![(0, 16)]),
            (&de10, rows(120, 16, 0, 1), vec![(120, 1), (128, 1)]),
            (
                &de10,
                rows(64, 256, 0, 1),
                vec![(64, 8), (128, 16), (256, 8)],
            ),
            (&pynq, rows(64, 256, 0, 1), vec![(64, 32)]),
            (&pynq, rows(4, 8, 0, 2), vec![(4, 2), (4, 2)]),
            (&pynq, rows(16, 32, 100, 2), vec![(16, 4), (116, 5)]),
            (&wide, rows(48, 32, 64, 2), vec![(48, 2), (112, 2)]),
        ] {
            assert_eq!(bursts(timing, rows), expected, "{rows:?}");
        }
    }

    #[test]
    fn only_the_last_burst_is_marked() {
        let rows = Rows {
            first: 0,
            row_bytes: 4096,
            stride_bytes: 4096,
            rows: 3,
        };
        let marks: Vec<_> = Bursts::new(Cuts::new(&TimingConfig::pynq()), rows)
            .map(|b| b.last)
            .collect();
        assert_eq!(marks, [false, false, false, false, false, true]);
    }
}
