//! Blocks of rows whose sums stay in the 32 registers, for a way to multiply.

use crate::kernels::pointers::Pointers;
use crate::kernels::{Line, Memory, PADDING, Product, Stretch};

/// Lines of the weights wanted next that are prefetched with each tap at most.
const MOST_AHEAD: usize = 8;

/// Weights that are wanted next and prefetched meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub next: *const Line,
    pub lines_per_tap: usize,
}

/// Gives the stretches of a product whose offsets were checked to `run`: the stretch is of the product's rows, whose
/// offsets lie inside the memory that the pointers name, and the panel has the product's columns.
pub(super) fn run_stretches(
    product: &Product<'_>,
    memory: &mut Memory<'_>,
    run: impl Fn(&Product<'_>, Stretch, &Pointers, Ahead),
) {
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
    for &stretch in &product.inputs.stretches {
        // `GemmKernel::run` has checked every offset of the product against its memory and the panel's length.
        run(product, stretch, &pointers, ahead);
        let lines = stretch.blocks * taps * ahead.lines_per_tap;
        ahead.next = ahead.next.wrapping_add(lines);
    }
}

/// Where the inputs of N rows are.
///
/// # Safety
/// There are N offsets; what isn't padding lies inside the inputs.
#[inline]
pub(super) unsafe fn inputs_at<const N: usize>(
    offsets: *const u32,
    pointers: &Pointers,
) -> [*const u8; N] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|n| match unsafe { *offsets.add(n) } {
        PADDING => pointers.zeros,
        offset => pointers.inp.wrapping_add(offset as usize),
    })
}

macro_rules! by_shape {
    ($block:ident: $product:ident, $stretch:ident, $pointers:ident, $ahead:ident,
        $($m:literal: $($n:literal)*;)*) => {
        match ($product.panel.columns(), $stretch.rows) {
            // SAFETY: the caller's promises are those of `block`, and the lengths are its own.
            $($(($m, $n) => unsafe {
                $block::<$m, $n>($product, $stretch, $pointers, $ahead)
            },)*)*
            (columns, rows) => unreachable!("{rows} rows of {columns} columns"),
        }
    };
}

/// Functions for the blocks of every shape, compiled for some features: `$constant` is there once a block,
/// `$add_group` adds the products of 16 inputs of each row to the sums and goes on to the next lines of the panel. Sums
/// of each row's inputs may be added, too.
macro_rules! blocks {
    ($dispatch:ident, $block:ident, $features:literal, $constant:expr, $add_group:ident, sums of inputs: $summed:literal) => {
        /// # Safety
        /// As for the blocks that it chooses between.
        unsafe fn $dispatch(product: &Product<'_>, stretch: Stretch, pointers: &Pointers, ahead: Ahead) {
            if stretch.blocks == 0 {
                return;
            }
            // `Product::check` has seen to it that these are the shapes of `GemmKernel::rows`.
            by_shape!($block: product, stretch, pointers, ahead,
                1: 1 2 3 4 5 6 7 8 9 10 11 12;
                2: 1 2 3 4 5 6 7 8 9 10;
                3: 1 2 3 4 5 6 7 8;
                4: 1 2 3 4 5 6;);
        }

        /// Blocks of N rows of M columns.
        ///
        /// # Safety
        /// The CPU has the features. The stretch is of the product's rows, N in each block; the panel has
        /// M columns, and the product's offsets lie inside the memory that the pointers name.
        #[target_feature(enable = $features)]
        unsafe fn $block<const M: usize, const N: usize>(
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
            // many offsets of inputs as rows, block by block, and a sum of each row's inputs where such are added.
            unsafe {
                let first: [__m512i; M] = first_of(product);
                let (constant, usual) = ($constant, Usual::of(product));
                let mut offsets = product.inputs.offsets.as_ptr().add(stretch.first * taps);
                for (index, rows) in all_rows.iter().enumerate() {
                    let mut panel = product.panel.lines().as_ptr().cast::<__m512i>();
                    with_sums!((product, rows, pointers, first, usual) sums {
                    if $summed {
                        let of_rows = pointers.input_sums.add(stretch.first + index * N);
                        for (n, sums) in sums.iter_mut().enumerate() {
                            let of_row = _mm512_set1_epi32(*of_rows.add(n));
                            for sum in sums {
                                *sum = _mm512_add_epi32(*sum, of_row);
                            }
                        }
                    }
                    // The next block's first row, or again this one's.
                    let (mut next, next_step) = match stretch.rows_after {
                        _ if index < last => (offsets.add(N * taps), N),
                        0 => (offsets, N),
                        after => (offsets.add(N * taps), after),
                    };
                    for _ in 0..taps {
                        let inputs: [*const u8; N] = inputs_at(offsets, pointers);
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
                            // A group is 16 inputs, whose lines lie side by side in the panel; an input has `block` bytes.
                            $add_group!(panel, inputs, group, constant, sums);
                        }
                    }
                    });
                }
            }
        }
    };
}
