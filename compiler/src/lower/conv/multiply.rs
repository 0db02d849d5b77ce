//! The products of a chunk.
//!
//! Taps that fall on padding multiply zeros and are left out: every tap runs over the outputs
//! that it has an input for. Taps with the same rectangle of outputs share an instruction, so
//! a tile in the middle of the image takes one, or three where it reaches both sides; micro-ops
//! of all of a chunk's instructions are one kernel.
//!
//! Weights in several parts have as many tiles for each tap, which multiply the same inputs. Of the
//! parts after the first most tiles are all zeros, and no step visits those.

use std::ops::Range;

use vta_isa::{Module, Uop};

use super::super::LowerError;
use super::super::emit::{Loops, Sums, anew, uop};
use super::layer::{Acc, Conv, Start, Walk};
use super::work::{Chunk, Work};

/// Outputs of a phase along one axis: `places` of the tile, the first of which reads the input
/// position `input`.
#[derive(Clone, PartialEq, Eq)]
struct Reach {
    places: Range<usize>,
    input: usize,
}

/// Taps that multiply for the same rectangle of a tile's places.
struct SharedTaps {
    rows: Range<usize>,
    cols: Range<usize>,
    taps: Vec<Tap>,
}

/// One tap of one phase, or a part of it: the tiles of its first product.
struct Tap {
    dst: usize,
    src: usize,
    wgt: usize,
    /// The tile of a further part, among all of a pair of blocks.
    further: Option<usize>,
}

impl Conv<'_> {
    /// Places of a phase whose output has an input at a tap.
    fn reach(&self, axis: usize, out: &Range<usize>, phase: usize, tap: usize) -> Option<Reach> {
        let step = self.phases()[axis];
        let valid = self.shape.valid(axis, tap);
        let first = out.start + phase;
        let place = |o: usize| o.saturating_sub(first).div_ceil(step);
        let places = place(valid.start)..place(valid.end.min(out.end));
        let input = (first + places.start * step) * self.shape.window.stride[axis]
            + tap * self.shape.window.dilation[axis];
        (!places.is_empty()).then(|| Reach {
            input: input - self.shape.window.pads.before()[axis],
            places,
        })
    }

    /// Whether a weight tile of a pair of output and input blocks is all zeros.
    fn is_blank(&self, pair: usize, tile: usize) -> bool {
        let tiles = self.shape.window.kernel[0] * self.shape.tiles_across();
        let blank = self.blank.get(pair * tiles + tile);
        blank.copied().unwrap_or(false)
    }

    /// Steps of the parts of weights after the first.
    pub(super) fn further_products(&self) -> u64 {
        let [kh, kw] = self.shape.window.kernel;
        let parts = self.shape.weight_parts;
        let taps = (0..kh).flat_map(|y| (0..kw).map(move |x| (y, x)));
        let of = |(y, x): (usize, usize)| -> u64 {
            let outputs = self.shape.valid(0, y).len() * self.shape.valid(1, x).len();
            let tiles = (1..parts).map(|part| (y * kw + x) * parts + part);
            let visited = |tile| {
                let pairs = 0..self.shape.co * self.shape.ci;
                pairs.filter(|&pair| !self.is_blank(pair, tile)).count()
            };
            outputs as u64 * tiles.map(visited).sum::<usize>() as u64
        };
        taps.map(of).sum()
    }

    /// The micro-ops of some taps, output block by output block.
    fn push_uops(&self, work: &Work, chunk: &Chunk, acc: &Acc, taps: &[Tap], uops: &mut Vec<Uop>) {
        let area = chunk.rows.len * chunk.cols.len;
        // Of a sum over windows all weights are one tile.
        let weights = if self.shape.ones {
            0
        } else {
            chunk.kernel_rows.len() * self.shape.tiles_across()
        };
        let blocks = chunk.ci.len();
        // Blocks count from the first that was loaded.
        let first = self.shape.first_input(work.co.start);
        for (co, block) in work.co.clone().enumerate() {
            // Of the others the weights are all zeros.
            let read = |ci: &usize| self.shape.reads(block, chunk.ci.start + ci);
            let before = self.shape.first_input(block) - first;
            for tap in taps {
                let multiplies = |ci: &usize| {
                    let pair = block * self.shape.ci + chunk.ci.start + ci;
                    read(ci) && !tap.further.is_some_and(|tile| self.is_blank(pair, tile))
                };
                for ci in (0..blocks).filter(multiplies) {
                    uops.push(uop([
                        tap.dst + co * acc.pitch,
                        tap.src + (before + ci) * area,
                        tap.wgt + (co * blocks + ci) * weights,
                    ]));
                }
            }
        }
    }

    /// All taps of a chunk whose first input and weight tiles are `[inp, wgt]`.
    fn shared(
        &self,
        work: &Work,
        chunk: &Chunk,
        acc: &Acc,
        [inp, wgt]: [usize; 2],
    ) -> Vec<SharedTaps> {
        let [ph, pw] = self.phases();
        let (columns, taps) = (work.cols.len() / pw, chunk.kernel_rows.len());
        let width = chunk.cols.len;
        let kw = self.shape.window.kernel[1];
        let mut shared: Vec<SharedTaps> = Vec::new();
        let phases = (0..ph).flat_map(|p| (0..pw).map(move |q| (p, q)));
        let all = (0..taps).flat_map(|y| (0..kw).map(move |x| (y, x)));
        for ((p, q), (y, x)) in phases.flat_map(|phase| all.clone().map(move |tap| (phase, tap))) {
            let row = self.reach(0, &work.rows, p, chunk.kernel_rows.start + y);
            let col = self.reach(1, &work.cols, q, x);
            let (Some(row), Some(col)) = (row, col) else {
                continue;
            };
            let src = inp + chunk.rows.index(row.input) * width + chunk.cols.index(col.input);
            let place = row.places.start * columns + col.places.start;
            let dst = acc.base + (p * pw + q) * acc.kept + place;
            let (rows, cols) = (row.places, col.places);
            let parts = self.shape.weight_parts;
            let place = if self.shape.ones {
                0
            } else {
                (y * kw + x) * parts
            };
            let row = (chunk.kernel_rows.start + y) * kw + x;
            let tap = |part: usize| Tap {
                dst,
                src,
                wgt: wgt + place + part,
                further: (part > 0).then_some(row * parts + part),
            };
            let taps = (0..parts).map(tap);
            match shared.iter_mut().find(|g| g.rows == rows && g.cols == cols) {
                Some(one) => one.taps.extend(taps),
                None => shared.push(SharedTaps {
                    rows,
                    cols,
                    taps: taps.collect(),
                }),
            }
        }
        shared
    }
}

