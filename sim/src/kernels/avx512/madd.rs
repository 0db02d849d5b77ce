//! The AVX-512 kernel without VNNI.
//!
//! `madd` multiplies int16 and adds pairs of products, at most `2 * 128 * 128`, to int32, so it is exact. Weights are
//! widened in the panel, two inputs of each output side by side; inputs as they are read, 16 at a time.

use std::arch::x86_64::*;

use super::blocks::{Ahead, inputs_at, run_stretches};
use super::ends::end_rows;
use super::sums::{DOWN, Here, Usual, at, first_of, four_bytes, lines, load, places};
use crate::kernels::pointers::Pointers;
use crate::kernels::{Memory, Product, Start, Stretch};

/// Runs a product whose offsets were checked, on a CPU that has the instructions.
pub(in crate::kernels) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    // SAFETY: `run_stretches` promises what it asks for; kernels are only chosen where `GemmKernel::supported` is true.
    run_stretches(
        product,
        memory,
        |product, stretch, pointers, ahead| unsafe {
            dispatch(product, stretch, pointers, ahead);
        },
    );
}

/// Eight pairs of widened inputs, each of which is read into all lanes of a vector.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Pairs([i32; 8]);

/// Adds the products of a group of 16 inputs: eight lines a column.
macro_rules! add_group {
    ($panel:ident, $inputs:ident, $group:ident, $constant:ident, $sums:ident) => {
        let () = $constant;
        let mut pairs = [Pairs([0; 8]); N];
        for (pairs, input) in pairs.iter_mut().zip(&$inputs) {
            let bytes = _mm_loadu_si128(input.add(16 * $group).cast());
            _mm256_store_si256(pairs.0.as_mut_ptr().cast(), _mm256_cvtepi8_epi16(bytes));
        }
        add_pairs!($panel, pairs, $sums, 0 1 2 3 4 5 6 7);
        $panel = $panel.add(8 * M);
    };
}

/// Adds the products of some pairs of inputs.
macro_rules! add_pairs {
    ($panel:ident, $pairs:ident, $sums:ident, $($k:literal)*) => {$(
        let weights: [__m512i; M] = lines($panel.add($k * M));
        for (sums, pairs) in $sums.iter_mut().zip(&$pairs) {
            let pair = _mm512_set1_epi32(pairs.0[$k]);
            for (sum, weights) in sums.iter_mut().zip(&weights) {
                *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(pair, *weights));
            }
        }
    )*};
}

blocks!(
    dispatch,
    block,
    "avx512f,avx512bw,avx512dq,avx512vl",
    (),
    add_group,
    sums of inputs: false
);
