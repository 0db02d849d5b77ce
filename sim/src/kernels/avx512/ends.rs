//! Everything that sums may start from and end with, a few rows at a time.

use std::arch::x86_64::*;

use vta_isa::for_alu_op;

use super::sums::{DOWN, Here, at, first_of, four_bytes, load, places, widen};
use crate::kernels::pointers::Pointers;
use crate::kernels::product::steps::UNBOUNDED;
use crate::kernels::{COLUMN, Line, Operand, Product, Row, Start, Step};

/// Rows whose sums end together.
const TOGETHER: usize = 4;

/// Applies an operation to all sums, with lanes of the product's end from a place on.
macro_rules! each_place {
    ($place:ident, $here:ident, $sums:ident, $f:ident) => {{
        let lanes = $here.product.after.lanes().as_ptr().add($place).cast();
        let y: [__m512i; M] = std::array::from_fn(|m| load(lanes, (16 * m) as u32));
        each_sum!((n, m) { $sums[n][m] = $f($sums[n][m], y[m]); });
    }};
}

/// A sum, and its lanes.
union Lanes {
    sum: __m512i,
    each: [i32; COLUMN],
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
            let operand = |n: usize, m: usize| match &step.operand {
                Operand::Imm(imm) => _mm512_set1_epi32(*imm),
                Operand::Lanes(lanes) => load(lanes[m].as_ptr(), 0),
                Operand::Tiles(tiles) => load(here.pointers.acc, tiles[m] + here.rows[n].lane),
                Operand::Scaled(factors) => {
                    let at = here.product.bases.columns[m].residual + here.rows[n].residual;
                    let bytes = widen(here.pointers.residual.add(at as usize));
                    _mm512_mullo_epi32(bytes, load(factors[m].as_ptr(), 0))
                }
            };
            for_alu_op!(step.op, OP => for (sum, at) in sums.as_flattened_mut().iter_mut().zip(0..) {
                let (mut x, y) = (Lanes { sum: *sum }, Lanes { sum: operand(at / M, at % M) });
                for lane in 0..COLUMN {
                    x.each[lane] = OP.apply(x.each[lane], y.each[lane]);
                }
                *sum = x.sum;
            });
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
                for m in 0..M {
                    let factors = factors.map(|f| load(f[m].as_ptr(), 0));
                    for (sums, row) in $sums.iter_mut().zip($here.rows) {
                        let at = ($here.product.bases.columns[m].residual + row.residual) as usize;
                        let bytes = widen($here.pointers.residual.add(at));
                        sums[m] = match factors {
                            Some(factors) => _mm512_mullo_epi32(bytes, factors),
                            None => bytes,
                        };
                    }
                }
                if factors.is_none() && !$here.product.before.list().is_empty() {
                    $sums = apply_steps($here.product.before.list(), $here, $sums);
                }
                for sums in &mut $sums {
                    for (sum, first) in sums.iter_mut().zip(&$first) {
                        *sum = _mm512_add_epi32(*sum, *first);
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

/// Adds sums to what they start from and ends them; without any there are no products.
///
/// # Safety
/// The CPU has the features, and the rows' offsets lie inside the memory that the pointers name. Sums have M lines a row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn end_rows<const M: usize>(
    product: &Product<'_>,
    rows: &[Row],
    pointers: &Pointers,
    sums: Option<*const Line>,
) {
    let (together, alone) = rows.as_chunks::<TOGETHER>();
    let later = sums.map(|sums| sums.wrapping_add(together.len() * TOGETHER * M));
    // SAFETY: the caller's promise.
    unsafe {
        end::<M, TOGETHER>(product, together, pointers, sums);
        end::<M, 1>(product, alone.as_chunks().0, pointers, later);
    }
}

/// # Safety
/// As for [`end_rows`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn end<const M: usize, const N: usize>(
    product: &Product<'_>,
    rows: &[[Row; N]],
    pointers: &Pointers,
    mut from: Option<*const Line>,
) {
    // SAFETY: the caller's promise; `first` has 16 int32 for each column.
    unsafe {
        let first: [__m512i; M] = first_of(product);
        for rows in rows {
            let here = Here {
                product,
                rows,
                pointers,
            };
            let mut sums = [[_mm512_setzero_si512(); M]; N];
            start_sums!(here, sums, first);
            if let Some(lines) = &mut from {
                each_sum!((n, m) {
                    let products = _mm512_load_si512(lines.add(n * M + m).cast());
                    sums[n][m] = _mm512_add_epi32(sums[n][m], products);
                });
                *lines = lines.add(M * N);
            }
            end_sums!(here, sums);
        }
    }
}
