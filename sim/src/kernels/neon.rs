//! The NEON kernel: `sdot`, the dot product of ARMv8.2.
//!
//! It multiplies signed bytes and adds four products to an int32, modulo 2^32, so it is exact. Rows share each vector of
//! weights; four bytes of a row's input are chosen by a lane. What comes before and after the products is the scalar
//! kernel's, which compilers make vectors of.

use std::arch::aarch64::*;
use std::arch::asm;

use super::direct::{DotColumn, DotRow, Dots};
use super::scalar::Sums as Ends;
use super::{COLUMN, Line, Memory, PADDING, Product};

/// A column's 16 sums.
type Sums = [int32x4_t; 4];

/// Rows whose sums, weights and inputs fit the 32 registers.
macro_rules! by_rows {
    ($len:expr, $n:ident => $do:expr) => {
        match $len {
            1 => by_rows!(@ 1, $n => $do),
            2 => by_rows!(@ 2, $n => $do),
            3 => by_rows!(@ 3, $n => $do),
            4 => by_rows!(@ 4, $n => $do),
            5 => by_rows!(@ 5, $n => $do),
            rows => unreachable!("{rows} rows"),
        }
    };
    (@ $number:literal, $n:ident => $do:expr) => {{
        const $n: usize = $number;
        $do
    }};
}

/// The rows of [`by_rows`] at most.
const MOST_ROWS: usize = 5;

/// Runs a product whose offsets were checked, on a CPU that has the instructions.
pub(super) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    let taps = product.inputs.taps();
    let blocks: usize = product.inputs.stretches.iter().map(|s| s.blocks).sum();
    let mut ahead = product
        .ahead
        .chunks(product.ahead.len().div_ceil(blocks.max(1)).max(1));
    for range in product.inputs.stretches.iter().flat_map(|s| s.ranges()) {
        ahead.next().unwrap_or_default().iter().for_each(prefetch);
        let offsets = &product.inputs.offsets[range.start * taps..range.end * taps];
        let mut sums = [[0; COLUMN]; MOST_ROWS];
        by_rows!(range.len(), N => {
            let (offsets, _) = offsets.as_chunks::<N>();
            // SAFETY: `GemmKernel::run` has checked every offset of the product against its memory and the panel's
            // length; kernels are only chosen where `GemmKernel::supported` is true.
            unsafe { block::<N>(product, offsets, memory, &mut sums) };
        });
        for (index, sums) in range.zip(&sums) {
            Ends::of(product, 0, index).run(memory, |of_row, _| {
                for (sum, products) in of_row.iter_mut().zip(sums) {
                    *sum = sum.wrapping_add(*products);
                }
            });
        }
    }
}

/// Brings a line closer.
fn prefetch(line: &Line) {
    // SAFETY: no register or memory changes.
    unsafe {
        asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
    }
}

/// The products of N rows; `offsets` are those of each tap.
///
/// # Safety
/// The CPU has the features. Offsets lie inside the inputs, with a block's bytes, or are padding; the panel has one
/// column and as many taps.
#[target_feature(enable = "neon,dotprod")]
unsafe fn block<const N: usize>(
    product: &Product<'_>,
    offsets: &[[u32; N]],
    memory: &Memory<'_>,
    to: &mut [[i32; COLUMN]; MOST_ROWS],
) {
    // SAFETY: the caller's promise: a tap has a line for every four bytes of an input.
    unsafe {
        let mut panel = product.panel.lines().as_ptr();
        let mut sums: [Sums; N] = [[vdupq_n_s32(0); 4]; N];
        for offsets in offsets {
            let inputs = offsets.map(|offset| match offset {
                PADDING => memory.zeros.as_ptr(),
                offset => memory.inp.as_ptr().add(offset as usize),
            });
            panel = add_products(&mut sums, inputs, panel, product.block);
        }
        store(&sums, to);
    }
}

/// Writes sums of N rows, of which there are at most [`MOST_ROWS`].
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn store<const N: usize>(sums: &[Sums; N], to: &mut [[i32; COLUMN]; MOST_ROWS]) {
    for (sums, to) in sums.iter().zip(to) {
        for (sum, to) in sums.iter().zip(to.as_chunks_mut::<4>().0) {
            // SAFETY: four int32.
            unsafe { vst1q_s32(to.as_mut_ptr(), *sum) };
        }
    }
}

