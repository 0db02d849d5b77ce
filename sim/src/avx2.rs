//! The AVX2 GEMM kernel. Unsafe code is confined to [`block_rows`].
//!
//! Products of int8 are exact in int16 pairs: `madd` gives `x0*w0 + x1*w1` in int32, at most
//! `2 * 128 * 128`. Sums wrap as the instruction set defines. Accumulation commutes, so for
//! accumulator rows that differ between inner trips the micro-ops of one destination may be
//! summed in registers before the next destination.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi32,
    _mm256_storeu_si256,
};

use vta_isa::{Gemm, Uop};

use crate::kernel::Scratchpads;

/// Accumulator rows that are summed together.
const ROWS: usize = 4;

/// Runs a GEMM whose indices are checked. The caller has detected AVX2.
pub(crate) fn gemm(
    gemm: &Gemm,
    uops: &[Uop],
    batch: usize,
    block: usize,
    mut pads: Scratchpads<'_>,
) {
    let mut start = 0;
    while start < uops.len() {
        let dst = uops[start].dst;
        let len = uops[start..].iter().take_while(|u| u.dst == dst).count();
        same_dst(gemm, &uops[start..start + len], batch, block, &mut pads);
        start += len;
    }
}

/// All trips of micro-ops that share their destination.
fn same_dst(gemm: &Gemm, uops: &[Uop], batch: usize, block: usize, pads: &mut Scratchpads<'_>) {
    let lanes = batch * block;
    let inner = usize::from(gemm.iter_in);
    // Rows of one group must have different destinations and the same weights.
    let group = if gemm.dst_factor_in != 0 && gemm.wgt_factor_in == 0 {
        ROWS
    } else {
        1
    };
    let dst_step = usize::from(gemm.dst_factor_in) * lanes;
    let src_step = usize::from(gemm.src_factor_in) * lanes;
    for i in 0..usize::from(gemm.iter_out) {
        let dst_out = usize::from(uops[0].dst) + i * usize::from(gemm.dst_factor_out);
        for b in 0..batch {
            let mut j = 0;
            while j < inner {
                let rows = Rows {
                    dst: dst_out * lanes + b * block + j * dst_step,
                    dst_step,
                    src: (i * usize::from(gemm.src_factor_out)) * lanes + b * block + j * src_step,
                    src_step,
                    wgt: i * usize::from(gemm.wgt_factor_out) + j * usize::from(gemm.wgt_factor_in),
                    lanes,
                    block,
                };
                if group == ROWS && j + ROWS <= inner {
                    sum_rows::<ROWS>(&rows, uops, pads);
                    j += ROWS;
                } else {
                    sum_rows::<1>(&rows, uops, pads);
                    j += 1;
                }
            }
        }
    }
}

/// Where a group of accumulator rows and its inputs lie: elements, but `wgt` in tiles.
struct Rows {
    dst: usize,
    dst_step: usize,
    src: usize,
    src_step: usize,
    wgt: usize,
    lanes: usize,
    block: usize,
}

fn sum_rows<const N: usize>(rows: &Rows, uops: &[Uop], pads: &mut Scratchpads<'_>) {
    for column in (0..rows.block).step_by(16) {
        // SAFETY: AVX2 was detected when the kernel was chosen; `block_rows` checks every index.
        unsafe { block_rows::<N>(rows, column, uops, pads) }
    }
}

/// Adds to 16 outputs, from `column` on, of N accumulator rows the products of all micro-ops.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn block_rows<const N: usize>(
    rows: &Rows,
    column: usize,
    uops: &[Uop],
    pads: &mut Scratchpads<'_>,
) {
    let block = rows.block;
    let mut sums = [[_mm256_set1_epi32(0); 2]; N];
    for (r, sum) in sums.iter_mut().enumerate() {
        let at = rows.dst + r * rows.dst_step + column;
        let row = &pads.acc[at..at + 16];
        // SAFETY: `row` has 16 int32, two unaligned vectors.
        unsafe {
            sum[0] = _mm256_loadu_si256(row.as_ptr().cast());
            sum[1] = _mm256_loadu_si256(row.as_ptr().add(8).cast());
        }
    }
    for uop in uops {
        let tile = (usize::from(uop.wgt) + rows.wgt) * block * block + column * block;
        let low = &pads.wgt_layout[tile..tile + 8 * block];
        let high = &pads.wgt_layout[tile + 8 * block..tile + 16 * block];
        let first = usize::from(uop.src) * rows.lanes + rows.src;
        let inputs: [&[i16]; N] = std::array::from_fn(|r| {
            let at = first + r * rows.src_step;
            &pads.inp[at..at + block]
        });
        for pair in 0..block / 2 {
            // SAFETY: a group of eight outputs has `8 * block` int16, 16 for each of the
            // `block / 2` pairs, so both loads stay inside; each input has `block` int16, so
            // the unaligned int32 at `2 * pair` does too.
            unsafe {
                let w0: __m256i = _mm256_loadu_si256(low.as_ptr().add(16 * pair).cast());
                let w1: __m256i = _mm256_loadu_si256(high.as_ptr().add(16 * pair).cast());
                for (sum, input) in sums.iter_mut().zip(&inputs) {
                    let x = input.as_ptr().add(2 * pair).cast::<i32>().read_unaligned();
                    let x = _mm256_set1_epi32(x);
                    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(x, w0));
                    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(x, w1));
                }
            }
        }
    }
    for (r, sum) in sums.iter().enumerate() {
        let at = rows.dst + r * rows.dst_step + column;
        let row = &mut pads.acc[at..at + 16];
        // SAFETY: `row` has 16 int32, two unaligned vectors.
        unsafe {
            _mm256_storeu_si256(row.as_mut_ptr().cast(), sum[0]);
            _mm256_storeu_si256(row.as_mut_ptr().add(8).cast(), sum[1]);
        }
    }
}
