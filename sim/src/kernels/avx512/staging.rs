//! Copies of inputs with their bias.

use std::arch::x86_64::*;

use crate::kernels::Inputs;
use crate::kernels::product::staging::Staging;
use crate::kernels::source::Source;

/// Copies the lines of inputs, if they have some, and adds 128 to each byte. Of a line that the end cuts, the bytes that
/// there are count.
///
/// # Panics
/// When a line begins behind the end, or the bytes were lent for other inputs.
pub(in crate::kernels) fn copy_biased(inputs: &Inputs, from: Source<'_>, staging: &mut Staging) {
    let Some(lines) = &inputs.lines else { return };
    let (padding, to) = lines.room(staging);
    padding.fill(0x80);
    let (lines, (to, _)) = (lines.touched(), to.as_chunks_mut::<64>());
    let last = lines.iter().max().map_or(0, |&line| line as usize * 64);
    assert!(from.serves(inputs.runs()) && (lines.is_empty() || last < from.len()));
    assert!(lines.len() <= to.len());
    // SAFETY: kernels are only chosen where `GemmKernel::supported` is true, and no line begins behind the end.
    unsafe { copy(lines, from, to) }
}

/// # Safety
/// The CPU has the features. Every line begins inside the bytes, and they are there to read as far as those reach.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn copy(lines: &[u32], from: Source<'_>, to: &mut [[u8; 64]]) {
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
