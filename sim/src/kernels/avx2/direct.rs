//! Products without tables, with 256-bit instructions: as in the kernels beside, `madd` or `dpbusd`.

use std::arch::x86_64::*;

use super::{Sums, add_neighbours, load};
use crate::kernels::COLUMN;
use crate::kernels::direct::{Dots, Place, Singles, Tap};

/// What the rows of one column have in common.
#[derive(Clone, Copy)]
struct Here<'a> {
    taps: &'a [Tap],
    first: [i32; COLUMN],
    /// The column's lines of the first tile, of two vectors each.
    lines: *const __m256i,
    /// Vectors from tile to tile.
    tile_vectors: usize,
    block: usize,
    inp: *const u8,
    acc: *mut i32,
}

macro_rules! add {
    ($add:ident, $block:ident, $most:literal: $($n:literal)*) => {
        /// Adds products whose offsets were checked, on a CPU that has the instructions.
        pub(in crate::kernels) fn $add(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
            for column in 0..dots.block / COLUMN {
                let (lines, tile_lines) = dots.lines(column);
                let here = Here {
                    taps: dots.taps,
                    first: dots.first(column, dots.taps.iter().map(|tap| tap.wgt)),
                    lines: lines.as_ptr().cast(),
                    tile_vectors: 2 * tile_lines,
                    block: dots.block,
                    inp: inp.as_ptr(),
                    acc: acc[column * COLUMN..].as_mut_ptr(),
                };
                for now in dots.places.list().chunks($most) {
                    // SAFETY: `GemmKernel::add` has checked every offset against the scratchpads, and that all tiles
                    // are laid out; kernels are only chosen where the CPU has their instructions.
                    unsafe {
                        match now.len() {
                            $($n => $block::<$n>(here, &now.as_chunks().0[0]),)*
                            rows => unreachable!("{rows} rows"),
                        }
                    }
                }
            }
        }
    };
}

// Rows whose sums, weights and one input fit the 16 registers.
add!(add_madd, block_madd, 3: 1 2 3);
add!(add_vnni, block_vnni, 6: 1 2 3 4 5 6);

/// # Safety
/// The CPU has the features. Rows of 16 int32 of the accumulators lie at each place, inputs of `block` bytes at each
/// place for each tap, and a line for every four of them at each tap's tile.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn block_vnni<const N: usize>(here: Here<'_>, places: &[Place; N]) {
    let bias = _mm256_set1_epi8(i8::MIN);
    // SAFETY: the caller's promise; `first` has 16 int32.
    unsafe {
        let mut sums: [Sums; N] = [load(here.first.as_ptr(), 0); N];
        for tap in here.taps {
            let inputs = inputs(here, tap, places);
            let mut panel = here.lines.add(tap.wgt as usize * here.tile_vectors);
            add_vnni!(here.block, inputs, panel, bias, sums);
        }
        end(here, places, &sums);
    }
}

/// # Safety
/// As for [`block_vnni`], but with two lines for every four bytes.
#[target_feature(enable = "avx2")]
unsafe fn block_madd<const N: usize>(here: Here<'_>, places: &[Place; N]) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut pairs = [[_mm256_setzero_si256(); 4]; N];
        for tap in here.taps {
            let inputs = inputs(here, tap, places);
            let mut panel = here.lines.add(tap.wgt as usize * here.tile_vectors);
            add_madd!(here.block, inputs, panel, pairs);
        }
        let sums = pairs.map(|pairs| {
            [
                add_neighbours(pairs[0], pairs[1]),
                add_neighbours(pairs[2], pairs[3]),
            ]
        });
        end(here, places, &sums);
    }
}

/// Where the inputs of each place lie for a tap.
///
/// # Safety
/// They lie inside the inputs.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn inputs<const N: usize>(here: Here<'_>, tap: &Tap, places: &[Place; N]) -> [*const u8; N] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|n| unsafe { here.inp.add((places[n].inp + tap.inp) as usize) })
}

/// Adds the sums to the accumulators.
///
/// # Safety
/// 16 int32 of the accumulators lie at each place.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn end<const N: usize>(here: Here<'_>, places: &[Place; N], sums: &[Sums; N]) {
    for (sum, place) in sums.iter().zip(places) {
        // SAFETY: the caller's promise.
        unsafe {
            let held = load(here.acc, place.acc);
            let to = here.acc.add(place.acc as usize);
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
