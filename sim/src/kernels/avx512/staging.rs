//! Copies of inputs with their bias.

use std::arch::x86_64::*;

/// Copies lines of 64 bytes, which count from the first byte, and adds 128 to each. Of a line that the end cuts, the
/// bytes that there are count.
///
/// # Panics
/// When a line begins behind the end, or there is room for fewer.
pub(in crate::kernels) fn copy_biased(lines: &[u32], from: &[u8], to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<64>();
    let last = lines.iter().max().map_or(0, |&line| line as usize * 64);
    assert!(lines.is_empty() || last < from.len());
    assert!(lines.len() <= to.len());
    // SAFETY: kernels are only chosen where `GemmKernel::supported` is true, and no line begins behind the end.
    unsafe { copy(lines, from, to) }
}

/// # Safety
/// The CPU has the features. Every line begins inside the bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn copy(lines: &[u32], from: &[u8], to: &mut [[u8; 64]]) {
    let bias = _mm512_set1_epi8(i8::MIN);
    for (line, to) in lines.iter().zip(to) {
        let start = *line as usize * 64;
        let left = (from.len() - start).min(64);
        // SAFETY: the line begins inside, and bytes behind the end are masked.
        unsafe {
            let mask = u64::MAX >> (64 - left);
            let bytes = _mm512_maskz_loadu_epi8(mask, from.as_ptr().add(start).cast());
            _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_xor_si512(bytes, bias));
        }
    }
}
