//! The scalar kernel: every configuration, every CPU.

use super::{COLUMN, Memory, Operand, PADDING, Product, Row, Start, Step};

/// Runs a product whose offsets are checked.
pub(super) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    for column in 0..product.panel.columns() {
        for (index, row) in product.rows.rows.iter().enumerate() {
            one(product, column, index, row, memory);
        }
    }
}

fn one(product: &Product<'_>, column: usize, index: usize, row: &Row, memory: &mut Memory<'_>) {
    let (block, width) = (product.block, product.block.min(COLUMN));
    let mut sums = [0i32; COLUMN];
    let sums = &mut sums[..width];
    let at = |bases: &[u32; super::MAX_COLUMNS], offset: u32| {
        let first = bases[column] as usize + offset as usize;
        first..first + width
    };
    match product.start {
        Start::Zero => {}
        Start::Acc => sums.copy_from_slice(&memory.acc[at(&product.bases.acc, row.dst)]),
        Start::Residual => {
            let bytes = &memory.residual[at(&product.bases.residual, row.residual)];
            for (sum, &byte) in sums.iter_mut().zip(bytes) {
                *sum = i32::from(byte as i8);
            }
        }
    }
    for step in product.before.list() {
        lane_step(step, (column, row), sums, memory, product);
    }
    for (sum, first) in sums.iter_mut().zip(&product.first[column]) {
        *sum = sum.wrapping_add(*first);
    }
    let columns = product.panel.columns();
    let tap_lines = (block * width).div_ceil(64);
    let lines = product.panel.lines();
    // Blocks have one row.
    let taps = product.inputs.taps();
    let offsets = &product.inputs.offsets[index * taps..(index + 1) * taps];
    for (t, &offset) in offsets.iter().enumerate() {
        let input = match offset {
            PADDING => continue,
            offset => &memory.inp[offset as usize..offset as usize + block],
        };
        let lines = &lines[(t * columns + column) * tap_lines..][..tap_lines];
        let rows = lines.iter().flat_map(|line| line.0.chunks(block));
        for (sum, weights) in sums.iter_mut().zip(rows) {
            let dot = input.iter().zip(weights);
            let dot: i32 = dot
                .map(|(&x, &w)| i32::from(x as i8) * i32::from(w as i8))
                .sum();
            *sum = sum.wrapping_add(dot);
        }
    }
    for step in product.after.list() {
        lane_step(step, (column, row), sums, memory, product);
    }
    if product.write_acc {
        memory.acc[at(&product.bases.acc, row.dst)].copy_from_slice(sums);
    }
    if product.store {
        let bytes = &mut memory.out[at(&product.bases.out, row.out)];
        for (byte, sum) in bytes.iter_mut().zip(sums.iter()) {
            *byte = *sum as u8;
        }
    }
}

fn lane_step(
    step: &Step,
    (column, row): (usize, &Row),
    sums: &mut [i32],
    memory: &Memory<'_>,
    product: &Product<'_>,
) {
    match &step.operand {
        Operand::Imm(imm) => sums.iter_mut().for_each(|x| *x = step.op.apply(*x, *imm)),
        Operand::Lanes(lanes) => {
            for (x, y) in sums.iter_mut().zip(&lanes[column]) {
                *x = step.op.apply(*x, *y);
            }
        }
        Operand::Tiles(tiles) => {
            let tile = &memory.acc[tiles[column] as usize + row.lane as usize..];
            for (x, y) in sums.iter_mut().zip(tile) {
                *x = step.op.apply(*x, *y);
            }
        }
        Operand::Scaled(lanes) => {
            let at = product.bases.residual[column] + row.residual;
            let bytes = &memory.residual[at as usize..];
            for ((x, factor), &byte) in sums.iter_mut().zip(&lanes[column]).zip(bytes) {
                *x = x.wrapping_add(factor.wrapping_mul(i32::from(byte as i8)));
            }
        }
    }
}