/// Adds the products of a tap; the lines behind its own.
///
/// # Safety
/// The CPU has the features. Each input has `block` bytes, and there is a line for every four.
#[target_feature(enable = "neon,dotprod")]
#[inline]
unsafe fn add_products<const N: usize>(
    sums: &mut [Sums; N],
    inputs: [*const u8; N],
    mut panel: *const Line,
    block: usize,
) -> *const Line {
    // SAFETY: the caller's promise.
    unsafe {
        for at in (0..block).step_by(16) {
            let inputs = inputs.map(|input| vld1q_s8(input.add(at).cast()));
            add_four::<N, 0>(sums, inputs, panel);
            add_four::<N, 1>(sums, inputs, panel.add(1));
            add_four::<N, 2>(sums, inputs, panel.add(2));
            add_four::<N, 3>(sums, inputs, panel.add(3));
            panel = panel.add(4);
        }
    }
    panel
}

/// Adds the products of four inputs of each row, those of a lane, with a line of weights.
///
/// # Safety
/// The CPU has the features, and the line is readable.
#[target_feature(enable = "neon,dotprod")]
#[inline]
unsafe fn add_four<const N: usize, const LANE: i32>(
    sums: &mut [Sums; N],
    inputs: [int8x16_t; N],
    line: *const Line,
) {
    for part in 0..4 {
        // SAFETY: the caller's promise: a line is four vectors.
        let weights = unsafe { vld1q_s8(line.cast::<i8>().add(16 * part)) };
        for (sums, input) in sums.iter_mut().zip(inputs) {
            sums[part] = dot::<LANE>(sums[part], weights, input);
        }
    }
}

/// `sdot`, whose intrinsic isn't stable: four int32 take in the products of four bytes each with those of a lane.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn dot<const LANE: i32>(mut sum: int32x4_t, weights: int8x16_t, input: int8x16_t) -> int32x4_t {
    // SAFETY: it touches nothing but registers, and the function has the feature.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {weights:v}.16b, {input:v}.4b[{lane}]",
            sum = inout(vreg) sum,
            weights = in(vreg) weights,
            input = in(vreg) input,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Adds products whose offsets were checked, on a CPU that has the instructions.
pub(super) fn add(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
    dots.each_column(inp, acc, MOST_ROWS, |here, rows| {
        by_rows!(rows.len(), N => {
            // SAFETY: `GemmKernel::add` has checked every offset against the scratchpads, and that all tiles are
            // laid out; kernels are only chosen where `GemmKernel::supported` is true.
            unsafe { add_rows::<N>(here, &rows.as_chunks().0[0]) };
        });
    });
}

/// # Safety
/// The CPU has the features. 16 int32 of the accumulators lie at each row, inputs of a block's bytes at each row for each
/// tap, and a line for every four of them at each tap's tile.
#[target_feature(enable = "neon,dotprod")]
unsafe fn add_rows<const N: usize>(here: &DotColumn<'_>, rows: &[DotRow; N]) {
    let mut sums: [Sums; N] = [[vdupq_n_s32(0); 4]; N];
    // SAFETY: the caller's promise.
    unsafe {
        for tap in here.dots.taps {
            let (inputs, panel) = (here.inputs(tap, rows), here.panel(tap.wgt));
            add_products(&mut sums, inputs, panel, here.dots.block);
        }
        for (sums, row) in sums.iter().zip(rows) {
            for (part, sum) in sums.iter().enumerate() {
                let to = here.acc.add(row.acc as usize + 4 * part);
                vst1q_s32(to, vaddq_s32(vld1q_s32(to), *sum));
            }
        }
    }
}

/// Runs `rounds` of independent `sdot`; how many multiply-adds that were.
pub(super) fn peak(rounds: u64) -> u64 {
    // SAFETY: the kernel that this measures was chosen where `GemmKernel::supported` is true.
    std::hint::black_box(unsafe { saturate(rounds) });
    rounds * 24 * 16
}

/// # Safety
/// The CPU has the features.
#[target_feature(enable = "neon,dotprod")]
unsafe fn saturate(rounds: u64) -> i32 {
    let mut sums = [vdupq_n_s32(0); 24];
    let x = vdupq_n_s8(3);
    let mut w = vdupq_n_s8(5);
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = dot::<0>(*sum, w, x);
        }
        // SAFETY: no instruction at all: it only keeps rounds from being merged.
        unsafe { asm!("/* {0:v} */", inout(vreg) w, options(pure, nomem, nostack)) };
    }
    let sum = sums.into_iter().reduce(|a, b| vaddq_s32(a, b));
    sum.map_or(0, |sum| vaddvq_s32(sum))
}
