//! Products of diagonal weights: a sum takes in one input of each tap.
//!
//! The inputs of four taps, 64 bytes, are one vector. A permutation of bytes puts the four of each output side by side,
//! and `dpbusd` multiplies them as in the AVX-512 VNNI kernel, with the same bias.

use std::arch::x86_64::*;

use super::sums::{Here, apply_steps, at, four_bytes, load, places, widen};
use crate::kernels::pointers::Pointers;
use crate::kernels::product::bundles::{Joined, Reach};
use crate::kernels::product::steps::UNBOUNDED;
use crate::kernels::{Memory, PADDING, Product, Start, Stretch};

/// Where the byte of each place comes from: tap `n % 4` of output `n / 4`; and the tap behind it, but for the last.
static SIDE_BY_SIDE: [[u8; 64]; 2] = {
    let mut from = [[0; 64]; 2];
    let mut n = 0;
    while n < 64 {
        from[0][n] = (n % 4 * 16 + n / 4) as u8;
        from[1][n] = ((n % 4 + 1) % 4 * 16 + n / 4) as u8;
        n += 1;
    }
    from
};

/// Adds the products of rows, every second of which lies a tap behind the one before it: both are read at once.
macro_rules! add_pairs {
    ($sums:ident, $rows:ident, $mask:ident, $pointers:ident, $bias:ident, $orders:ident, $weights:ident) => {
        let (pairs, last) = $sums.as_chunks_mut::<2>();
        for ([a, b], [row, _]) in pairs.iter_mut().zip($rows.as_chunks::<2>().0) {
            let both = _mm512_xor_si512(read(*row, $mask << 4 | $mask, $pointers), $bias);
            a[0] = add(a[0], both, $orders[0], $weights);
            b[0] = add(b[0], both, $orders[1], $weights);
        }
        if let ([last], Some(row)) = (last, $rows.last()) {
            let row = _mm512_xor_si512(read(*row, $mask, $pointers), $bias);
            last[0] = add(last[0], row, $orders[0], $weights);
        }
    };
}

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
    let lines = product.panel.lines();
    let offsets = &product.inputs.offsets[stretch.first * 4 * bundles..];
    let mut offsets = offsets.as_chunks::<N>().0.as_chunks::<4>().0.iter();
    let mut joined = product.inputs.joined().map(|joined| {
        let rows = joined.rows[stretch.first * bundles..].as_chunks::<N>().0;
        let before = product.inputs.stretches[0].blocks;
        let blocks = &joined.blocks[if stretch.first == 0 { 0 } else { before }..];
        (rows.iter(), blocks.iter(), &*joined.masks)
    });
    let pairs = joined
        .as_ref()
        .map_or(0, |joined| paired(joined.2, product.panel.line_taps()));
    // SAFETY: the caller's promise; there are as many bundles of rows as lines of weights for each block, and four taps in
    // each, which `Product::check` has seen to.
    unsafe {
        let orders = [0, 1].map(|by| _mm512_loadu_si512(SIDE_BY_SIDE[by].as_ptr().cast()));
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
            let reach = joined.as_mut().and_then(|joined| joined.1.next());
            for (bundle, weights) in lines.iter().enumerate() {
                let weights = _mm512_load_si512(weights.0.as_ptr().cast());
                let inputs: [__m512i; N] = match (&mut joined, reach) {
                    (Some((rows, _, masks)), Some(reach)) => {
                        let (Some(rows), mask) = (rows.next(), masks[bundle]) else {
                            break;
                        };
                        if *reach == Reach::Pairs && pairs >> bundle & 1 != 0 {
                            add_pairs!(sums, rows, mask, pointers, bias, orders, weights);
                            continue;
                        }
                        match reach {
                            Reach::Masked => rows.map(|row| read(row, row.mask(), pointers)),
                            Reach::Inside | Reach::Pairs => {
                                rows.map(|row| read(row, mask, pointers))
                            }
                        }
                    }
                    _ => match offsets.next() {
                        Some(taps) => {
                            std::array::from_fn(|n| gathered(taps.map(|t| t[n]), pointers))
                        }
                        None => break,
                    },
                };
                for (sum, inputs) in sums.iter_mut().zip(inputs) {
                    sum[0] = add(sum[0], _mm512_xor_si512(inputs, bias), orders[0], weights);
                }
            }
            end_sums!(here, sums);
        }
    }
}

/// The bundles, of the first 64, of which pairs of rows may read the taps at once, where those of the second lie a tap
/// behind those of the first: each finds its own in one line, and another's or none only where its weights are zero.
fn paired(masks: &[u16], filled: &[u8]) -> u64 {
    let paired =
        |(&mask, &filled): (&u16, &u8)| filled < 4 && u32::from(filled) <= mask.trailing_ones() / 4;
    let all = masks.iter().zip(filled).take(64).enumerate();
    all.fold(0, |all, (at, bundle)| all | u64::from(paired(bundle)) << at)
}

/// Adds the products of biased inputs, of which `order` puts the four of each output side by side.
#[target_feature(enable = "avx512f,avx512vnni,avx512vbmi")]
#[inline]
fn add(sum: __m512i, inputs: __m512i, order: __m512i, weights: __m512i) -> __m512i {
    _mm512_dpbusd_epi32(sum, _mm512_permutexvar_epi8(order, inputs), weights)
}

/// The inputs of four taps that lie side by side.
///
/// # Safety
/// The CPU has the features, and what isn't padding lies inside the inputs.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn read(row: Joined, mask: u16, pointers: &Pointers) -> __m512i {
    // SAFETY: what the mask names is inside the inputs, and nothing else is read.
    unsafe {
        let from = pointers.inp.wrapping_offset(row.start()).cast();
        _mm512_maskz_loadu_epi32(mask, from)
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
