//! Loads and stores of a product's tiles: one rectangle of DRAM bytes for each group.

use vta_driver::Span;

use super::super::draft::{Draft, Kind, Matmul, StoredTiles};
use super::super::shape::Shape;
use super::super::spans::{join, overlap};
use super::list::Passed;

/// What a LOAD or STORE has in DRAM and in the accumulators.
#[derive(Clone, Copy)]
pub(super) struct TileRows {
    /// First tile.
    pub first: usize,
    /// From the first byte of the first row to the last byte of the last.
    pub span: Span,
    pub row_bytes: usize,
    pub stride_bytes: usize,
    pub rows: usize,
}

/// Rectangles of one shape in one region, one for each group of a product.
pub(super) struct Rectangles {
    spans: Vec<Option<Span>>,
    shape: Option<Shape>,
}

impl Rectangles {
    pub fn new(groups: usize) -> Self {
        Self {
            spans: vec![None; groups],
            shape: None,
        }
    }

    /// Takes rows whose tiles start at `first`, of one group or of several; whether each group
    /// gets a rectangle whose rows don't overlap, and nothing is left over.
    pub fn take(
        &mut self,
        matmul: &Matmul,
        TileRows {
            first,
            span,
            row_bytes,
            stride_bytes,
            rows,
        }: TileRows,
        lanes: usize,
    ) -> bool {
        let whole = Shape::new(row_bytes, stride_bytes, rows);
        let (len, tiles) = (matmul.positions.len(), row_bytes / lanes * rows);
        // Kernels promise no order of rows that they store.
        let good = (rows == 1 || stride_bytes >= row_bytes)
            && row_bytes.is_multiple_of(lanes)
            && u32::try_from(span.start + span.len).is_ok();
        let mut taken = 0;
        for (index, group) in matmul.groups.iter().enumerate() {
            let Some(at) = usize::from(group.dst).checked_sub(first) else {
                continue;
            };
            if at < tiles {
                let part = whole.part(at, len, lanes).filter(|_| at + len <= tiles);
                let start = span.start + whole.offset(at, lanes);
                if !good || !part.is_some_and(|part| self.put(index, span.region, start, part)) {
                    return false;
                }
                taken += len;
            }
        }
        taken > 0 && taken == tiles
    }

    fn put(&mut self, group: usize, region: usize, start: usize, shape: Shape) -> bool {
        let other = self.spans.iter().flatten().next().map(|s| s.region);
        let good = self.spans[group].is_none()
            && self.shape.is_none_or(|s| s == shape)
            && other.is_none_or(|r| r == region);
        if good {
            let len = shape.bytes();
            self.spans[group] = Some(Span { region, start, len });
            self.shape = Some(shape);
        }
        good
    }

    /// Whether there is no rectangle yet.
    pub fn is_empty(&self) -> bool {
        self.shape.is_none()
    }

    fn is_whole(&self) -> bool {
        self.spans.iter().all(Option::is_some)
    }

    /// First bytes of all groups and the span over all, if all are there.
    pub fn finish(&self) -> Option<(Vec<u32>, Span, Shape)> {
        let spans: Vec<Span> = self.spans.iter().copied().collect::<Option<_>>()?;
        let all = spans.iter().copied().reduce(|a, b| join(&a, &b))?;
        let first = spans.iter().map(|s| s.start as u32).collect();
        Some((first, all, self.shape?))
    }

    /// Whether no two rectangles share a byte, judged by their spans.
    fn are_apart(&self) -> bool {
        let mut spans: Vec<&Span> = self.spans.iter().flatten().collect();
        spans.sort_unstable_by_key(|s| s.start);
        spans.windows(2).all(|pair| !overlap(pair[0], pair[1]))
    }
}

/// Whether the positions' accumulator tiles are consecutive, in order.
pub(super) fn consecutive(matmul: &Matmul) -> bool {
    let mut offsets = matmul.positions.iter().map(|&p| usize::from(p));
    (0..matmul.positions.len()).all(|i| offsets.next() == Some(i))
}

/// Stores of a product's groups as they are found.
pub(super) struct Stores {
    rectangles: Rectangles,
    /// Indices of the drafts.
    taken: Vec<usize>,
}

impl Stores {
    pub fn new(groups: usize) -> Self {
        Self {
            rectangles: Rectangles::new(groups),
            taken: Vec::new(),
        }
    }

    /// Whether there is a store.
    pub fn has_any(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Whether every group has its store.
    pub fn is_whole(&self) -> bool {
        self.rectangles.is_whole()
    }

    /// Takes the store at index `at`; whether it could.
    pub fn take(
        &mut self,
        at: usize,
        draft: &Draft,
        matmul: &Matmul,
        passed: &Passed,
        lanes: usize,
    ) -> bool {
        let Kind::Store(op) = &draft.kind else {
            return false;
        };
        let rows = TileRows {
            first: op.first / lanes,
            span: op.span,
            row_bytes: op.row_bytes,
            stride_bytes: op.stride_bytes,
            rows: op.rows,
        };
        let good = consecutive(matmul)
            && passed.lets_store(&op.span)
            && self.rectangles.take(matmul, rows, lanes);
        if good {
            self.taken.push(at);
        }
        good
    }

    /// What is stored, and the indices of the stores, if every group has one, apart from the
    /// bytes that are read.
    pub fn finish(self, mut read: impl Iterator<Item = Span>) -> Option<(StoredTiles, Vec<usize>)> {
        let (first, span, shape) = self.rectangles.finish()?;
        if !self.rectangles.are_apart() || read.any(|r| overlap(&r, &span)) {
            return None;
        }
        Some((StoredTiles { span, first, shape }, self.taken))
    }
}
