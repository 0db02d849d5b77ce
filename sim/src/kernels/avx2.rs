//! The 256-bit kernels: `madd` on int16 pairs (AVX2) and `dpbusd` (AVX-VNNI).
//!
//! `madd` gives `x0*w0 + x1*w1` in int32, at most `2 * 128 * 128`, so it is exact. `dpbusd`
//! works on inputs plus 128, as in the AVX-512 kernel. Both broadcast four bytes of input a
//! step and share everything around the products.

use std::arch::x86_64::*;
use std::ops::Range;

use vta_isa::{AluOp, for_alu_op};

use super::pointers::Pointers;
use super::product::steps::{Lane, Requantize, UNBOUNDED};
use super::{COLUMN, Memory, Operand, PADDING, Product, Row, Start};

/// A column's 16 sums.
type Sums = [__m256i; 2];

/// N rows of a product's only column, and where its memory is.
#[derive(Clone, Copy)]
struct Here<'a, const N: usize> {
    product: &'a Product<'a>,
    rows: &'a [Row; N],
    pointers: &'a Pointers,
}

/// The rows of a range, of which there are N.
fn rows_of<'a, const N: usize>(product: &'a Product<'_>, range: &Range<usize>) -> &'a [Row; N] {
    let (rows, _) = product.rows.rows[range.clone()].as_chunks();
    &rows[0]
}

/// Applies lane-wise steps to all sums. A macro, since sums that a function borrowed or moved
/// would leave their registers.
macro_rules! apply_steps {
    ($steps:expr, $here:ident, $sums:ident) => {
        for step in $steps {
            for (sum, row) in $sums.iter_mut().zip($here.rows) {
                let y = match &step.operand {
                    Operand::Imm(imm) => [_mm256_set1_epi32(*imm); 2],
                    // SAFETY: a column has 16 values.
                    Operand::Lanes(lanes) => unsafe { load(lanes[0].as_ptr(), 0) },
                    // SAFETY: the caller's promise: the tile's lanes are readable.
                    Operand::Tiles(tiles) => unsafe {
                        load($here.pointers.acc, tiles[0] + row.lane)
                    },
                    Operand::Scaled(factors) => {
                        let at = ($here.product.bases.columns[0].residual + row.residual) as usize;
                        // SAFETY: the caller's promise: 16 bytes, and a column has 16 factors.
                        unsafe {
                            let factors = load(factors[0].as_ptr(), 0);
                            let bytes = widen($here.pointers.residual.add(at));
                            [0, 1].map(|i| _mm256_mullo_epi32(bytes[i], factors[i]))
                        }
                    }
                };
                *sum = apply(step.op, *sum, y);
            }
        }
    };
}

macro_rules! run {
    ($run:ident, $block:ident, $($n:literal)*) => {
        /// Runs a product whose offsets were checked, on a CPU that has the instructions.
        pub(super) fn $run(product: &Product<'_>, memory: &mut Memory<'_>) {
            let pointers = Pointers::new(memory);
            for now in product.inputs.stretches.iter().flat_map(|s| s.ranges()) {
                // SAFETY: `GemmKernel::run` has checked every offset of the product against
                // its memory and the panel's length; kernels are only chosen where the CPU has
                // their instructions.
                unsafe {
                    match now.len() {
                        $($n => $block::<$n>(product, now, &pointers),)*
                        // `Product::check` has seen to it that it is one of `GemmKernel::rows`.
                        rows => unreachable!("{rows} rows"),
                    }
                }
            }
        }
    };
}

// Four vectors of sums each, one of weights, one of inputs.
run!(run_madd, block_madd, 1 2 3);
// Two vectors of sums each, two of weights, one of inputs.
run!(run_vnni, block_vnni, 1 2 3 4 5 6);

// As those, and two of inputs.
run!(run_diagonal, block_diagonal, 1 2 3 4 5);

