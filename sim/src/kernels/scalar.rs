//! The scalar kernel: every configuration, every CPU.

use vta_isa::{AluOp, for_alu_op};

use super::{COLUMN, Format, Memory, Operand, PADDING, Product, Row, Start, Step};

/// Runs a product whose offsets are checked.
pub(super) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    for column in 0..product.panel.columns() {
        for index in 0..product.rows.rows.len() {
            let sums = Sums::of(product, column, index);
            sums.run(memory, |of_row, memory| sums.add_products(of_row, memory));
        }
    }
}

/// The sums of one row in one column.
#[derive(Clone, Copy)]
pub(super) struct Sums<'a> {
    product: &'a Product<'a>,
    column: usize,
    /// Which row.
    index: usize,
    row: &'a Row,
}

impl<'a> Sums<'a> {
    /// The sums of a row that there is.
    pub fn of(product: &'a Product<'a>, column: usize, index: usize) -> Self {
        Self {
            product,
            column,
            index,
            row: &product.rows.rows[index],
        }
    }

    /// Everything around the products, which `add_products` adds.
    pub fn run(self, memory: &mut Memory<'_>, add_products: impl FnOnce(&mut [i32], &Memory<'_>)) {
        let Self { product, row, .. } = self;
        let (base, width) = (
            product.bases.columns[self.column],
            product.block.min(COLUMN),
        );
        let mut sums = [0i32; COLUMN];
        let sums = &mut sums[..width];
        let at = |base: u32, offset: u32| {
            let first = base as usize + offset as usize;
            first..first + width
        };
        match product.start {
            Start::Zero => {}
            Start::Acc => sums.copy_from_slice(&memory.acc[at(base.dst, row.dst)]),
            Start::Residual => {
                let bytes = &memory.residual[at(base.residual, row.residual)];
                for (sum, &byte) in sums.iter_mut().zip(bytes) {
                    *sum = i32::from(byte as i8);
                }
            }
        }
        for step in product.before.list() {
            self.step(step, sums, memory);
        }
        for (sum, first) in sums.iter_mut().zip(&product.first[self.column]) {
            *sum = sum.wrapping_add(*first);
        }
        add_products(sums, memory);
        for step in product.after.list() {
            self.step(step, sums, memory);
        }
        if product.write_acc {
            memory.acc[at(base.dst, row.dst)].copy_from_slice(sums);
        }
        if product.store {
            let bytes = &mut memory.out[at(base.out, row.out)];
            for (byte, sum) in bytes.iter_mut().zip(sums.iter()) {
                *byte = *sum as u8;
            }
        }
    }

    fn add_products(self, sums: &mut [i32], memory: &Memory<'_>) {
        let Self { product, .. } = self;
        if product.panel.format() == Format::DiagonalPairs {
            return self.add_diagonals(sums, memory);
        }
        let (block, columns) = (product.block, product.panel.columns());
        let tap_lines = (block * sums.len()).div_ceil(64);
        let lines = product.panel.lines();
        // Blocks have one row.
        let taps = product.inputs.taps();
        let offsets = &product.inputs.offsets[self.index * taps..(self.index + 1) * taps];
        for (t, &offset) in offsets.iter().enumerate() {
            let input = match offset {
                PADDING => continue,
                offset => memory.inp.bytes(offset as usize..offset as usize + block),
            };
            let lines = &lines[(t * columns + self.column) * tap_lines..][..tap_lines];
            let rows = lines.iter().flat_map(|line| line.0.chunks(block));
            for (sum, weights) in sums.iter_mut().zip(rows) {
                let dot = input.iter().zip(weights);
                let dot: i32 = dot
                    .map(|(&x, &w)| i32::from(x as i8) * i32::from(w as i8))
                    .sum();
                *sum = sum.wrapping_add(dot);
            }
        }
    }

    /// Of each tap one product for every sum.
    fn add_diagonals(self, sums: &mut [i32], memory: &Memory<'_>) {
        let taps = self.product.inputs.taps();
        let offsets = &self.product.inputs.offsets[self.index * taps..][..taps];
        for (line, offsets) in self.product.panel.lines().iter().zip(offsets.chunks(2)) {
            for (at, &offset) in offsets.iter().enumerate() {
                let inputs = match offset {
                    PADDING => continue,
                    offset => memory.inp.bytes(offset as usize..offset as usize + COLUMN),
                };
                let weights = line.0.as_chunks::<4>().0;
                for ((sum, &x), w) in sums.iter_mut().zip(inputs).zip(weights) {
                    let w = i16::from_le_bytes([w[2 * at], w[2 * at + 1]]);
                    *sum = sum.wrapping_add(i32::from(x as i8) * i32::from(w));
                }
            }
        }
    }

    fn step(self, step: &Step, sums: &mut [i32], memory: &Memory<'_>) {
        match &step.operand {
            Operand::Imm(imm) => {
                for_alu_op!(step.op, OP => sums.iter_mut().for_each(|x| *x = OP.apply(*x, *imm)));
            }
            Operand::Lanes(lanes) => apply(step.op, sums, &lanes[self.column]),
            Operand::Tiles(tiles) => {
                let at = tiles[self.column] as usize + self.row.lane as usize;
                apply(step.op, sums, &memory.acc[at..]);
            }
            Operand::Scaled(lanes) => {
                let at = self.product.bases.columns[self.column].residual + self.row.residual;
                let bytes = &memory.residual[at as usize..];
                for ((x, factor), &byte) in sums.iter_mut().zip(&lanes[self.column]).zip(bytes) {
                    *x = x.wrapping_add(factor.wrapping_mul(i32::from(byte as i8)));
                }
            }
        }
    }
}

/// `x = op(x, y)` for as many lanes as both have.
fn apply(op: AluOp, lanes: &mut [i32], operands: &[i32]) {
    for_alu_op!(op, OP => {
        for (x, y) in lanes.iter_mut().zip(operands) {
            *x = OP.apply(*x, *y);
        }
    });
}
