//! What the kernels of AVX-512 share: what sums start from and where they go, in registers where that is as usual.
//!
//! Macros, since sums that a function borrowed or moved would leave their registers. They stand for code inside
//! `unsafe` blocks of functions with [`Here`]'s promise: accumulator, residual, step and output offsets of these
//! rows lie inside their memory for 16 int32 and 16 bytes.

use std::arch::x86_64::*;

use crate::kernels::pointers::Pointers;
use crate::kernels::product::steps::Floors;
use crate::kernels::{Product, Row, Start};

/// A block of N rows: what it is of, and where its memory is.
#[derive(Clone, Copy)]
pub(super) struct Here<'a, const N: usize> {
    pub product: &'a Product<'a>,
    pub rows: &'a [Row; N],
    pub pointers: &'a Pointers,
}

/// Does something with each row `n` and column `m` of the sums, of which there are 24 at most.
/// There is no loop, since sums that a loop which isn't unrolled early indexes would leave their
/// registers.
macro_rules! each_sum {
    (($n:ident, $m:ident) $body:block) => {
        each_sum!(
            ($n, $m) $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
        )
    };
    (($n:ident, $m:ident) $body:block $($number:literal)*) => {$(
        if const { $number < M * N } {
            let ($n, $m) = const { at::<M, N>($number) };
            $body
        }
    )*};
}

/// Row and column of a sum, counted column by column of each row.
pub(super) const fn at<const M: usize, const N: usize>(number: usize) -> (usize, usize) {
    (number / M, number % M)
}

/// Requantises the sums by floats where they saturate to bytes afterwards.
macro_rules! take_floors {
    ($floors:ident, $here:ident, $sums:ident) => {{
        let lanes = $here.product.after.lanes().as_ptr();
        let of = |place: usize, m: usize| _mm512_loadu_ps(lanes.add(place + m).cast());
        each_sum!((n, m) {
            let x = _mm512_cvtepi32_ps($sums[n][m]);
            let x = _mm512_fmadd_round_ps::<DOWN>(x, of($floors.first, m), of($floors.before, m));
            $sums[n][m] = _mm512_castps_si512(x);
        });
        if $floors.inner {
            each_sum!((n, m) {
                let x = _mm512_castsi512_ps($sums[n][m]);
                $sums[n][m] = _mm512_castps_si512(_mm512_roundscale_ps::<DOWN>(x));
            });
        }
        each_sum!((n, m) {
            let x = _mm512_castsi512_ps($sums[n][m]);
            let x = _mm512_fmadd_round_ps::<DOWN>(x, of($floors.second, m), of($floors.after, m));
            $sums[n][m] = _mm512_cvt_roundps_epi32::<DOWN>(x);
        });
    }};
}

/// Rounds down, whatever the thread's rounding is.
pub(super) const DOWN: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;

macro_rules! shift {
    ($places:expr, $sums:ident) => {
        let shift = places($places);
        each_sum!((n, m) { $sums[n][m] = _mm512_srav_epi32($sums[n][m], shift); });
    };
}

/// Does something with each four rows from `n` on of column `m`, as [`each_sum`] does.
macro_rules! each_four {
    (($n:ident, $m:ident) $body:block) => {
        each_four!(
            ($n, $m) $body 0 1 2 3 4 5 6 7
        )
    };
    (($n:ident, $m:ident) $body:block $($number:literal)*) => {$(
        if const { $number < M * (N / 4) } {
            let ($n, $m) = const { let (four, m) = at::<M, N>($number); (4 * four, m) };
            $body
        }
    )*};
}

/// Stores sums as bytes where saturating and then clamping bytes is exact: those of four rows, which mostly lie side by
/// side, take the instructions of one.
macro_rules! store_bytes {
    ($bounds:ident, $here:ident, $sums:ident) => {
        let [low, high] = $bounds.map(|bound| _mm512_set1_epi8(bound));
        let clamps = $bounds != [i8::MIN, i8::MAX];
        each_four!((n, m) {
            let mut bytes = four_bytes([
                $sums[n][m],
                $sums[n + 1][m],
                $sums[n + 2][m],
                $sums[n + 3][m],
            ]);
            if clamps {
                bytes = _mm512_min_epi8(_mm512_max_epi8(bytes, low), high);
            }
            let to = $here.pointers.out.add($here.product.bases.columns[m].out as usize);
            let a = $here.rows[n].out as usize;
            let b = $here.rows[n + 1].out as usize;
            let c = $here.rows[n + 2].out as usize;
            let d = $here.rows[n + 3].out as usize;
            if b == a + 16 && d == c + 16 {
                if c == b + 16 {
                    _mm512_storeu_si512(to.add(a).cast(), bytes);
                } else {
                    _mm256_storeu_si256(to.add(a).cast(), _mm512_castsi512_si256(bytes));
                    _mm256_storeu_si256(to.add(c).cast(), _mm512_extracti64x4_epi64::<1>(bytes));
                }
            } else {
                _mm_storeu_si128(to.add(a).cast(), _mm512_castsi512_si128(bytes));
                _mm_storeu_si128(to.add(b).cast(), _mm512_extracti32x4_epi32::<1>(bytes));
                _mm_storeu_si128(to.add(c).cast(), _mm512_extracti32x4_epi32::<2>(bytes));
                _mm_storeu_si128(to.add(d).cast(), _mm512_extracti32x4_epi32::<3>(bytes));
            }
        });
        each_sum!((n, m) {
            if n >= N / 4 * 4 {
                let bytes = _mm512_castsi512_si128(low);
                let bytes = _mm_max_epi8(_mm512_cvtsepi32_epi8($sums[n][m]), bytes);
                let bytes = _mm_min_epi8(bytes, _mm512_castsi512_si128(high));
                let at = ($here.product.bases.columns[m].out + $here.rows[n].out) as usize;
                _mm_storeu_si128($here.pointers.out.add(at).cast(), bytes);
            }
        });
    };
}