/// Adds a tap's products to sums with `dpbusd`, and goes on to the next tap's weights.
macro_rules! add_vnni {
    ($block:expr, $inputs:ident, $panel:ident, $bias:ident, $sums:ident) => {
        for k in 0..$block / 4 {
            let low = _mm256_load_si256($panel);
            let high = _mm256_load_si256($panel.add(1));
            $panel = $panel.add(2);
            for (sum, input) in $sums.iter_mut().zip(&$inputs) {
                let four = input.add(4 * k).cast::<i32>().read_unaligned();
                let four = _mm256_xor_si256(_mm256_set1_epi32(four), $bias);
                sum[0] = _mm256_dpbusd_avx_epi32(sum[0], four, low);
                sum[1] = _mm256_dpbusd_avx_epi32(sum[1], four, high);
            }
        }
    };
}

/// Adds a tap's products to sums of pairs with `madd`, and goes on to the next tap's weights.
macro_rules! add_madd {
    ($block:expr, $inputs:ident, $panel:ident, $pairs:ident) => {
        for k in 0..$block / 4 {
            let fours: [__m256i; N] = std::array::from_fn(|n| {
                let four = $inputs[n].add(4 * k).cast::<i32>().read_unaligned();
                _mm256_cvtepi8_epi16(_mm_set1_epi32(four))
            });
            for i in 0..4 {
                let weights = _mm256_load_si256($panel.add(i));
                for (pairs, four) in $pairs.iter_mut().zip(fours) {
                    let products = _mm256_madd_epi16(four, weights);
                    pairs[i] = _mm256_add_epi32(pairs[i], products);
                }
            }
            $panel = $panel.add(4);
        }
    };
}

mod direct;
pub(super) use direct::{add_madd, add_plain, add_plain_vnni, add_vnni};

/// Where the inputs of N rows lie for the tap whose offsets are given.
///
/// # Safety
/// `offsets` names N offsets of the product, each inside the inputs or padding.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn inputs<const N: usize>(offsets: *const u32, pointers: &Pointers) -> [*const u8; N] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|n| unsafe {
        match *offsets.add(n) {
            PADDING => pointers.zeros,
            offset => pointers.inp.add(offset as usize),
        }
    })
}

/// N rows of one column, with `dpbusd`.
///
/// # Safety
/// The CPU has the features. `range` are N of the product's rows, whose panel has one column,
/// and the product's offsets lie inside the memory that the pointers name.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn block_vnni<const N: usize>(
    product: &Product<'_>,
    range: Range<usize>,
    pointers: &Pointers,
) {
    let rows: &[Row; N] = rows_of(product, &range);
    let mut panel = product.panel.lines().as_ptr().cast::<__m256i>();
    let bias = _mm256_set1_epi8(i8::MIN);
    // SAFETY: accumulator, residual, step and output offsets of these rows are inside their
    // memory. The panel has for each tap one line for every four bytes of an input, which has
    // `block` bytes, and `first` has 16 int32.
    unsafe {
        // Sums that another function sees would leave their registers: these are added to what
        // they start from at the end.
        let mut products: [Sums; N] = [load(product.first[0].as_ptr(), 0); N];
        let taps = product.inputs.taps();
        let mut offsets = product.inputs.offsets.as_ptr().add(range.start * taps);
        for _ in 0..taps {
            let inputs: [*const u8; N] = inputs(offsets, pointers);
            offsets = offsets.add(N);
            add_vnni!(product.block, inputs, panel, bias, products);
        }
        let mut sums: [Sums; N] = begin(product, rows, pointers);
        for (sum, products) in sums.iter_mut().zip(&products) {
            sum[0] = _mm256_add_epi32(sum[0], products[0]);
            sum[1] = _mm256_add_epi32(sum[1], products[1]);
        }
        end(product, rows, pointers, sums);
    }
}

