//! What the kernels of AVX-512 share: what sums start from, the steps on them, and where they go.
//!
//! Macros, since sums that a function borrowed or moved would leave their registers. They stand for code inside
//! `unsafe` blocks of functions with [`Here`]'s promise: accumulator, residual, step and output offsets of these
//! rows lie inside their memory for 16 int32 and 16 bytes.

use std::arch::x86_64::*;

use vta_isa::AluOp;

use crate::kernels::pointers::Pointers;
use crate::kernels::{Operand, Product, Row, Step};

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

/// Applies an operation to all sums, whatever its operand is.
macro_rules! each {
    ($operand:ident, $here:ident, $sums:ident, $f:ident) => {
        match $operand {
            Operand::Imm(imm) => each_imm!(imm, $sums, $f),
            Operand::Lanes(lanes) => each_lane!(lanes, $sums, $f),
            Operand::Tiles(tiles) => each_tile!(tiles, $here, $sums, $f),
            Operand::Scaled(_) => unreachable!("a scaled residual is added"),
        }
    };
}

macro_rules! add_scaled {
    ($factors:ident, $here:ident, $sums:ident) => {{
        let factors: [__m512i; M] = std::array::from_fn(|m| load($factors[m].as_ptr(), 0));
        each_sum!((n, m) {
            let at = $here.product.bases.columns[m].residual + $here.rows[n].residual;
            let bytes = widen($here.pointers.residual.add(at as usize));
            $sums[n][m] = _mm512_add_epi32($sums[n][m], _mm512_mullo_epi32(bytes, factors[m]));
        });
    }};
}

macro_rules! each_imm {
    ($imm:ident, $sums:ident, $f:ident) => {{
        let y = _mm512_set1_epi32(*$imm);
        each_sum!((n, m) { $sums[n][m] = $f($sums[n][m], y); });
    }};
}

macro_rules! each_lane {
    ($lanes:ident, $sums:ident, $f:ident) => {{
        let y: [__m512i; M] = std::array::from_fn(|m| load($lanes[m].as_ptr(), 0));
        each_sum!((n, m) { $sums[n][m] = $f($sums[n][m], y[m]); });
    }};
}

/// As [`each_lane`], of lanes of the product's end from a place on.
macro_rules! each_place {
    ($place:ident, $here:ident, $sums:ident, $f:ident) => {{
        let lanes = $here.product.after.lanes().as_ptr().add($place).cast();
        let y: [__m512i; M] = std::array::from_fn(|m| load(lanes, (16 * m) as u32));
        each_sum!((n, m) { $sums[n][m] = $f($sums[n][m], y[m]); });
    }};
}

macro_rules! each_tile {
    ($tiles:ident, $here:ident, $sums:ident, $f:ident) => {{
        each_sum!((n, m) {
            let y = load($here.pointers.acc, $tiles[m] + $here.rows[n].lane);
            $sums[n][m] = $f($sums[n][m], y);
        });
    }};
}

/// The sums after some steps. Not inlined: sums stay in registers where there are no steps.
///
/// # Safety
/// The CPU has the features. Residual and tile offsets of these rows are inside their memory.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline(never)]
pub(super) unsafe fn apply_steps<const M: usize, const N: usize>(
    steps: &[Step],
    here: Here<'_, N>,
    mut sums: [[__m512i; M]; N],
) -> [[__m512i; M]; N] {
    // SAFETY: the caller's promise.
    unsafe {
        for step in steps {
            match (step.op, &step.operand) {
                (_, Operand::Scaled(y)) => add_scaled!(y, here, sums),
                (AluOp::Min, y) => each!(y, here, sums, _mm512_min_epi32),
                (AluOp::Max, y) => each!(y, here, sums, _mm512_max_epi32),
                (AluOp::Add, y) => each!(y, here, sums, _mm512_add_epi32),
                (AluOp::Mul, y) => each!(y, here, sums, _mm512_mullo_epi32),
                (AluOp::Mov, y) => each!(y, here, sums, second),
                (AluOp::Clip, y) => each!(y, here, sums, clip),
                (AluOp::Shr, Operand::Imm(y)) => each_imm!(y, sums, _mm512_srav_epi32),
                (AluOp::Shl, Operand::Imm(y)) => each_imm!(y, sums, _mm512_sllv_epi32),
                (AluOp::Shr, Operand::Lanes(y)) => each_lane!(y, sums, shift_right),
                (AluOp::Shl, Operand::Lanes(y)) => each_lane!(y, sums, shift_left),
                (AluOp::Shr, Operand::Tiles(y)) => each_tile!(y, here, sums, shift_right),
                (AluOp::Shl, Operand::Tiles(y)) => each_tile!(y, here, sums, shift_left),
            }
        }
    }
    sums
}

