//! Bytes that the inputs of products lie in.

use std::marker::PhantomData;
use std::ops::Range;

use vta_driver::Span;

/// Of a part of memory that inputs count from, the bytes that are read: runs in ascending order, apart.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// Empty if all are read.
    list: Box<[Range<u32>]>,
}

impl Runs {
    /// At least two.
    pub fn new(list: Vec<Range<u32>>) -> Self {
        Self { list: list.into() }
    }

    /// Those of a part of a region.
    pub fn of(&self, whole: Span) -> impl Iterator<Item = Span> {
        let all = self.list.is_empty().then_some(whole);
        let run = move |run: &Range<u32>| Span {
            start: whole.start + run.start as usize,
            len: run.len(),
            ..whole
        };
        all.into_iter().chain(self.list.iter().map(run))
    }
}

/// Some bytes, of which those that lie between some runs may be another task's.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    start: *const u8,
    len: usize,
    /// Those that alone may be read.
    runs: Option<&'a Runs>,
    lent: PhantomData<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self {
            start: bytes.as_ptr(),
            len: bytes.len(),
            runs: None,
            lent: PhantomData,
        }
    }
}

impl<'a> Source<'a> {
    /// So many bytes, of which those of the runs may be read.
    ///
    /// # Safety
    /// The runs lie inside the bytes, and are borrowed for 'a.
    pub(super) unsafe fn of_runs(start: *const u8, len: usize, runs: &'a Runs) -> Self {
        Self {
            start,
            len,
            runs: Some(runs),
            lent: PhantomData,
        }
    }

    /// From the first to the last.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first byte. What lies inside the length and, where there are such, in the runs may be read.
    #[cfg(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_feature = "simd128"
    ))]
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// Whether those runs may be read as far as they lie inside the length.
    pub fn serves(&self, runs: &Runs) -> bool {
        self.runs.is_none_or(|own| std::ptr::eq(own, runs))
    }

    /// Some of them.
    ///
    /// # Panics
    /// When they aren't there, or not to read: a fault of the caller.
    pub fn bytes(&self, range: Range<usize>) -> &'a [u8] {
        assert!(range.start <= range.end && range.end <= self.len);
        let whole = Span {
            region: 0,
            start: 0,
            len: self.len,
        };
        let holds = |run: Span| run.start <= range.start && range.end <= run.start + run.len;
        assert!(self.runs.is_none_or(|runs| runs.of(whole).any(holds)));
        // SAFETY: they are borrowed for 'a, as a slice or as the runs.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }
}
