//! The AVX-512 VNNI kernel.
//!
//! `dpbusd` multiplies unsigned by signed bytes and adds four products to an int32, without
//! saturating. Inputs get 128 added as they are read; `sum((x + 128) * w) - 128 * sum(w)` is the product,
//! and the panel has the second term. All sums wrap modulo 2^32 as the instruction set defines,
//! so it is exact for every input, -128 among them.

#[macro_use]
mod sums;

use std::arch::x86_64::*;

use self::sums::{Here, apply_steps, at, load, widen};
use super::pointers::Pointers;
use super::{Line, Memory, PADDING, Product, Start, Stretch};

/// Lines of the weights wanted next that are prefetched with each tap at most.
const MOST_AHEAD: usize = 8;

/// Weights that are wanted next and prefetched meanwhile.
#[derive(Clone, Copy)]
struct Ahead {
    next: *const Line,
    lines_per_tap: usize,
}

/// Runs a product whose offsets were checked, on a CPU that has the instructions.
pub(super) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    let taps = product.inputs.taps();
    let blocks: usize = product.inputs.stretches.iter().map(|s| s.blocks).sum();
    let lines_per_tap = match product.ahead.len() {
        0 => 0,
        lines => lines.div_ceil((blocks * taps).max(1)),
    };
    let pointers = Pointers::new(memory);
    let mut ahead = Ahead {
        next: product.ahead.as_ptr(),
        lines_per_tap: lines_per_tap.min(MOST_AHEAD),
    };
    for stretch in product.inputs.stretches {
        // SAFETY: `GemmKernel::run` has checked every offset of the product against its memory
        // and the panel's length; kernels are only chosen where `GemmKernel::supported` is true.
        unsafe { dispatch(product, stretch, &pointers, ahead) };
        let lines = stretch.blocks * taps * ahead.lines_per_tap;
        ahead.next = ahead.next.wrapping_add(lines);
    }
}

macro_rules! by_shape {
    ($product:ident, $stretch:ident, $pointers:ident, $ahead:ident,
        $($m:literal: $($n:literal)*;)*) => {
        match ($product.panel.columns(), $stretch.rows) {
            // SAFETY: the caller's promises are those of `block`, and the lengths are its own.
            $($(($m, $n) => unsafe {
                block::<$m, $n>($product, $stretch, $pointers, $ahead)
            },)*)*
            (columns, rows) => unreachable!("{rows} rows of {columns} columns"),
        }
    };
}

/// # Safety
/// As for [`block`].
unsafe fn dispatch(product: &Product<'_>, stretch: Stretch, pointers: &Pointers, ahead: Ahead) {
    if stretch.blocks == 0 {
        return;
    }
    // `Product::check` has seen to it that these are the shapes of `GemmKernel::rows`.
    by_shape!(product, stretch, pointers, ahead,
        1: 1 2 3 4 5 6 7 8 9 10 11 12;
        2: 1 2 3 4 5 6 7 8 9 10;
        3: 1 2 3 4 5 6 7 8;
        4: 1 2 3 4 5 6;);
}

/// Adds the products of inputs `4 * k` to `4 * k + 3` of a group of 16, whose weights lie side by side.
macro_rules! add_products {
    (
        k: $k:literal, panel: $panel:ident, inputs: $inputs:ident,
        group: $group:ident, bias: $bias:ident, sums: $sums:ident
    ) => {
        let weights: [__m512i; M] =
            std::array::from_fn(|m| _mm512_load_si512($panel.add($k * M + m)));
        multiply!(@ $k, weights, $inputs, $group, $bias, $sums);
    };
}

