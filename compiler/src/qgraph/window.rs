//! Windows over rows and columns, and the zeros around them.
//!
//! An axis is 0 for rows and 1 for columns, as in every pair of sizes here.

use std::fmt;
use std::ops::{Add, Range};

/// Zeros around the rows and columns of a tensor.
///
/// Wherever they are listed, from ONNX's attribute to a tuning cache's key, their order is top,
/// left, bottom, right.
///
/// ```
/// use vta_compiler::qgraph::Pads;
///
/// let pads = Pads::from([1, 2, 3, 4]);
/// assert_eq!((pads.before(), pads.after()), ([1, 2], [3, 4]));
/// assert_eq!(pads + Pads::all(1), Pads::from([2, 3, 4, 5]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pads {
    /// Rows above.
    pub top: usize,
    /// Columns on the left.
    pub left: usize,
    /// Rows below.
    pub bottom: usize,
    /// Columns on the right.
    pub right: usize,
}

impl Pads {
    /// None on any side.
    pub const NONE: Self = Self::all(0);

    /// As many on every side.
    pub const fn all(pad: usize) -> Self {
        Self {
            top: pad,
            left: pad,
            bottom: pad,
            right: pad,
        }
    }

    /// In front of each axis: top, left.
    pub const fn before(self) -> [usize; 2] {
        [self.top, self.left]
    }

    /// Behind each axis: bottom, right.
    pub const fn after(self) -> [usize; 2] {
        [self.bottom, self.right]
    }

    /// Top, left, bottom, right.
    pub const fn to_array(self) -> [usize; 4] {
        [self.top, self.left, self.bottom, self.right]
    }
}

impl From<[usize; 4]> for Pads {
    /// Top, left, bottom, right.
    fn from([top, left, bottom, right]: [usize; 4]) -> Self {
        Self {
            top,
            left,
            bottom,
            right,
        }
    }
}

impl Add for Pads {
    type Output = Self;

    /// Zeros around zeros.
    fn add(self, other: Self) -> Self {
        Self {
            top: self.top + other.top,
            left: self.left + other.left,
            bottom: self.bottom + other.bottom,
            right: self.right + other.right,
        }
    }
}

/// Geometry of a window; pairs are rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// KH, KW.
    pub kernel: [usize; 2],
    /// From output to output.
    pub stride: [usize; 2],
    /// From tap to tap.
    pub dilation: [usize; 2],
    /// Around the input.
    pub pads: Pads,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kernel,
            stride,
            dilation,
            pads,
        } = self;
        let pads = pads.to_array();
        write!(
            f,
            "kernel {kernel:?} stride {stride:?} dilation {dilation:?} pads {pads:?}"
        )
    }
}

impl Window {
    /// Every position of an input of the kernel's size once, or a single position for `[1, 1]`:
    /// strides and dilations of 1, no pads.
    pub const fn whole(kernel: [usize; 2]) -> Self {
        Self {
            kernel,
            stride: [1, 1],
            dilation: [1, 1],
            pads: Pads::NONE,
        }
    }

    /// Output rows and columns for an input of `h` by `w`; `None` when the kernel doesn't fit.
    pub fn output(&self, h: usize, w: usize) -> Option<[usize; 2]> {
        let axis = |axis: usize, size: usize| {
            let (kernel, dilation) = (self.kernel[axis], self.dilation[axis]);
            let span = dilation.checked_mul(kernel.checked_sub(1)?)?;
            let pads = self.pads.before()[axis].checked_add(self.pads.after()[axis])?;
            let room = size.checked_add(pads)?.checked_sub(span.checked_add(1)?)?;
            room.checked_div(self.stride[axis])?.checked_add(1)
        };
        Some([axis(0, h)?, axis(1, w)?])
    }

    /// Output rows and columns of the transposed convolution of an input of `h` by `w`, with as
    /// many more below and on the right; `None` where nothing is left, or for sizes that overflow.
    pub fn transposed(&self, input: [usize; 2], more: [usize; 2]) -> Option<[usize; 2]> {
        let axis = |axis: usize| {
            let (kernel, dilation) = (self.kernel[axis], self.dilation[axis]);
            let span = dilation
                .checked_mul(kernel.checked_sub(1)?)?
                .checked_add(1)?;
            let last = input[axis].checked_sub(1)?.checked_mul(self.stride[axis])?;
            let all = last.checked_add(span)?.checked_add(more[axis])?;
            let pads = self.pads.before()[axis].checked_add(self.pads.after()[axis])?;
            all.checked_sub(pads).filter(|&n| n > 0)
        };
        Some([axis(0)?, axis(1)?])
    }

    /// The window of the outputs alone that lie `skip`, `skip + step` .. on each axis, `out` of them, for an
    /// input of rows and columns; `None` where no pads say so.
    pub(crate) fn every(
        &self,
        [skip, step]: [[usize; 2]; 2],
        input: [usize; 2],
        out: [usize; 2],
    ) -> Option<Self> {
        let axis = |axis: usize| {
            let stride = self.stride[axis].checked_mul(step[axis])?;
            let skipped = self.stride[axis].checked_mul(skip[axis])?;
            let before = self.pads.before()[axis].checked_sub(skipped)?;
            let end = stride.checked_mul(out[axis].checked_sub(1)?)? + self.span(axis);
            Some((stride, before, end.saturating_sub(before + input[axis])))
        };
        let [(rows, top, bottom), (columns, left, right)] = [axis(0)?, axis(1)?];
        let window = Self {
            stride: [rows, columns],
            pads: Pads::from([top, left, bottom, right]),
            ..*self
        };
        (window.output(input[0], input[1]) == Some(out)).then_some(window)
    }

