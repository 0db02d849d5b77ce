//! The micro-op scratchpad as far as its contents are known without running the program.

use std::ops::Range;

use vta_driver::DeviceMemory;
use vta_isa::{Load, UOP_BYTES, Uop};

use super::dram::rows;

/// Overwritten ranges of micro-ops that are told apart.
const MAX_STORED: usize = 256;

/// Where the checker learns the micro-ops from.
#[derive(Clone, Copy, Debug)]
pub enum UopSource<'a> {
    /// Nothing is known: what GEMM and ALU touch is left unchecked, and noted.
    Unknown,
    /// DRAM before the run, which LOAD UOP reads.
    Memory(&'a DeviceMemory),
}

/// What each entry of the scratchpad holds, if known.
#[derive(Debug)]
pub(super) struct UopPad<'a> {
    source: UopSource<'a>,
    entries: Vec<Option<Uop>>,
    /// DRAM bytes that LOAD UOP reads and a STORE has written: no longer known.
    stored: Vec<Range<u64>>,
    /// All bytes that any LOAD UOP of the run reads lie in here.
    hull: Range<u64>,
}

impl<'a> UopPad<'a> {
    /// An empty scratchpad. `loads` are the LOAD UOPs of the run.
    pub fn new<'l>(
        source: UopSource<'a>,
        depth: usize,
        loads: impl Iterator<Item = &'l Load>,
    ) -> Self {
        let mut hull = None;
        for row in loads.flat_map(dram_rows) {
            let (start, end) = hull.unwrap_or((row.start, row.end));
            hull = Some((row.start.min(start), row.end.max(end)));
        }
        let (start, end) = hull.unwrap_or_default();
        Self {
            source,
            entries: vec![None; depth],
            stored: Vec::new(),
            hull: start..end,
        }
    }

    /// A STORE has written these bytes, with what isn't known here.
    pub fn stored(&mut self, rows: &[Range<u64>]) {
        let hull = &self.hull;
        let inside = rows.iter().filter(|r| meets(r, hull));
        for row in inside.cloned().collect::<Vec<_>>() {
            let known = |s: &Range<u64>| s.start <= row.start && row.end <= s.end;
            if self.stored.iter().any(known) {
                continue;
            }
            self.stored.push(row);
            if self.stored.len() > MAX_STORED {
                // One range around all says too much, which only makes more unknown.
                let first = self.stored.iter().map(|s| s.start).min();
                let end = self.stored.iter().map(|s| s.end).max();
                self.stored.clear();
                self.stored
                    .push(first.unwrap_or(0)..end.unwrap_or(u64::MAX));
            }
        }
    }

    /// A LOAD UOP inside the scratchpad fills it.
    pub fn load(&mut self, load: &Load) {
        let [top, bottom, left, right] =
            [load.y_pad_0, load.y_pad_1, load.x_pad_0, load.x_pad_1].map(usize::from);
        let [y_size, x_size, x_stride] = [load.y_size, load.x_size, load.x_stride].map(usize::from);
        let width = left + x_size + right;
        let first = usize::from(load.sram_base);
        let end = first + (top + y_size + bottom) * width;
        let Some(region) = self.entries.get_mut(first..end) else {
            return;
        };
        // Padding is micro-ops of zero.
        region.fill(Some(Uop::default()));
        for y in 0..y_size {
            let addr = (u64::from(load.dram_base) + (y * x_stride) as u64) * UOP_BYTES as u64;
            let row = addr..addr + (x_size * UOP_BYTES) as u64;
            let clean = !self.stored.iter().any(|s| meets(s, &row));
            let bytes = match self.source {
                UopSource::Memory(memory) if clean => memory.read(addr, row.end - addr).ok(),
                UopSource::Memory(_) | UopSource::Unknown => None,
            };
            let start = first + (top + y) * width + left;
            let entries = &mut self.entries[start..start + x_size];
            match bytes {
                Some(bytes) => decode(bytes, entries),
                None => entries.fill(None),
            }
        }
    }

    /// The micro-ops of a range, and whether some of them are unknown and left out; `None` when
    /// the range leaves the scratchpad.
    pub fn range(&self, bgn: u16, end: u16) -> Option<(Vec<Uop>, bool)> {
        let entries = self.entries.get(usize::from(bgn)..usize::from(end))?;
        let known: Vec<Uop> = entries.iter().copied().flatten().collect();
        let some_unknown = known.len() < entries.len();
        Some((known, some_unknown))
    }
}

/// The DRAM bytes that a LOAD UOP reads.
pub(super) fn dram_rows(load: &Load) -> Vec<Range<u64>> {
    rows(
        UOP_BYTES,
        load.dram_base,
        [load.y_size, load.x_size, load.x_stride],
    )
}

fn meets(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn decode(bytes: &[u8], entries: &mut [Option<Uop>]) {
    let words = bytes.as_chunks::<UOP_BYTES>().0;
    for (entry, word) in entries.iter_mut().zip(words) {
        *entry = Some(Uop::decode(u32::from_le_bytes(*word)));
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::MemType;

    use super::*;

    fn load(sram_base: u16, dram_base: u32, [y_size, x_size, x_stride]: [u16; 3]) -> Load {
        Load {
            mem: MemType::Uop,
            sram_base,
            dram_base,
            y_size,
            x_size,
            x_stride,
            ..Load::default()
        }
    }

    #[test]
    fn rows_strides_and_padding_land_where_the_device_puts_them() {
        let mut memory = DeviceMemory::new();
        memory.map(0x1000, 64).unwrap();
        for i in 0..16u32 {
            let bytes = memory.write(0x1000 + u64::from(i) * 4, 4).unwrap();
            bytes.copy_from_slice(&(i + 1).to_le_bytes());
        }
        let padded = Load {
            y_pad_0: 1,
            x_pad_1: 1,
            ..load(2, 0x400, [2, 2, 5])
        };
        let outside = load(12, 0x500, [1, 1, 1]);
        let mut pad = UopPad::new(
            UopSource::Memory(&memory),
            16,
            [&padded, &outside].into_iter(),
        );
        pad.load(&padded);
        let (uops, unknown) = pad.range(2, 11).unwrap();
        let dsts: Vec<_> = uops.iter().map(|u| u.dst).collect();
        assert_eq!((dsts, unknown), (vec![0, 0, 0, 1, 2, 0, 6, 7, 0], false));
        // Entries never loaded, and loaded from outside the known memory.
        assert_eq!(pad.range(0, 2), Some((vec![], true)));
        pad.load(&outside);
        assert_eq!(pad.range(12, 13), Some((vec![], true)));
        assert_eq!(pad.range(0, 17), None);
        assert_eq!(pad.range(3, 2), None);
    }

    #[test]
    fn bytes_that_a_store_may_have_changed_are_unknown() {
        let mut memory = DeviceMemory::new();
        memory.map(0x1000, 64).unwrap();
        let load = load(0, 0x400, [1, 4, 4]);
        let mut pad = UopPad::new(UopSource::Memory(&memory), 16, [&load].into_iter());
        pad.stored(std::slice::from_ref(&(0x2000..0x2010)));
        pad.load(&load);
        assert!(!pad.range(0, 4).unwrap().1);
        pad.stored(std::slice::from_ref(&(0x1008..0x1018)));
        pad.load(&load);
        assert!(pad.range(0, 4).unwrap().1);
    }
}
