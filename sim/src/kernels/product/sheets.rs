//! Sheets on which the lines of many panels lie, in large pages: a plan reads all of its weights once a run, which are
//! thousands of small pages to look up.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use vta_driver::HostBytes;

/// Bytes of the first sheet, and of the largest: each has eight times those of the one before. What isn't written to takes
/// no memory.
const FIRST_BYTES: usize = 1 << 14;
const MOST_BYTES: usize = 1 << 23;

/// 64 aligned bytes: one vector of AVX-512, two of AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Line(pub [u8; 64]);

/// Sheets, filled one after the other.
#[derive(Default)]
pub(crate) struct Sheets {
    /// The one that is filled, and how many of its lines are taken.
    bytes: HostBytes,
    taken: usize,
    /// The same, once it is finished.
    sheet: Arc<OnceLock<HostBytes>>,
}

/// Some lines of a sheet.
#[derive(Debug)]
pub(super) struct Strip {
    sheet: Arc<OnceLock<HostBytes>>,
    range: Range<usize>,
}

impl Sheets {
    /// So many zeroed lines, to be filled before the sheet is finished; `None` when the host has no memory for them.
    pub(super) fn strip(&mut self, lines: usize) -> Option<(Strip, &mut [Line])> {
        if lines_of(&self.bytes).len() - self.taken < lines {
            // One more, as the first may not begin on a line.
            let least = (lines + 1) * size_of::<Line>();
            let bytes = (8 * self.bytes.len()).clamp(FIRST_BYTES, MOST_BYTES);
            self.finish();
            self.bytes = HostBytes::zeroed(bytes.max(least) as u64)?;
        }
        let range = self.taken..self.taken + lines;
        self.taken = range.end;
        let strip = Strip {
            sheet: Arc::clone(&self.sheet),
            range: range.clone(),
        };
        // SAFETY: all bytes make lines.
        let (_, lines, _) = unsafe { self.bytes.align_to_mut::<Line>() };
        Some((strip, &mut lines[range]))
    }

    /// Finishes the sheet: its strips have their lines from now on.
    pub fn finish(&mut self) {
        let Self { bytes, sheet, .. } = std::mem::take(self);
        // Nobody else does.
        let _ = sheet.set(bytes);
    }
}

impl Strip {
    /// None until the sheet is finished.
    pub fn lines(&self) -> &[Line] {
        let all = self.sheet.get().map_or(&[][..], |bytes| lines_of(bytes));
        all.get(self.range.clone()).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.range.len()
    }
}

fn lines_of(bytes: &[u8]) -> &[Line] {
    // SAFETY: all bytes make lines.
    let (_, lines, _) = unsafe { bytes.align_to::<Line>() };
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_lie_apart_on_sheets_that_grow() {
        let mut sheets = Sheets::default();
        let sizes = [1, 0, 200, 100, 1000, 3000, 20_000, 1, 200_000, 70_000];
        let mut strips = Vec::new();
        for (value, size) in (1..).zip(sizes) {
            let (strip, lines) = sheets.strip(size).unwrap();
            assert_eq!(lines.len(), size);
            assert!(lines.iter().all(|line| line.0 == [0; 64]));
            lines.fill(Line([value; 64]));
            strips.push((strip, value));
        }
        assert!(
            strips
                .last()
                .is_some_and(|(last, _)| last.lines().is_empty())
        );
        sheets.finish();
        for ((strip, value), size) in strips.iter().zip(sizes) {
            assert_eq!((strip.lines().len(), strip.len()), (size, size));
            assert!(strip.lines().iter().all(|line| line.0 == [*value; 64]));
        }
    }
}
