//! Products without tables, with AVX-512 VNNI.

use std::arch::x86_64::*;

use crate::kernels::direct::{DotColumn, DotRow, Dots, Tap};
use crate::kernels::{COLUMN, Line};

/// Rows of M columns whose sums, with weights and one input, fit the 32 registers.
const ROWS: [usize; 3] = [0, 12, 10];

/// Adds products whose offsets were checked, on a CPU that has the instructions.
pub(in crate::kernels) fn add(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
    let columns = 1 + usize::from(dots.second.is_some());
    dots.each_column(inp, acc, ROWS[columns], |here, rows| {
        // SAFETY: `GemmKernel::add` has checked every offset against the scratchpads, and that all tiles are laid
        // out; kernels are only chosen where `GemmKernel::supported` is true.
        unsafe { dispatch(here, columns, rows) };
    });
}

macro_rules! by_shape {
    ($here:ident, $columns:ident, $rows:ident, $($m:literal: $($n:literal)*;)*) => {
        match ($columns, $rows.len()) {
            // SAFETY: the caller's promise, and the lengths are its own.
            $($(($m, $n) => unsafe { block::<$m, $n>($here, &$rows.as_chunks().0[0]) },)*)*
            (columns, rows) => unreachable!("{rows} rows of {columns} columns"),
        }
    };
}

/// # Safety
/// As for [`block`].
unsafe fn dispatch(here: &DotColumn<'_>, columns: usize, rows: &[DotRow]) {
    by_shape!(here, columns, rows,
        1: 1 2 3 4 5 6 7 8 9 10 11 12;
        2: 1 2 3 4 5 6 7 8 9 10;);
}

/// # Safety
/// The CPU has the features. 16 int32 of the accumulators lie at each row, and with two columns behind it at those of
/// the second; inputs of a block's bytes at each row for each tap, and a line for every four of them at each tap's tile
/// and at its second, of which there are as many where M is 2.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn block<const M: usize, const N: usize>(here: &DotColumn<'_>, rows: &[DotRow; N]) {
    let Dots {
        taps,
        second,
        block,
        ..
    } = *here.dots;
    let (second, second_acc) = second.map_or((&[][..], 0), |s| (s.wgt, s.acc as usize));
    // SAFETY: the caller's promise.
    unsafe {
        let bias = _mm512_set1_epi8(i8::MIN);
        let mut sums: [[__m512i; M]; N] = std::array::from_fn(|n| {
            std::array::from_fn(|m| {
                let at = rows[n].acc as usize + m * second_acc;
                let first = _mm512_loadu_si512(here.first[m].as_ptr().cast());
                _mm512_add_epi32(_mm512_loadu_si512(here.acc.add(at).cast()), first)
            })
        });
        for (t, tap) in taps.iter().enumerate() {
            let inputs = here.inputs(tap, rows);
            let mut panels: [*const __m512i; M] = std::array::from_fn(|m| {
                let tile = if m == 0 {
                    tap.wgt
                } else {
                    *second.get_unchecked(t)
                };
                here.panel(tile).cast()
            });
            for group in 0..block / 16 {
                multiply!(k: 0, panels: panels, inputs: inputs, group: group, bias: bias, sums: sums);
                multiply!(k: 1, panels: panels, inputs: inputs, group: group, bias: bias, sums: sums);
                multiply!(k: 2, panels: panels, inputs: inputs, group: group, bias: bias, sums: sums);
                multiply!(k: 3, panels: panels, inputs: inputs, group: group, bias: bias, sums: sums);
                panels = panels.map(|panel| panel.add(4));
            }
        }
        for (sums, row) in sums.iter().zip(rows) {
            for (m, sum) in sums.iter().enumerate() {
                let at = row.acc as usize + m * second_acc;
                _mm512_storeu_si512(here.acc.add(at).cast(), *sum);
            }
        }
    }
}

/// Adds products of tiles of 16 by 16 as they are, whose offsets were checked, on a CPU that has the instructions.
pub(in crate::kernels) fn add_plain(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
    dots.each_row(inp, acc, |sums, x, tiles| {
        // SAFETY: `GemmKernel::add_plain` has checked every offset: 16 inputs and a tile lie at each tap; kernels are
        // only chosen where `GemmKernel::supported` is true.
        unsafe { add_tiles(dots.taps, x, tiles, sums) };
    });
}

