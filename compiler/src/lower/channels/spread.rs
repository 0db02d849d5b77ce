//! Channels that become neighbouring positions: products go to every `up`-th accumulator, so that
//! the output's rows lie whole in the accumulators and are stored as they are.

use std::collections::BTreeMap;
use std::ops::Range;

use vta_isa::Gemm;

use super::super::emit::{Loops, Rect, Sums, uop};
use super::super::transfer::{Area, Transfer, strides};
use super::super::vector::lanes::Piece;
use super::super::{Fault, LowerError};
use super::Channels;

/// What is fetched at once: the set of its selection tiles, the input and its block.
type Source = (usize, usize, usize);

impl Channels<'_, '_> {
    /// All blocks, with tiles that fit.
    pub(super) fn spread(&mut self, [blocks, most]: [usize; 2]) -> Result<(), LowerError> {
        let spread = self.taken.spread;
        let sizes = [self.taken.inputs[0], self.taken.output].map(|id| {
            let [_, h, w] = self.halves.e.lowering.graph.tensors[id.0].chw;
            [h, w]
        });
        let [input, [oh, ow]] = sizes;
        for sides in [[input[0], input[1] * spread.step[0]], [oh, ow]] {
            let fits = strides(sides, "columns");
            fits.map_err(|reason| self.halves.e.fault(Fault::NoTile(reason)))?;
        }
        let c = ow.min(most);
        // Rows of one phase lie as many tiles apart as an instruction can step.
        let most_rows = if Gemm::FIELDS.dst_factor_out.fits(spread.up[0] * c) {
            oh
        } else {
            spread.up[0]
        };
        let r = (most / c).min(most_rows).min(oh);
        for area in Area::all(blocks, [oh, ow], [r, c]) {
            self.area(&area, (blocks, sizes))?;
        }
        Ok(())
    }

    fn area(
        &mut self,
        area: &Area,
        (blocks, [input, [oh, ow]]): (usize, [[usize; 2]; 2]),
    ) -> Result<(), LowerError> {
        let (spread, base) = (self.taken.spread, self.halves.next()?);
        let copied = self.is_copied(area.block);
        if !copied {
            self.halves.e.clear(Rect::run(base, area.count()))?;
        }
        let mut sources: BTreeMap<Source, Vec<(usize, usize)>> = BTreeMap::new();
        for phase in 0..spread.phases() {
            for index in self.selection.picks(phase * blocks + area.block) {
                let pick = self.selection.pick(index);
                let source = (self.selection.set(pick.tile), pick.input, pick.block);
                sources.entry(source).or_default().push((phase, pick.tile));
            }
        }
        for ((_, from, block), parts) in sources {
            self.source(area, (input, [from, block, base]), &parts)?;
        }
        let piece = Piece {
            blocks: area.block..area.block + 1,
            positions: 0..area.count(),
        };
        if !copied {
            self.operations(&piece, base)?;
        }
        let output = self.halves.e.lowering.base(self.taken.output);
        self.halves
            .store(Transfer::area(output, [oh, ow], area, base))
    }

    /// Fetches what an area reads of an input block and adds it where each phase has it.
    fn source(
        &mut self,
        area: &Area,
        ([h, w], [from, block, base]): ([usize; 2], [usize; 3]),
        parts: &[(usize, usize)],
    ) -> Result<(), LowerError> {
        let spread = self.taken.spread;
        let reach = |axis: usize, out: &Range<usize>| {
            spread.position(axis, out.start)..spread.position(axis, out.end - 1) + 1
        };
        let reached = Area {
            block,
            rows: reach(0, &area.rows),
            cols: reach(1, &area.cols),
        };
        let (rows, cols) = (&reached.rows, &reached.cols);
        let taken = |axis: usize, reach: &Range<usize>| (reach.len() - 1) / spread.step[axis] + 1;
        let size = [taken(0, rows), taken(1, cols)];
        let input = self.halves.e.lowering.base(self.taken.inputs[from]);
        let fetched = Transfer {
            size,
            stride: w * spread.step[0],
            step: spread.step[1],
            ..Transfer::area(input, [h, w], &reached, base)
        };
        if self.is_copied(area.block) {
            return self
                .halves
                .stage
                .load(&mut self.halves.e, fetched, Sums::Set);
        }
        let products = self.halves.stage.products(&self.halves.e)?;
        let weights = parts.first();
        let weights = weights.and_then(|(_, tile)| self.selection.renew(*tile));
        let first = products.fetch(&mut self.halves.e, fetched, weights.as_ref())?;
        for &(phase, tile) in parts {
            let own = [phase / spread.up[1], phase % spread.up[1]];
            let outs = |axis: usize, out: &Range<usize>| {
                let apart = own[axis] + spread.up[axis] - spread.phase(axis, out.start);
                let start = out.start + apart % spread.up[axis];
                let count = out.end.saturating_sub(start).div_ceil(spread.up[axis]);
                (start, count)
            };
            let ((y, rows_of), (x, cols_of)) = (outs(0, &area.rows), outs(1, &area.cols));
            if rows_of == 0 || cols_of == 0 {
                continue;
            }
            let width = area.cols.len();
            let dst = base + (y - area.rows.start) * width + x - area.cols.start;
            let at = [
                (spread.position(0, y) - rows.start) / spread.step[0],
                (spread.position(1, x) - cols.start) / spread.step[1],
            ];
            let src = first + at[0] * size[1] + at[1];
            // A factor of a loop with one trip is never used.
            let factor = |count: usize, step: usize| if count > 1 { step } else { 0 };
            let loops = Loops {
                iter: [rows_of, cols_of],
                dst: [
                    factor(rows_of, spread.up[0] * width),
                    factor(cols_of, spread.up[1]),
                ],
                src: [factor(rows_of, size[1]), factor(cols_of, 1)],
            };
            self.halves
                .e
                .gemm(vec![uop([dst, src, self.selection.place(tile)])], loops)?;
            self.products += (rows_of * cols_of) as u64;
        }
        products.ring.free(&mut self.halves.e)
    }
}
