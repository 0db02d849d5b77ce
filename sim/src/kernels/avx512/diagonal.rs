//! Products of diagonal weights: a sum takes in one input of each tap.
//!
//! The inputs of four taps, 64 bytes, are one vector. A permutation of bytes puts the four of each output side by side,
//! and `dpbusd` multiplies them as in the AVX-512 VNNI kernel, with the same bias.

use std::arch::x86_64::*;

use super::ends::end_rows;
use super::sums::{DOWN, Here, Usual, at, first_of, four_bytes, load, places};
use crate::kernels::pointers::Pointers;
use crate::kernels::product::bundles::Joined;
use crate::kernels::product::patches::{MOST_BUNDLES, Patches};
use crate::kernels::product::stretches::Patch;
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

/// The weights of an output's window, and of the next one's in the lines of the first, `[row][bundle]`.
type Weights = [[__m512i; 2]; MOST_BUNDLES];

/// Runs a product whose offsets were checked, on a CPU that has the instructions.
pub(in crate::kernels) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    let pointers = Pointers::new(memory);
    // SAFETY: `Way::run` has checked every offset of the product against its memory and the panel's length; ways
    // are only chosen where the CPU has their instructions.
    unsafe {
        match &product.inputs.patches {
            Some(patches) => {
                let weights = weights(product, patches);
                let mut lines = &patches.lines[..];
                for stretch in &product.inputs.stretches {
                    let Some(patch) = stretch.patch else { continue };
                    let of_patch = patch.lines(patches.window, patches.step)
                        * patches.window.bundles
                        * patch.columns;
                    let (now, later) = lines.split_at(stretch.blocks * of_patch);
                    lines = later;
                    let image = Image {
                        patches,
                        lines: now,
                        of_patch,
                        weights: &weights,
                    };
                    run_patches(product, stretch, image, &pointers);
                }
            }
            None => {
                for stretch in &product.inputs.stretches {
                    run_blocks(product, stretch, &pointers);
                }
            }
        }
    }
}

/// The lines that a stretch's patches read, and the weights.
#[derive(Clone, Copy)]
struct Image<'a> {
    patches: &'a Patches,
    lines: &'a [Joined],
    of_patch: usize,
    weights: &'a Weights,
}

impl Image<'_> {
    /// Of each row of the window.
    #[inline]
    fn weights_of<const H: usize>(&self, bundle: usize) -> [[__m512i; 2]; H] {
        std::array::from_fn(|row| self.weights[row * self.patches.window.bundles + bundle])
    }
}

/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f")]
unsafe fn weights(product: &Product<'_>, patches: &Patches) -> Weights {
    let mut weights = [[_mm512_setzero_si512(); 2]; MOST_BUNDLES];
    let lines = product.panel.lines().iter();
    for (at, (to, line)) in weights.iter_mut().zip(lines).enumerate() {
        // SAFETY: a line has 64 bytes.
        let now = unsafe { _mm512_load_si512(line.0.as_ptr().cast()) };
        *to = [now, _mm512_slli_epi32::<8>(now)];
        if at % patches.window.bundles > 0 {
            // SAFETY: as above; there is one before it.
            let before =
                unsafe { _mm512_load_si512(product.panel.lines()[at - 1].0.as_ptr().cast()) };
            to[1] = _mm512_or_si512(to[1], _mm512_srli_epi32::<24>(before));
        }
    }
    weights
}

/// The function for patches of a shape over windows of so many rows of taps.
macro_rules! by_patch {
    ($patch:ident, $rows:literal, $step:literal) => {
        by_patch!($patch, $rows, $step,
            1 4 2: 8; 1 3 2: 6; 1 2 2: 4; 4 1 2: 8; 1 1 2: 2;
            2 4 1: 8; 1 4 1: 4; 1 3 1: 3; 1 2 1: 2; 8 1 1: 8; 1 1 1: 1;)
    };
    ($patch:ident, $rows:literal, $step:literal, $($columns:literal $above:literal $beside:literal: $all:literal;)*) => {
        match $patch {
            $(Patch { columns: $columns, above: $above, side_by_side: $beside } => {
                patches::<$columns, $above, $beside, $all, $rows, $step>
            })*
            other => unreachable!("{other:?}"),
        }
    };
}

/// # Safety
/// As for [`patches`].
unsafe fn run_patches(
    product: &Product<'_>,
    stretch: &Stretch,
    image: Image<'_>,
    pointers: &Pointers,
) {
    let Some(patch) = stretch.patch else { return };
    // `Grid::of` makes no others.
    let run = match (image.patches.window.rows, image.patches.step) {
        (3, 1) => by_patch!(patch, 3, 1),
        (3, 2) => by_patch!(patch, 3, 2),
        (5, 1) => by_patch!(patch, 5, 1),
        (5, 2) => by_patch!(patch, 5, 2),
        other => unreachable!("{other:?}"),
    };
    // SAFETY: the caller's promise.
    unsafe { run(product, stretch, image, pointers) }
}

/// Rows of the image that a patch reads at most.
const MOST_LINES: usize = 11;

/// Does something with each row of the image that a patch reads.
macro_rules! each_line {
    (($row:ident) $body:block) => {
        each_line!(
            ($row) $body 0 1 2 3 4 5 6 7 8 9 10
        )
    };
    (($row:ident) $body:block $($number:literal)*) => {$(
        if const { $number < (R - 1) * S + H } {
            let $row = const { $number };
            $body
        }
    )*};
}

