//! Products without tables, with 256-bit instructions: as in the kernels beside, `madd` or `dpbusd`.

use std::arch::x86_64::*;

use super::{Sums, add_neighbours, load};
use crate::kernels::direct::{DotColumn, DotRow, Dots, Singles};

macro_rules! add {
    ($add:ident, $block:ident, $most:literal: $($n:literal)*) => {
        /// Adds products whose offsets were checked, on a CPU that has the instructions.
        pub(in crate::kernels) fn $add(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
            dots.each_column(inp, acc, $most, |here, rows| {
                // SAFETY: `GemmKernel::add` has checked every offset against the scratchpads, and that all tiles
                // are laid out; kernels are only chosen where the CPU has their instructions.
                unsafe {
                    match rows.len() {
                        $($n => $block::<$n>(here, &rows.as_chunks().0[0]),)*
                        rows => unreachable!("{rows} rows"),
                    }
                }
            });
        }
    };
}

// Rows whose sums, weights and one input fit the 16 registers.
add!(add_madd, block_madd, 3: 1 2 3);
add!(add_vnni, block_vnni, 6: 1 2 3 4 5 6);

/// # Safety
/// The CPU has the features. 16 int32 of the accumulators lie at each row, inputs of a block's bytes at each row for
/// each tap, and a line for every four of them at each tap's tile.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn block_vnni<const N: usize>(here: &DotColumn<'_>, rows: &[DotRow; N]) {
    let bias = _mm256_set1_epi8(i8::MIN);
    // SAFETY: the caller's promise; `first` has 16 int32.
    unsafe {
        let mut sums: [Sums; N] = [load(here.first[0].as_ptr(), 0); N];
        for tap in here.dots.taps {
            let inputs = here.inputs(tap, rows);
            let mut panel = here.panel(tap.wgt).cast::<__m256i>();
            add_vnni!(here.dots.block, inputs, panel, bias, sums);
        }
        end(here, rows, &sums);
    }
}

/// # Safety
/// As for [`block_vnni`], but with two lines for every four bytes.
#[target_feature(enable = "avx2")]
unsafe fn block_madd<const N: usize>(here: &DotColumn<'_>, rows: &[DotRow; N]) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut pairs = [[_mm256_setzero_si256(); 4]; N];
        for tap in here.dots.taps {
            let inputs = here.inputs(tap, rows);
            let mut panel = here.panel(tap.wgt).cast::<__m256i>();
            add_madd!(here.dots.block, inputs, panel, pairs);
        }
        let sums = pairs.map(|pairs| {
            [
                add_neighbours(pairs[0], pairs[1]),
                add_neighbours(pairs[2], pairs[3]),
            ]
        });
        end(here, rows, &sums);
    }
}

/// Adds the sums to the accumulators.
///
/// # Safety
/// 16 int32 of the accumulators lie at each row.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn end<const N: usize>(here: &DotColumn<'_>, rows: &[DotRow; N], sums: &[Sums; N]) {
    for (sum, row) in sums.iter().zip(rows) {
        // SAFETY: the caller's promise.
        unsafe {
            let held = load(here.acc, row.acc);
            let to = here.acc.add(row.acc as usize);
            _mm256_storeu_si256(to.cast(), _mm256_add_epi32(held[0], sum[0]));
            _mm256_storeu_si256(to.add(8).cast(), _mm256_add_epi32(held[1], sum[1]));
        }
    }
}

/// Adds products of tiles as they are, whose offsets were checked, on a CPU that has AVX2; blocks are multiples of 16.
pub(in crate::kernels) fn add_singles(singles: &Singles<'_>, inp: &[u8], acc: &mut [i32]) {
    let block = singles.block;
    for single in singles.list {
        let sums = &mut acc[single.acc as usize..][..block];
        let input = &inp[single.inp as usize..][..block];
        let tile = &singles.wgt[single.wgt as usize * block * block..][..block * block];
        let eights = sums.as_chunks_mut::<8>().0.iter_mut();
        for (sums, rows) in eights.zip(tile.chunks_exact(8 * block)) {
            // SAFETY: eight rows of as many bytes as the input has; kernels are only chosen where the CPU has their
            // instructions.
            unsafe { add_rows(sums, input, rows) };
        }
    }
}

/// Adds the products of an input with eight rows of weights.
///
/// # Safety
/// The CPU has AVX2. The input has a multiple of 16 bytes, and `rows` eight times as many.
#[target_feature(enable = "avx2")]
unsafe fn add_rows(sums: &mut [i32; 8], input: &[u8], rows: &[u8]) {
    let block = input.len();
    let mut pairs = [_mm256_setzero_si256(); 8];
    for at in (0..block).step_by(16) {
        // SAFETY: 16 bytes from here, in the input and in each row.
        unsafe {
            let x = _mm256_cvtepi8_epi16(_mm_loadu_si128(input.as_ptr().add(at).cast()));
            for (row, pairs) in pairs.iter_mut().enumerate() {
                let w = rows.as_ptr().add(row * block + at);
                let w = _mm256_cvtepi8_epi16(_mm_loadu_si128(w.cast()));
                *pairs = _mm256_add_epi32(*pairs, _mm256_madd_epi16(x, w));
            }
        }
    }
    let twos = [
        _mm256_hadd_epi32(pairs[0], pairs[1]),
        _mm256_hadd_epi32(pairs[2], pairs[3]),
        _mm256_hadd_epi32(pairs[4], pairs[5]),
        _mm256_hadd_epi32(pairs[6], pairs[7]),
    ];
    let fours = [
        _mm256_hadd_epi32(twos[0], twos[1]),
        _mm256_hadd_epi32(twos[2], twos[3]),
    ];
    // Adding works on 128-bit halves, of which each has a part of four sums.
    let low = _mm256_permute2x128_si256::<0x20>(fours[0], fours[1]);
    let high = _mm256_permute2x128_si256::<0x31>(fours[0], fours[1]);
    let added = _mm256_add_epi32(low, high);
    // SAFETY: eight int32.
    unsafe {
        let held = _mm256_loadu_si256(sums.as_ptr().cast());
        let sum = _mm256_add_epi32(held, added);
        _mm256_storeu_si256(sums.as_mut_ptr().cast(), sum);
    }
}
