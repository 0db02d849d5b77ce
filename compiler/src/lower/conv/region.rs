//! The bias by position, where padding has a zero point.
//!
//! A tap on padding reads the input's zero point. It is left out of the products as ever, so that an
//! output lacks the zero point times the weights of such taps: a constant for each channel.
//! Outputs that lack the same taps are a rectangle, a region, and every region has a bias of its own,
//! with what its outputs lack. The matrix unit adds them where it would add the one bias, in as
//! many steps, with more weight tiles; where those don't reach, or take more loads than they save,
//! regions are vectors, which the ALU adds to the sums' start.

use std::ops::Range;

use vta_isa::{AluOp, Extension};
use vta_program::Packing;

use super::super::emit::{Loops, uop};
use super::super::{LowerError, Lowering};
use super::layer::{Acc, Conv, Walk};
use super::parts::{Parts, Region};
use super::work::Work;
use crate::qgraph::window::Window;
use crate::semantics;

impl Lowering<'_> {
    /// Divides a convolution's outputs into regions and takes the bias from the epilogue, which is
    /// then in the regions. Where every output has all taps, there are none and the bias stays.
    pub(super) fn divide<'g>(&self, parts: Parts<'g>) -> Parts<'g> {
        let [input, output] = [parts.input, parts.output].map(|id| &self.graph.tensors[id.0]);
        let packing = &self.program.tensors[parts.input.0].packing;
        // Patches have the zero point where padding is.
        if input.zero == 0 || parts.ones || *packing != Packing::Tiles {
            return parts;
        }
        let axis = |a: usize| runs(parts.window, a, [input.chw[a + 1], output.chw[a + 1]]);
        let [rows, cols] = [axis(0), axis(1)];
        let whole = |(runs, taps): (&Vec<Run>, usize)| runs.iter().all(|run| run.taps == (0..taps));
        if [&rows, &cols]
            .into_iter()
            .zip(parts.window.kernel)
            .all(whole)
        {
            return parts;
        }
        let (base, rest) = parts.bias(output.chw[0]);
        let whole = semantics::whole_weights(parts.weights, parts.weight_count());
        let sums = tap_sums(&whole, base.len(), parts.window.kernel);
        let region = |(row, col): (&Run, &Run)| {
            let lacks =
                |sums: &TapSums| sums.total().wrapping_sub(sums.within(&row.taps, &col.taps));
            let bias = base.iter().zip(&sums);
            let bias =
                bias.map(|(base, sums)| base.wrapping_add(lacks(sums).wrapping_mul(input.zero)));
            Region {
                places: [row.outputs.clone(), col.outputs.clone()],
                bias: bias.collect(),
            }
        };
        let pairs = rows
            .iter()
            .flat_map(|row| cols.iter().map(move |col| (row, col)));
        Parts {
            regions: pairs.map(region).collect(),
            epilogue: rest,
            ..parts
        }
    }

    /// The convolution without the regions that add nothing, as the middle does where STOREs add the bias: products start
    /// its sums, and what the border lacks comes behind them.
    pub(super) fn borders<'g>(&self, parts: &Parts<'g>) -> Option<Parts<'g>> {
        let adds = |region: &&Region| region.bias.iter().any(|bias| *bias != 0);
        let regions: Vec<Region> = parts.regions.iter().filter(adds).cloned().collect();
        let less = regions.len() < parts.regions.len();
        (less && self.has(Extension::Overwrite)).then_some(Parts { regions, ..*parts })
    }
}

/// Neighbouring outputs of an axis with the same taps inside the input.
struct Run {
    outputs: Range<usize>,
    taps: Range<usize>,
}