/// N rows of one column, with `madd`. Each vector sums two pairs of inputs for four outputs.
///
/// # Safety
/// As for [`block_vnni`].
#[target_feature(enable = "avx2")]
unsafe fn block_madd<const N: usize>(
    product: &Product<'_>,
    range: Range<usize>,
    pointers: &Pointers,
) {
    let rows: &[Row; N] = rows_of(product, &range);
    // SAFETY: as in `block_vnni`, but a tap has two lines for every four bytes of an input.
    unsafe {
        let mut panel = product.panel.lines().as_ptr().cast::<__m256i>();
        let mut pairs = [[_mm256_setzero_si256(); 4]; N];
        let taps = product.inputs.taps();
        let mut offsets = product.inputs.offsets.as_ptr().add(range.start * taps);
        for _ in 0..taps {
            let inputs: [*const u8; N] = inputs(offsets, pointers);
            offsets = offsets.add(N);
            add_madd!(product.block, inputs, panel, pairs);
        }
        let first = load(product.first[0].as_ptr(), 0);
        let mut sums: [Sums; N] = begin(product, rows, pointers);
        for (sum, pairs) in sums.iter_mut().zip(&pairs) {
            let low = _mm256_add_epi32(first[0], add_neighbours(pairs[0], pairs[1]));
            let high = _mm256_add_epi32(first[1], add_neighbours(pairs[2], pairs[3]));
            sum[0] = _mm256_add_epi32(sum[0], low);
            sum[1] = _mm256_add_epi32(sum[1], high);
        }
        end(product, rows, pointers, sums);
    }
}

/// N rows of one column of diagonal weights, with `madd`: a lane multiplies its inputs of two taps.
///
/// # Safety
/// As for [`block_vnni`].
#[target_feature(enable = "avx2")]
unsafe fn block_diagonal<const N: usize>(
    product: &Product<'_>,
    range: Range<usize>,
    pointers: &Pointers,
) {
    let rows: &[Row; N] = rows_of(product, &range);
    let taps = product.inputs.taps();
    // SAFETY: as in `block_vnni`, but the panel has a line for every two taps, of inputs of 16 bytes.
    unsafe {
        let mut panel = product.panel.lines().as_ptr().cast::<__m256i>();
        let mut products: [Sums; N] = [load(product.first[0].as_ptr(), 0); N];
        let mut offsets = product.inputs.offsets.as_ptr().add(range.start * taps);
        for pair in 0..taps.div_ceil(2) {
            let even: [*const u8; N] = inputs(offsets, pointers);
            let odd = if 2 * pair + 1 < taps {
                inputs(offsets.add(N), pointers)
            } else {
                [pointers.zeros; N]
            };
            offsets = offsets.wrapping_add(2 * N);
            let weights = [_mm256_load_si256(panel), _mm256_load_si256(panel.add(1))];
            panel = panel.add(2);
            for (sum, (even, odd)) in products.iter_mut().zip(even.into_iter().zip(odd)) {
                let [even, odd] = [even, odd].map(|at| _mm_loadu_si128(at.cast()));
                let low = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(even, odd));
                let high = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(even, odd));
                sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(low, weights[0]));
                sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(high, weights[1]));
            }
        }
        let mut sums: [Sums; N] = begin(product, rows, pointers);
        for (sum, products) in sums.iter_mut().zip(&products) {
            sum[0] = _mm256_add_epi32(sum[0], products[0]);
            sum[1] = _mm256_add_epi32(sum[1], products[1]);
        }
        end(product, rows, pointers, sums);
    }
}

/// The sums of neighbouring lanes, in order. Adding works on 128-bit halves, so the quarters are
/// put in order afterwards.
#[target_feature(enable = "avx2")]
#[inline]
fn add_neighbours(low: __m256i, high: __m256i) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(low, high))
}

