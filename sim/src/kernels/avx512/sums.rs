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
    ($end:ident, $sums:ident) => {
        if let Some(factors) = &$end.factors {
            if let Some([low, high]) = &$end.bounds {
                each_lane!(low, $sums, _mm512_max_epi32);
                each_lane!(high, $sums, _mm512_min_epi32);
            }
            if let Some(factors) = &$end.first {
                each_lane!(factors, $sums, _mm512_mullo_epi32);
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
            each_lane!(factors, $sums, _mm512_mullo_epi32);
            if let Some(added) = &$end.added {
                each_lane!(added, $sums, _mm512_add_epi32);
            }
        }
        if $end.last_shift != 0 {
            shift!($end.last_shift, $sums);
        }
    };
}

macro_rules! shift {
    ($places:expr, $sums:ident) => {
        let shift = _mm512_set1_epi32($places);
        each_sum!((n, m) { $sums[n][m] = _mm512_srav_epi32($sums[n][m], shift); });
    };
}

/// Stores sums as bytes where saturating and then clamping bytes is exact. What saturating does
/// alone is left out: ends of short sums take time.
macro_rules! store_bytes {
    ($bounds:ident, $here:ident, $sums:ident) => {
        let low = _mm512_set1_epi32($bounds[0].into());
        let high = _mm_set1_epi8($bounds[1]);
        if $bounds[0] != i8::MIN {
            each_sum!((n, m) { $sums[n][m] = _mm512_max_epi32($sums[n][m], low); });
        }
        if $bounds[1] == i8::MAX {
            each_sum!((n, m) {
                let bytes = _mm512_cvtsepi32_epi8($sums[n][m]);
                let at = ($here.product.bases.columns[m].out + $here.rows[n].out) as usize;
                _mm_storeu_si128($here.pointers.out.add(at).cast(), bytes);
            });
        } else {
            each_sum!((n, m) {
                let bytes = _mm_min_epi8(_mm512_cvtsepi32_epi8($sums[n][m]), high);
                let at = ($here.product.bases.columns[m].out + $here.rows[n].out) as usize;
                _mm_storeu_si128($here.pointers.out.add(at).cast(), bytes);
            });
        }
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
        requantize!(end, $sums);
        match end.bytes {
            Some(bounds) if $here.product.store && !$here.product.write_acc => {
                store_bytes!(bounds, $here, $sums);
            }
            _ => {
                write_sums!(end, $here, $sums);
            }
        }
    };
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

/// [`shift_right`] by the negated amounts.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn shift_left(x: __m512i, y: __m512i) -> __m512i {
    shift_right(x, _mm512_sub_epi32(_mm512_setzero_si512(), y))
}