/// Patches of N outputs: R above each other with P side by side, C times.
///
/// # Safety
/// The CPU has the features. The stretch is of the product's rows, N in each block, and the lines are those of its
/// blocks; the panel has one column and a line for each bundle of four taps, and the product's offsets lie inside the
/// memory that the pointers name.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")]
unsafe fn patches<
    const C: usize,
    const R: usize,
    const P: usize,
    const N: usize,
    const H: usize,
    const S: usize,
>(
    product: &Product<'_>,
    stretch: &Stretch,
    image: Image<'_>,
    pointers: &Pointers,
) {
    const M: usize = 1;
    const { assert!((R - 1) * S + H <= MOST_LINES) };
    let (all_rows, _) = product.rows.rows[stretch.first..][..stretch.blocks * N].as_chunks::<N>();
    // SAFETY: the caller's promise.
    unsafe {
        let order = _mm512_loadu_si512(SIDE_BY_SIDE.as_ptr().cast());
        let bias = places(i32::from_ne_bytes([0x80; 4]));
        let first: [__m512i; M] = first_of(product);
        let usual = Usual::of(product);
        for (rows, lines) in all_rows
            .iter()
            .zip(image.lines.chunks_exact(image.of_patch))
        {
            with_sums!((product, rows, pointers, first, usual) sums {
            for (bundle, lines) in lines.chunks_exact(C * ((R - 1) * S + H)).enumerate() {
                let weights: [[__m512i; 2]; H] = image.weights_of(bundle);
                each_line!((row) {
                    for column in 0..C {
                        let line = *lines.get_unchecked(row * C + column);
                        let line = _mm512_xor_si512(read(line, line.mask(), pointers), bias);
                        let inputs = _mm512_permutexvar_epi8(order, line);
                        for above in 0..R {
                            if above * S <= row && row < above * S + H {
                                for beside in 0..P {
                                    let sum = &mut sums[(column * R + above) * P + beside][0];
                                    *sum = _mm512_dpbusd_epi32(*sum, inputs, weights[row - above * S][beside]);
                                }
                            }
                        }
                    }
                });
            }
            });
        }
    }
}

/// # Safety
/// As for [`blocks()`].
unsafe fn run_blocks(product: &Product<'_>, stretch: &Stretch, pointers: &Pointers) {
    // SAFETY: the caller's promise.
    unsafe {
        match (stretch.blocks, stretch.rows) {
            (0, _) => {}
            (_, 1) => blocks::<1>(product, stretch, pointers),
            (_, 2) => blocks::<2>(product, stretch, pointers),
            (_, 3) => blocks::<3>(product, stretch, pointers),
            (_, 4) => blocks::<4>(product, stretch, pointers),
            (_, 5) => blocks::<5>(product, stretch, pointers),
            (_, 6) => blocks::<6>(product, stretch, pointers),
            (_, 7) => blocks::<7>(product, stretch, pointers),
            (_, 8) => blocks::<8>(product, stretch, pointers),
            // `Product::check` has seen to it that it is one of `Way::rows`.
            (_, rows) => unreachable!("{rows} rows"),
        }
    }
}

/// Blocks of N rows.
///
/// # Safety
/// The CPU has the features. The stretch is of the product's rows, N in each block; the panel has one column and a line
/// for each bundle of four taps, and the product's offsets lie inside the memory that the pointers name.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")]
unsafe fn blocks<const N: usize>(product: &Product<'_>, stretch: &Stretch, pointers: &Pointers) {
    const M: usize = 1;
    let bundles = product.inputs.bundle_count();
    let (all_rows, _) = product.rows.rows[stretch.first..][..stretch.blocks * N].as_chunks::<N>();
    let offsets = &product.inputs.offsets[stretch.first * 4 * bundles..];
    let mut offsets = offsets.as_chunks::<N>().0.as_chunks::<4>().0.iter();
    let joined = product.inputs.joined();
    let mut joined = joined.map(|all| all[stretch.first * bundles..].as_chunks::<N>().0.iter());
    // SAFETY: the caller's promise; there are as many bundles of rows as lines of weights for each block, and four taps in
    // each, which `Product::check` has seen to.
    unsafe {
        let order = _mm512_loadu_si512(SIDE_BY_SIDE.as_ptr().cast());
        let bias = _mm512_set1_epi8(i8::MIN);
        let first: [__m512i; M] = first_of(product);
        let usual = Usual::of(product);
        for rows in all_rows {
            with_sums!((product, rows, pointers, first, usual) sums {
            for weights in product.panel.lines() {
                let weights = _mm512_load_si512(weights.0.as_ptr().cast());
                let inputs: [__m512i; N] = if let Some(joined) = &mut joined {
                    let Some(rows) = joined.next() else { break };
                    rows.map(|row| read(row, row.mask(), pointers))
                } else {
                    let Some(taps) = offsets.next() else { break };
                    std::array::from_fn(|n| gathered(taps.map(|t| t[n]), pointers))
                };
                for (sum, inputs) in sums.iter_mut().zip(inputs) {
                    let inputs = _mm512_permutexvar_epi8(order, _mm512_xor_si512(inputs, bias));
                    sum[0] = _mm512_dpbusd_epi32(sum[0], inputs, weights);
                }
            }
            });
        }
    }
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
