//! Where rows of DRAM lie: mostly in the allocation in which the last ones of their kind lay.

use vta_driver::{DeviceMemory, MemoryError, Span};
use vta_isa::MemType;
use vta_isa::resolve::Rows;

use super::super::plan::build::span;

/// The allocations that were touched last.
#[derive(Debug, Default)]
pub(crate) struct Near {
    /// By memory type.
    allocations: [Allocation; MemType::ALL.len()],
    /// Of the memory that has them.
    layout: u64,
}

/// Its bytes; none if there is no allocation yet.
#[derive(Clone, Copy, Debug, Default)]
struct Allocation {
    first: u64,
    end: u64,
    region: usize,
}

impl Near {
    /// All rows as one span, from the first byte to the last.
    ///
    /// # Errors
    /// When they don't lie in one allocation.
    #[inline]
    pub fn span(
        &mut self,
        mem: MemType,
        rows: &Rows,
        memory: &DeviceMemory,
    ) -> Result<Span, MemoryError> {
        if self.layout != memory.layout() {
            self.allocations = Default::default();
            self.layout = memory.layout();
        }
        let bytes = rows.span();
        let last = &mut self.allocations[mem.index()];
        if bytes.start < last.first || last.end < bytes.end {
            let span = span(memory, rows)?;
            let first = bytes.start - span.start as u64;
            *last = Allocation {
                first,
                end: first + memory.region(span.region).len() as u64,
                region: span.region,
            };
        }
        Ok(Span {
            region: last.region,
            start: (bytes.start - last.first) as usize,
            len: (bytes.end - bytes.start) as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_memory_is_asked_for_its_own_allocations() {
        let rows = |first, row_bytes| Rows {
            first,
            row_bytes,
            stride_bytes: 0,
            rows: 1,
        };
        let mut near = Near::default();
        // An allocation grows, moves to another place in the list, and goes.
        for allocations in [
            &[(64, 64)][..],
            &[(64, 128)],
            &[(0, 16), (64, 64)],
            &[(0, 16)],
        ] {
            let mut memory = DeviceMemory::new();
            for &(addr, size) in allocations {
                memory.map(addr, size).unwrap();
            }
            for (first, bytes) in [
                (64, 64),
                (64, 65),
                (127, 1),
                (128, 1),
                (8, 8),
                (63, 2),
                (0, 16),
            ] {
                for mem in [MemType::Inp, MemType::Wgt] {
                    let rows = rows(first, bytes);
                    assert_eq!(near.span(mem, &rows, &memory), span(&memory, &rows));
                }
            }
        }
    }
}
