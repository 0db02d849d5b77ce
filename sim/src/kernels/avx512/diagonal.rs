//! Products of diagonal weights: a sum takes in one input of each tap.
//!
//! The inputs of four taps, 64 bytes, are one vector. A permutation of bytes puts the four of each output side by side,
//! and `dpbusd` multiplies them as in the AVX-512 VNNI kernel, with the same bias.

use std::arch::x86_64::*;

use super::sums::{Here, apply_steps, at, load, widen};
use crate::kernels::pointers::Pointers;
use crate::kernels::product::bundles::Joined;
use crate::kernels::product::steps::UNBOUNDED;
use crate::kernels::{Memory, PADDING, Product, Start, Stretch};

/// Where the byte of each place comes from: tap `n % 4` of output `n / 4`.
static SIDE_BY_SIDE: [u8; 64] = {
    let mut from = [0; 64];
    let mut n = 0;
    while n < 64 {
        from[n] = (n % 4 * 16 + n / 4) as u8;
        n += 1;
    }
    from
};

/// Runs a product whose offsets were checked, on a CPU that has the instructions.
pub(in crate::kernels) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    let pointers = Pointers::new(memory);
    for stretch in product.inputs.stretches {
        // SAFETY: `Way::run` has checked every offset of the product against its memory and the panel's length; ways
        // are only chosen where the CPU has their instructions.
        unsafe {
            match (stretch.blocks, stretch.rows) {
                (0, _) => {}
                (_, 1) => blocks::<1>(product, stretch, &pointers),
                (_, 2) => blocks::<2>(product, stretch, &pointers),
                (_, 3) => blocks::<3>(product, stretch, &pointers),
                (_, 4) => blocks::<4>(product, stretch, &pointers),
                (_, 5) => blocks::<5>(product, stretch, &pointers),
                (_, 6) => blocks::<6>(product, stretch, &pointers),
                (_, 7) => blocks::<7>(product, stretch, &pointers),
                (_, 8) => blocks::<8>(product, stretch, &pointers),
                // `Product::check` has seen to it that it is one of `Way::rows`.
                (_, rows) => unreachable!("{rows} rows"),
            }
        }
    }
}

/// Blocks of N rows.
///
/// # Safety
/// The CPU has the features. The stretch is of the product's rows, N in each block; the panel has one column and a line
/// for each bundle of four taps, and the product's offsets lie inside the memory that the pointers name.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")]
unsafe fn blocks<const N: usize>(product: &Product<'_>, stretch: Stretch, pointers: &Pointers) {
    const M: usize = 1;
    let bundles = product.inputs.bundle_count();
    let (all_rows, _) = product.rows.rows[stretch.first..][..stretch.blocks * N].as_chunks::<N>();
    let joined = product.inputs.joined();
    let mut joined = joined.map(|j| j[stretch.first * bundles..].as_chunks::<N>().0.iter());
    let offsets = &product.inputs.offsets[stretch.first * 4 * bundles..];
    let mut offsets = offsets.as_chunks::<N>().0.as_chunks::<4>().0.iter();
    // SAFETY: the caller's promise; there are as many bundles of rows as lines of weights for each block, and four taps in
    // each, which `Product::check` has seen to.
    unsafe {
        let permutation = _mm512_loadu_si512(SIDE_BY_SIDE.as_ptr().cast());
        let bias = _mm512_set1_epi8(i8::MIN);
        let first: [__m512i; M] = [load(product.first[0].as_ptr(), 0)];
        for rows in all_rows {
            let here = Here {
                product,
                rows,
                pointers,
            };
            let mut sums = [[_mm512_setzero_si512(); M]; N];
            start_sums!(here, sums, first);
            for weights in product.panel.lines() {
                let weights = _mm512_load_si512(weights.0.as_ptr().cast());
                let inputs: [__m512i; N] = match &mut joined {
                    Some(joined) => match joined.next() {
                        Some(rows) => rows.map(|row| side_by_side(row, pointers)),
                        None => break,
                    },
                    None => match offsets.next() {
                        Some(taps) => {
                            std::array::from_fn(|n| gathered(taps.map(|t| t[n]), pointers))
                        }
                        None => break,
                    },
                };
                for (sum, inputs) in sums.iter_mut().zip(inputs) {
                    let fours =
                        _mm512_xor_si512(_mm512_permutexvar_epi8(permutation, inputs), bias);
                    sum[0] = _mm512_dpbusd_epi32(sum[0], fours, weights);
                }
            }
            end_sums!(here, sums);
        }
    }
}

/// The inputs of four taps that lie side by side.
///
/// # Safety
/// The CPU has the features, and what isn't padding lies inside the inputs.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn side_by_side(row: Joined, pointers: &Pointers) -> __m512i {
    // SAFETY: what the mask names is inside the inputs, and nothing else is read.
    unsafe {
        let from = pointers.inp.wrapping_offset(row.start()).cast();
        _mm512_maskz_loadu_epi32(row.mask(), from)
    }
}

/// The inputs of four taps that lie anywhere.
///
/// # Safety
/// The CPU has the features, and 16 bytes lie at each offset that isn't padding.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gathered(offsets: [u32; 4], pointers: &Pointers) -> __m512i {
    let [a, b, c, d] = offsets.map(|offset| {
        let from = match offset {
            PADDING => pointers.zeros,
            offset => pointers.inp.wrapping_add(offset as usize),
        };
        // SAFETY: the caller's promise; the zeros have 16 bytes, too.
        unsafe { _mm_loadu_si128(from.cast()) }
    });
    let low = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(low, c), d)
}
