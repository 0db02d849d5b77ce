//! Bytes that are lent out to be written while others are read.

use super::{DeviceMemory, Region, Span};

/// The bytes that aren't lent out to be written.
#[derive(Clone, Copy, Debug)]
pub struct OtherBytes<'a> {
    below: &'a [Region],
    above: &'a [Region],
    /// Of the region that is written in, what lies before the written bytes and behind them.
    before: &'a [u8],
    behind: &'a [u8],
    /// One past the last written byte.
    end: usize,
}

impl<'a> OtherBytes<'a> {
    /// The bytes of a span; none if there are no such bytes or one of them is lent out.
    pub fn span(&self, span: &Span) -> &'a [u8] {
        let within = |bytes: &'a [u8], start: usize| bytes.get(start..start.checked_add(span.len)?);
        let found = match span.region.checked_sub(self.below.len()) {
            None => within(&self.below[span.region].bytes, span.start),
            Some(0) if span.start < self.end => within(self.before, span.start),
            Some(0) => within(self.behind, span.start - self.end),
            Some(above) => {
                let region = self.above.get(above - 1);
                region.and_then(|r| within(&r.bytes, span.start))
            }
        };
        found.unwrap_or(&[])
    }
}

/// A region that is lent out together with all others.
#[derive(Debug)]
pub enum Lent<'a> {
    /// All of its bytes, to read.
    Read(&'a [u8]),
    /// All of its bytes, to write.
    Write(&'a mut [u8]),
}

impl DeviceMemory {
    /// The bytes of one span to write, if there is one, and all others to read meanwhile. A span
    /// that isn't inside a region has no bytes.
    pub fn split(&mut self, write: Option<Span>) -> (OtherBytes<'_>, &mut [u8]) {
        let at = write
            .map_or(usize::MAX, |w| w.region)
            .min(self.regions.len());
        let (below, rest) = self.regions.split_at_mut(at);
        let (before, out, behind, above): (&[u8], _, &[u8], &[Region]) =
            match (write, rest.split_first_mut()) {
                (Some(write), Some((region, above))) => {
                    region.version += 1;
                    let size = region.bytes.len();
                    let start = write.start.min(size);
                    let (before, rest) = region.bytes.split_at_mut(start);
                    let (out, behind) = rest.split_at_mut(write.len.min(size - start));
                    (before, out, behind, above)
                }
                _ => (&[], &mut [], &[], &[]),
            };
        let others = OtherBytes {
            below,
            above,
            before,
            behind,
            end: before.len() + out.len(),
        };
        (others, out)
    }

    /// All regions at once, in order: those whose indices are listed to write, the others to
    /// read.
    pub fn lend(&mut self, write: &[usize]) -> Vec<Lent<'_>> {
        let regions = self.regions.iter_mut().enumerate();
        regions
            .map(|(index, region)| {
                if write.contains(&index) {
                    region.version += 1;
                    Lent::Write(&mut region.bytes)
                } else {
                    Lent::Read(&region.bytes)
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_regions_are_to_write_where_asked() {
        let mut m = DeviceMemory::new();
        for addr in [0x1000, 0x2000, 0x3000] {
            m.map(addr, 16).unwrap();
        }
        let versions = |m: &DeviceMemory| [0, 1, 2].map(|r| m.version(r));
        let before = versions(&m);
        for (index, lent) in m.lend(&[1, 7]).into_iter().enumerate() {
            match lent {
                Lent::Read(bytes) => assert!(index != 1 && bytes.len() == 16),
                Lent::Write(bytes) => {
                    assert_eq!(index, 1);
                    bytes[3] = 9;
                }
            }
        }
        assert_eq!(m.read(0x2003, 1).unwrap(), [9]);
        let after = versions(&m);
        assert!(after[0] == before[0] && after[1] != before[1] && after[2] == before[2]);
    }

    #[test]
    fn what_is_not_written_can_be_read_meanwhile() {
        let mut m = DeviceMemory::new();
        for (addr, first) in [(0x1000, 0), (0x2000, 16), (0x3000, 32)] {
            m.map(addr, 16).unwrap();
            let bytes = m.write(addr.into(), 16).unwrap();
            bytes.copy_from_slice(&std::array::from_fn::<u8, 16, _>(|i| first + i as u8));
        }
        let span = |region, start, len| Span { region, start, len };
        let version = m.version(1);
        let (others, out) = m.split(Some(span(1, 4, 6)));
        assert_eq!(*out, [20, 21, 22, 23, 24, 25]);
        out[0] = 99;
        assert_eq!(others.span(&span(0, 1, 2)), [1, 2]);
        assert_eq!(others.span(&span(1, 0, 4)), [16, 17, 18, 19]);
        assert_eq!(others.span(&span(1, 10, 6)), [26, 27, 28, 29, 30, 31]);
        assert_eq!(others.span(&span(2, 15, 1)), [47]);
        // Written bytes, and bytes that don't exist.
        for gone in [
            span(1, 3, 2),
            span(1, 9, 2),
            span(1, 4, 1),
            span(1, 10, 7),
            span(0, 0, 17),
            span(3, 0, 1),
            span(2, 1, usize::MAX),
        ] {
            assert!(others.span(&gone).is_empty(), "{gone:?}");
        }
        assert_ne!(m.version(1), version);
        let (others, out) = m.split(None);
        assert!(out.is_empty());
        assert_eq!(others.span(&span(1, 4, 1)), [99]);
        let (_, out) = m.split(Some(span(2, 12, 100)));
        assert_eq!(*out, [44, 45, 46, 47]);
        assert!(m.split(Some(span(9, 0, 1))).1.is_empty());
    }
}
