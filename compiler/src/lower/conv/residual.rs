//! Residuals that the matrix unit adds: the load module brings them as input tiles, and diagonal
//! weight tiles multiply them digit by digit (`division`).

use std::ops::Range;

use vta_isa::MemType;

use super::super::LowerError;
use super::super::emit::{Loops, uop};
use super::super::transfer::{Transfer, transfers};
use super::layer::{Acc, Product, Walk};
use super::work::Work;

impl Walk<'_, '_, '_> {
    /// Loads a tile's residual and those diagonals of its blocks that come after the `resident`
    /// ones. The residual's place has one part: what used it last was a chunk before the previous
    /// one.
    pub(super) fn load_residual(
        &mut self,
        product: &Product,
        work: &Work,
        resident: usize,
    ) -> Result<(), LowerError> {
        let to = [product.inp, work.area()];
        for rows in transfers(product.input, work.places(), self.conv.out_size, to) {
            self.e.load(MemType::Inp, rows)?;
        }
        // Of a diagonal that all blocks share there is one.
        let tiles = |blocks: usize| product.division.tiles(blocks);
        let (from, count) = if product.division.uniform() {
            (0, if resident == 0 { tiles(1) } else { 0 })
        } else {
            let from = tiles(resident);
            (from, tiles(work.co.end).saturating_sub(from))
        };
        if count > 0 {
            let diagonals = Transfer::run(product.diagonals, [product.wgt + from, from], count);
            self.e.load(MemType::Wgt, diagonals)?;
        }
        Ok(())
    }

    /// Adds some of the digits' products.
    pub(super) fn add_digits(
        &mut self,
        product: &Product,
        work: &Work,
        acc: &Acc,
        digits: Range<usize>,
    ) -> Result<(), LowerError> {
        if digits.is_empty() {
            return Ok(());
        }
        let uniform = product.division.uniform();
        let (blocks, area) = if uniform {
            (1, work.co.len() * acc.pitch)
        } else {
            (work.co.len(), acc.pitch)
        };
        let mut uops = Vec::with_capacity(blocks * digits.len());
        for block in 0..blocks {
            for digit in digits.clone() {
                let tile = if uniform {
                    digit
                } else {
                    (work.co.start + block) * product.division.steps() + digit
                };
                let place = block * acc.pitch;
                let tiles = [acc.base + place, product.inp + place, product.wgt + tile];
                uops.push(uop(tiles));
            }
        }
        self.e.gemm(uops, Loops::run(area, [1, 1]))
    }
}