/// Adds the products of a row's inputs with each tap's tile.
///
/// # Safety
/// The CPU has the features. 16 inputs lie behind `inp` for each tap, and its tile of 256 bytes behind `tiles`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn add_tiles(taps: &[Tap], inp: *const u8, tiles: *const u8, sums: &mut [i32; COLUMN]) {
    let bias = _mm512_set1_epi8(i8::MIN);
    // Four outputs each, four int32 of every output; and what the bias of the weights adds to each.
    let (mut parts, mut more) = ([_mm512_setzero_si512(); 4], _mm512_setzero_si512());
    for tap in taps {
        // SAFETY: the caller's promise.
        unsafe {
            let x = _mm_loadu_si128(inp.add(tap.inp as usize).cast());
            let x = _mm512_broadcast_i32x4(x);
            more = _mm512_dpbusd_epi32(more, bias, x);
            let tile = tiles.add(256 * tap.wgt as usize);
            for (i, part) in parts.iter_mut().enumerate() {
                let w = _mm512_loadu_si512(tile.add(64 * i).cast());
                *part = _mm512_dpbusd_epi32(*part, _mm512_xor_si512(w, bias), x);
            }
        }
    }
    let [a, b, c, d] = parts.map(|part| _mm512_sub_epi32(part, more));
    let halves = |a, b| {
        let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        _mm512_add_epi32(low, high)
    };
    let (ab, cd) = (halves(a, b), halves(c, d));
    let (low, high) = (_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    // Every fourth output is together now.
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let added = _mm512_permutexvar_epi32(order, _mm512_add_epi32(low, high));
    // SAFETY: 16 int32.
    unsafe {
        let sum = _mm512_add_epi32(_mm512_loadu_si512(sums.as_ptr().cast()), added);
        _mm512_storeu_si512(sums.as_mut_ptr().cast(), sum);
    }
}

/// Lays a tile of 16 by 16 out, on a CPU that has the instructions; what its sums start from.
///
/// # Panics
/// When there are fewer than four lines.
pub(in crate::kernels) fn lay_out(tile: &[u8; 256], lines: &mut [Line]) -> [i32; COLUMN] {
    let (lines, _) = lines.as_chunks_mut::<4>();
    // SAFETY: kernels are only chosen where `GemmKernel::supported` is true.
    unsafe { transpose(tile, &mut lines[0]) }
}

/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn transpose(tile: &[u8; 256], lines: &mut [Line; 4]) -> [i32; COLUMN] {
    // SAFETY: four vectors of 64 bytes each; a line has 64, and there are 16 int32.
    unsafe {
        let rows: [__m512i; 4] =
            std::array::from_fn(|i| _mm512_loadu_si512(tile.as_ptr().add(64 * i).cast()));
        let every_fourth = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
        // Of each half: nothing of 512 bits is multiplied, which short batches avoid.
        let (mut sums, ones) = ([_mm256_setzero_si256(); 2], _mm256_set1_epi8(1));
        for (k, line) in lines.iter_mut().enumerate() {
            let index = _mm512_add_epi32(every_fourth, _mm512_set1_epi32(k as i32));
            let low = _mm512_permutex2var_epi32(rows[0], index, rows[1]);
            let high = _mm512_permutex2var_epi32(rows[2], index, rows[3]);
            let halves = [low, high].map(|half| _mm512_castsi512_si256(half));
            for (half, (sums, four)) in sums.iter_mut().zip(halves).enumerate() {
                *sums = _mm256_dpbusd_epi32(*sums, ones, four);
                _mm256_storeu_si256(line.0.as_mut_ptr().add(32 * half).cast(), four);
            }
        }
        let mut correction = [0; COLUMN];
        for (half, sums) in sums.into_iter().enumerate() {
            let first = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32::<7>(sums));
            _mm256_storeu_si256(correction.as_mut_ptr().add(8 * half).cast(), first);
        }
        correction
    }
}
