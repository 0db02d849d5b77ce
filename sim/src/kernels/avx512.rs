//! The AVX-512 VNNI kernel.
//!
//! `dpbusd` multiplies unsigned by signed bytes and adds four products to an int32, without
//! saturating. Inputs get 128 added as they are read; `sum((x + 128) * w) - 128 * sum(w)` is the product,
//! and the panel has the second term. All sums wrap modulo 2^32 as the instruction set defines,
//! so it is exact for every input, -128 among them.

use std::arch::x86_64::*;

use vta_isa::AluOp;

use super::pointers::Pointers;
use super::{Line, Memory, Operand, PADDING, Product, Row, Start, Step, Stretch};

/// Lines of the weights wanted next that are prefetched with each tap at most.
const MOST_AHEAD: usize = 8;

/// Weights that are wanted next and prefetched meanwhile.
#[derive(Clone, Copy)]
struct Ahead {
    next: *const Line,
    lines_per_tap: usize,
}

/// A block of N rows: what it is of, and where its memory is.
#[derive(Clone, Copy)]
struct Here<'a, const N: usize> {
    product: &'a Product<'a>,
    rows: &'a [Row; N],
    pointers: &'a Pointers,
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
    ($factors:ident, $here:ident, $sums:ident) => {
        for (m, factors) in $factors.iter().enumerate().take(M) {
            let factors = load(factors.as_ptr(), 0);
            for (sums, row) in $sums.iter_mut().zip($here.rows) {
                let at = ($here.product.bases.residual[m] + row.residual) as usize;
                let bytes = widen($here.pointers.residual.add(at));
                sums[m] = _mm512_add_epi32(sums[m], _mm512_mullo_epi32(bytes, factors));
            }
        }
    };
}

macro_rules! each_imm {
    ($imm:ident, $sums:ident, $f:ident) => {{
        let y = _mm512_set1_epi32(*$imm);
        for sum in $sums.as_flattened_mut() {
            *sum = $f(*sum, y);
        }
    }};
}

macro_rules! each_lane {
    ($lanes:ident, $sums:ident, $f:ident) => {
        for (m, lanes) in $lanes.iter().enumerate().take(M) {
            let y = load(lanes.as_ptr(), 0);
            for sums in &mut $sums {
                sums[m] = $f(sums[m], y);
            }
        }
    };
}

macro_rules! each_tile {
    ($tiles:ident, $here:ident, $sums:ident, $f:ident) => {
        for (sums, row) in $sums.iter_mut().zip($here.rows) {
            for (m, sum) in sums.iter_mut().enumerate() {
                *sum = $f(*sum, load($here.pointers.acc, $tiles[m] + row.lane));
            }
        }
    };
}

/// The sums after some steps. Not inlined: sums stay in registers where there are no steps.
///
/// # Safety
/// As for [`block`]: residual and tile offsets of these rows are inside their memory.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline(never)]
unsafe fn apply_steps<const M: usize, const N: usize>(
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
                        let held = load($here.pointers.acc, $here.product.bases.acc[m] + row.dst);
                        *sum = _mm512_add_epi32(held, $first[m]);
                    }
                }
            }
            Start::Residual => {
                let factors = $here.product.before.factors();
                for (m, first) in $first.iter().enumerate() {
                    let factors = factors.map(|f| load(f[m].as_ptr(), 0));
                    for (sums, row) in $sums.iter_mut().zip($here.rows) {
                        let at = ($here.product.bases.residual[m] + row.residual) as usize;
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
            let base = $here.product.bases.residual[m] as usize;
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
const fn at<const M: usize, const N: usize>(number: usize) -> (usize, usize) {
    (number / M, number % M)
}

/// Shifts, clamps and multiplies the sums as `end` says, in registers; all but the last clamp.
macro_rules! requantize {
    ($end:ident, $sums:ident) => {
        if let Some(factors) = &$end.factors {
            if $end.shift != 0 {
                shift!($end.shift, $sums);
            }
            if $end.clamp != [i32::MIN, i32::MAX] {
                let [low, high] = $end.clamp.map(|bound| _mm512_set1_epi32(bound));
                each_sum!((n, m) {
                    $sums[n][m] = _mm512_min_epi32(_mm512_max_epi32($sums[n][m], low), high);
                });
            }
            let factors: [__m512i; M] = std::array::from_fn(|m| load(factors[m].as_ptr(), 0));
            each_sum!((n, m) { $sums[n][m] = _mm512_mullo_epi32($sums[n][m], factors[m]); });
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
                let at = ($here.product.bases.out[m] + $here.rows[n].out) as usize;
                _mm_storeu_si128($here.pointers.out.add(at).cast(), bytes);
            });
        } else {
            each_sum!((n, m) {
                let bytes = _mm_min_epi8(_mm512_cvtsepi32_epi8($sums[n][m]), high);
                let at = ($here.product.bases.out[m] + $here.rows[n].out) as usize;
                _mm_storeu_si128($here.pointers.out.add(at).cast(), bytes);
            });
        }
    };
}

/// Clamps the sums and writes them where the product says.
macro_rules! write_sums {
    ($end:ident, $here:ident, $sums:ident) => {
        let [low, high] = $end.last_clamp.map(|bound| _mm512_set1_epi32(bound));
        each_sum!((n, m) {
            let sum = _mm512_min_epi32(_mm512_max_epi32($sums[n][m], low), high);
            if $here.product.write_acc {
                let at = ($here.product.bases.acc[m] + $here.rows[n].dst) as usize;
                _mm512_storeu_si512($here.pointers.acc.add(at).cast(), sum);
            }
            if $here.product.store {
                let at = ($here.product.bases.out[m] + $here.rows[n].out) as usize;
                _mm_storeu_si128($here.pointers.out.add(at).cast(), _mm512_cvtepi32_epi8(sum));
            }
        });
    };
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

mod direct;
mod peak;
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
            let (steps, end) = product.after.parts();
            if !steps.is_empty() {
                sums = apply_steps(steps, here, sums);
            }
            if let Some(digits) = &end.residual {
                add_digits!(digits, here, sums);
            }
            requantize!(end, sums);
            match end.bytes {
                Some(bounds) if product.store && !product.write_acc => {
                    store_bytes!(bounds, here, sums);
                }
                _ => {
                    write_sums!(end, here, sums);
                }
            }
        }
    }
}

/// 16 bytes, sign-extended.
///
/// # Safety
/// 16 bytes are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
unsafe fn widen(bytes: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.cast())) }
}

/// # Safety
/// 16 int32 from `at` are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
unsafe fn load(acc: *const i32, at: u32) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_loadu_si512(acc.add(at as usize).cast()) }
}

/// Lane by lane: arithmetic right by `y & 31`, or left by `-y & 31` where `y` is negative.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn shift_right(x: __m512i, y: __m512i) -> __m512i {
    let low = _mm512_set1_epi32(31);
    let negated = _mm512_sub_epi32(_mm512_setzero_si512(), y);
    let right = _mm512_srav_epi32(x, _mm512_and_si512(y, low));
    let left = _mm512_sllv_epi32(x, _mm512_and_si512(negated, low));
    _mm512_mask_blend_epi32(_mm512_movepi32_mask(y), right, left)
}

/// [`shift_right`] by the negated amounts.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn shift_left(x: __m512i, y: __m512i) -> __m512i {
    shift_right(x, _mm512_sub_epi32(_mm512_setzero_si512(), y))
}