/// How blocks start and end sums in their registers: from nothing or the accumulators, and as most do. Others leave their
/// products to [`end_rows`](super::ends::end_rows).
#[derive(Clone, Copy)]
pub(super) enum Usual<'a> {
    /// Bytes between bounds, after a requantisation in floats or a shift.
    Bytes {
        floors: Option<&'a Floors>,
        shift: i32,
        bounds: [i8; 2],
    },
    Accumulators,
}

impl<'a> Usual<'a> {
    pub fn of(product: &'a Product<'_>) -> Option<Self> {
        let (steps, end) = product.after.parts();
        if product.start == Start::Residual || !steps.is_empty() || end.residual.is_some() {
            return None;
        }
        match (product.write_acc, product.store, end.bytes) {
            (true, false, _) if product.after.list().is_empty() => Some(Self::Accumulators),
            (false, true, Some(bounds)) if end.floors.is_some() || end.factors.is_none() => {
                Some(Self::Bytes {
                    floors: end.floors.as_ref(),
                    shift: end.last_shift,
                    bounds,
                })
            }
            _ => None,
        }
    }
}

/// Starts the sums of some rows, does something with them, and ends them, in their registers where `usual` says how.
macro_rules! with_sums {
    (($product:ident, $rows:ident, $pointers:ident, $first:ident, $usual:ident) $sums:ident $body:block) => {
        let here = Here {
            product: $product,
            rows: $rows,
            pointers: $pointers,
        };
        let mut $sums = [[_mm512_setzero_si512(); M]; N];
        if $usual.is_some() {
            $sums = [$first; N];
            if here.product.start == Start::Acc {
                each_sum!((n, m) {
                    let at = here.product.bases.columns[m].dst + here.rows[n].dst;
                    $sums[n][m] = _mm512_add_epi32($sums[n][m], load(here.pointers.acc, at));
                });
            }
        }
        $body
        match $usual {
            Some(Usual::Bytes { floors, shift, bounds }) => {
                if let Some(floors) = floors {
                    take_floors!(floors, here, $sums);
                } else if shift != 0 {
                    shift!(shift, $sums);
                }
                store_bytes!(bounds, here, $sums);
            }
            Some(Usual::Accumulators) => {
                each_sum!((n, m) {
                    let at = (here.product.bases.columns[m].dst + here.rows[n].dst) as usize;
                    _mm512_storeu_si512(here.pointers.acc.add(at).cast(), $sums[n][m]);
                });
            }
            None => {
                // The sums themselves would be in memory all along if anyone had their address.
                let mut products = [[_mm512_setzero_si512(); M]; N];
                each_sum!((n, m) { products[n][m] = $sums[n][m]; });
                let products = products.as_ptr().cast();
                end_rows::<M>(here.product, here.rows, here.pointers, Some(products));
            }
        }
    };
}

/// The same number in all lanes, of which the compiler doesn't know that: shifts of all lanes by one count take two
/// instructions of the CPU, and those by a count of each take one.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(super) fn places(count: i32) -> __m512i {
    let mut places = _mm512_set1_epi32(count);
    // SAFETY: there are no instructions.
    unsafe {
        std::arch::asm!("/* {0} */", inout(zmm_reg) places, options(pure, nomem, nostack, preserves_flags));
    }
    places
}

/// The lines of M columns that lie side by side.
///
/// # Safety
/// There are so many.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) unsafe fn lines<const M: usize>(from: *const __m512i) -> [__m512i; M] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|m| unsafe { _mm512_load_si512(from.add(m)) })
}

/// What is added to the sums of each column.
///
/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(super) unsafe fn first_of<const M: usize>(product: &Product<'_>) -> [__m512i; M] {
    // SAFETY: each has 16 int32.
    std::array::from_fn(|m| unsafe { load(product.first[m].as_ptr(), 0) })
}

/// The saturated bytes of four sums, one behind the other.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(super) fn four_bytes([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let words = [_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)];
    // Packing leaves four bytes of each sum side by side.
    let fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_permutexvar_epi32(fours, _mm512_packs_epi16(words[0], words[1]))
}

/// 16 bytes, sign-extended.
///
/// # Safety
/// 16 bytes are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(super) unsafe fn widen(bytes: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.cast())) }
}

/// # Safety
/// 16 int32 from `at` are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(super) unsafe fn load(acc: *const i32, at: u32) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_loadu_si512(acc.add(at as usize).cast()) }
}