/// What the sums start from: `first` for each column, and what the product says.
macro_rules! start_sums {
    ($here:ident, $sums:ident, $first:ident) => {
        match $here.product.start {
            Start::Zero => $sums = [$first; N],
            Start::Acc => {
                for (of_row, row) in $sums.iter_mut().zip($here.rows) {
                    for (m, sum) in of_row.iter_mut().enumerate() {
                        let held = load(
                            $here.pointers.acc,
                            $here.product.bases.columns[m].dst + row.dst,
                        );
                        *sum = _mm512_add_epi32(held, $first[m]);
                    }
                }
            }
            Start::Residual => {
                let factors = $here.product.before.factors();
                for (m, first) in $first.iter().enumerate() {
                    let factors = factors.map(|f| load(f[m].as_ptr(), 0));
                    for (sums, row) in $sums.iter_mut().zip($here.rows) {
                        let at = ($here.product.bases.columns[m].residual + row.residual) as usize;
                        let bytes = widen($here.pointers.residual.add(at));
                        sums[m] = match factors {
                            Some(factors) => _mm512_mullo_epi32(bytes, factors),
                            None => bytes,
                        };
                        sums[m] = _mm512_add_epi32(sums[m], *first);
                    }
                }
                if factors.is_none() && !$here.product.before.list().is_empty() {
                    // What was added would go through the steps, too.
                    for sums in &mut $sums {
                        for (sum, first) in sums.iter_mut().zip(&$first) {
                            *sum = _mm512_sub_epi32(*sum, *first);
                        }
                    }
                    $sums = apply_steps($here.product.before.list(), $here, $sums);
                    for sums in &mut $sums {
                        for (sum, first) in sums.iter_mut().zip(&$first) {
                            *sum = _mm512_add_epi32(*sum, *first);
                        }
                    }
                }
            }
        }
    };
}

/// Adds the residual in two digits, in registers.
macro_rules! add_digits {
    ($digits:ident, $here:ident, $sums:ident) => {
        let shift = _mm512_set1_epi32($digits.shift);
        for m in 0..M {
            let base = $here.product.bases.columns[m].residual as usize;
            let bytes = $here.pointers.residual.add(base);
            let high = load($digits.high[m].as_ptr(), 0);
            let low = load($digits.low[m].as_ptr(), 0);
            for (sums, row) in $sums.iter_mut().zip($here.rows) {
                let residual = widen(bytes.add(row.residual as usize));
                let sum = _mm512_add_epi32(sums[m], _mm512_mullo_epi32(residual, high));
                let sum = _mm512_srav_epi32(sum, shift);
                sums[m] = _mm512_add_epi32(sum, _mm512_mullo_epi32(residual, low));
            }
        }
    };
}

/// Row and column of a sum, counted column by column of each row.
pub(super) const fn at<const M: usize, const N: usize>(number: usize) -> (usize, usize) {
    (number / M, number % M)
}

