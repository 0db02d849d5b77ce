//! The AVX-512 VNNI kernel.
//!
//! `dpbusd` multiplies unsigned by signed bytes and adds four products to an int32, without
//! saturating. Inputs get 128 added as they are read, or on their way to a copy that is read; `sum((x + 128) * w) - 128 * sum(w)` is the product,
//! and the panel has the second term. Or weights have 128 added in the panel, and `128 * sum(x)`, which all columns share, is worked
//! out once a row. All sums wrap modulo 2^32 as the instruction set defines, so it is exact for every input, -128 among them.

#[macro_use]
mod sums;
#[macro_use]
mod blocks;

use std::arch::x86_64::*;

use self::blocks::{Ahead, inputs_at, run_stretches};
use self::ends::end_rows;
use self::sums::{DOWN, Here, Usual, at, first_of, four_bytes, lines, load, places};
use super::pointers::Pointers;
use super::{Format, Memory, Product, Start, Stretch};

/// Runs a product whose offsets were checked, on a CPU that has the instructions.
pub(super) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    // SAFETY: `run_stretches` promises what it asks for; kernels are only chosen where `GemmKernel::supported` is true.
    run_stretches(
        product,
        memory,
        |product, stretch, pointers, ahead| unsafe {
            if product.panel.format() == Format::BiasedWeights {
                dispatch_summed(product, stretch, pointers, ahead);
            } else if product.inputs.are_staged() {
                dispatch_staged(product, stretch, pointers, ahead);
            } else {
                dispatch(product, stretch, pointers, ahead);
            }
        },
    );
}

/// Adds the products of inputs `4 * k` to `4 * k + 3` of a group of 16, whose weights lie side by side.
macro_rules! add_products {
    (
        k: $k:literal, panel: $panel:ident, inputs: $inputs:ident,
        group: $group:ident, bias: $bias:ident, sums: $sums:ident
    ) => {
        let weights: [__m512i; M] = lines($panel.add($k * M));
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

/// Adds the products of a group of 16 inputs: four lines a column.
macro_rules! add_group {
    ($panel:ident, $inputs:ident, $group:ident, $bias:ident, $sums:ident) => {
        add_products!(k: 0, panel: $panel, inputs: $inputs, group: $group, bias: $bias, sums: $sums);
        add_products!(k: 1, panel: $panel, inputs: $inputs, group: $group, bias: $bias, sums: $sums);
        add_products!(k: 2, panel: $panel, inputs: $inputs, group: $group, bias: $bias, sums: $sums);
        add_products!(k: 3, panel: $panel, inputs: $inputs, group: $group, bias: $bias, sums: $sums);
        $panel = $panel.add(4 * M);
    };
}

/// The same where inputs have their bias.
macro_rules! add_staged_group {
    ($panel:ident, $inputs:ident, $group:ident, $nothing:ident, $sums:ident) => {
        let () = $nothing;
        add_as_they_are!($panel, $inputs, $group, $sums, _mm512_dpbusd_epi32, 0 1 2 3);
        $panel = $panel.add(4 * M);
    };
}

/// The same where weights have it.
macro_rules! add_summed_group {
    ($panel:ident, $inputs:ident, $group:ident, $nothing:ident, $sums:ident) => {
        let () = $nothing;
        add_as_they_are!($panel, $inputs, $group, $sums, signed_by_unsigned, 0 1 2 3);
        $panel = $panel.add(4 * M);
    };
}

macro_rules! add_as_they_are {
    ($panel:ident, $inputs:ident, $group:ident, $sums:ident, $multiply:ident, $($k:literal)*) => {$(
        let weights: [__m512i; M] = lines($panel.add($k * M));
        for (sums, input) in $sums.iter_mut().zip(&$inputs) {
            let four = input.add(16 * $group + 4 * $k).cast::<i32>().read_unaligned();
            let four = _mm512_set1_epi32(four);
            for (sum, weights) in sums.iter_mut().zip(&weights) {
                *sum = $multiply(*sum, four, *weights);
            }
        }
    )*};
}

#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
fn signed_by_unsigned(sum: __m512i, signed: __m512i, unsigned: __m512i) -> __m512i {
    _mm512_dpbusd_epi32(sum, unsigned, signed)
}

mod amx;
mod diagonal;
mod direct;
mod ends;
mod input_sums;
mod madd;
mod peak;
mod staging;
mod table;
pub(super) use amx::{
    pack, peak as peak_amx, peak_with_loads as peak_amx_with_loads, permitted as amx_permitted,
    run as run_amx,
};
pub(super) use diagonal::run as run_diagonal;
pub(super) use direct::{add, add_plain, lay_out};
pub(super) use input_sums::sum_inputs;
pub(super) use madd::run as run_madd;
pub(super) use peak::{peak, peak_madd};
pub(super) use staging::copy_biased;
pub(super) use table::look_up;

blocks!(
    dispatch,
    block,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    _mm512_set1_epi8(i8::MIN),
    add_group,
    sums of inputs: false
);

blocks!(
    dispatch_staged,
    staged_block,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    (),
    add_staged_group,
    sums of inputs: false
);

blocks!(
    dispatch_summed,
    summed_block,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    (),
    add_summed_group,
    sums of inputs: true
);
