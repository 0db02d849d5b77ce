//! Loads and stores of a product's tiles: one rectangle of DRAM bytes for each group.

use vta_driver::Span;

use super::draft::{Draft, Kind, Matmul, Stored, join, overlap};
use super::fuse::Passed;

/// Rows of DRAM bytes, one after the other in a scratchpad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
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

    /// The byte, from the first, of one of the rows' tiles.
    pub fn offset(&self, tile: usize, lanes: usize) -> usize {
        let at = tile * lanes;
        let row = self.row_bytes.max(1);
        at / row * self.stride_bytes + at % row
    }

    /// The rectangle of `len` tiles from tile `at` on, if it is one: whole rows, or a part of one.
    fn part(&self, at: usize, len: usize, lanes: usize) -> Option<Self> {
        let row = self.row_bytes / lanes;
        if row == 0 {
            return None;
        }
        if at.is_multiple_of(row) && len.is_multiple_of(row) {
            return Some(Self::new(self.row_bytes, self.stride_bytes, len / row));
        }
        let bytes = len * lanes;
        (at % row + len <= row).then(|| Self::new(bytes, bytes, 1))
    }

    fn bytes(&self) -> usize {
        self.rows.saturating_sub(1) * self.stride_bytes + self.row_bytes
    }
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
        first: usize,
        span: Span,
        [row_bytes, stride_bytes, rows]: [usize; 3],
        lanes: usize,
    ) -> bool {
        let whole = Shape::new(row_bytes, stride_bytes, rows);
        let (len, tiles) = (matmul.positions.len(), row_bytes / lanes * rows);
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
        let shape = [op.row_bytes, op.stride_bytes, op.rows];
        let first = op.first / lanes;
        let good = consecutive(matmul)
            && passed.lets_store(&op.span)
            && self.rectangles.take(matmul, first, op.span, shape, lanes);
        if good {
            self.taken.push(at);
        }
        good
    }

    /// Removes the stores if every group has one, apart from the bytes that are read.
    pub fn finish(
        self,
        drafts: &mut [Option<Draft>],
        mut read: impl Iterator<Item = Span>,
    ) -> Option<Stored> {
        let (first, span, shape) = self.rectangles.finish()?;
        if !self.rectangles.are_apart() || read.any(|r| overlap(&r, &span)) {
            return None;
        }
        for at in self.taken {
            drafts[at] = None;
        }
        Some(Stored { span, first, shape })
    }
}
