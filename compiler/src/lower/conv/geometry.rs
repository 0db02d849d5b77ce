//! What a convolution computes, for listings.

use std::ops::Range;

use vta_program::listing::ConvGeometry;

use super::super::geometry::window;
use super::layer::Conv;
use super::parts::Parts;

impl Conv<'_> {
    /// Of a convolution whose form is chosen; its tile and its instructions have no part in it.
    pub(super) fn geometry(&self, parts: &Parts<'_>) -> ConvGeometry {
        let shape = &self.shape;
        let range = |range: &Range<usize>| [range.start as u32, range.end as u32];
        let blank = (0..).zip(&self.blank).filter(|(_, blank)| **blank);
        // Rows that were cut anew are those of the tensor again; gathered patches have a window of their own.
        let listed = if shape.window.area() == parts.window.area() {
            parts.window
        } else {
            &shape.window
        };
        ConvGeometry {
            window: window(listed),
            output: shape.output.map(|size| size as u32),
            group: parts.group as u32,
            parts: shape.weight_parts as u32,
            blank: match shape.weight_parts {
                1 => Vec::new(),
                _ => blank.map(|(at, _)| at).collect(),
            },
            bias_steps: match &self.bias {
                Some(_) => shape.bias as u32,
                None => 0,
            },
            regions: self
                .regions
                .iter()
                .map(|region| region.each_ref().map(range))
                .collect(),
            residual: shape.residual,
            window_rows: shape.window_rows as u32,
            pool: self.pool.map(window),
        }
    }
}