/// The same of weights in a panel for each column.
macro_rules! multiply {
    (
        k: $k:literal, panels: $panels:ident, inputs: $inputs:ident,
        group: $group:ident, bias: $bias:ident, sums: $sums:ident
    ) => {
        let weights: [__m512i; M] =
            std::array::from_fn(|m| _mm512_load_si512($panels[m].add($k)));
        multiply!(@ $k, weights, $inputs, $group, $bias, $sums);
    };
    (@ $k:literal, $weights:ident, $inputs:ident, $group:ident, $bias:ident, $sums:ident) => {
        for (sums, input) in $sums.iter_mut().zip(&$inputs) {
            let four: __m512i;
            // One instruction, of which compilers make three. It reads 4 bytes of the input.
            std::arch::asm!(
                concat!("vpxord {0}, {1}, dword ptr [{2} + {3} + 4 * ", $k, "]{{1to16}}"),
                out(zmm_reg) four,
                in(zmm_reg) $bias,
                in(reg) *input,
                in(reg) 16 * $group,
                options(pure, readonly, nostack, preserves_flags),
            );
            for (sum, weights) in sums.iter_mut().zip(&$weights) {
                *sum = _mm512_dpbusd_epi32(*sum, four, *weights);
            }
        }
    };
}

mod amx;
mod direct;
mod peak;
pub(super) use amx::{
    peak as peak_amx, peak_with_loads as peak_amx_with_loads, permitted as amx_permitted,
    run as run_amx,
};
pub(super) use direct::{add, lay_out};
pub(super) use peak::peak;

/// Blocks of N rows of M columns.
///
/// # Safety
/// The CPU has the features. The stretch is of the product's rows, N in each block; the panel has
/// M columns, and the product's offsets lie inside the memory that the pointers name.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn block<const M: usize, const N: usize>(
    product: &Product<'_>,
    stretch: Stretch,
    pointers: &Pointers,
    mut ahead: Ahead,
) {
    let (taps, groups) = (product.inputs.taps(), product.block / 16);
    let last = stretch.blocks - 1;
    let all_rows = &product.rows.rows[stretch.first..][..stretch.blocks * N];
    let (all_rows, _) = all_rows.as_chunks::<N>();
    // SAFETY: `first` has 16 int32 for each column. Accumulator, residual and output offsets of
    // these rows are inside their memory for 16 int32 and 16 bytes. There are `taps` times as
    // many offsets of inputs as rows, block by block.
    unsafe {
        let first: [__m512i; M] = std::array::from_fn(|m| load(product.first[m].as_ptr(), 0));
        let bias = _mm512_set1_epi8(i8::MIN);
        let mut offsets = product.inputs.offsets.as_ptr().add(stretch.first * taps);
        for (index, rows) in all_rows.iter().enumerate() {
            let mut panel = product.panel.lines().as_ptr().cast::<__m512i>();
            let mut sums = [[_mm512_setzero_si512(); M]; N];
            let here = Here {
                product,
                rows,
                pointers,
            };
            start_sums!(here, sums, first);
            // The next block's first row, or again this one's.
            let (mut next, next_step) = match stretch.rows_after {
                _ if index < last => (offsets.add(N * taps), N),
                0 => (offsets, N),
                after => (offsets.add(N * taps), after),
            };
            for _ in 0..taps {
                let inputs: [*const u8; N] = std::array::from_fn(|n| match *offsets.add(n) {
                    PADDING => pointers.zeros,
                    offset => pointers.inp.add(offset as usize),
                });
                // The next rows' inputs lie far apart, one stretch for each tap. Padding lies
                // nowhere, which does no harm.
                let offset = *next as usize;
                next = next.add(next_step);
                _mm_prefetch::<_MM_HINT_T0>(pointers.inp.wrapping_add(offset).cast());
                for _ in 0..ahead.lines_per_tap {
                    // Prefetching beyond the end does no harm.
                    _mm_prefetch::<_MM_HINT_T1>(ahead.next.cast());
                    ahead.next = ahead.next.wrapping_add(1);
                }
                offsets = offsets.add(N);
                for group in 0..groups {
                    // A group is 16 inputs: four lines a column. The panel has `block / 4`
                    // lines a column for each tap, and an input has `block` bytes.
                    add_products!(k: 0, panel: panel, inputs: inputs, group: group, bias: bias, sums: sums);
                    add_products!(k: 1, panel: panel, inputs: inputs, group: group, bias: bias, sums: sums);
                    add_products!(k: 2, panel: panel, inputs: inputs, group: group, bias: bias, sums: sums);
                    add_products!(k: 3, panel: panel, inputs: inputs, group: group, bias: bias, sums: sums);
                    panel = panel.add(4 * M);
                }
            }
            end_sums!(here, sums);
        }
    }
}