impl Conv<'_> {
    /// What a tile's sums start from.
    pub(super) fn starts(&self, work: &Work) -> Start {
        let Some(chunk) = work.chunks.first().filter(|_| self.shape.anew) else {
            return Start::Cleared;
        };
        if self.bias.is_some() && self.bias_first() && self.shape.plain == 0 {
            return Start::Bias;
        }
        if self.shape.window_rows > 0 {
            return Start::Products;
        }
        let acc = self.acc(work, 0);
        let shared = self.shared(work, chunk, &acc, [0, 0]);
        let whole = shared.iter().find(|one| self.is_whole(work, one));
        let phases = self.phases().iter().product::<usize>();
        let mut uops = Vec::new();
        let all = whole.is_some_and(|one| {
            self.push_uops(work, chunk, &acc, &one.taps, &mut uops);
            anew(uops).0.len() == work.co.len() * phases
        });
        if all { Start::Products } else { Start::Cleared }
    }

    /// Whether taps are those of all places of a tile.
    fn is_whole(&self, work: &Work, taps: &SharedTaps) -> bool {
        let [rows, cols] = [&work.rows, &work.cols].map(Range::len);
        let [ph, pw] = self.phases();
        taps.rows == (0..rows / ph) && taps.cols == (0..cols / pw)
    }
}

impl Walk<'_, '_, '_> {
    /// Emits the products of a chunk for a part of the tile's blocks. The first on each sum may replace what its tile held.
    pub(super) fn multiply(
        &mut self,
        work: &Work,
        chunk: &Chunk,
        acc: &Acc,
        sums: Sums,
        part: &Range<usize>,
    ) -> Result<(), LowerError> {
        if self.conv.shape.window_rows > 0 {
            return self.multiply_windows(work, acc, sums, part);
        }
        let halves = self.conv.halves(&self.progress);
        let mut shared = self.conv.shared(work, chunk, acc, halves);
        let [ph, pw] = self.conv.phases();
        let cols = work.cols.len() / pw;
        let mut kernel = Vec::new();
        let mut lists = Vec::with_capacity(shared.len() + 1);
        if sums == Sums::Set {
            // Those that all of the tile's sums have come first.
            if let Some(whole) = shared.iter().position(|one| self.conv.is_whole(work, one)) {
                shared.swap(0, whole);
            }
        }
        for one in shared {
            let begin = kernel.len();
            self.conv
                .push_uops(work, chunk, acc, &one.taps, &mut kernel);
            if sums == Sums::Set && lists.is_empty() {
                let (first, rest) = anew(kernel);
                let end = first.len();
                kernel = [first, rest].concat();
                lists.push((one.rows.clone(), one.cols.clone(), 0..end, Sums::Set));
                if end < kernel.len() {
                    lists.push((one.rows, one.cols, end..kernel.len(), Sums::Add));
                }
            } else {
                lists.push((one.rows, one.cols, begin..kernel.len(), Sums::Add));
            }
        }
        if part.len() < work.co.len() {
            // Of each list those are next to each other that multiply for a part.
            let before =
                |end: usize| move |uop: &Uop| (usize::from(uop.dst) - acc.base) / acc.pitch < end;
            for (_, _, uops, _) in &mut lists {
                let all = &kernel[uops.clone()];
                let first = uops.start;
                *uops = first + all.partition_point(before(part.start))
                    ..first + all.partition_point(before(part.end));
            }
            lists.retain(|(_, _, uops, _)| !uops.is_empty());
        }
        if lists.is_empty() {
            // Dilated taps may all fall beside the input, and groups of a part read others; the chunk's tokens still pass.
            return self.e.sync(Module::Compute);
        }
        let kernel = self.e.kernel(kernel)?;
        let width = chunk.cols.len;
        let down = self.conv.shape.window.stride[0] * ph / chunk.rows.step;
        for (rows, columns, uops, sums) in lists {
            // A factor of a loop with one trip is never used.
            let row = if rows.len() > 1 { down * width } else { 0 };
            let loops = Loops {
                iter: [rows.len(), columns.len()],
                dst: [cols, 1],
                src: [row, self.conv.shape.window.stride[1] * pw],
            };
            self.spend(rows.len() * columns.len() * uops.len())?;
            self.e.gemm_part(kernel, uops, loops, sums)?;
        }
        Ok(())
    }
}