/// What the sums start from, after the steps before the products.
///
/// # Safety
/// The product's offsets for these rows lie inside the memory that the pointers name.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn begin<const N: usize>(
    product: &Product<'_>,
    rows: &[Row; N],
    pointers: &Pointers,
) -> [Sums; N] {
    let mut sums = [[_mm256_setzero_si256(); 2]; N];
    for (sum, row) in sums.iter_mut().zip(rows) {
        match product.start {
            Start::Zero => {}
            Start::Acc => {
                let at = product.bases.columns[0].dst + row.dst;
                // SAFETY: the caller's promise.
                *sum = unsafe { load(pointers.acc, at) };
            }
            Start::Residual => {
                let at = (product.bases.columns[0].residual + row.residual) as usize;
                // SAFETY: the caller's promise: 16 bytes.
                *sum = unsafe { widen(pointers.residual.add(at)) };
            }
        }
    }
    let here = Here {
        product,
        rows,
        pointers,
    };
    apply_steps!(product.before.list(), here, sums);
    sums
}

/// The steps after the products, and where the sums go.
///
/// # Safety
/// As for [`begin`].
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn end<const N: usize>(
    product: &Product<'_>,
    rows: &[Row; N],
    pointers: &Pointers,
    mut sums: [Sums; N],
) {
    let here = Here {
        product,
        rows,
        pointers,
    };
    let (steps, end) = product.after.parts();
    apply_steps!(steps, here, sums);
    if let Some(digits) = &end.residual {
        let shift = _mm256_set1_epi32(digits.shift);
        for (sum, row) in sums.iter_mut().zip(rows) {
            let at = (product.bases.columns[0].residual + row.residual) as usize;
            // SAFETY: the caller's promise: 16 bytes, and a column has 16 factors.
            let [bytes, high, low] = unsafe {
                let [high, low] = [&digits.high, &digits.low].map(|all| load(all[0].as_ptr(), 0));
                [widen(pointers.residual.add(at)), high, low]
            };
            for (half, sum) in sum.iter_mut().enumerate() {
                let high = _mm256_mullo_epi32(bytes[half], high[half]);
                let low = _mm256_mullo_epi32(bytes[half], low[half]);
                *sum = _mm256_srav_epi32(_mm256_add_epi32(*sum, high), shift);
                *sum = _mm256_add_epi32(*sum, low);
            }
        }
    }
    requantize(end, product.after.lanes(), &mut sums);
    for (sum, row) in sums.iter().zip(rows) {
        if product.write_acc {
            let at = (product.bases.columns[0].dst + row.dst) as usize;
            // SAFETY: the caller's promise: 16 int32.
            unsafe {
                _mm256_storeu_si256(pointers.acc.add(at).cast(), sum[0]);
                _mm256_storeu_si256(pointers.acc.add(at + 8).cast(), sum[1]);
            }
        }
        if product.store {
            let at = (product.bases.columns[0].out + row.out) as usize;
            // SAFETY: the caller's promise: 16 bytes.
            unsafe { _mm_storeu_si128(pointers.out.add(at).cast(), low_bytes(sum)) };
        }
    }
}

/// Does the end of the steps on the sums of N rows, behind the residual that it adds.
#[target_feature(enable = "avx2")]
#[inline]
fn requantize<const N: usize>(end: &Requantize, lanes: &[Lane], sums: &mut [Sums; N]) {
    macro_rules! each {
        ($f:ident, $operand:expr) => {
            let y: Sums = $operand;
            for sum in &mut *sums {
                *sum = [$f(sum[0], y[0]), $f(sum[1], y[1])];
            }
        };
    }
    let all = |number: i32| [_mm256_set1_epi32(number); 2];
    // SAFETY: a lane has 16 int32.
    let of = |place: usize| unsafe { load(lanes[place].0.as_ptr(), 0) };
    if let Some(factors) = end.factors {
        if let Some([low, high]) = end.bounds {
            each!(_mm256_max_epi32, of(low));
            each!(_mm256_min_epi32, of(high));
        }
        if let Some(factors) = end.first {
            each!(_mm256_mullo_epi32, of(factors));
        }
        each!(_mm256_srav_epi32, all(end.shift));
        if end.clamp != UNBOUNDED {
            each!(_mm256_max_epi32, all(end.clamp[0]));
            each!(_mm256_min_epi32, all(end.clamp[1]));
        }
        each!(_mm256_mullo_epi32, of(factors));
        if let Some(added) = end.added {
            each!(_mm256_add_epi32, of(added));
        }
    }
    each!(_mm256_srav_epi32, all(end.last_shift));
    if end.last_clamp != UNBOUNDED {
        each!(_mm256_max_epi32, all(end.last_clamp[0]));
        each!(_mm256_min_epi32, all(end.last_clamp[1]));
    }
}

