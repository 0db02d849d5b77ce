//! The kernel of WebAssembly's vectors of 128 bits: products of int16, two of which add up to an int32.
//!
//! Weights and inputs are int8, so that no sum of two products is lost. Rows share each vector of weights. What comes
//! before and after the products is the scalar kernel's, which compilers make vectors of.

use std::arch::wasm32::*;

use super::scalar::Sums as Ends;
use super::{COLUMN, Memory, PADDING, Product};

/// A column's 16 sums.
type Sums = [v128; 4];

/// Rows whose sums, weights and inputs fit 16 registers.
const MOST_ROWS: usize = 3;

/// Runs a product whose offsets were checked.
pub(super) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    let taps = product.inputs.taps();
    for range in product.inputs.stretches.iter().flat_map(|s| s.ranges()) {
        let offsets = &product.inputs.offsets[range.start * taps..range.end * taps];
        let mut sums = [[0; COLUMN]; MOST_ROWS];
        // SAFETY: `Way::run` has checked every offset of the product against its memory and the panel's length.
        unsafe {
            match range.len() {
                1 => block::<1>(product, offsets, memory, &mut sums),
                2 => block::<2>(product, offsets, memory, &mut sums),
                MOST_ROWS => block::<MOST_ROWS>(product, offsets, memory, &mut sums),
                rows => unreachable!("{rows} rows"),
            }
        }
        for (index, sums) in range.zip(&sums) {
            Ends::of(product, 0, index).run(memory, |of_row, _| {
                for (sum, products) in of_row.iter_mut().zip(sums) {
                    *sum = sum.wrapping_add(*products);
                }
            });
        }
    }
}

/// The products of N rows; `offsets` are those of each tap.
///
/// # Safety
/// Offsets lie inside the inputs, with a block's bytes, or are padding; the panel has one column and as many taps.
unsafe fn block<const N: usize>(
    product: &Product<'_>,
    offsets: &[u32],
    memory: &Memory<'_>,
    to: &mut [[i32; COLUMN]; MOST_ROWS],
) {
    let mut panel = product.panel.lines().as_ptr().cast::<v128>();
    let mut sums: [Sums; N] = [[i32x4_splat(0); 4]; N];
    for offsets in offsets.as_chunks::<N>().0 {
        let inputs = offsets.map(|offset| match offset {
            PADDING => memory.zeros.as_ptr(),
            offset => memory.inp.as_ptr().wrapping_add(offset as usize),
        });
        for at in (0..product.block).step_by(8) {
            // SAFETY: the caller's promise: an input has a block's bytes, a tap a line for every two of them.
            unsafe {
                let inputs = inputs.map(|input| i16x8_load_extend_i8x8(input.add(at).cast()));
                add_pair::<N, 0>(&mut sums, inputs, panel);
                add_pair::<N, 1>(&mut sums, inputs, panel.add(4));
                add_pair::<N, 2>(&mut sums, inputs, panel.add(8));
                add_pair::<N, 3>(&mut sums, inputs, panel.add(12));
                panel = panel.add(16);
            }
        }
    }
    for (sums, to) in sums.iter().zip(to) {
        for (sum, to) in sums.iter().zip(to.as_chunks_mut::<4>().0) {
            // SAFETY: four int32.
            unsafe { v128_store(to.as_mut_ptr().cast(), *sum) };
        }
    }
}

/// Adds the products of two inputs of each row, those of a pair, with a line of weights.
///
/// # Safety
/// The line is readable.
#[inline(always)]
unsafe fn add_pair<const N: usize, const PAIR: usize>(
    sums: &mut [Sums; N],
    inputs: [v128; N],
    line: *const v128,
) {
    let pairs = inputs.map(|input| i32x4_shuffle::<PAIR, PAIR, PAIR, PAIR>(input, input));
    for part in 0..4 {
        // SAFETY: the caller's promise: a line is four vectors.
        let weights = unsafe { v128_load(line.add(part)) };
        for (sums, pair) in sums.iter_mut().zip(pairs) {
            sums[part] = i32x4_add(sums[part], i32x4_dot_i16x8(pair, weights));
        }
    }
}