/// Shifts, clamps and multiplies the sums as `end` says, in registers; all but the last clamp.
macro_rules! requantize {
    ($end:ident, $here:ident, $sums:ident) => {
        if let Some(factors) = $end.factors {
            if let Some([low, high]) = $end.bounds {
                each_place!(low, $here, $sums, _mm512_max_epi32);
                each_place!(high, $here, $sums, _mm512_min_epi32);
            }
            if let Some(factors) = $end.first {
                each_place!(factors, $here, $sums, _mm512_mullo_epi32);
            }
            if $end.shift != 0 {
                shift!($end.shift, $sums);
            }
            if $end.clamp != UNBOUNDED {
                let [low, high] = $end.clamp.map(|bound| _mm512_set1_epi32(bound));
                each_sum!((n, m) {
                    $sums[n][m] = _mm512_min_epi32(_mm512_max_epi32($sums[n][m], low), high);
                });
            }
            each_place!(factors, $here, $sums, _mm512_mullo_epi32);
            if let Some(added) = $end.added {
                each_place!(added, $here, $sums, _mm512_add_epi32);
            }
        }
        if $end.last_shift != 0 {
            shift!($end.last_shift, $sums);
        }
    };
}

/// As [`requantize`], by floats, for sums that saturate to bytes afterwards.
macro_rules! take_floors {
    ($floors:ident, $here:ident, $sums:ident) => {{
        let lanes = $here.product.after.lanes().as_ptr();
        let of = |place: usize| -> [__m512; M] {
            std::array::from_fn(|m| _mm512_castsi512_ps(load(lanes.add(place).cast(), (16 * m) as u32)))
        };
        let (first, before) = (of($floors.first), of($floors.before));
        each_sum!((n, m) {
            let x = _mm512_cvtepi32_ps($sums[n][m]);
            let x = _mm512_fmadd_round_ps::<DOWN>(x, first[m], before[m]);
            $sums[n][m] = _mm512_castps_si512(x);
        });
        if $floors.inner {
            each_sum!((n, m) {
                let x = _mm512_castsi512_ps($sums[n][m]);
                $sums[n][m] = _mm512_castps_si512(_mm512_roundscale_ps::<DOWN>(x));
            });
        }
        let (second, after) = (of($floors.second), of($floors.after));
        each_sum!((n, m) {
            let x = _mm512_castsi512_ps($sums[n][m]);
            let x = _mm512_fmadd_round_ps::<DOWN>(x, second[m], after[m]);
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
            let at = [0, 1, 2, 3].map(|of| $here.rows[n + of].out);
            let to = $here.pointers.out.add($here.product.bases.columns[m].out as usize);
            if at == [0, 16, 32, 48].map(|of| at[0].wrapping_add(of)) {
                _mm512_storeu_si512(to.add(at[0] as usize).cast(), bytes);
            } else if at[1] == at[0].wrapping_add(16) && at[3] == at[2].wrapping_add(16) {
                let [a, _, c, _] = at.map(|at| to.add(at as usize).cast());
                _mm256_storeu_si256(a, _mm512_castsi512_si256(bytes));
                _mm256_storeu_si256(c, _mm512_extracti64x4_epi64::<1>(bytes));
            } else {
                let [a, b, c, d] = at.map(|at| to.add(at as usize).cast());
                _mm_storeu_si128(a, _mm512_castsi512_si128(bytes));
                _mm_storeu_si128(b, _mm512_extracti32x4_epi32::<1>(bytes));
                _mm_storeu_si128(c, _mm512_extracti32x4_epi32::<2>(bytes));
                _mm_storeu_si128(d, _mm512_extracti32x4_epi32::<3>(bytes));
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

/// Clamps the sums and writes them where the product says.
macro_rules! write_sums {
    ($end:ident, $here:ident, $sums:ident) => {
        if $end.last_clamp != UNBOUNDED {
            let [low, high] = $end.last_clamp.map(|bound| _mm512_set1_epi32(bound));
            each_sum!((n, m) {
                $sums[n][m] = _mm512_min_epi32(_mm512_max_epi32($sums[n][m], low), high);
            });
        }
        each_sum!((n, m) {
            let sum = $sums[n][m];
            if $here.product.write_acc {
                let at = ($here.product.bases.columns[m].dst + $here.rows[n].dst) as usize;
                _mm512_storeu_si512($here.pointers.acc.add(at).cast(), sum);
            }
            if $here.product.store {
                let at = ($here.product.bases.columns[m].out + $here.rows[n].out) as usize;
                _mm_storeu_si128($here.pointers.out.add(at).cast(), _mm512_cvtepi32_epi8(sum));
            }
        });
    };
}

/// Does the product's steps on the sums, and writes them where it says.
macro_rules! end_sums {
    ($here:ident, $sums:ident) => {
        let (steps, end) = $here.product.after.parts();
        if !steps.is_empty() {
            $sums = apply_steps(steps, $here, $sums);
        }
        if let Some(digits) = &end.residual {
            add_digits!(digits, $here, $sums);
        }
        let bytes = $here.product.store && !$here.product.write_acc;
        match &end.floors {
            Some(floors) if bytes => {
                take_floors!(floors, $here, $sums);
            }
            _ => {
                requantize!(end, $here, $sums);
            }
        }
        match end.bytes {
            Some(bounds) if bytes => {
                store_bytes!(bounds, $here, $sums);
            }
            _ => {
                write_sums!(end, $here, $sums);
            }
        }
    };
}

/// Starts the sums of some rows, does something with them, and ends them.
macro_rules! with_sums {
    (($product:ident, $rows:ident, $pointers:ident, $first:ident) $sums:ident $body:block) => {
        let here = Here {
            product: $product,
            rows: $rows,
            pointers: $pointers,
        };
        let mut $sums = [[_mm512_setzero_si512(); M]; N];
        start_sums!(here, $sums, $first);
        $body
        end_sums!(here, $sums);
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

/// Lane by lane: arithmetic right by `y & 31`, or left by `-y & 31` where `y` is negative.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn shift_right(x: __m512i, y: __m512i) -> __m512i {
    let low = _mm512_set1_epi32(31);
    let negated = _mm512_sub_epi32(_mm512_setzero_si512(), y);
    let right = _mm512_srav_epi32(x, _mm512_and_si512(y, low));
    let left = _mm512_sllv_epi32(x, _mm512_and_si512(negated, low));
    _mm512_mask_blend_epi32(_mm512_movepi32_mask(y), right, left)
}

/// What MOV makes of two operands.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn second(_: __m512i, y: __m512i) -> __m512i {
    y
}

/// Lane by lane between what [`AluOp::clip_bounds`] says.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn clip(x: __m512i, y: __m512i) -> __m512i {
    let scale = _mm512_xor_si512(y, _mm512_srai_epi32::<31>(y));
    let bound = |byte: __m512i, parts: __m512i| {
        let parts = _mm512_and_si512(parts, _mm512_set1_epi32(31));
        let byte = _mm512_slli_epi32::<5>(_mm512_srai_epi32::<24>(byte));
        let fixed = _mm512_or_si512(byte, parts);
        _mm512_srai_epi32::<5>(_mm512_sllv_epi32(fixed, _mm512_srli_epi32::<26>(scale)))
    };
    let low = bound(_mm512_slli_epi32::<16>(y), _mm512_srli_epi32::<21>(scale));
    let high = bound(_mm512_slli_epi32::<24>(y), _mm512_srli_epi32::<16>(scale));
    _mm512_max_epi32(_mm512_min_epi32(x, high), low)
}

/// [`shift_right`] by the negated amounts.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn shift_left(x: __m512i, y: __m512i) -> __m512i {
    shift_right(x, _mm512_sub_epi32(_mm512_setzero_si512(), y))
}
