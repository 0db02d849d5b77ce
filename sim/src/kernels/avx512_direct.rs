//! Products without tables, with AVX-512 VNNI.

use std::arch::x86_64::*;

use crate::kernels::COLUMN;
use crate::kernels::direct::{Dots, Place, Tap};

/// Rows of one column whose sums, with weights and one input, fit the 32 registers.
const ROWS: usize = 12;

/// What the rows of one column have in common.
#[derive(Clone, Copy)]
struct Here<'a> {
    taps: &'a [Tap],
    first: [i32; COLUMN],
    /// The column's lines of the first tile.
    lines: *const __m512i,
    /// Lines from tile to tile.
    tile_lines: usize,
    /// Groups of 16 inputs.
    groups: usize,
    inp: *const u8,
    acc: *mut i32,
}

/// Adds products whose offsets were checked, on a CPU that has the instructions.
pub(in crate::kernels) fn add(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
    for column in 0..dots.block / COLUMN {
        let (lines, tile_lines) = dots.lines(column);
        let here = Here {
            taps: dots.taps,
            first: dots.first(column),
            lines: lines.as_ptr().cast(),
            tile_lines,
            groups: dots.block / 16,
            inp: inp.as_ptr(),
            acc: acc[column * COLUMN..].as_mut_ptr(),
        };
        let mut rest = dots.places;
        while !rest.is_empty() {
            // About even: 13 rows are seven and six, not twelve and one.
            let (now, later) = rest.split_at(rest.len().div_ceil(rest.len().div_ceil(ROWS)));
            // SAFETY: `GemmKernel::add` has checked every offset against the scratchpads, and that all tiles are
            // laid out; kernels are only chosen where `GemmKernel::supported` is true.
            unsafe { dispatch(here, now) };
            rest = later;
        }
    }
}

macro_rules! by_rows {
    ($here:ident, $places:ident, $($n:literal)*) => {
        match $places.len() {
            // SAFETY: the caller's promise, and the length is its own.
            $($n => unsafe { block::<$n>($here, &$places.as_chunks().0[0]) },)*
            rows => unreachable!("{rows} rows"),
        }
    };
}

/// # Safety
/// As for [`block`].
unsafe fn dispatch(here: Here<'_>, places: &[Place]) {
    by_rows!(here, places, 1 2 3 4 5 6 7 8 9 10 11 12);
}

/// # Safety
/// The CPU has the features. Rows of 16 int32 of the accumulators lie at each place, inputs of `16 * groups` bytes at
/// each place for each tap, and `4 * groups` lines at each tap's tile.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn block<const N: usize>(here: Here<'_>, places: &[Place; N]) {
    const M: usize = 1;
    // SAFETY: the caller's promise.
    unsafe {
        let bias = _mm512_set1_epi8(i8::MIN);
        let first = _mm512_loadu_si512(here.first.as_ptr().cast());
        let mut sums: [[__m512i; M]; N] = std::array::from_fn(|n| {
            let held = _mm512_loadu_si512(here.acc.add(places[n].acc as usize).cast());
            [_mm512_add_epi32(held, first)]
        });
        for tap in here.taps {
            let inputs: [*const u8; N] =
                std::array::from_fn(|n| here.inp.add((places[n].inp + tap.inp) as usize));
            let mut panel = here.lines.add(tap.wgt as usize * here.tile_lines);
            for group in 0..here.groups {
                add_products!(k: 0, panel: panel, inputs: inputs, group: group, bias: bias, sums: sums);
                add_products!(k: 1, panel: panel, inputs: inputs, group: group, bias: bias, sums: sums);
                add_products!(k: 2, panel: panel, inputs: inputs, group: group, bias: bias, sums: sums);
                add_products!(k: 3, panel: panel, inputs: inputs, group: group, bias: bias, sums: sums);
                panel = panel.add(4);
            }
        }
        for (sum, place) in sums.iter().zip(places) {
            _mm512_storeu_si512(here.acc.add(place.acc as usize).cast(), sum[0]);
        }
    }
}