/// The runs of an axis with `size` inputs and `outputs` outputs.
fn runs(window: &Window, axis: usize, [size, outputs]: [usize; 2]) -> Vec<Run> {
    let (kernel, dilation) = (window.kernel[axis], window.dilation[axis]);
    let pad = window.pads.before()[axis];
    let mut runs: Vec<Run> = Vec::new();
    for output in 0..outputs {
        let at = output * window.stride[axis];
        let first = pad.saturating_sub(at).div_ceil(dilation).min(kernel);
        let end = (size + pad)
            .saturating_sub(at)
            .div_ceil(dilation)
            .min(kernel);
        let taps = if first < end { first..end } else { 0..0 };
        match runs.last_mut() {
            Some(run) if run.taps == taps => run.outputs.end = output + 1,
            _ => runs.push(Run {
                outputs: output..output + 1,
                taps,
            }),
        }
    }
    runs
}

/// Sums of a channel's weights over rectangles of taps; they wrap as the sums of products do.
struct TapSums {
    kernel: [usize; 2],
    /// `[y][x]`: of all taps above and left of it.
    before: Vec<i32>,
}

impl TapSums {
    fn at(&self, y: usize, x: usize) -> i32 {
        self.before[y * (self.kernel[1] + 1) + x]
    }

    fn total(&self) -> i32 {
        let [kh, kw] = self.kernel;
        self.at(kh, kw)
    }

    fn within(&self, rows: &Range<usize>, cols: &Range<usize>) -> i32 {
        let upper = self
            .at(rows.start, cols.end)
            .wrapping_sub(self.at(rows.start, cols.start));
        let lower = self
            .at(rows.end, cols.end)
            .wrapping_sub(self.at(rows.end, cols.start));
        lower.wrapping_sub(upper)
    }
}

/// The sums of each channel's weights, `[CO][CI][KH][KW]`.
fn tap_sums(weights: &[i32], channels: usize, [kh, kw]: [usize; 2]) -> Vec<TapSums> {
    let taps = weights.len() / channels.max(1);
    let channel = |row: &[i32]| {
        let mut sums = TapSums {
            kernel: [kh, kw],
            before: vec![0; (kh + 1) * (kw + 1)],
        };
        for (y, x) in (0..kh).flat_map(|y| (0..kw).map(move |x| (y, x))) {
            let tap = row.iter().skip(y * kw + x).step_by(kh * kw);
            let tap = tap.fold(0i32, |sum, &w| sum.wrapping_add(w));
            let sides = sums.at(y, x + 1).wrapping_add(sums.at(y + 1, x));
            let sum = tap.wrapping_add(sides).wrapping_sub(sums.at(y, x));
            sums.before[(y + 1) * (kw + 1) + x + 1] = sum;
        }
        sums
    };
    weights.chunks(taps.max(1)).map(channel).collect()
}

/// A rectangle of a tile's places in one phase: the first one's offset in a block, and loops.
struct Patch {
    first: usize,
    loops: Loops,
}

impl Conv<'_> {
    /// How many vectors the regions are: none where the matrix unit adds them.
    pub(super) fn region_vectors(&self) -> usize {
        match self.bias {
            Some(_) => 0,
            None => self.regions.len(),
        }
    }

    /// Where a region lies in a tile, phase by phase.
    fn patches(&self, region: &[Range<usize>; 2], work: &Work, acc: &Acc) -> Vec<Patch> {
        let [ph, pw] = self.phases();
        let columns = work.cols.len() / pw;
        let places = |axis: usize, phase: usize| {
            let (out, step) = match axis {
                0 => (&work.rows, ph),
                _ => (&work.cols, pw),
            };
            let first = out.start + phase;
            let place = |o: usize| o.min(out.end).saturating_sub(first).div_ceil(step);
            place(region[axis].start)..place(region[axis].end)
        };
        let phases = (0..ph).flat_map(|p| (0..pw).map(move |q| (p, q)));
        let patch = |(p, q): (usize, usize)| {
            let (rows, cols) = (places(0, p), places(1, q));
            (!rows.is_empty() && !cols.is_empty()).then(|| Patch {
                first: (p * pw + q) * acc.kept + rows.start * columns + cols.start,
                loops: Loops {
                    iter: [rows.len(), cols.len()],
                    dst: [columns, 1],
                    src: [0, 0],
                },
            })
        };
        phases.filter_map(patch).collect()
    }
}

