//! Loads and stores of a product's tiles: one rectangle of DRAM bytes for each group.

use vta_driver::Span;
use vta_isa::resolve::{Interval, disjoint};

use super::super::draft::{ByteTiles, Matmul};
use crate::functional::run::shape::Shape;

/// Rectangles of one shape in one region, one for each group of a product.
pub(super) struct Rectangles {
    spans: Vec<Option<Span>>,
    shape: Option<Shape>,
    lanes: usize,
}

impl Rectangles {
    /// Without a rectangle yet; `None` for a product whose positions aren't consecutive tiles in
    /// order.
    pub fn new(matmul: &Matmul, lanes: usize) -> Option<Self> {
        let offsets = matmul.positions.iter().copied();
        offsets.eq(0..matmul.positions.len() as u16).then(|| Self {
            spans: vec![None; matmul.groups.len()],
            shape: None,
            lanes,
        })
    }

    /// Takes rows whose tiles start at `first`, of one group or of several; whether each group
    /// gets a rectangle whose rows don't overlap, and nothing is left over.
    pub fn take(&mut self, matmul: &Matmul, first: usize, span: Span, whole: Shape) -> bool {
        let (len, lanes) = (matmul.positions.len(), self.lanes);
        let tiles = whole.row_bytes / lanes * whole.rows;
        // Kernels promise no order of rows that they store.
        if whole.overlaps() {
            return false;
        }
        // Groups share no tile: if all is taken, each begins at a multiple of their tiles.
        let mut taken = 0;
        for (index, group) in matmul.groups.iter().enumerate() {
            let Some(at) = usize::from(group.dst).checked_sub(first) else {
                continue;
            };
            if at < tiles {
                let part = whole.part(at, len, lanes).filter(|_| at + len <= tiles);
                let start = span.start + whole.offset(at, lanes);
                if !part.is_some_and(|part| self.put(index, span.region, start, part)) {
                    return false;
                }
                taken += len;
            }
        }
        taken == tiles
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

    /// Whether every group has its rectangle.
    pub fn is_whole(&self) -> bool {
        self.spans.iter().all(Option::is_some)
    }

    /// Whether no two rectangles share a byte, judged by their spans.
    pub fn are_apart(&self) -> bool {
        disjoint(self.spans.iter().flatten().copied().collect())
    }

    /// The tiles of all groups, if all are there.
    pub fn finish(&self, matmul: &Matmul) -> Option<ByteTiles> {
        let spans: Vec<Span> = self.spans.iter().copied().collect::<Option<_>>()?;
        let shape = self.shape?;
        let mut offsets = Vec::with_capacity(matmul.positions.len());
        for row in 0..shape.rows {
            let tiles = (0..shape.row_bytes).step_by(self.lanes);
            offsets.extend(tiles.map(|byte| (row * shape.stride_bytes + byte) as u32));
        }
        Some(ByteTiles {
            span: spans.iter().copied().reduce(|a, b| a.hull(&b))?,
            // Addresses have 32 bits, and offsets in regions, too.
            first: spans.iter().map(|s| s.start as u32).collect(),
            offsets,
        })
    }
}
