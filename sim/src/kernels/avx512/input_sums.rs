//! The sums of each row's inputs, for products whose weights have 128 added.
//!
//! `sum((w + 128) * x)` is the product and `128 * sum(x)`, which is the same for every column: all columns take off what
//! is worked out here once.

use std::arch::x86_64::*;

use crate::kernels::Inputs;
use crate::kernels::product::staging::Staging;
use crate::kernels::source::Source;

/// Vectors of inputs that are summed together.
const VECTORS: usize = 4;
/// Sums of four inputs that they have.
const PARTS: usize = VECTORS * 16;

/// Leaves -128 times the sum of each row's inputs, of `block` bytes a tap.
///
/// # Panics
/// When rows don't lie side by side, or an input lies outside the bytes, or they were lent for other inputs.
pub(in crate::kernels) fn sum_inputs(
    inputs: &Inputs,
    block: usize,
    from: Source<'_>,
    staging: &mut Staging,
) {
    let (starts, sums) = inputs.room_for_sums(block, from, staging);
    let bytes = sums.len() * block;
    for first in (0..bytes).step_by(4 * PARTS) {
        let len = (bytes - first).min(4 * PARTS);
        let from = from.as_ptr().wrapping_add(first);
        // SAFETY: `room_for_sums` has seen to it that all rows lie inside, behind each start; kernels are only chosen where
        // `GemmKernel::supported` is true.
        let parts = unsafe { parts(starts, from, len) };
        match parts.as_chunks::<4>() {
            // The usual size, which the compiler may know.
            (rows, []) if block == 16 => {
                let sums = sums[first / block..].iter_mut();
                sums.zip(rows)
                    .for_each(|(sum, parts)| *sum = -parts.iter().sum::<i32>());
            }
            _ => {
                for (at, part) in parts[..len / 4].iter().enumerate() {
                    sums[(first + 4 * at) / block] -= part;
                }
            }
        }
    }
}

/// 128 times the sum of each four inputs, of all taps, that lie so many bytes behind each start.
///
/// # Safety
/// The CPU has the features, and the bytes, at most four for each part, lie behind each start.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn parts(starts: &[u32], from: *const u8, len: usize) -> [i32; PARTS] {
    let masks: [u16; VECTORS] = std::array::from_fn(|v| {
        let lanes = (len.saturating_sub(64 * v) / 4).min(16);
        ((1u32 << lanes) - 1) as u16
    });
    let times = _mm512_set1_epi8(i8::MIN);
    let mut sums = [_mm512_setzero_si512(); VECTORS];
    for &start in starts {
        for (v, sum) in sums.iter_mut().enumerate() {
            let from = from.wrapping_add(start as usize + 64 * v).cast();
            // SAFETY: what the mask names lies behind the start.
            let inputs = unsafe { _mm512_maskz_loadu_epi32(masks[v], from) };
            *sum = _mm512_dpbusd_epi32(*sum, times, inputs);
        }
    }
    let mut parts = [0; PARTS];
    for (sum, to) in sums.iter().zip(parts.as_chunks_mut::<16>().0) {
        // SAFETY: there is room for 16 numbers.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), *sum) };
    }
    parts
}
