//! Device memory as what instructions are resolved with.

use std::ops::Range;

use vta_isa::resolve::{Interval, UopDram};

use crate::{DeviceMemory, Span};

impl UopDram for DeviceMemory {
    fn uop_bytes(&self, bytes: Range<u64>) -> Option<&[u8]> {
        self.read(bytes.start, bytes.end - bytes.start).ok()
    }
}

/// Spans lie on a line of bytes, region by region; those of two regions never touch.
impl Interval for Span {
    type Point = (usize, usize);

    fn start(&self) -> (usize, usize) {
        (self.region, self.start)
    }

    fn end(&self) -> (usize, usize) {
        (self.region, self.start + self.len)
    }

    /// Of spans in one region.
    fn hull(&self, other: &Self) -> Self {
        let (start, end) = (self.start.min(other.start), self.end().max(other.end()).1);
        Self {
            region: self.region,
            start,
            len: end - start,
        }
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::resolve::merge;

    use super::*;

    #[test]
    fn spans_of_two_regions_stay_apart() {
        let span = |region, start, len| Span { region, start, len };
        let mut spans = vec![
            span(1, 0, 4),
            span(0, 8, 4),
            span(0, 0, 8),
            span(1, 2, 1),
            span(0, 20, 0),
        ];
        merge(&mut spans);
        assert_eq!(spans, [span(0, 0, 12), span(1, 0, 4)]);
        assert!(span(0, 0, 12).overlaps(&span(0, 11, 1)));
        assert!(!span(0, 0, 12).overlaps(&span(1, 11, 1)));
    }

    #[test]
    fn micro_ops_outside_of_all_allocations_are_unknown() {
        let mut memory = DeviceMemory::new();
        memory.map(0x1000, 16).unwrap();
        assert_eq!(memory.uop_bytes(0x1004..0x1008).map(<[u8]>::len), Some(4));
        assert_eq!(memory.uop_bytes(0x100c..0x1014), None);
    }
}
