//! Products without tables, with 256-bit instructions: as in the kernels beside, `madd` or `dpbusd`.

use std::arch::x86_64::*;

use super::{Sums, add_neighbours, load};
use crate::kernels::COLUMN;
use crate::kernels::direct::{DotColumn, DotRow, Dots, Tap};

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
pub(in crate::kernels) fn add_plain(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
    for row in dots.rows.list() {
        let (sums, _) = acc[row.acc as usize..][..dots.block].as_chunks_mut::<8>();
        for (eight, sums) in sums.iter_mut().enumerate() {
            let tile = row.wgt as usize * dots.block * dots.block;
            let weights = &dots.wgt[tile + 8 * eight * dots.block..];
            // SAFETY: `GemmKernel::add_plain` has checked every offset: inputs of a block's bytes and eight rows of
            // as many lie at each tap; kernels are only chosen where the CPU has their instructions.
            unsafe {
                add_eight(
                    dots,
                    inp[row.inp as usize..].as_ptr(),
                    weights.as_ptr(),
                    sums,
                )
            };
        }
    }
}

/// Adds the products of a row's inputs with eight rows of each tile.
///
/// # Safety
/// The CPU has AVX2. Inputs of a block's bytes lie behind `inp` for each tap, and eight rows of as many behind `wgt`
/// for each tap's tile; a block is a multiple of 16.
#[target_feature(enable = "avx2")]
unsafe fn add_eight(dots: &Dots<'_>, inp: *const u8, wgt: *const u8, sums: &mut [i32; 8]) {
    let block = dots.block;
    let mut pairs = [_mm256_setzero_si256(); 8];
    for tap in dots.taps {
        for at in (0..block).step_by(16) {
            // SAFETY: 16 bytes from here, in the inputs and in each row.
            unsafe {
                let x = inp.add(tap.inp as usize + at);
                let x = _mm256_cvtepi8_epi16(_mm_loadu_si128(x.cast()));
                let rows = wgt.add(tap.wgt as usize * block * block + at);
                for (row, pairs) in pairs.iter_mut().enumerate() {
                    let w = _mm_loadu_si128(rows.add(row * block).cast());
                    let products = _mm256_madd_epi16(x, _mm256_cvtepi8_epi16(w));
                    *pairs = _mm256_add_epi32(*pairs, products);
                }
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

/// Adds products of tiles of 16 by 16 as they are, whose offsets were checked, on a CPU that has AVX-VNNI.
pub(in crate::kernels) fn add_plain_vnni(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
    dots.each_row(inp, acc, |sums, x, tiles| {
        // SAFETY: `GemmKernel::add_plain` has checked every offset: 16 inputs and a tile lie at each tap; kernels are
        // only chosen where the CPU has their instructions.
        unsafe { add_tiles(dots.taps, x, tiles, sums) };
    });
}

/// Adds the products of a row's inputs with each tap's tile.
///
/// # Safety
/// The CPU has the features. 16 inputs lie behind `inp` for each tap, and its tile of 256 bytes behind `tiles`.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn add_tiles(taps: &[Tap], inp: *const u8, tiles: *const u8, sums: &mut [i32; COLUMN]) {
    let bias = _mm256_set1_epi8(i8::MIN);
    // Two outputs each, four int32 of both; and what the bias of the weights adds to each.
    let (mut parts, mut more) = ([_mm256_setzero_si256(); 8], _mm256_setzero_si256());
    for tap in taps {
        // SAFETY: the caller's promise.
        unsafe {
            let x = _mm_loadu_si128(inp.add(tap.inp as usize).cast());
            let x = _mm256_broadcastsi128_si256(x);
            more = _mm256_dpbusd_avx_epi32(more, bias, x);
            let tile = tiles.add(256 * tap.wgt as usize);
            for (i, part) in parts.iter_mut().enumerate() {
                let w = _mm256_loadu_si256(tile.add(32 * i).cast());
                *part = _mm256_dpbusd_avx_epi32(*part, _mm256_xor_si256(w, bias), x);
            }
        }
    }
    let parts = parts.map(|part| _mm256_sub_epi32(part, more));
    let (halves, _) = parts.as_chunks::<4>();
    let (sums, _) = sums.as_chunks_mut::<8>();
    for (&[a, b, c, d], sums) in halves.iter().zip(sums) {
        // Even outputs are in the low half now, the others in the high one.
        let added = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let added = _mm256_permutevar8x32_epi32(added, order);
        // SAFETY: eight int32.
        unsafe {
            let sum = _mm256_add_epi32(_mm256_loadu_si256(sums.as_ptr().cast()), added);
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), sum);
        }
    }
}