/// # Safety
/// 16 bytes are readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn widen(bytes: *const u8) -> Sums {
    // SAFETY: the caller's promise.
    let bytes = unsafe { _mm_loadu_si128(bytes.cast()) };
    [
        _mm256_cvtepi8_epi32(bytes),
        _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)),
    ]
}

/// # Safety
/// 16 int32 from `at` are readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load(acc: *const i32, at: u32) -> Sums {
    // SAFETY: the caller's promise.
    unsafe {
        let first = acc.add(at as usize);
        [
            _mm256_loadu_si256(first.cast()),
            _mm256_loadu_si256(first.add(8).cast()),
        ]
    }
}

/// The low byte of each of 16 int32.
#[target_feature(enable = "avx2")]
#[inline]
fn low_bytes(sum: &Sums) -> __m128i {
    let low = _mm256_set1_epi32(0xff);
    // Both packs work on 128-bit halves; the permutation puts the quarters in order.
    let words = _mm256_packus_epi32(_mm256_and_si256(sum[0], low), _mm256_and_si256(sum[1], low));
    let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
    _mm_packus_epi16(
        _mm256_castsi256_si128(words),
        _mm256_extracti128_si256::<1>(words),
    )
}

/// 16 sums after a step by as many operands: one of those that are rarely there.
#[target_feature(enable = "avx2")]
#[inline]
fn apply(op: AluOp, sums: Sums, operands: Sums) -> Sums {
    /// Sums, and their lanes.
    union Lanes {
        sums: Sums,
        each: [i32; COLUMN],
    }
    let (mut x, y) = (Lanes { sums }, Lanes { sums: operands });
    // SAFETY: both are as many bytes, of which all are numbers.
    unsafe {
        for_alu_op!(op, OP => for lane in 0..COLUMN {
            x.each[lane] = OP.apply(x.each[lane], y.each[lane]);
        });
        x.sums
    }
}

macro_rules! peak {
    ($peak:ident, $saturate:ident, $features:literal, $macs:literal, $multiply:expr) => {
        /// Runs `rounds` of 12 independent multiplications; how many multiply-adds that were.
        pub(super) fn $peak(rounds: u64) -> u64 {
            // SAFETY: the kernel that this measures was chosen where the CPU has it.
            std::hint::black_box(unsafe { $saturate(rounds) });
            rounds * 12 * $macs
        }

        /// # Safety
        /// The CPU has the features.
        #[target_feature(enable = $features)]
        unsafe fn $saturate(rounds: u64) -> i32 {
            let mut sums = [_mm256_setzero_si256(); 12];
            let x = _mm256_set1_epi32(0x0102_0304);
            let mut w = _mm256_set1_epi32(0x0403_0201);
            for _ in 0..rounds {
                for sum in &mut sums {
                    *sum = $multiply(*sum, x, w);
                    // SAFETY: no instruction at all: it only keeps products from being shared.
                    unsafe {
                        std::arch::asm!("/* {0} */", inout(ymm_reg) w, options(pure, nomem, nostack));
                    }
                }
            }
            let sum = sums.into_iter().reduce(|a, b| _mm256_add_epi32(a, b));
            _mm256_extract_epi32::<0>(sum.unwrap_or(w))
        }
    };
}

peak!(peak_madd, saturate_madd, "avx2", 16, |sum, x, w| {
    _mm256_add_epi32(sum, _mm256_madd_epi16(x, w))
});
peak!(peak_vnni, saturate_vnni, "avx2,avxvnni", 32, |sum, x, w| {
    _mm256_dpbusd_avx_epi32(sum, x, w)
});