impl Walk<'_, '_, '_> {
    /// Adds the regions that are digits: `input` times weight tiles from `wgt` on, `[CO/B][region]
    /// [step]`.
    pub(super) fn add_regions(
        &mut self,
        work: &Work,
        acc: &Acc,
        [input, wgt]: [usize; 2],
    ) -> Result<(), LowerError> {
        let (count, steps) = (self.conv.regions.len(), self.conv.shape.bias);
        for (r, region) in self.conv.regions.iter().enumerate() {
            for patch in self.conv.patches(region, work, acc) {
                let mut uops = Vec::with_capacity(work.co.len() * steps);
                for (i, block) in work.co.clone().enumerate() {
                    let dst = acc.base + i * acc.pitch + patch.first;
                    let digits = wgt + (block * count + r) * steps;
                    uops.extend((0..steps).map(|step| uop([dst, input, digits + step])));
                }
                self.add_digits_of_bias(work, uops, patch.loops)?;
            }
        }
        Ok(())
    }

    /// Adds the regions that are vectors, or begins with their copies.
    pub(super) fn add_region_vectors(&mut self, work: &Work, acc: &Acc) -> Result<(), LowerError> {
        let blocks = work.co.len();
        let op = if self.conv.copies_bias {
            AluOp::Mov
        } else {
            AluOp::Add
        };
        let regions = &self.conv.regions[..self.conv.region_vectors()];
        for (r, region) in regions.iter().enumerate() {
            for patch in self.conv.patches(region, work, acc) {
                let [first, vectors] = [acc.base + patch.first, self.conv.vector_base + r * blocks];
                let pairs = (0..blocks).map(|block| [first + block * acc.pitch, vectors + block]);
                self.e.join(op, pairs, patch.loops)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_have_the_taps_inside(
            size in 1usize..12, kernel in 1usize..6, stride in 1usize..4, dilation in 1usize..4,
            pads in prop::array::uniform4(0usize..7), axis in 0usize..2,
        ) {
            let window = Window { kernel: [kernel; 2], stride: [stride; 2], dilation: [dilation; 2], pads: pads.into() };
            let Some(outputs) = window.output(size, size) else { return Ok(()); };
            let runs = runs(&window, axis, [size, outputs[axis]]);
            let mut next = 0;
            for run in &runs {
                prop_assert_eq!(run.outputs.start, next);
                next = run.outputs.end;
                for output in run.outputs.clone() {
                    let inside = (0..kernel).filter(|&t| window.position(axis, output, t, size).is_some());
                    prop_assert_eq!(inside.collect::<Vec<_>>(), run.taps.clone().collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(next, outputs[axis]);
            prop_assert!(runs.windows(2).all(|pair| pair[0].taps != pair[1].taps));
        }

        #[test]
        fn tap_sums_are_those_of_the_weights(
            ci in 1usize..5, kernel in [1usize..5, 1usize..5], at in [0usize..5, 0usize..5, 0usize..5, 0usize..5],
            seed in any::<u64>(),
        ) {
            let [kh, kw] = kernel;
            let weights: Vec<i32> = (0..2 * ci * kh * kw).map(|i| (seed.rotate_left(i as u32 * 7) >> 13) as i8 as i32).collect();
            let part = |a: usize, b: usize, k: usize| a.min(b).min(k)..a.max(b).min(k);
            let (rows, cols) = (part(at[0], at[1], kh), part(at[2], at[3], kw));
            for (c, sums) in tap_sums(&weights, 2, kernel).iter().enumerate() {
                let taps = rows.clone().flat_map(|y| cols.clone().map(move |x| (y, x)));
                let all = taps.flat_map(|(y, x)| (0..ci).map(move |i| ((i * kh) + y) * kw + x));
                let expected: i32 = all.map(|i| weights[c * ci * kh * kw + i]).sum();
                prop_assert_eq!(sums.within(&rows, &cols), expected);
                prop_assert_eq!(sums.within(&(0..kh), &(0..kw)), sums.total());
            }
        }
    }
}