    /// Positions from a kernel's first tap to its last.
    pub const fn span(&self, axis: usize) -> usize {
        self.dilation[axis] * (self.kernel[axis] - 1) + 1
    }

    /// Taps of the kernel.
    pub const fn area(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The outputs of an axis, of `out`, whose tap lies inside an input of `size`.
    pub fn valid(&self, axis: usize, tap: usize, size: usize, out: usize) -> Range<usize> {
        let (stride, pad) = (self.stride[axis], self.pads.before()[axis]);
        let offset = tap * self.dilation[axis];
        let first = pad.saturating_sub(offset).div_ceil(stride);
        let end = match (size + pad).checked_sub(offset + 1) {
            Some(last) => (last / stride + 1).min(out),
            None => 0,
        };
        first.min(end)..end
    }

    /// The position of an axis that an output's tap falls on; `None` on padding.
    pub fn position(&self, axis: usize, output: usize, tap: usize, size: usize) -> Option<usize> {
        let padded = output * self.stride[axis] + tap * self.dilation[axis];
        let position = padded.checked_sub(self.pads.before()[axis])?;
        (position < size).then_some(position)
    }

    /// The positions of an axis, of `size`, that some of an output's taps fall on.
    pub fn positions(
        &self,
        axis: usize,
        output: usize,
        taps: Range<usize>,
        size: usize,
    ) -> impl Iterator<Item = usize> {
        taps.filter_map(move |tap| self.position(axis, output, tap, size))
    }

    /// The taps that some output has an input for, row by row; sizes are rows and columns.
    pub(crate) fn taps(&self, size: [usize; 2], out: [usize; 2]) -> Vec<Tap> {
        let [kh, kw] = self.kernel;
        let all = (0..kh).flat_map(|y| (0..kw).map(move |x| [y, x]));
        let tap = |index: [usize; 2]| {
            let valid = |axis: usize| self.valid(axis, index[axis], size[axis], out[axis]);
            let (rows, cols) = (valid(0), valid(1));
            let first = |axis: usize, output| self.position(axis, output, index[axis], size[axis]);
            let from = [first(0, rows.start)?, first(1, cols.start)?];
            (!rows.is_empty() && !cols.is_empty()).then_some(Tap {
                index,
                rows,
                cols,
                from,
                stride: self.stride,
                widths: [size[1], out[1]],
            })
        };
        all.filter_map(tap).collect()
    }
}

/// A tap of a window, and the outputs that have an input there.
pub(crate) struct Tap {
    /// Row and column in the kernel.
    pub index: [usize; 2],
    rows: Range<usize>,
    cols: Range<usize>,
    /// The input position of the first of these outputs.
    from: [usize; 2],
    stride: [usize; 2],
    /// Columns of input and output.
    widths: [usize; 2],
}

impl Tap {
    /// Shows `fold` each of these outputs of a plane with its input at the tap.
    pub fn fold<X: Copy, Y>(&self, input: &[X], output: &mut [Y], mut fold: impl FnMut(&mut Y, X)) {
        let [width, out_width] = self.widths;
        for (n, row) in self.rows.clone().enumerate() {
            let from = (self.from[0] + n * self.stride[0]) * width;
            let from = &input[from + self.from[1]..from + width];
            let to = &mut output[row * out_width..][self.cols.clone()];
            // The common stride is worth a loop of its own.
            if self.stride[1] == 1 {
                to.iter_mut().zip(from).for_each(|(y, x)| fold(y, *x));
            } else {
                let from = from.iter().step_by(self.stride[1]);
                to.iter_mut().zip(from).for_each(|(y, x)| fold(y, *x));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn taps_visit_every_pair_of_output_and_input_once(
            size in [1usize..8, 1usize..8], kernel in [1usize..4, 1usize..4], stride in [1usize..4, 1usize..4],
            dilation in [1usize..4, 1usize..4], pads in prop::array::uniform4(0usize..6),
        ) {
            let window = Window { kernel, stride, dilation, pads: pads.into() };
            let Some(out) = window.output(size[0], size[1]) else { return Ok(()); };
            let input: Vec<usize> = (0..size[0] * size[1]).collect();
            let mut seen = vec![Vec::new(); out[0] * out[1]];
            for tap in window.taps(size, out) {
                tap.fold(&input, &mut seen, |seen, x| seen.push((tap.index, x)));
            }
            for (at, seen) in seen.iter().enumerate() {
                let (i, j) = (at / out[1], at % out[1]);
                let mut expected = Vec::new();
                for (y, x) in (0..kernel[0]).flat_map(|y| (0..kernel[1]).map(move |x| (y, x))) {
                    let r = (i * stride[0] + y * dilation[0]) as i64 - pads[0] as i64;
                    let q = (j * stride[1] + x * dilation[1]) as i64 - pads[1] as i64;
                    if (0..size[0] as i64).contains(&r) && (0..size[1] as i64).contains(&q) {
                        expected.push(([y, x], r as usize * size[1] + q as usize));
                    }
                }
                prop_assert_eq!(seen, &expected);
            }
        }
    }
}
